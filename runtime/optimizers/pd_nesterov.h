/* torch.optim.SGD with nesterov = True and dampening 0 (Sutskever et al., ICML 2013), in its order of operations:
 * g += decay w; u = momentum u + g; w -= lr (g + momentum u), which is momentum extrapolated by as many updates;
 * extrapolated further, w -= lr ((1 - c) u + c / (1 - momentum) g). */
#ifndef PD_NESTEROV_H
#define PD_NESTEROV_H

#include "kernels/pd_math.h"
#include "optimizers/pd_rate.h"

#include <stdbool.h>

struct pd_nesterov_arguments {
  double momentum, weight_decay;
};
struct pd_nesterov_step {
  float scale, decay, momentum, lr, of_u, of_g;
};

static inline struct pd_nesterov_step pd_nesterov_constants(const struct pd_nesterov_arguments *a,
                                                            struct pd_rate rate, int64_t t, float scale,
                                                            bool decays) {
  (void)t;
  /* c of g + momentum u, and of its correction */
  double c = 1 - a->momentum + pd_share_of_gradient(rate, a->momentum);
  c = c < 1 ? c : 1;
  struct pd_nesterov_step s = {
      .scale = scale,
      .decay = decays ? (float)a->weight_decay : 0,
      .momentum = (float)a->momentum,
      .lr = (float)pd_step_rate(rate),
      .of_u = rate.ahead > 0 ? (float)(1 - c) : (float)a->momentum,
      .of_g = rate.ahead > 0 ? (float)(c / (1 - a->momentum)) : 1,
  };
  return s;
}

PD_MATH float pd_nesterov_element(struct pd_nesterov_step s, float weight, float gradient, float *moment) {
  float g = gradient * s.scale + s.decay * weight;
  float u = s.momentum * moment[0] + g;
  moment[0] = u;
  return weight - s.lr * (s.of_g * g + s.of_u * u);
}

#endif
