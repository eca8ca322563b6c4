/* Lion with decoupled decay, before the step as in AdamW: w = w keep; w -= lr sign(beta1 m + (1 - beta1) g);
 * m = beta2 m + (1 - beta2) g. The sign of 0 is 0, that of NaN is NaN. Extrapolated by as
 * much as m moves in an update, the direction is (1 - c) (beta1 m + (1 - beta1) g) + c g, with c of beta2. */
#ifndef PD_LION_H
#define PD_LION_H

#include "kernels/pd_math.h"
#include "optimizers/pd_rate.h"

#include <stdbool.h>

struct pd_lion_arguments {
  double beta1, beta2, weight_decay;
};
struct pd_lion_step {
  float scale, keep, beta1, rest1, beta2, rest2, lr;
};

static inline struct pd_lion_step pd_lion_constants(const struct pd_lion_arguments *a, struct pd_rate rate,
                                                    int64_t t, float scale, bool decays) {
  const double beta1 = a->beta1 * (1 - pd_share_of_gradient(rate, a->beta2));
  (void)t;
  struct pd_lion_step s = {
      .scale = scale,
      .keep = decays ? (float)(1 - rate.lr * a->weight_decay) : 1.0f,
      .beta1 = (float)beta1,
      .rest1 = (float)(1 - beta1),
      .beta2 = (float)a->beta2,
      .rest2 = (float)(1 - a->beta2),
      .lr = (float)pd_step_rate(rate),
  };
  return s;
}

PD_MATH float pd_lion_element(struct pd_lion_step s, float weight, float gradient, float *moment) {
  float g = gradient * s.scale;
  float c = moment[0] * s.beta1 + g * s.rest1;
  float sign = c > 0 ? 1.0f : c < 0 ? -1.0f : c;
  moment[0] = moment[0] * s.beta2 + g * s.rest2;
  return weight * s.keep - s.lr * sign;
}

#endif
