/* Private to compiler/plan: how many stages, where they are cut and how many ranks each has, as a problem about plain
 * numbers. */
#ifndef PDC_REPLICATE_H
#define PDC_REPLICATE_H

#include "base/base.h"
#include "plan/cost/spans.h"
#include "schedule/program.h"

typedef struct Ways {
  const Spans *spans; /* by kind of device, the slowest first */
  int n_kinds;
  int ranks;                     /* at most */
  bool alike;                    /* it is no matter on which of them a stage is */
  int least_stages, most_stages; /* pinned: both say how many */
  const int *pinned;             /* NULL, or where the stages start, all of them */
  bool may_replicate;            /* stages may have several ranks: counts that divide the microbatches */
  int64_t microbatches;          /* of a batch */
  const ScheduleTraits *traits;
  int ahead;     /* of all stages (pipeline.h) */
  int64_t limit; /* bytes of a rank */
  /* What a rank keeps of a stage, and where it stands. */
  Copies (*copies)(const void *context, const StageAhead *stage);
  const void *context;
  double most; /* the value of what is worth finding, at most */
  bool any;    /* some ways that fit will do, however slow: found much sooner */
  int most_found;
} Ways;

typedef struct Replication {
  int stages, ranks;
  int *replicas, *start; /* by stage: ranks, first piece */
  double value;          /* partition.h */
} Replication;
typedef Vec(Replication) Replications;

/* The best ways by value, no two with the same ranks by stage, the best first; none: nothing fits. Exactly the best
 * for problems that are not very large: of each piece the search keeps the most promising ways only. */
Replications replicate(const Ways *w);

#endif
