/* Private to compiler/plan: the interface among plan.c, compare.c and refuse.c, the top layer. */
#ifndef PDC_PLAN_ANSWER_H
#define PDC_PLAN_ANSWER_H

#include "plan/search/search.h"

/* ---- one.c: under one schedule */
/* As plan_make(), for a request that fixes the schedule. */
Plan *plan_one(const Graph *g, const Pieces *p, const PlanRequest *request, Plan **runners_up, int n);
/* For a request that names a plan file. */
Plan *plan_taken(const Graph *g, const Pieces *p, const PlanRequest *request);
/* The same under a schedule, before diagnostics. known: seconds of a batch; slower plans are excluded. 0: no limit.
 * NULL: no plan. */
typedef struct Attempt Attempt;
const Attempt *attempt_schedule(const Graph *g, const Pieces *p, const PlanRequest *request, const char *schedule,
                                double known, int n);
const Plan *attempted_plan(const Attempt *a);
/* The plan of an attempt, with its warnings. */
Plan *take_attempt(const Attempt *a, Plan **runners_up, int n);
/* Without diagnostics. NULL: no plan; the first error goes to *why unless `why` is NULL. */
Plan *try_schedule(const Graph *g, const Pieces *p, PlanRequest q, const char *schedule, const char **why);

/* ---- plan.c */
bool schedule_open(const Graph *g, const PlanRequest *q); /* whether the planner chooses the schedule */

/* ---- refuse.c: searches for a request that fits, through choose.c */
/* Reports that no plan fits, with sizes and an option that would help. */
void tell_nothing_fits(const Planner *r, const Plan *best);

#endif
