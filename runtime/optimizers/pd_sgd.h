/* torch.optim.SGD with dampening 0, in its order of operations: g += decay w; u = momentum u + g; w -= lr u.
 * Without momentum u is g, without state. With extrapolated momentum, w -= lr ((1 - c) u + c / (1 - momentum)
 * g). */
#ifndef PD_SGD_H
#define PD_SGD_H

#include "kernels/pd_math.h"
#include "optimizers/pd_rate.h"

#include <stdbool.h>

struct pd_sgd_arguments {
  double momentum, weight_decay;
};
struct pd_sgd_step {
  float scale, decay, momentum, lr, newest;
};

static inline struct pd_sgd_step pd_sgd_constants(const struct pd_sgd_arguments *a, struct pd_rate rate, int64_t t,
                                                  float scale, bool decays) {
  const double c = pd_share_of_gradient(rate, a->momentum), lr = pd_step_rate(rate);
  (void)t;
  struct pd_sgd_step s = {
      .scale = scale,
      .decay = decays ? (float)a->weight_decay : 0,
      .momentum = (float)a->momentum,
      .lr = (float)((1 - c) * lr),
      .newest = a->momentum < 1 ? (float)(c * lr / (1 - a->momentum)) : 0,
  };
  return s;
}

PD_MATH float pd_sgd_element(struct pd_sgd_step s, float weight, float gradient, float *moment) {
  (void)moment;
  return weight - s.lr * (gradient * s.scale + s.decay * weight);
}

PD_MATH float pd_sgd_momentum_element(struct pd_sgd_step s, float weight, float gradient, float *moment) {
  float g = gradient * s.scale + s.decay * weight;
  float u = s.momentum * moment[0] + g;
  moment[0] = u;
  return weight - (s.lr * u + s.newest * g);
}

#endif
