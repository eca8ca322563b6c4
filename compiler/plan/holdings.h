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

typedef struct Holdings Holdings;

/* Of a model of so many pieces: memory grows with the pieces, and with the square of those that share parameters. */
const Holdings *holdings_make(int pieces, const Holding *holding, int n);
/* Of the stage of pieces [first, end). */
Held holdings_of(const Holdings *h, int first, int end);
/* Its `update` alone. */
double holdings_update(const Holdings *h, int first, int end);
/* Bytes of masters of those that pieces outside the stage use as well. */
int64_t holdings_shared(const Holdings *h, int first, int end);

#endif
