/* You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes" (ICLR 2020), algorithm 2,
 * with phi the identity: m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g g; r = m / (1 - beta1^t) /
 * (sqrt(v / (1 - beta2^t)) + eps) + decay w; w -= lr |w| / |r| r, over all of a parameter. If either norm is 0,
 * their quotient is 1. With extrapolated momentum, c g replaces a share c of m / (1 - beta1^t). */
#ifndef PD_LAMB_H
#define PD_LAMB_H

#include "kernels/pd_math.h"
#include "optimizers/pd_rate.h"
#include "optimizers/pd_scratch.h"

#include <stdbool.h>

struct pd_lamb_arguments {
  double beta1, beta2, eps, weight_decay;
};
struct pd_lamb_step {
  float scale, decay, beta1, rest1, beta2, rest2, correct1, correct2, of_m, of_g, eps, lr;
};
/* An update of one parameter. */
struct pd_lamb_work {
  struct pd_lamb_step s;
  const float *from, *gradient;
  float *to, *m, *v;
  double *weights, *steps; /* sums of squares */
  double *parts;           /* of these */
  float *rate;             /* lr |w| / |r| */
};

static inline struct pd_lamb_step pd_lamb_constants(const struct pd_lamb_arguments *a, struct pd_rate rate,
                                                    int64_t t, float scale, bool decays) {
  const double step = (double)(t + 1), c = pd_share_of_gradient(rate, a->beta1);
  struct pd_lamb_step s = {
      .scale = scale,
      .decay = decays ? (float)a->weight_decay : 0,
      .beta1 = (float)a->beta1,
      .rest1 = (float)(1 - a->beta1),
      .beta2 = (float)a->beta2,
      .rest2 = (float)(1 - a->beta2),
      .correct1 = (float)(1 - pow(a->beta1, step)),
      .correct2 = (float)(1 - pow(a->beta2, step)),
      .of_m = (float)(1 - c),
      .of_g = (float)c,
      .eps = (float)a->eps,
      .lr = (float)pd_step_rate(rate),
  };
  return s;
}

/* Bytes of scratch memory, from `scratch`, for a parameter of n elements. */
static inline int64_t pd_lamb_lay_out(struct pd_lamb_work *x, int64_t elements, void *scratch) {
  struct pd_room room = {(char *)scratch, 0};
  x->weights = pd_room_for_doubles(&room, 1);
  x->steps = pd_room_for_doubles(&room, 1);
  x->rate = pd_room_for_floats(&room, 1);
  x->parts = pd_room_for_doubles(&room, pd_tiles_of_sum(elements));
  return room.used;
}

/* ---- passes, each over a row and an element's number ---- */

PD_MATH double pd_lamb_weight(const struct pd_lamb_work *x, int64_t row, int64_t i) {
  (void)row;
  return (double)x->from[i] * (double)x->from[i];
}

PD_MATH float pd_lamb_direction(const struct pd_lamb_work *x, int64_t i) {
  float m = x->s.of_m * (x->m[i] / x->s.correct1) + x->s.of_g * (x->gradient[i] * x->s.scale);
  return m / (sqrtf(x->v[i] / x->s.correct2) + x->s.eps) + x->s.decay * x->from[i];
}

/* The new moments, and the square of the step that they give. */
PD_MATH double pd_lamb_moments(const struct pd_lamb_work *x, int64_t row, int64_t i) {
  (void)row;
  float g = x->gradient[i] * x->s.scale;
  x->m[i] = x->m[i] * x->s.beta1 + g * x->s.rest1;
  x->v[i] = x->v[i] * x->s.beta2 + x->s.rest2 * g * g;
  float step = pd_lamb_direction(x, i);
  return (double)step * (double)step;
}

PD_MATH void pd_lamb_rate(const struct pd_lamb_work *x, int64_t row, int64_t i) {
  (void)row, (void)i;
  double trust = *x->weights > 0 && *x->steps > 0 ? sqrt(*x->weights) / sqrt(*x->steps) : 1;
  *x->rate = (float)((double)x->s.lr * trust);
}

PD_MATH void pd_lamb_weights(const struct pd_lamb_work *x, int64_t row, int64_t i) {
  (void)row;
  x->to[i] = x->from[i] - *x->rate * pd_lamb_direction(x, i);
}

#endif
