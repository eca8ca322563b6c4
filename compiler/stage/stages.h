/* Kernels and memory of a planned stage's ranks: runs fuse, lower, schedule and allocate. It serves the chosen
 * plan and, through stages_peak(), every plan that the planner considers. The planner calls it only through
 * StagePeak (request.h) and does not depend on those four folders. */
#ifndef PDC_STAGES_H
#define PDC_STAGES_H

#include "allocate/allocation.h"
#include "base/watch.h"
#include "plan/request.h"

typedef struct Stages Stages;

Stages *stages_new(const Graph *g, const Pieces *p);
/* NULL after diagnostics. */
Program *stages_schedule(Stages *s, const Plan *plan);
/* The kernels of a rank, with all its chunks. Plans share most parts; each part is fused once. */
StageKernels *stages_fuse(Stages *s, const Plan *plan, const Program *programs, int stage);
/* The lowered kernels; each part is lowered once. */
LoweredStage *stages_lower(Stages *s, const StageKernels *k);
Allocation *stages_allocate(Stages *s, const LoweredStage *stage, const Program *program);
/* A StagePeak; the context is a Stages. Ranks of equal structure (signature.h) are laid out once, and only a few
 * of many repeated blocks (repeats.h). */
int64_t stages_peak(void *stages, const Plan *plan, int stage);
/* Whether all peaks of the plan equal those of a full layout. If not, all later layouts are full, and the caller
 * should plan again. */
bool stages_confirm(Stages *s, const Plan *plan);

/* Times so far. Runs of fuse count parts of models; runs of sign count ranks, cached if a rank of equal structure
 * was known. */
typedef struct StagesWatch {
  Watch sign, fuse, lower, schedule, allocate;
} StagesWatch;
StagesWatch stages_watch(const Stages *s);

#endif
