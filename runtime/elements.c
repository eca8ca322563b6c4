/* The optimizers' rules (optimizers/list.h) over arrays in the host's memory: the C target's update, and of a model that
 * spills from a GPU the update where parameters are at home (cuda/home.cu). Compiled with -ffp-contract=off the bits depend on
 * the inputs alone, and are those of a GPU's kernels, which nvcc compiles with -fmad=false: additions, products, quotients and
 * roots are rounded to nearest on both. */
#include "internal.h"
#include "kernels/pd_bf16.h"
#include "kernels/pd_math.h"

#include <string.h>

/* from and to are one array or two that do not overlap: every element is independent of the others. */
#define ELEMENTS(rule, optimizer, moments)                                                              \
  _Static_assert(moments <= PD_MAX_ELEMENT_MOMENTS, "the loop below has two");                          \
  void pd_##rule##_elements(int64_t n, const void *constants, const float *from, float *to,             \
                            const float *gradient, float *const *moment) {                              \
    const struct pd_##optimizer##_step step = *(const struct pd_##optimizer##_step *)constants;         \
    float *first = moments > 0 ? moment[0] : NULL, *second = moments > 1 ? moment[1] : NULL;            \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) {                                               \
      float of_one[PD_MAX_ELEMENT_MOMENTS] = {moments > 0 ? first[i] : 0, moments > 1 ? second[i] : 0}; \
      to[i] = pd_##rule##_element(step, from[i], gradient[i], of_one);                                  \
      if (moments > 0) first[i] = of_one[0];                                                            \
      if (moments > 1) second[i] = of_one[1];                                                           \
    }                                                                                                   \
  }
PD_ELEMENT_RULES(ELEMENTS)

static void average_of_batch(const struct pd_parameter *p, int64_t n, const struct pd_updated *r) {
  float left = (float)pd_power(1 - (double)p->momentum, pd.stage->microbatches);
  for (int64_t i = 0; i < n; i++) r->to[i] = left * r->from[i] + r->gradient[i];
}

/* A parameter without a gradient keeps its value, as in PyTorch. */
void pd_update_some(const struct pd_parameter *p, int64_t n, const struct pd_updated *r, pd_elements *elements,
                    const void *step) {
  if (p->buffer)
    average_of_batch(p, n, r);
  else if (!r->gradient && r->from != r->to)
    memcpy(r->to, r->from, (size_t)n * sizeof(float));
  else if (r->gradient && elements)
    elements(n, step, r->from, r->to, r->gradient, r->moment);
  if (r->working) pd_write((pd_out){r->working, r->bf16 ? PD_BF16 : PD_F32}, 0, r->to, n);
}

/* torch.optim.swa_utils.AveragedModel: the first update's weights, then a += (1 - ema) (w - a); buffers as they
 * are. */
void pd_average_some(const struct pd_parameter *p, int64_t n, int64_t t, const float *w, float *a) {
  const float rest = (float)(1 - pd.stage->ema);
  if (p->buffer || t == 0)
    memcpy(a, w, (size_t)n * sizeof *a);
  else
    for (int64_t i = 0; i < n; i++) a[i] += rest * (w[i] - a[i]);
}
