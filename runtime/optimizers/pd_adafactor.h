/* Adafactor (Shazeer and Stern, ICML 2018) as torch.optim.Adafactor defines it, whose relative step is min(lr, 1 /
 * sqrt(t)) times the weights' root mean square. With t from 1 and w = t^beta2_decay, of a matrix the mean squares
 * of rows and columns, R += w (mean of g g over columns - R), C likewise, and v = R C / mean(R); of a vector v +=
 * w (g g - v). Then u = g / sqrt(max(v, eps1^2)), w -= alpha / max(1, rms(u) / d) u, alpha = max(eps2, rms(w))
 * min(lr, 1 / sqrt(t)). Parameters of more axes are matrices of the last two, many of them. */
#ifndef PD_ADAFACTOR_H
#define PD_ADAFACTOR_H

#include "kernels/pd_math.h"
#include "optimizers/pd_rate.h"
#include "optimizers/pd_scratch.h"

#include <float.h>
#include <stdbool.h>

struct pd_adafactor_arguments {
  double beta2_decay, eps1, eps2, d, weight_decay;
};
struct pd_adafactor_step {
  float scale, keep, old, fresh; /* of a moment: shares of the old and the new value */
  float least_mean, least;       /* eps1, eps1^2 */
  double eps2, d, lr;
};
/* An update of one parameter. Its moments: R and C, or v; unused ones are NULL. */
struct pd_adafactor_work {
  struct pd_adafactor_step s;
  struct pd_matrices m;
  const float *from, *gradient;
  float *to, *row, *column, *all;
  double *row_sums, *column_sums; /* of squares */
  double *means;                  /* of R, by matrix */
  double *updates, *weights;      /* sums of squares of u and w */
  double *parts;                  /* of sums */
  float *rate;
};

static inline struct pd_adafactor_step pd_adafactor_constants(const struct pd_adafactor_arguments *a,
                                                              struct pd_rate rate, int64_t t, float scale,
                                                              bool decays) {
  const double lr = pd_step_rate(rate);
  double step = (double)(t + 1), fresh = pow(step, a->beta2_decay), relative = 1 / sqrt(step);
  struct pd_adafactor_step s = {
      .scale = scale,
      .keep = decays ? (float)(1 - rate.lr * a->weight_decay) : 1.0f,
      .old = (float)(1 - fresh),
      .fresh = (float)fresh,
      .least_mean = (float)fmax(a->eps1, (double)FLT_MIN),
      .least = (float)fmax(a->eps1 * a->eps1, (double)FLT_MIN),
      .eps2 = a->eps2,
      .d = a->d,
      .lr = lr < relative ? lr : relative,
  };
  return s;
}

/* Bytes of scratch memory for x->m; they start at `scratch`. */
static inline int64_t pd_adafactor_lay_out(struct pd_adafactor_work *x, void *scratch) {
  struct pd_room room = {(char *)scratch, 0};
  int64_t rows = x->m.matrices * x->m.rows, columns = x->m.matrices * x->m.columns;
  int64_t parts = columns * pd_bands_of_sum(x->m.rows), tiles = pd_tiles_of_sum(pd_matrices_elements(x->m));
  x->row_sums = pd_room_for_doubles(&room, rows);
  x->column_sums = pd_room_for_doubles(&room, columns);
  x->means = pd_room_for_doubles(&room, x->m.matrices);
  x->updates = pd_room_for_doubles(&room, 1);
  x->weights = pd_room_for_doubles(&room, 1);
  x->rate = pd_room_for_floats(&room, 1);
  x->parts = pd_room_for_doubles(&room, parts > tiles ? parts : tiles);
  return room.used;
}

/* ---- passes, each over a row and an element's number ---- */

PD_MATH double pd_adafactor_square(const struct pd_adafactor_work *x, int64_t row, int64_t i) {
  (void)row;
  float g = x->gradient[i] * x->s.scale;
  return (double)g * (double)g;
}

PD_MATH void pd_adafactor_row(const struct pd_adafactor_work *x, int64_t row, int64_t i) {
  (void)row;
  x->row[i] = x->row[i] * x->s.old + (float)(x->row_sums[i] / (double)x->m.columns) * x->s.fresh;
}

PD_MATH void pd_adafactor_column(const struct pd_adafactor_work *x, int64_t row, int64_t i) {
  (void)row;
  x->column[i] = x->column[i] * x->s.old + (float)(x->column_sums[i] / (double)x->m.rows) * x->s.fresh;
}

PD_MATH double pd_adafactor_row_moment(const struct pd_adafactor_work *x, int64_t row, int64_t i) {
  (void)row;
  return (double)x->row[i];
}

PD_MATH void pd_adafactor_variance(const struct pd_adafactor_work *x, int64_t row, int64_t i) {
  (void)row;
  float g = x->gradient[i] * x->s.scale;
  x->all[i] = x->all[i] * x->s.old + g * g * x->s.fresh;
}

PD_MATH float pd_adafactor_direction(const struct pd_adafactor_work *x, int64_t row, int64_t i) {
  float v;
  if (x->all)
    v = x->all[i];
  else {
    int64_t matrix = row / x->m.rows, column = matrix * x->m.columns + i - row * x->m.columns;
    float mean = (float)(x->means[matrix] / (double)x->m.rows);
    v = x->row[row] * x->column[column] / (mean > x->s.least_mean ? mean : x->s.least_mean);
  }
  return x->gradient[i] * x->s.scale / sqrtf(v > x->s.least ? v : x->s.least);
}

PD_MATH double pd_adafactor_square_of_update(const struct pd_adafactor_work *x, int64_t row, int64_t i) {
  float u = pd_adafactor_direction(x, row, i);
  return (double)u * (double)u;
}

PD_MATH double pd_adafactor_row_sum(const struct pd_adafactor_work *x, int64_t row, int64_t i) {
  (void)row;
  return x->row_sums[i];
}

PD_MATH double pd_adafactor_weight(const struct pd_adafactor_work *x, int64_t row, int64_t i) {
  (void)row;
  return (double)x->from[i] * (double)x->from[i];
}

PD_MATH void pd_adafactor_rate(const struct pd_adafactor_work *x, int64_t row, int64_t i) {
  (void)row, (void)i;
  double n = (double)x->m.matrices * (double)x->m.rows * (double)x->m.columns;
  double weights = sqrt(*x->weights / n), updates = sqrt(*x->updates / n) / x->s.d;
  *x->rate = (float)((weights > x->s.eps2 ? weights : x->s.eps2) * x->s.lr / (updates > 1 ? updates : 1));
}

PD_MATH void pd_adafactor_weights(const struct pd_adafactor_work *x, int64_t row, int64_t i) {
  x->to[i] = x->from[i] * x->s.keep - *x->rate * pd_adafactor_direction(x, row, i);
}

#endif
