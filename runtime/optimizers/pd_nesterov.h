/* torch.optim.SGD with nesterov = True and dampening 0 (Sutskever et al., ICML 2013), in its order of operations:
 * g += decay w; u = momentum u + g; w -= lr (g + momentum u). */
#ifndef PD_NESTEROV_H
#define PD_NESTEROV_H

#include "kernels/pd_math.h"

#include <stdbool.h>

struct pd_nesterov_arguments {
  double momentum, weight_decay;
};
struct pd_nesterov_step {
  float scale, decay, momentum, lr;
};

static inline struct pd_nesterov_step pd_nesterov_constants(const struct pd_nesterov_arguments *a, double lr,
                                                            int64_t t, float scale, bool decays) {
  (void)t;
  struct pd_nesterov_step s = {
      .scale = scale,
      .decay = decays ? (float)a->weight_decay : 0,
      .momentum = (float)a->momentum,
      .lr = (float)lr,
  };
  return s;
}

PD_MATH float pd_nesterov_element(struct pd_nesterov_step s, float weight, float gradient, float *moment) {
  float g = gradient * s.scale + s.decay * weight;
  float u = s.momentum * moment[0] + g;
  moment[0] = u;
  return weight - s.lr * (g + s.momentum * u);
}

#endif
