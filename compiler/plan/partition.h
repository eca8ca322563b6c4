/* Private to compiler/plan: the choice of cuts as a problem about plain numbers. */
#ifndef PDC_PARTITION_H
#define PDC_PARTITION_H

#include <stdbool.h>
#include <stdint.h>

/* What pieces cost, at one microbatch size. Arrays by piece have n elements; those by cut have n + 1, the
 * cut before piece i at i, and are 0 at both ends. Seconds are of one microbatch. */
typedef struct Costs {
  int n;
  const double *forward, *backward;
  const double *products;         /* the part of backward that makes weights' gradients by products */
  const double *receive;          /* by cut: the later side takes the activations */
  const double *receive_gradient; /* by cut: the earlier side takes the gradients */
  /* Seconds of an update and of exchanging tied gradients, as a microbatch's share, of a stage of pieces
   * [i, j): at [i * (n + 1) + j]. Grows with the stage. */
  const double *update;
  const int64_t *weights;   /* bytes of the parameters such a stage holds, at the same index ... */
  const int64_t *frozen;    /* ... and of those that are never updated; NULL: none ... */
  const int64_t *masters;   /* ... of all but these in f32 ... */
  const int64_t *moments;   /* ... and of the optimizer's moments; NULL: it has none */
  const int64_t *gradients; /* by piece: bytes of accumulators, one a use */
  const int64_t *saved;     /* by piece: bytes saved from forward to backward */
  const int64_t *inputs;    /* by piece: bytes of tokens and targets read */
  const int64_t *deferred;  /* by piece: bytes that backward makes and those products read */
  const int64_t *work;      /* by piece: bytes of temporaries; a stage has its largest piece's */
  const int64_t *activations, *activation_gradients; /* by cut: bytes that cross */
  double reduce; /* seconds of sending a byte of gradients to a replica, as a microbatch's share */
  double fill;   /* the part of a microbatch's way through a stage that other stages wait for in each microbatch's
                      time: 1 / microbatches where the pipeline drains, 1 where it does nothing else, 0 where it never
                      drains */
  bool overlapped; /* gradients are reduced beside the next batch's work, not after the batch's */
} Costs;

/* How many copies a stage keeps at its place in the pipeline, and by how many ranks it is run. */
typedef struct Copies {
  int replicas;
  int exchanges; /* sets of buffers for what replicas send each other */
  int weights;   /* versions */
  bool masters;  /* beside the versions */
  int accumulators;
  int saved; /* with recomputation: 1 */
  int received, sent, gradients, inputs;
  int deferred;                     /* 0 where backward is in one */
  double beside;                    /* seconds of a microbatch that its rank works on other chunks */
  int64_t extra;                    /* bytes beside all that */
  bool recompute_off, recompute_on; /* which it may do; at least one */
} Copies;

typedef struct Spans Spans; /* spans.h: the same costs, summed */

typedef struct Partition {
  int *start;      /* by stage, and n at the end: stages + 1 */
  bool *recompute; /* by stage */
  double slowest;  /* seconds of a microbatch at the slowest stage */
  double value; /* what is minimised: with what stages wait while the pipeline fills and drains, shared out among
                      the microbatches; else the slowest */
} Partition;

/* Seconds of a microbatch: replicas share a batch's microbatches, each does the whole update, and each sends
 * and receives 2 (w - 1) / w of its gradients (reduced by parts, which then go to all). */
double stage_seconds(const Costs *c, int replicas, int first, int end, bool recompute);
/* The same from its parts: compute is a microbatch's at the rank that has it. */
double shared_seconds(const Costs *c, int replicas, double compute, double update, int64_t gradients);
int64_t stage_bytes(const Costs *c, const Copies *at, int first, int end, bool recompute);

/* The partition into `stages` stages of the least value, none above `limit` bytes, exactly; among equals the one
 * whose stages' times have the least sum of squares (of a pipeline that drains: with every stage's followers as
 * fast as can be). False when none fits. */
bool partition_fastest(const Spans *spans, const Copies *at, int stages, int64_t limit, Partition *out);
/* The partition that starts its stages at start[0 .. stages - 1]: recomputes where it must to stay below the
 * limit. False when some stage does not fit; `out` then has its smallest form. */
bool partition_pinned(const Spans *spans, const Copies *at, int stages, const int *start, int64_t limit,
                      Partition *out);
/* The partition whose largest stage is smallest; returns that stage's bytes. */
int64_t partition_smallest(const Spans *spans, const Copies *at, int stages, Partition *out);

#endif
