/* Prints one stage's program in C or CUDA. What runs how, in which order and where is in what it is given; its own
 * are the names and which lines become a function. */
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
