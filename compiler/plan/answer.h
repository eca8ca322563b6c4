/* Private to compiler/plan: what plan.c, compare.c and refuse.c share, which stand above all rooms. */
#ifndef PDC_PLAN_ANSWER_H
#define PDC_PLAN_ANSWER_H

#include "plan/search/search.h"

/* ---- one.c: under one schedule */
/* As plan_make(), of a request that names its schedule. */
Plan *plan_one(const Graph *g, const Pieces *p, const PlanRequest *request, Plan **runners_up, int n);
/* Of a request that names a file with a plan. */
Plan *plan_taken(const Graph *g, const Pieces *p, const PlanRequest *request);
/* Without a diagnostic; NULL with the first error in *why, unless that is NULL. */
Plan *try_schedule(const Graph *g, const Pieces *p, PlanRequest q, const char *schedule, const char **why);

/* ---- plan.c */
bool schedule_open(const Graph *g, const PlanRequest *q); /* whether the schedule is left open */

/* ---- refuse.c: asks choose.c what would fit instead */
/* Why no plan fits, with numbers and an option that would. */
void tell_nothing_fits(const Planner *r, const Plan *best);

#endif
