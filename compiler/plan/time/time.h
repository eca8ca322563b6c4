/* Private to compiler/plan: seconds of a batch of a whole plan, from a simulation of its Programs. */
#ifndef PDC_PLAN_TIME_H
#define PDC_PLAN_TIME_H

#include "plan/cost/cost.h"

/* ---- timed.c */
TimedPlans *timed_plans_new(void);
int stage_kind(const Planner *r, const Plan *plan, int stage); /* the slowest kind of device of a stage */
bool schedulable(const Planner *r, const Plan *plan); /* whether schedule() supports the plan, cuts included */
/* For a schedulable plan: fills planned times and parameter bytes of every stage, and the batch's time; INFINITY:
 * more than `most` seconds. */
void price_plan(const Planner *r, Plan *plan, double most);
/* Seconds of a batch of a priced plan whose passes vary in time (JITTER). */
double uneven_seconds(const Planner *r, const Plan *plan);

#endif
