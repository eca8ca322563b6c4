/* Private to compiler/lower. */
#ifndef PDC_LOWER_INTERNAL_H
#define PDC_LOWER_INTERNAL_H

#include "lower/lower.h"

/* ---- lower.c */
bool *written_buffers(const Kernel *k, const Ints *buffers); /* by buffer of the list: the kernel writes to it */

/* ---- shape.c */
const LoopShape *loop_shape(const StageKernels *stage, const Kernel *k);
Arguments loop_arguments(const StageKernels *stage, const Lowered *k);

/* ---- call.c */
void lower_call(const StageKernels *stage, Lowered *k);

#endif
