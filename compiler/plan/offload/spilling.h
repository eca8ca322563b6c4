/* Private to compiler/plan: offload of a model or stage on one rank, over plain numbers: starts of parts, and the
 * resident share of memory. */
#ifndef PDC_SPILLING_H
#define PDC_SPILLING_H

#include "base/base.h"
#include "shared/moves.h"

/* Saved activations by the command line: free, none or all. */
typedef enum { KEEP_FREE, KEEP_NONE, KEEP_ALL } Keeping;

typedef struct SpillParam {
  bool frozen, shared;                   /* shared: other stages use it too */
  int64_t elements;                      /* for grouping */
  int64_t weights, gradient, state;      /* bytes: as passes read it; per use; read by updates only */
  double update;                         /* seconds */
  double square_at_home, update_at_home; /* seconds of both on the device's host */
  int n_readers, n_uses;                 /* pieces: */
  const int *reader, *use;               /* that read it, ascending; by gradient: that computes it */
} SpillParam;

/* One size of microbatch. Seconds are per microbatch; arrays by piece have n elements, arrays by cut n + 1. */
typedef struct SpillProblem {
  int n;
  const double *forward, *backward;
  const double *receive, *receive_gradient; /* by cut: seconds of the stage after the cut, and before it */
  const int64_t *saved, *inputs, *work;     /* bytes saved from forward to backward; of samples; of temporaries */
  const int64_t *activations, *returned;    /* by cut: bytes between two parts, per microbatch */
  const SpillParam *param;
  int n_params;
  Keeping keeping;
  bool hands_on; /* a later stage exists: a backward pass starts when its gradients arrive */
  int64_t microbatches;
  int64_t limit, beside; /* bytes: memory limit; part of it outside blocks and passes */
  int64_t page;          /* bytes: the unit of transfer */
  double read, write;    /* seconds per byte */
  bool both_ways;        /* at the same time; else reads and writes take turns */
  bool at_home;          /* the device's host updates parameters in host memory */
  bool thorough;         /* the search refines all leaders to the end */
} SpillProblem;

typedef struct SpillChoice {
  int parts, kept; /* kept: percentage of block memory that is resident */
  int start[PD_MAX_PARTS + 1];
  /* By part: saves activations for backward, instead of recomputing them. Ignored for the model's last part, whose
   * backward pass follows at once. */
  bool keeps[PD_MAX_PARTS];
} SpillChoice;

/* Number of parts with this choice. */
static inline int spill_may_keep(const SpillProblem *p, const SpillChoice *c) { return c->parts - !p->hands_on; }
/* A single part has no offloaded blocks. */
static inline bool spill_at_home(const SpillProblem *p, const SpillChoice *c) {
  return p->at_home && c->parts > 1;
}
static inline bool spill_keeps(const SpillProblem *p, const SpillChoice *c, int part) {
  return c->keeps[part] && part < spill_may_keep(p, c);
}
static inline bool spill_reruns(const SpillProblem *p, const SpillChoice *c, int part) {
  return !c->keeps[part] && part < spill_may_keep(p, c);
}

typedef struct SpillTime {
  double seconds;           /* per batch; INFINITY: it does not fit */
  double compute, transfer; /* seconds of these within the batch */
  double host;              /* seconds of host updates */
  int64_t read, written;    /* bytes */
  int64_t least;            /* bytes: the smallest sufficient memory */
  int64_t home;             /* bytes of all offloaded blocks */
} SpillTime;

/* A stage of a pipeline. */
typedef struct SpillStage {
  SpillProblem problem;
  SpillChoice choice; /* with one part all memory is resident */
  int64_t in_flight;  /* microbatches between forward and backward, for one part */
  double send;        /* seconds of a message to or from the next stage */
} SpillStage;

/* A choice as the runtime runs it: blocks that move, and seconds of steps. */
typedef Vec(struct pd_block) SpillBlocks;
typedef struct SpillWork {
  SpillBlocks blocks;
  int groups;                 /* of parameters, updated together */
  int64_t beside;             /* bytes of the rank outside blocks, with its largest passes */
  double *forward, *backward; /* seconds, by part */
  double *square, *update;    /* seconds, by group; on a device, update includes the squares */
} SpillWork;

/* ---- spill_blocks.c */
SpillWork spill_work(const SpillProblem *p, const SpillChoice *c);

/* ---- spill_time.c */
SpillTime spill_time(const SpillProblem *p, const SpillChoice *c); /* for a rank that waits for no other */
/* Seconds of a batch of all stages; fills the time of each. meets: updates wait for the gradients of all stages.
 * INFINITY: a stage does not fit. */
double spill_pipeline_seconds(const SpillStage *stage, int n, bool meets, SpillTime *time);

/* ---- spill_search.c */
/* The fastest choice found, with its time. False: nothing fits; `best` then needs least memory. */
bool spill_search(const SpillProblem *p, SpillChoice *best, SpillTime *time);
/* The same from an initial choice, the fastest of a similar problem. */
bool spill_search_near(const SpillProblem *p, SpillChoice *best, SpillTime *time);
/* The same with fixed cuts; saved activations stay fixed unless `keeping` is KEEP_FREE. */
bool spill_search_kept(const SpillProblem *p, SpillChoice *best, SpillTime *time);

#endif
