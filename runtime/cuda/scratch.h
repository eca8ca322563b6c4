/* Bytes of scratch memory that library calls take on a GPU, from their shapes alone. The compiler plans them and
 * the calls keep to them, so both ask here. Parts begin at multiples of PD_SCRATCH_UNIT, which cuBLASLt wants of its
 * workspace; a call's first part does so too, wherever its scratch memory stands, as a unit more is planned. */
#ifndef PD_SCRATCH_H
#define PD_SCRATCH_H

#include "pd_runtime.h"

#define PD_PLANNED static inline __attribute__((unused)) /* no file calls all */

enum { PD_SCRATCH_UNIT = 256, PD_MIB = 1 << 20 };

PD_PLANNED int64_t pd_scratch_part(int64_t bytes) {
  return (bytes + PD_SCRATCH_UNIT - 1) / PD_SCRATCH_UNIT * PD_SCRATCH_UNIT;
}
PD_PLANNED int64_t pd_scratch_larger(int64_t a, int64_t b) { return a > b ? a : b; }
PD_PLANNED int64_t pd_scratch_smaller(int64_t a, int64_t b) { return a < b ? a : b; }

PD_PLANNED char *pd_scratch_begin(void *scratch) {
  return (char *)(((uintptr_t)scratch + PD_SCRATCH_UNIT - 1) / PD_SCRATCH_UNIT * PD_SCRATCH_UNIT);
}

/* ---- matmul ------------------------------------------------------------------------------------- */

/* cuBLASLt's workspace: partial sums where it splits k, up to 16 times the result in float, and at most the 32 MiB
 * that NVIDIA recommends for Hopper. */
PD_PLANNED int64_t pd_matmul_workspace(const struct pd_matmul_shape *s) {
  return pd_scratch_part(pd_scratch_smaller(32 * PD_MIB, PD_MIB + 64 * s->batch * s->m * s->n));
}

/* The workspace and the bias in c's type. */
PD_PLANNED int64_t pd_cuda_matmul_scratch(const struct pd_matmul_shape *s) {
  int64_t bias = s->bias ? pd_scratch_part(s->n * (int64_t)sizeof(float)) : 0;
  return PD_SCRATCH_UNIT + bias + pd_matmul_workspace(s);
}

#endif
