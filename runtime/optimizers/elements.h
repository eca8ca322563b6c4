/* Elementwise update rules (list.h) over arrays on the host: runtime/update/elements.c. The timing programs of
 * `pdc profile` also include this file. */
#ifndef PD_OPTIMIZERS_ELEMENTS_H
#define PD_OPTIMIZERS_ELEMENTS_H

#include "optimizers/list.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The last change of weights, which a damped step takes back in part, as working copies, because masters have one
 * version. `before` may be the place of the new weights. */
struct pd_change {
  const void *now, *before; /* before NULL: steps are not damped */
  bool bf16;
};
/* step: a struct pd_<optimizer>_step. from and to are the same array or do not overlap. */
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
