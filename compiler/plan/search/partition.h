/* Private to compiler/plan: the choice of cuts as a problem about plain numbers. */
#ifndef PDC_PARTITION_H
#define PDC_PARTITION_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/cost/holdings.h"

/* One level of links between ranks: seconds of a message, and of each of its bytes; of these at least device_byte where one
 * device sends it, whatever else the link carries. 0: there is no such bound. */
typedef struct Link {
  double latency, byte, device_byte;
} Link;
/* Seconds of a byte of a message that shares its link with others, so many in all. */
static inline double link_byte(const Link *link, double sharing) {
  double shared = link->byte * sharing;
  return shared > link->device_byte ? shared : link->device_byte;
}

/* Where the ranks of a stage stand among the others: topology.h. */
typedef struct Wiring {
  const Link *in, *out;           /* what messages from the stage before and the one behind cross; NULL: nothing */
  double in_sharing, out_sharing; /* so many of them at once share a link; at least 1 */
  double reduce,
      reduce_latency; /* seconds of a byte of gradients that replicas exchange, once a batch; of them all */
} Wiring;

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

typedef struct Spans Spans; /* spans.h: the same costs, summed */

typedef struct Partition {
  int *start;      /* by stage, and n at the end: stages + 1 */
  bool *recompute; /* by stage */
  double slowest;  /* seconds of a microbatch at the slowest stage */
  double value; /* what is minimised: with what stages wait while the pipeline fills and drains, shared out among
                      the microbatches; else the slowest */
} Partition;

/* The partition into `stages` stages of the least value, none above `limit` bytes, exactly; among equals the one
 * whose stages' times have the least sum of squares (of a pipeline that drains: with every stage's followers as
 * fast as can be). False when none fits whose value is at most `most`. */
bool partition_fastest(const Spans *spans, const Copies *at, int stages, int64_t limit, double most,
                       Partition *out);
/* The partition that starts its stages at start[0 .. stages - 1]: recomputes where it must to stay below the
 * limit. False when some stage does not fit; `out` then has its smallest form. */
bool partition_pinned(const Spans *spans, const Copies *at, int stages, const int *start, int64_t limit,
                      Partition *out);
/* The partition whose largest stage is smallest; returns that stage's bytes. */
int64_t partition_smallest(const Spans *spans, const Copies *at, int stages, Partition *out);
/* The same where it need not be the very smallest: of many cuts some hundreds that lie evenly are looked at. */
int64_t partition_small(const Spans *spans, const Copies *at, int stages, Partition *out);

#endif
