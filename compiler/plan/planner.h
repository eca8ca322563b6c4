/* Private to compiler/plan: a planning job, its prices, and what its files share. */
#ifndef PDC_PLANNER_H
#define PDC_PLANNER_H

#include "plan/json.h"
#include "plan/partition.h"
#include "plan/plan.h"
#include "plan/profile.h"
#include "schedule/program.h"

/* A request made definite. */
typedef struct Planner {
  const Graph *g;
  const Pieces *p;
  const PlanRequest *request;
  const Profile *profile; /* NULL: costs are counted */
  Name schedule;
  Span schedule_span;
  Span where; /* of diagnostics about the plan as a whole: the file */
  int stages, threads;
  int *pinned;               /* by stage: its first piece, under --split; else NULL */
  int64_t limit;             /* bytes a device */
  double bandwidth, latency; /* of a message between stages: bytes a second, seconds */
  Vec(int64_t) microbatches; /* under consideration, rising */
} Planner;

/* ---- request.c */
/* False after diagnostics. Does not read the profile. */
bool planner_prepare(Planner *r, const Graph *g, const Pieces *p, const PlanRequest *request);
/* Fills microbatches by the batch's divisors that the schedule and the profile allow. */
bool planner_microbatches(Planner *r);
Span graph_file_span(const Graph *g);
bool schedule_named(Name name, Span where, const char *prefix); /* false after a diagnostic: there is none */

/* ---- cost.c */
/* Seconds of a node at a microbatch of b samples, from counting. */
double counted_seconds(const Graph *g, int node, int64_t b, int threads);
int *piece_of_nodes(const Graph *g, const Pieces *p); /* by node; backward ones by what they serve */
Costs *price(const Planner *r, int64_t microbatch);
/* Copies at each stage when the stages are as many as the planner's. */
Copies *copies(const Planner *r, int64_t microbatch, Recompute recompute);
/* Fills the planned times and parameters' bytes of every stage, and the batch's time. */
void price_plan(const Planner *r, const Costs *c, Plan *plan);

/* ---- choose.c */
Plan *plan_fastest(const Planner *r); /* without diagnostics; NULL when nothing fits */

/* ---- refuse.c */
/* Why no plan fits, with numbers and an option that would. */
void tell_nothing_fits(const Planner *r, const Plan *best);

#endif
