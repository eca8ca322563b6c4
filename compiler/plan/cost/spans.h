/* Private to compiler/plan: what any run of neighbouring pieces costs as a stage, in constant time. */
#ifndef PDC_SPANS_H
#define PDC_SPANS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "device/topology.h"
#include "plan/cost/holdings.h"

/* What pieces cost, at one microbatch size. Arrays by piece have n elements; those by cut have n + 1, the
 * cut before piece i at i, and are 0 at both ends. Seconds are of one microbatch. */
typedef struct Costs {
  int n;
  const double *forward, *backward;
  const double *products;         /* the part of backward that makes weights' gradients by products */
  const double *receive;          /* by cut: the later side takes the activations, links aside */
  const double *receive_gradient; /* by cut: the earlier side takes the gradients, links aside */
  const Holdings *holdings;       /* parameters of stages */
  double share;                   /* of a batch that a microbatch is: of an update, which every batch has one of */
  double exchange;                /* seconds a byte of parameters that other stages use as well, in an update */
  const int64_t *gradients;       /* by piece: bytes of accumulators, one a use */
  const int64_t *saved;           /* by piece: bytes saved from forward to backward */
  const int64_t *inputs;          /* by piece: bytes of tokens and targets read */
  const int64_t *deferred;        /* by piece: bytes that backward makes and those products read */
  const int64_t *work;            /* by piece: bytes of temporaries; a stage has its largest piece's */
  const int64_t *activations, *activation_gradients; /* by cut: bytes that cross, as they stand in memory */
  const double *message;                             /* by cut: bytes of the activations that are sent */
  const int64_t *cache; /* by piece: bytes of what calls keep between microbatches; NULL: nothing */
  bool beside;          /* messages pass while both ends work; else receiving is work of the rank */
  double fill; /* the part of a microbatch's way through a stage that other stages wait for in each microbatch's
                      time: 1 / microbatches where the pipeline drains, 1 where it does nothing else, 0 where it never
                      drains */
  bool overlapped; /* gradients are reduced beside the next batch's work, not after the batch's */
} Costs;

/* How many copies a stage keeps at its place in the pipeline, and by how many ranks it is run. */
typedef struct Copies {
  int replicas;
  int kind;      /* of device: which of several Spans hold */
  int exchanges; /* sets of buffers for what replicas send each other */
  int weights;   /* versions */
  bool masters;  /* beside the versions */
  bool buckets;  /* replicas exchange gradients beside the last backward pass of a batch */
  bool sharded;  /* replicas keep a part of moments and masters each, and update that */
  int accumulators;
  int saved; /* with recomputation: 1 */
  int received, sent, gradients, inputs;
  int deferred;  /* 0 where backward is in one */
  double beside; /* seconds of a microbatch that its rank works on other chunks */
  Wiring wiring;
  int64_t extra;                    /* bytes beside all that */
  bool recompute_off, recompute_on; /* which it may do; at least one */
} Copies;

/* A stage of which what is behind it is known. */
typedef struct StageAhead {
  int64_t microbatches, in_flight; /* of a batch; of one of its ranks */
  int replicas, behind;            /* ranks of it, of the stage behind; 0: it is the last */
  int ranks_behind;                /* of all stages behind */
  bool first;
} StageAhead;

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
/* A value (search/partition.h) that no partition into stages with these replicas undercuts, wherever it is cut; of ranks that hold
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
