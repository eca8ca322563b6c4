/* Private to compiler/plan: what any run of neighbouring pieces costs as a stage, in constant time. */
#ifndef PDC_SPANS_H
#define PDC_SPANS_H

#include "plan/partition.h"

typedef struct Spans {
  const Costs *c;
  double *compute, *forward; /* sums over the pieces before i; compute: forward and backward */
  int64_t *saved, *gradients, *inputs, *deferred;
  int64_t *missed; /* sums of what layouts took more than this says; spans_correct() */
  int64_t *work;   /* the largest of 2^k pieces from i on, at [k * n + i] */
} Spans;

Spans spans_make(const Costs *c);
/* Seconds of a microbatch of the stage of pieces [first, end) at a place: replicas share a batch's microbatches, each
 * does the whole update, and they exchange gradients. */
double span_seconds(const Spans *s, const Copies *at, int first, int end, bool recompute);
/* Bytes of a rank of it. */
int64_t span_bytes(const Spans *s, const Copies *at, int first, int end, bool recompute);
/* What it takes at least, recomputing or not, with any more pieces at its end. */
int64_t span_least_bytes(const Spans *s, const Copies *at, int first, int end);
/* A stage was laid out and took so many bytes more than said, or less: its pieces share them from now on. */
void spans_correct(Spans *s, int first, int end, int64_t missed);
/* Seconds of a microbatch's way through the stage, there and back. */
double span_passage(const Spans *s, const Wiring *at, int first, int end, bool recompute);
/* Seconds of receiving the activations that cross the cut before piece `first`, and of taking the gradients that come
 * back over the one before piece `end`. */
double receive_seconds(const Costs *c, const Wiring *at, int first);
double receive_gradient_seconds(const Costs *c, const Wiring *at, int end);
/* Seconds of a message over a cut where both sides work on meanwhile: the longer of the two ways. */
double message_seconds(const Costs *c, int cut, const Link *link, double sharing);
/* Of an update of the stage, exchanging parameters that other stages use as well. */
double span_update(const Spans *s, int first, int end);
static inline double span_compute(const Spans *s, int first, int end) {
  return s->compute[end] - s->compute[first];
}

#endif
