/* Muon (Jordan et al., 2024) as torch.optim.Muon defines it with adjust_lr_fn = "match_rms_adamw", for hidden
 * matrices: m += (1 - momentum) (g - m); u = momentum m + (1 - momentum) g, or m without nesterov, extrapolated
 * further by the share of g; X = u / max(|u|, eps); then some iterations of X = (a + b A + c A A) X with A = X
 * X^T, which bring X's singular values near 1; then w = w keep - lr 0.2 sqrt(max(rows, columns)) X. A matrix with
 * more rows than columns is transposed. The products (pd_newton_schulz.h) are in f32, PyTorch's in bfloat16. AdamW
 * updates all other parameters. */
#ifndef PD_MUON_H
#define PD_MUON_H

#include "optimizers/pd_adamw.h"
#include "optimizers/pd_scratch.h"

struct pd_muon_arguments {
  double weight_decay, momentum, nesterov, ns_a, ns_b, ns_c, eps, ns_steps, adamw_beta1, adamw_beta2, adamw_eps;
};
struct pd_muon_step {
  float scale, keep, rest, newest, a, b, c, rate; /* newest: the share of g in u */
  double eps;
  int steps;
};
/* An update of one hidden matrix. */
struct pd_muon_work {
  struct pd_muon_step s;
  const float *from, *gradient;
  float *to, *m;
  float *x, *next;      /* X, and room for the next X */
  float *gram, *square; /* A; A A, and then the polynomial that X is multiplied by */
  int64_t side;         /* of these */
  double *norm;         /* of u, its square */
  double *parts;        /* of that sum */
  void *library;        /* scratch memory of the products */
};
/* An update of another parameter. */
struct pd_muon_other {
  struct pd_adamw_step s;
  const float *from, *gradient;
  float *to, *m, *v;
};

static inline struct pd_muon_step pd_muon_constants(const struct pd_muon_arguments *a, struct pd_rate rate,
                                                    int64_t rows, int64_t columns, float scale, bool decays) {
  const double newest = (a->nesterov != 0 ? 1 - a->momentum : 0) + pd_share_of_gradient(rate, a->momentum);
  struct pd_muon_step s = {
      .scale = scale,
      .keep = decays ? (float)(1 - rate.lr * a->weight_decay) : 1.0f,
      .rest = (float)(1 - a->momentum),
      .newest = newest < 1 ? (float)newest : 1,
      .a = (float)a->ns_a,
      .b = (float)a->ns_b,
      .c = (float)a->ns_c,
      .rate = (float)(pd_step_rate(rate) * 0.2 * sqrt((double)(rows > columns ? rows : columns))),
      .eps = a->eps,
      .steps = (int)a->ns_steps,
  };
  return s;
}

static inline struct pd_adamw_step pd_muon_others_constants(const struct pd_muon_arguments *a, struct pd_rate rate,
                                                            int64_t t, float scale, bool decays) {
  struct pd_adamw_arguments adamw = {
      .beta1 = a->adamw_beta1, .beta2 = a->adamw_beta2, .eps = a->adamw_eps, .weight_decay = a->weight_decay};
  return pd_adamw_constants(&adamw, rate, t, scale, decays);
}

/* Bytes of scratch memory for a hidden matrix and its products, from `scratch`. */
static inline int64_t pd_muon_lay_out(struct pd_muon_work *x, int64_t rows, int64_t columns, int64_t library,
                                      void *scratch) {
  struct pd_room room = {(char *)scratch, 0};
  x->side = rows < columns ? rows : columns;
  x->x = pd_room_for_floats(&room, rows * columns);
  x->next = pd_room_for_floats(&room, rows * columns);
  x->gram = pd_room_for_floats(&room, x->side * x->side);
  x->square = pd_room_for_floats(&room, x->side * x->side);
  x->norm = pd_room_for_doubles(&room, 1);
  x->parts = pd_room_for_doubles(&room, pd_tiles_of_sum(rows * columns));
  x->library = pd_room_for(&room, library);
  return room.used;
}

/* ---- passes, each over a row and an element's number ---- */

/* The new moment, u, and its square. */
PD_MATH double pd_muon_momentum(const struct pd_muon_work *x, int64_t row, int64_t i) {
  (void)row;
  float g = x->gradient[i] * x->s.scale;
  float m = x->m[i] + x->s.rest * (g - x->m[i]);
  float u = x->s.newest > 0 ? m + x->s.newest * (g - m) : m;
  x->m[i] = m;
  x->x[i] = u;
  return (double)u * (double)u;
}

PD_MATH void pd_muon_normalise(const struct pd_muon_work *x, int64_t row, int64_t i) {
  (void)row;
  double norm = sqrt(*x->norm);
  x->x[i] /= (float)(norm > x->s.eps ? norm : x->s.eps);
}

PD_MATH void pd_muon_polynomial(const struct pd_muon_work *x, int64_t row, int64_t i) {
  float p = x->s.b * x->gram[i] + x->s.c * x->square[i];
  x->square[i] = i - row * x->side == row ? p + x->s.a : p;
}

PD_MATH void pd_muon_weights(const struct pd_muon_work *x, int64_t row, int64_t i) {
  (void)row;
  x->to[i] = x->from[i] * x->s.keep - x->s.rate * x->x[i];
}

PD_MATH void pd_muon_others(const struct pd_muon_other *x, int64_t row, int64_t i) {
  (void)row;
  float moment[2] = {x->m[i], x->v[i]};
  x->to[i] = pd_adamw_element(x->s, x->from[i], x->gradient[i], moment);
  x->m[i] = moment[0];
  x->v[i] = moment[1];
}

#endif
