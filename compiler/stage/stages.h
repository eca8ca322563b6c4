/* What the ranks of a planned stage run and hold: fuse, lower, schedule and allocate in a row, for the plan that
 * was chosen and, through stages_peak(), for every plan that the planner considers. A folder of its own, between
 * those four and main: the planner asks for a number only (plan.h's StagePeak) and needs none of them for it. */
#ifndef PDC_STAGES_H
#define PDC_STAGES_H

#include "allocate/allocation.h"
#include "base/watch.h"
#include "plan/request.h"

typedef struct Stages Stages;

Stages *stages_new(const Graph *g, const Pieces *p);
/* NULL after diagnostics. */
Program *stages_schedule(Stages *s, const Plan *plan);
/* The kernels of a rank, all its chunks together. Plans share most of their parts: each is fused once. */
StageKernels *stages_fuse(Stages *s, const Plan *plan, const Program *programs, int stage);
/* The same, lowered: once, too. */
LoweredStage *stages_lower(Stages *s, const StageKernels *k);
Allocation *stages_allocate(Stages *s, const LoweredStage *stage, const Program *program);
/* A StagePeak; the context is a Stages. Ranks of equal structure (signature.h) are laid out once, and of many repeated
 * blocks (repeats.h) only a few. */
int64_t stages_peak(void *stages, const Plan *plan, int stage);
/* Whether all the plan's peaks are what laying out its ranks whole gives. Where not, all ranks are laid out whole from
 * then on, and the plan should be made again. */
bool stages_confirm(Stages *s, const Plan *plan);

/* What all that took so far. Runs of fuse are parts of models; those of sign ranks whose peaks were asked for,
 * cached where a rank of equal structure was known. */
typedef struct StagesWatch {
  Watch sign, fuse, lower, schedule, allocate;
} StagesWatch;
StagesWatch stages_watch(const Stages *s);

#endif
