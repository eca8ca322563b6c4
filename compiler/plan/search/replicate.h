/* Private to compiler/plan: the choice of stages, cuts and ranks per stage, over plain numbers. */
#ifndef PDC_REPLICATE_H
#define PDC_REPLICATE_H

#include "base/base.h"
#include "plan/cost/spans.h"
#include "schedule/program.h"

typedef struct Ways {
  const Spans *spans; /* by kind of device, slowest first */
  int n_kinds;
  int ranks;                     /* upper limit */
  bool alike;                    /* ranks are interchangeable */
  int least_stages, most_stages; /* equal if pinned */
  const int *pinned;             /* NULL, or first pieces of all stages */
  bool may_replicate;            /* stages may have several ranks, if these divide the microbatches */
  int64_t microbatches;          /* per batch */
  const ScheduleTraits *traits;
  int ahead;     /* of all stages (pipeline.h) */
  int64_t limit; /* bytes per rank */
  /* Memory and place of a stage. */
  Copies (*copies)(const void *context, const StageAhead *stage);
  const void *context;
  double most; /* upper limit of the value */
  bool any;    /* accept any way that fits: found much sooner */
  int most_found;
} Ways;

typedef struct Replication {
  int stages, ranks;
  int *replicas, *start; /* by stage: ranks, first piece */
  double value;          /* partition.h */
} Replication;
typedef Vec(Replication) Replications;

/* The best ways by value, best first, with distinct ranks by stage; empty: nothing fits. Exact for small problems:
 * the search keeps only the most promising labels per piece. */
Replications replicate(const Ways *w);

#endif
