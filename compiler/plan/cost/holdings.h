/* Private to compiler/plan: what a stage holds of parameters, each once however many of its pieces use it. */
#ifndef PDC_HOLDINGS_H
#define PDC_HOLDINGS_H

#include <stdint.h>

/* Sums over the parameters of a stage, in bytes; `update` in seconds of an update. */
typedef struct Held {
  int64_t weights; /* as passes read them, of those that are updated ... */
  int64_t frozen;  /* ... and of those that are never updated */
  int64_t masters; /* those that are updated in f32; their moments */
  int64_t moments;
  double update;
} Held;

/* One parameter: what holding it takes, and the pieces that use it, rising, each once. */
typedef struct Holding {
  Held held;
  int n;
  const int *users;
} Holding;

/* Sums over pairs of pieces that use the same parameter. */
typedef struct Pairs {
  int columns; /* 1: there are no such pairs */
  int *row;    /* by piece: starts below it; n + 1 */
  int *column; /* by piece: ends below it; n + 1 */
  Held *sum; /* at row * columns + column: of pairs that start in that row or later, and end in a column before */
} Pairs;

typedef struct Holdings {
  Held *sum;     /* over all users in the pieces below: n + 1 */
  int64_t *own;  /* bytes of masters that one piece uses, in the pieces below: n + 1 */
  Pairs repeats; /* of neighbouring users */
  Pairs whole;   /* of the first and the last user, of parameters that have several */
} Holdings;

/* Of a model of so many pieces: memory grows with the pieces, and with the square of those that share parameters. */
const Holdings *holdings_make(int pieces, const Holding *holding, int n);

static inline const Held *pairs_of(const Pairs *p, int first, int end) {
  return &p->sum[p->row[first] * p->columns + p->column[end]];
}

/* Of the stage of pieces [first, end). */
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

/* Its `update` alone. */
static inline double holdings_update(const Holdings *h, int first, int end) {
  double all = h->sum[end].update - h->sum[first].update;
  return h->repeats.columns == 1 ? all : all - pairs_of(&h->repeats, first, end)->update;
}

/* Bytes of masters of those that pieces outside the stage use as well. */
static inline int64_t holdings_shared(const Holdings *h, int first, int end) {
  if (h->whole.columns == 1)
    return 0;
  return h->sum[end].masters - h->sum[first].masters - pairs_of(&h->repeats, first, end)->masters -
         (h->own[end] - h->own[first]) - pairs_of(&h->whole, first, end)->masters;
}

#endif
