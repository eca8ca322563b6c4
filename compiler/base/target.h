/* What stage programs are made for. */
#ifndef PDC_TARGET_H
#define PDC_TARGET_H

typedef enum { TARGET_C, TARGET_CUDA } TargetKind; /* as --target lists them */

/* Of library calls' operands, as --precision lists them. TF32: f32 in memory, products of operands rounded to 10
 * bits. BF16: the tensors that library calls read and write are stored in bf16; fuse/precision.c says which. */
typedef enum { PRECISION_F32, PRECISION_TF32, PRECISION_BF16 } Precision;

typedef struct Target {
  TargetKind kind;
  Precision precision;
  int threads; /* a rank's: what scratch is sized for */
} Target;

const char *target_name(TargetKind kind);         /* "c" */
const char *precision_name(Precision precision);  /* "f32" */

#endif
