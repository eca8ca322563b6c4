/* Private to compiler/plan: what any run of neighbouring pieces costs as a stage, in constant time. */
#ifndef PDC_SPANS_H
#define PDC_SPANS_H

#include "plan/partition.h"

typedef struct Spans {
  const Costs *c;
  double *compute, *forward; /* sums over the pieces before i; compute: forward and backward */
  int64_t *saved, *gradients, *inputs, *deferred;
  int64_t *missed; /* sums of what layouts took more than this says; spans_correct() */
  int64_t *work;   /* of pieces [i, j), at [i * (n + 1) + j]: the largest */
} Spans;

Spans spans_make(const Costs *c);
/* What stage_seconds() and stage_bytes() say, the latter corrected. */
double span_seconds(const Spans *s, int replicas, int first, int end, bool recompute);
int64_t span_bytes(const Spans *s, const Copies *at, int first, int end, bool recompute);
/* What it takes at least, recomputing or not, with any more pieces at its end. */
int64_t span_least_bytes(const Spans *s, const Copies *at, int first, int end);
/* A stage was laid out and took so many bytes more than said, or less: its pieces share them from now on. */
void spans_correct(Spans *s, int first, int end, int64_t missed);
/* Seconds of a microbatch's way through the stage, there and back. */
double span_passage(const Spans *s, int first, int end, bool recompute);
static inline double span_compute(const Spans *s, int first, int end) {
  return s->compute[end] - s->compute[first];
}

#endif
