/* Private to compiler/plan: a model, or a stage of it, on one rank in parts that come and go, as a problem about plain numbers:
 * where parts start, and how much of memory is for blocks that stay. */
#ifndef PDC_SPILLING_H
#define PDC_SPILLING_H

#include "base/base.h"
#include "shared/moves.h"

/* What the command line says of what parts save. */
typedef enum { KEEP_FREE, KEEP_NONE, KEEP_ALL } Keeping;

typedef struct SpillParam {
  bool frozen, shared;                   /* shared: other stages use it, too */
  int64_t elements;                      /* which groups are made by */
  int64_t weights, gradient, state;      /* bytes: as passes read it; of one use; of what its update alone reads */
  double update;                         /* seconds */
  double square_at_home, update_at_home; /* where the device's host does both */
  int n_readers, n_uses;                 /* pieces: */
  const int *reader, *use;               /* that read it, rising; by gradient: that makes it */
} SpillParam;

/* Of microbatches of one size. Seconds are of one of them; arrays by piece have n elements, those by cut n + 1. */
typedef struct SpillProblem {
  int n;
  const double *forward, *backward;
  const double *receive, *receive_gradient; /* by cut: what a cut costs whoever comes after it, and before it */
  const int64_t *saved, *inputs, *work;     /* bytes from forward to backward; of samples; of temporaries */
  const int64_t *activations, *returned;    /* by cut: bytes between two parts, of one microbatch */
  const SpillParam *param;
  int n_params;
  Keeping keeping;
  bool hands_on; /* its last part is not the model's: a microbatch goes backward when its gradients come */
  int64_t microbatches;
  int64_t limit, beside; /* bytes of memory; of it, what is neither blocks nor a part's passes */
  int64_t page;          /* which memory comes and goes in */
  double read, write;    /* seconds of a byte */
  bool both_ways;        /* at the same time; else the two take turns */
  bool at_home;          /* the device's host updates, where blocks are at home */
  bool thorough;         /* of searches: all that is promising is followed to the end */
} SpillProblem;

typedef struct SpillChoice {
  int parts, kept; /* kept: percent of the blocks' memory for those that stay */
  int start[PD_MAX_PARTS + 1];
  /* The part: what forward saves, for backward, which else recomputes it; not of the model's last one, whose backward
   * pass follows at once. */
  bool keeps[PD_MAX_PARTS];
} SpillChoice;

/* Parts of which it is to be chosen. */
static inline int spill_may_keep(const SpillProblem *p, const SpillChoice *c) { return c->parts - !p->hands_on; }
/* Of one part nothing is at home. */
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
  double seconds;           /* of a batch; INFINITY: it does not fit */
  double compute, transfer; /* of these */
  double host;              /* of these, in which the host updates */
  int64_t read, written;    /* bytes */
  int64_t least;            /* bytes of memory that the parts need */
  int64_t home;             /* bytes of all that comes and goes, in its place */
} SpillTime;

/* A stage of a pipeline. */
typedef struct SpillStage {
  SpillProblem problem;
  SpillChoice choice; /* of one part, nothing comes or goes: it has all the memory that it takes, and ... */
  int64_t in_flight;  /* ... so many microbatches between their forward and their backward */
  double send;        /* seconds that a message between it and the next stage is on its way, either way */
} SpillStage;

/* ---- spill_time.c */
SpillTime spill_time(const SpillProblem *p, const SpillChoice *c); /* of a rank that waits for no other */
/* Seconds of a batch of all stages together; fills what each of them does in it. meets: updates wait for all stages'
 * gradients. INFINITY: one of them does not fit. */
double spill_pipeline_seconds(const SpillStage *stage, int n, bool meets, SpillTime *time);

/* ---- spill_search.c */
/* The fastest that is found, with its time; false: nothing fits, and `best` is what needs least memory. */
bool spill_search(const SpillProblem *p, SpillChoice *best, SpillTime *time);
/* The same from a choice on that was the fastest of a problem like it. */
bool spill_search_near(const SpillProblem *p, SpillChoice *best, SpillTime *time);
/* The same with the cuts given, and what is kept where `keeping` is. */
bool spill_search_kept(const SpillProblem *p, SpillChoice *best, SpillTime *time);

#endif
