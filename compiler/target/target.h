/* What stage programs are made for. A target is one Backend: what each step of the compiler does otherwise for it, a
 * struct a step, each declared by that step. A new target is those structs in files of its own and a line in
 * targets.c. */
#ifndef PDC_TARGET_H
#define PDC_TARGET_H

#include <stdbool.h>

typedef enum { TARGET_C, TARGET_CUDA } TargetKind; /* in the order of all_backends */

/* Of library calls' operands, as --precision lists them. TF32: f32 in memory, products of operands rounded to 10
 * bits. BF16: the tensors that library calls read and write are stored in bf16; fuse/precision.c says which. */
typedef enum { PRECISION_F32, PRECISION_TF32, PRECISION_BF16 } Precision;

typedef struct Backend {
  const char *name;                   /* as --target and plan.json have it: "c" */
  const struct Lowering *lowering;    /* lower/lower.h: how kernels are dealt to threads, what libraries take */
  const struct Dialect *dialect;      /* emit/print.h: how programs are printed */
  const struct Toolchain *toolchain;  /* build/build.h: how they are compiled and linked */
} Backend;

typedef struct Target {
  TargetKind kind;
  Precision precision;
  int threads; /* a rank's: what scratch is sized for */
} Target;

extern const Backend *const all_backends[]; /* ends with NULL */
const Backend *backend_of(TargetKind kind);
const char *target_name(TargetKind kind);         /* "c" */
const char *precision_name(Precision precision);  /* "f32" */

#endif
