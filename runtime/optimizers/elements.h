/* Updates by rules over elements (list.h) on the host, of arrays: runtime/update/elements.c. Programs that `pdc profile` times include it,
 * too. */
#ifndef PD_OPTIMIZERS_ELEMENTS_H
#define PD_OPTIMIZERS_ELEMENTS_H

#include "optimizers/list.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The last change of weights, of which a damped step takes a part back: in the working copies, because masters have one version.
 * `before` may be where the new weights go. */
struct pd_change {
  const void *now, *before; /* before NULL: steps are not damped */
  bool bf16;
};
/* step: a struct pd_<optimizer>_step. from and to are one array or two that do not overlap. */
typedef void pd_elements(int64_t n, const void *step, const float *from, float *to, const float *gradient,
                         float *const *moment, const struct pd_change *change);
#define PD_DECLARE_ELEMENTS(rule, optimizer, moments) pd_elements pd_##rule##_elements;
PD_ELEMENT_RULES(PD_DECLARE_ELEMENTS)

/* The sum of squares of up to PD_TILE elements, in 16 lanes (host/optimizer.c). */
double pd_sum_of_squares(int64_t n, const float *x);

#ifdef __cplusplus
}
#endif

#endif
