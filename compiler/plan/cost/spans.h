/* Private to compiler/plan: costs of any run of adjacent pieces as a stage, in constant time. */
#ifndef PDC_SPANS_H
#define PDC_SPANS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "device/topology.h"
#include "plan/cost/holdings.h"

/* Costs of pieces at one size of microbatch, in seconds per microbatch and bytes. Arrays by piece have n elements.
 * Arrays by cut have n + 1: the cut before piece i is at i, and both ends are 0. */
typedef struct Costs {
  int n;
  const double *forward, *backward;
  const double *products;         /* share of backward: products for weight gradients */
  const double *receive;          /* by cut: receiving activations on the later side, without links */
  const double *receive_gradient; /* by cut: receiving gradients on the earlier side, without links */
  const Holdings *holdings;       /* parameters of stages */
  double share;                   /* microbatch / batch, to spread the update of a batch */
  double exchange;                /* seconds per byte of parameters shared with other stages, per update */
  const int64_t *gradients;       /* by piece: bytes of accumulators, one per use */
  const int64_t *saved;           /* by piece: bytes saved from forward to backward */
  const int64_t *inputs;          /* by piece: bytes of tokens and targets */
  const int64_t *deferred;        /* by piece: bytes that backward writes and deferred products read */
  const int64_t *work;            /* by piece: bytes of temporaries; a stage needs its largest piece's */
  const int64_t *activations, *activation_gradients; /* by cut: bytes in memory */
  const double *message;                             /* by cut: bytes of activations in a message */
  /* Recomputation by layer, by piece; NULL: unknown. all_saved: as `saved`, with products that get a bias; gain: bytes
   * fewer of it if all pieces recompute; late: bytes that this moves to `deferred`; repeat: seconds. unit: adjacent
   * pieces of one number recompute together, such as those of an activation function; block: pieces of one number share
   * the memory of repeated values; within: it is in an indexed instance such as "h[3]". */
  const int64_t *all_saved, *gain, *late;
  const double *repeat;
  const int *unit, *block;
  const bool *within;
  /* By piece, NULL: none: bytes that it needs once if it recomputes; the same for recomputed pieces alone. */
  const int64_t *again_lasting, *lasting;
  const struct Costs *plain; /* with recomputed pieces: the costs without them; else NULL */
  const int64_t *cache;      /* by piece: bytes that calls keep between microbatches; NULL: none */
  bool beside;               /* messages overlap with work at both ends; else receiving occupies the rank */
  double fill;               /* 1 / microbatches if the pipeline drains, 1 if serial, else 0: share of a pass that
                         * others wait for */
  bool overlapped;           /* gradients are reduced during the next batch, not after this one */
} Costs;

/* How a stage recomputes: the pieces of a level of Spans.level within its backward pass (level -1: none), and with
 * `whole` also all forward passes from its input before that. */
enum { SAVE_ALL = 0, REPEAT_ALL = 1 };
static inline int recompute_at(int level, bool whole) { return 2 * (level + 1) + whole; }
static inline int level_of(int recompute) { return recompute / 2 - 1; }
static inline bool repeats_all(int recompute) { return recompute & 1; }
/* Whether a stage may or must recompute by layer. */
typedef enum { LAYERS_NO, LAYERS_MAY, LAYERS_MUST } Layers;

/* Copies that a stage keeps at its place in the pipeline, and its ranks. */
typedef struct Copies {
  int replicas;
  int kind;      /* of device: index of Spans */
  int exchanges; /* sets of exchange buffers of replicas */
  int weights;   /* versions */
  bool masters;  /* additional to the versions */
  bool buckets;  /* replicas exchange gradients during the last backward pass of a batch */
  bool sharded;  /* each replica keeps and updates a part of moments and masters */
  int accumulators;
  int saved; /* 1 if it repeats its forward pass */
  int received, sent, gradients, inputs;
  int deferred;  /* 0 if backward is one pass */
  double beside; /* seconds per microbatch of the rank's other chunks */
  Wiring wiring;
  int64_t extra;                    /* other bytes */
  bool recompute_off, recompute_on; /* may save all; may repeat its forward pass; at least one */
  Layers layers;
} Copies;

/* A stage whose later stages are known. */
typedef struct StageAhead {
  int64_t microbatches, in_flight; /* per batch; per rank */
  int replicas, behind;            /* ranks of the stage, and of the next; 0: it is the last */
  int ranks_behind;                /* sum over later stages */
  bool first;
} StageAhead;

/* Levels of recomputation by layer, and parts of equal pieces; layer profiles up to FEW_LAYERS pieces have a level a
 * piece. */
enum { MOST_AGAIN_LEVELS = 16, AGAIN_PARTS = 4, FEW_LAYERS = 512 };

typedef struct Spans {
  const Costs *c;
  double *compute, *forward, *products; /* prefix sums over pieces; compute: forward and backward */
  int64_t *saved, *gradients, *inputs, *deferred;
  int64_t *lasting;                       /* NULL: none */
  int corrections;                        /* number of corrections */
  int64_t *missed;                        /* prefix sums of layout errors in bytes; spans_correct() */
  int64_t *missed_before, *missed_behind; /* maximum of these up to i, minimum from i on */
  int64_t *work;                          /* maximum over 2^k pieces from i on, at [k * n + i] */
  int n_levels;                           /* of recomputation by layer; 0: not possible, or not needed */
  const struct Spans *level;              /* with more and more recomputed pieces; layout errors are shared */
  const bool *const *again;               /* by level and piece: recomputed */
} Spans;

Spans spans_make(const Costs *c);
/* The costs with this recomputation. */
static inline const Spans *spans_of(const Spans *s, int recompute) {
  return level_of(recompute) >= 0 ? &s->level[level_of(recompute)] : s;
}
/* The fastest recomputation with which the stage fits the limit; false: none. */
bool span_fit(const Spans *s, const Copies *at, int first, int end, int64_t limit, int *recompute);
/* The same for a stage that does not fit without recomputation. *recompute: first the answer for a stage nearby, or
 * SAVE_ALL. */
bool span_fit_again(const Spans *s, const Copies *at, int first, int end, int64_t limit, int *recompute);
/* The allowed recomputation with the fewest bytes. */
int span_smallest(const Spans *s, const Copies *at, int first, int end);
/* Seconds per microbatch of the stage of pieces [first, end). Replicas share a batch's microbatches, perform the
 * whole update, and exchange gradients. */
double span_seconds(const Spans *s, const Copies *at, int first, int end, int recompute);
/* Seconds in which replicas of the pieces [first, end) exchange gradients, in buckets of at least `bucket` bytes.
 * hidden: part during the last backward pass. A bucket starts after the backward pass of its pieces. CPUs hide
 * nothing, because messages take the rank's own time. */
typedef struct SpanReduction {
  double all, hidden;
} SpanReduction;
SpanReduction span_reduction(const Spans *s, const Wiring *w, int first, int end, int64_t bucket);
/* Bytes per rank of the stage. */
int64_t span_bytes(const Spans *all, const Copies *at, int first, int end, int recompute);
int64_t span_work(const Spans *s, int first, int end); /* share of it: temporaries */
/* Lower bound of any stage that contains this one, from its bytes. */
int64_t span_least_bytes(const Spans *s, const Copies *at, int first, int end, int64_t bytes);
/* Spreads the error of a layout over the stage's pieces: positive if the layout took more. */
void spans_correct(Spans *s, int first, int end, int64_t missed);
/* Time of a stage by dependency, per microbatch. */
typedef struct StageShare {
  double work;    /* its passes */
  double aside;   /* share of work without waiting stages: weight passes of a split backward */
  double pace;    /* messages beside the work, in sequence; part of work if the pipeline never drains */
  double message; /* one message: the first passes before the stage begins */
  double finish;  /* update and exchange after a draining pipeline; else part of work */
  double way; /* the time of a microbatch's round trip that earlier stages wait for; without forward passes that
                     it repeats before the gradients arrive */
  double between; /* the same for messages from and to the previous stage */
} StageShare;
StageShare span_share(const Spans *all, const Copies *at, int first, int end, int recompute);
/* early: from the previous stage's first send to the last gradients it receives. late: the longest time of a later
 * stage from its first pass to its update, which bounds the batch. Updates overlap with the next batch's first
 * passes of earlier stages. */
typedef struct StageEnd {
  double early, late;
} StageEnd;
static inline StageEnd stage_end(const StageShare *s, StageEnd behind) {
  double passed = fmax(s->way + behind.early, fmax(s->work - s->aside, s->pace - s->message));
  double late = fmax(fmax(passed, s->work) + s->finish, s->pace);
  return (StageEnd){passed + s->between, fmax(late, behind.late)};
}
/* Lower bound of the value (search/partition.h) over all cuts into stages with these replicas; with several
 * chunks, over all assignments. s: of the fastest kind of device. */
double spans_least_value(const Spans *s, int stages, const int *replicas, int chunks);
/* Seconds of a microbatch's round trip through the stage. */
double span_passage(const Spans *all, const Wiring *at, int first, int end, int recompute);
/* Seconds of receiving activations over the cut before piece `first`, and gradients over the cut before piece
 * `end`. */
double receive_seconds(const Costs *c, const Wiring *at, int first);
double receive_gradient_seconds(const Costs *c, const Wiring *at, int end);
/* Seconds of a message that overlaps with work on both sides: the longer direction. */
double message_seconds(const Costs *c, int cut, const Link *link, double sharing);
/* Seconds of the stage's update, with exchange of parameters shared with other stages. */
double span_update(const Spans *s, int first, int end);
static inline double span_compute(const Spans *s, int first, int end) {
  return s->compute[end] - s->compute[first];
}

#endif
