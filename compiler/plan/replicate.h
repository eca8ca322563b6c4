/* Private to compiler/plan: how many stages, where they are cut and how many ranks each has, as a problem about plain
 * numbers. */
#ifndef PDC_REPLICATE_H
#define PDC_REPLICATE_H

#include "base/base.h"
#include "plan/spans.h"

typedef struct Ways {
  const Spans *spans;
  int ranks;                     /* at most */
  int least_stages, most_stages; /* pinned: both say how many */
  const int *pinned;             /* NULL, or where the stages start, all of them */
  bool may_replicate;            /* stages may have several ranks: counts that divide the microbatches */
  int64_t microbatches;          /* of a batch */
  const char *schedule;
  int ahead;         /* of all stages (pipeline.h) */
  bool two_versions; /* all that is in flight at a stage must be of two batches */
  bool every_round;  /* the least common multiple of the counts must be `microbatches` */
  int64_t limit;     /* bytes of a rank */
  /* What a rank keeps of a stage with so many turns in flight. */
  Copies (*copies)(const void *context, int64_t microbatches, int64_t in_flight, int replicas, bool first,
                   bool last);
  const void *context;
  double most; /* the value of what is worth finding, at most */
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
