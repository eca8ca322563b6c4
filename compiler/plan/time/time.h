/* Private to compiler/plan: what a whole plan takes, in seconds of a batch, by running its Programs in the schedule's simulator. */
#ifndef PDC_PLAN_TIME_H
#define PDC_PLAN_TIME_H

#include "plan/cost/cost.h"

/* ---- timed.c */
TimedPlans *timed_plans_new(void);
bool schedulable(const Planner *r, const Plan *plan); /* whether schedule() takes its cuts, too */
/* Of a schedulable plan: fills the planned times and parameters' bytes of every stage, and the batch's time, INFINITY where
 * that is more than `most` seconds. */
void price_plan(const Planner *r, Plan *plan, double most);
/* Seconds of a batch of a priced plan whose passes take a little more or less time than planned. */
double uneven_seconds(const Planner *r, const Plan *plan);

#endif
