/* torch.optim.AdamW, in its order of operations: w = w keep; m = beta1 m + (1 - beta1) g;
 * v = beta2 v + (1 - beta2) g g; w -= step_size m / (sqrt(v) / root2 + eps), with bias corrections in step_size
 * and root2. With extrapolated momentum, a share c of the gradient replaces an equal share of m. */
#ifndef PD_ADAMW_H
#define PD_ADAMW_H

#include "kernels/pd_math.h"
#include "optimizers/pd_rate.h"

#include <stdbool.h>

struct pd_adamw_arguments {
  double beta1, beta2, eps, weight_decay;
};
struct pd_adamw_step {
  float scale, keep, beta1, rest1, beta2, rest2, step_size, newest, root2, eps;
};

static inline struct pd_adamw_step pd_adamw_constants(const struct pd_adamw_arguments *a, struct pd_rate rate,
                                                      int64_t t, float scale, bool decays) {
  const double step = (double)(t + 1), c = pd_share_of_gradient(rate, a->beta1), lr = pd_step_rate(rate);
  struct pd_adamw_step s = {
      .scale = scale,
      .keep = decays ? (float)(1 - rate.lr * a->weight_decay) : 1.0f,
      .beta1 = (float)a->beta1,
      .rest1 = (float)(1 - a->beta1),
      .beta2 = (float)a->beta2,
      .rest2 = (float)(1 - a->beta2),
      .step_size = (float)((1 - c) * lr / (1 - pow(a->beta1, step))),
      .newest = (float)(c * lr),
      .root2 = (float)sqrt(1 - pow(a->beta2, step)),
      .eps = (float)a->eps,
  };
  return s;
}

PD_MATH float pd_adamw_element(struct pd_adamw_step s, float weight, float gradient, float *moment) {
  float g = gradient * s.scale;
  float w = weight * s.keep;
  float m = moment[0] * s.beta1 + g * s.rest1;
  float v = moment[1] * s.beta2 + s.rest2 * g * g;
  moment[0] = m;
  moment[1] = v;
  return w - (s.step_size * m + s.newest * g) / (sqrtf(v) / s.root2 + s.eps);
}

#endif
