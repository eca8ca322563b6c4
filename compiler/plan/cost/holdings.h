/* Private to compiler/plan: parameters of a stage, each counted once. */
#ifndef PDC_HOLDINGS_H
#define PDC_HOLDINGS_H

#include <stdint.h>

/* Sums over the parameters of a stage, in bytes; `update`: seconds per update. */
typedef struct Held {
  int64_t weights; /* trained, in the format that passes read */
  int64_t frozen;  /* never updated */
  int64_t masters; /* f32 values that updates write */
  int64_t moments;
  double update;
} Held;

/* One parameter: its cost, and the pieces that use it, ascending and unique. */
typedef struct Holding {
  Held held;
  int n;
  const int *users;
} Holding;

/* Sums over pairs of pieces that use the same parameter. */
typedef struct Pairs {
  int columns; /* 1: no pairs */
  int *row;    /* by piece: starts below it; n + 1 entries */
  int *column; /* by piece: ends below it; n + 1 entries */
  Held *sum;   /* at row * columns + column: pairs that start at this row or later and end before this column */
} Pairs;

typedef struct Holdings {
  Held *sum;     /* over all users in earlier pieces; n + 1 entries */
  int64_t *own;  /* bytes of masters with one user, in earlier pieces; n + 1 entries */
  Pairs repeats; /* of adjacent users */
  Pairs whole;   /* of the first and the last user, for parameters with several */
} Holdings;

/* For a model with this number of pieces. Memory grows with the pieces, and with the square of those that share
 * parameters. */
const Holdings *holdings_make(int pieces, const Holding *holding, int n);

static inline const Held *pairs_of(const Pairs *p, int first, int end) {
  return &p->sum[p->row[first] * p->columns + p->column[end]];
}

/* Sums for the stage of pieces [first, end). */
static inline Held holdings_of(const Holdings *h, int first, int end) {
  const Held *a = &h->sum[first], *b = &h->sum[end];
  Held all = {b->weights - a->weights, b->frozen - a->frozen, b->masters - a->masters, b->moments - a->moments,
              b->update - a->update};
  if (h->repeats.columns == 1)
    return all;
  const Held *twice = pairs_of(&h->repeats, first, end);
  return (Held){all.weights - twice->weights, all.frozen - twice->frozen, all.masters - twice->masters,
                all.moments - twice->moments, all.update - twice->update};
}

/* Only the `update` of holdings_of(). */
static inline double holdings_update(const Holdings *h, int first, int end) {
  double all = h->sum[end].update - h->sum[first].update;
  return h->repeats.columns == 1 ? all : all - pairs_of(&h->repeats, first, end)->update;
}

/* Bytes of masters that pieces outside the stage use too. */
static inline int64_t holdings_shared(const Holdings *h, int first, int end) {
  if (h->whole.columns == 1)
    return 0;
  return h->sum[end].masters - h->sum[first].masters - pairs_of(&h->repeats, first, end)->masters -
         (h->own[end] - h->own[first]) - pairs_of(&h->whole, first, end)->masters;
}

#endif
