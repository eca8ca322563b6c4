/* Private to compiler/lower. */
#ifndef PDC_LOWER_INTERNAL_H
#define PDC_LOWER_INTERNAL_H

#include "lower/lower.h"

/* ---- shape.c */
const LoopShape *loop_shape(const StageKernels *stage, const Kernel *k);

/* ---- arguments.c */
Arguments loop_arguments(const StageKernels *stage, const Lowered *l); /* l->shape is set */
Arguments call_arguments(const Kernel *k);

/* ---- call.c */
void lower_call(const StageKernels *stage, Lowered *l);

/* ---- scan.c */
void lower_scan(const StageKernels *stage, Lowered *l);

#endif
