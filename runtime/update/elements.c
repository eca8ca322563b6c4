/* Elementwise update rules (optimizers/list.h) over arrays in host memory: the update of the C target, and of
 * parameters offloaded from a GPU (cuda/home.cu). With -ffp-contract=off the bits depend only on the inputs. They
 * equal those of GPU kernels, which nvcc compiles with -fmad=false: both round additions, products, quotients and
 * roots to nearest. */
#include "update/update.h"
#include "kernels/pd_bf16.h"
#include "kernels/pd_math.h"

#include <string.h>

enum change { NONE, OF_F32, OF_BF16 };

/* The part of an element's last change that a damped step takes back. */
static inline float taken_back(const struct pd_change *c, enum change type, float damping, int64_t i) {
  if (type == NONE) return 0;
  if (type == OF_F32) return damping * (((const float *)c->now)[i] - ((const float *)c->before)[i]);
  return damping * (pd_from_bf16(((const pd_bf16 *)c->now)[i]) - pd_from_bf16(((const pd_bf16 *)c->before)[i]));
}

/* from and to are the same array or do not overlap; elements are independent. */
#define ELEMENTS(rule, optimizer, moments)                                                                 \
  _Static_assert(moments <= PD_MAX_ELEMENT_MOMENTS, "the loop below has two");                             \
  static inline __attribute__((always_inline)) void rule##_loop(                                           \
      int64_t n, struct pd_##optimizer##_step step, const float *from, float *to, const float *gradient,   \
      float *first, float *second, const struct pd_change *change, enum change type, float damping) {      \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) {                                                  \
      float of_one[PD_MAX_ELEMENT_MOMENTS] = {moments > 0 ? first[i] : 0, moments > 1 ? second[i] : 0};    \
      const float back = taken_back(change, type, damping, i);                                             \
      const float weight = pd_##rule##_element(step, from[i], gradient[i], of_one);                        \
      to[i] = type == NONE ? weight : weight - back;                                                       \
      if (moments > 0) first[i] = of_one[0];                                                               \
      if (moments > 1) second[i] = of_one[1];                                                              \
    }                                                                                                      \
  }                                                                                                        \
  void pd_##rule##_elements(int64_t n, const void *constants, const float *from, float *to,                \
                            const float *gradient, float *const *moment, const struct pd_change *change) { \
    const struct pd_##optimizer##_step step = *(const struct pd_##optimizer##_step *)constants;            \
    float *first = moments > 0 ? moment[0] : NULL, *second = moments > 1 ? moment[1] : NULL;               \
    const float damping = change->before ? (float)pd.stage->damping : 0;                                   \
    if (!change->before)                                                                                   \
      rule##_loop(n, step, from, to, gradient, first, second, change, NONE, damping);                      \
    else if (change->bf16)                                                                                 \
      rule##_loop(n, step, from, to, gradient, first, second, change, OF_BF16, damping);                   \
    else                                                                                                   \
      rule##_loop(n, step, from, to, gradient, first, second, change, OF_F32, damping);                    \
  }
PD_ELEMENT_RULES(ELEMENTS)

static void average_of_batch(const struct pd_parameter *p, int64_t n, const struct pd_updated *r) {
  float left = (float)pd_power(1 - (double)p->momentum, pd.stage->microbatches);
  for (int64_t i = 0; i < n; i++) r->to[i] = left * r->from[i] + r->gradient[i];
}

static void balance_of_batch(const struct pd_parameter *p, int64_t n, const struct pd_updated *r) {
  for (int64_t i = 0; i < n; i++) r->to[i] = pd_balanced(r->from[i], r->gradient[i], p->rate);
}

/* A parameter without a gradient keeps its value, as in PyTorch. */
void pd_update_some(const struct pd_parameter *p, int64_t n, const struct pd_updated *r, pd_elements *elements,
                    const void *step) {
  if (p->buffer && p->momentum == 0)
    balance_of_batch(p, n, r);
  else if (p->buffer)
    average_of_batch(p, n, r);
  else if (!r->gradient && r->from != r->to)
    memcpy(r->to, r->from, (size_t)n * sizeof(float));
  else if (r->gradient && elements)
    elements(n, step, r->from, r->to, r->gradient, r->moment, &r->change);
  if (r->working) pd_write((pd_out){r->working, r->bf16 ? PD_BF16 : PD_F32}, 0, r->to, n);
}

/* torch.optim.swa_utils.AveragedModel: the first update's weights, then a += (1 - ema) (w - a); buffers are
 * copied. */
void pd_average_some(const struct pd_parameter *p, int64_t n, int64_t t, const float *w, float *a) {
  const float rest = (float)(1 - pd.stage->ema);
  if (p->buffer || t == 0)
    memcpy(a, w, (size_t)n * sizeof *a);
  else
    for (int64_t i = 0; i < n; i++) a[i] += rest * (w[i] - a[i]);
}
