/* Prints one stage's program in C or CUDA. Decides nothing: every name, place and order is in what it is given. */
#ifndef PDC_EMIT_H
#define PDC_EMIT_H

#include "allocate/allocation.h"
#include "plan/plan.h"

/* The text of stage<i>.c or stage<i>.cu, deterministic to the byte. plan_hash: what the program tells the other
 * stages' about itself, 64 characters. */
char *emit_stage(const Graph *g, const Pieces *pieces, const Plan *plan, const LoweredStage *lowered,
                 const Program *p, const Allocation *allocation, const char *plan_hash);
/* The text of a program that times every distinct kernel of these stages (`pdc profile`) and prints
 * lines "SIGNATURE SECONDS". */
char *emit_profile(const LoweredStage *const *stages, int n);

#endif
