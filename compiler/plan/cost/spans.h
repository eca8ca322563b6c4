/* Private to compiler/plan: what any run of neighbouring pieces costs as a stage, in constant time. */
#ifndef PDC_SPANS_H
#define PDC_SPANS_H

#include <math.h>

#include "plan/search/partition.h"

typedef struct Spans {
  const Costs *c;
  double *compute, *forward, *products; /* sums over the pieces before i; compute: forward and backward */
  int64_t *saved, *gradients, *inputs, *deferred;
  int corrections;                        /* how many were made */
  int64_t *missed;                        /* sums of what layouts took more than this says; spans_correct() */
  int64_t *missed_before, *missed_behind; /* the most of these up to i, the least from i on */
  int64_t *work;                          /* the largest of 2^k pieces from i on, at [k * n + i] */
} Spans;

Spans spans_make(const Costs *c);
/* Seconds of a microbatch of the stage of pieces [first, end) at a place: replicas share a batch's microbatches, each
 * does the whole update, and they exchange gradients. */
double span_seconds(const Spans *s, const Copies *at, int first, int end, bool recompute);
/* Seconds in which replicas of the pieces [first, end) exchange gradients, in buckets of at least `bucket` bytes. hidden:
 * those beside the last backward pass. A bucket starts when its pieces have gone backward. On processors nothing is
 * hidden, because messages take the rank's own time. */
typedef struct SpanReduction {
  double all, hidden;
} SpanReduction;
SpanReduction span_reduction(const Spans *s, const Wiring *w, int first, int end, int64_t bucket);
/* Bytes of a rank of it. */
int64_t span_bytes(const Spans *s, const Copies *at, int first, int end, bool recompute);
int64_t span_work(const Spans *s, int first, int end); /* of these: temporaries */
/* What it takes at least with any more pieces at its ends, if it takes so many bytes itself. */
int64_t span_least_bytes(const Spans *s, const Copies *at, int first, int end, int64_t bytes);
/* A stage was laid out and took so many bytes more than said, or less: its pieces share them from now on. */
void spans_correct(Spans *s, int first, int end, int64_t missed);
/* The same by what waits for what: all as a microbatch's share. */
typedef struct StageShare {
  double work;  /* its passes */
  double aside; /* of these what no other stage waits for: weights passes, where backward is in two */
  double
      pace; /* messages that pass beside it, one after the other; where the pipeline never drains part of work */
  double message; /* one of these: the first passes before the stage has begun */
  double finish;  /* where the pipeline drains: its update and exchange behind them; else these are part of work */
  double way;     /* what the stages before it wait for: a microbatch's way through it, there and back ... */
  double between; /* ... and from and to the one before it */
} StageShare;
StageShare span_share(const Spans *s, const Copies *at, int first, int end, bool recompute);
/* From what the stage before one sends first to the last gradients that it gets back (early); the longest that one of them takes from
 * its first pass to its update (late): batches cannot follow each other faster. An update is beside the first passes of
 * the next batch that stages before it do. */
typedef struct StageEnd {
  double early, late;
} StageEnd;
static inline StageEnd stage_end(const StageShare *s, StageEnd behind) {
  double passed = fmax(s->way + behind.early, fmax(s->work - s->aside, s->pace - s->message));
  double late = fmax(fmax(passed, s->work) + s->finish, s->pace);
  return (StageEnd){passed + s->between, fmax(late, behind.late)};
}
/* A value (partition.h) that no partition into stages with these replicas undercuts, wherever it is cut; of ranks that hold
 * several chunks each no way to deal them. s: of the fastest kind of device. */
double spans_least_value(const Spans *s, int stages, const int *replicas, int chunks);
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
