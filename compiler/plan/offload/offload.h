/* Private to compiler/plan: models larger than memory, whose parts come and go. A stage of such a model becomes a SpillProblem, plain
 * numbers (spilling.h), and a plan of it gets the seconds that its batch takes. Which plan is the fastest is searched in
 * search/spilled.c. */
#ifndef PDC_PLAN_OFFLOAD_H
#define PDC_PLAN_OFFLOAD_H

#include "plan/cost/cost.h"
#include "plan/offload/spilling.h"

/* ---- seconds.c */
int64_t spill_page(const Planner *r); /* bytes that come and go at once */
/* Whether a profile has what these take, of the device that is planned for: the link to the host, the directory, the host. */
bool knows_link(const Planner *r);
bool knows_place(const Planner *r);
bool knows_host(const Planner *r);
double home_byte(
    const Planner *r); /* seconds of a byte that the host reads or writes in an update, measured or assumed */
/* Of the pieces [first, end) as a stage. Where others use a parameter, too, they have their own copy of it. */
SpillProblem problem_of_stage(const Planner *r, int64_t b, int first, int end, bool at_home);
SpillChoice choice_of(const Plan *plan, int stage); /* the parts of a plan's stage, and what they keep */
/* What a rank takes beside what the problem knows of: from laying it out with as little memory as works. */
int64_t bytes_beside(const Planner *r, const Plan *plan, int stage, const SpillProblem *p, const SpillChoice *c);
bool updates_meet(const Planner *r, const Plan *plan);           /* they wait for gradients of all stages */
SpillStage *spill_stages_of(const Planner *r, const Plan *plan); /* with the plan's memory, or as much as works */
/* Of a plan whose parts come and go: seconds of a batch; where a stage's host updates, its update's are set. */
double spilled_seconds(const Planner *r, Plan *plan);

#endif
