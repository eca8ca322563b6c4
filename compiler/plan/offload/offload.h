/* Private to compiler/plan: offload of models larger than memory. A stage becomes a SpillProblem of plain numbers
 * (spilling.h), and a plan gets the seconds of its batch. search/spilled.c searches for the fastest plan. */
#ifndef PDC_PLAN_OFFLOAD_H
#define PDC_PLAN_OFFLOAD_H

#include "plan/cost/cost.h"
#include "plan/offload/spilling.h"

/* ---- seconds.c */
int64_t spill_page(const Planner *r); /* bytes of the unit of transfer */
/* Whether the profile has measurements of the planned device: of the link to the host, the directory, the host. */
bool knows_link(const Planner *r);
bool knows_place(const Planner *r);
bool knows_host(const Planner *r);
double home_byte(const Planner *r); /* host updates: seconds per byte read or written, measured or assumed */
/* The pieces [first, end) as a stage. Each stage that uses a parameter has its own copy. */
SpillProblem problem_of_stage(const Planner *r, int64_t b, int first, int end, bool at_home);
SpillChoice choice_of(const Plan *plan, int stage); /* the parts of a plan's stage, and their resident share */
/* Bytes of a rank that the problem does not count, from a layout with the smallest possible memory. */
int64_t bytes_beside(const Planner *r, const Plan *plan, int stage, const SpillProblem *p, const SpillChoice *c);
bool updates_meet(const Planner *r, const Plan *plan); /* updates wait for gradients of all stages */
SpillStage *spill_stages_of(const Planner *r,
                            const Plan *plan); /* with the plan's memory, or the smallest sufficient */
/* Seconds of a batch of a plan with offload; sets the update's seconds of stages with host updates. */
double spilled_seconds(const Planner *r, Plan *plan);

#endif
