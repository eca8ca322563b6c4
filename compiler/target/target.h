/* Targets of stage programs. A target is one Backend: one struct for each step of the compiler that depends on the
 * target, declared by that step. A new target needs those structs in files of its own and a line of
 * BACKENDS. */
#ifndef PDC_TARGET_H
#define PDC_TARGET_H

/* Type of the operands of library calls, in the order of --precision. TF32: f32 in memory, products of operands rounded to 10
 * bits. BF16: the tensors that library calls read and write are stored in bf16; fuse/precision.c says which. */
typedef enum { PRECISION_F32, PRECISION_TF32, PRECISION_BF16 } Precision;
enum { N_PRECISIONS = PRECISION_BF16 + 1 };

/* Type of the residual stream (residual/residual.h) under PRECISION_BF16, in the order of --residual. F32: f32 in the
 * same places as in PyTorch's autocast. */
typedef enum { RESIDUAL_F32, RESIDUAL_BF16 } Residual;
enum { N_RESIDUALS = RESIDUAL_BF16 + 1 };

typedef struct Backend {
  const char *name;                  /* as --target and plan.json have it: "c" */
  const struct Device *device;       /* device/device.h: the rank's device and its rates */
  const struct Lowering *lowering;   /* lower/lower.h: mapping of kernels to threads and libraries */
  const struct Dialect *dialect;     /* emit/print.h: how programs are printed */
  const struct Toolchain *toolchain; /* build/build.h: how they are compiled and linked */
} Backend;

/* Workspaces of library calls, by the call's name in the runtime; measured. */
typedef struct Workspace {
  const char *call;
  long long bytes;
} Workspace;
typedef struct Workspaces {
  int n;
  const Workspace *at;
} Workspaces;

typedef struct Target {
  const Backend *backend; /* NULL: the first of all_backends */
  Precision precision;
  Residual residual;
  int threads;                  /* threads per rank; scratch memory is sized for them */
  const Workspaces *workspaces; /* NULL: the plan sets no workspace */
} Target;

/* All targets, in the order of --help. */
#define BACKENDS(X) \
  X(backend_c)      \
  X(backend_cuda)
#define DECLARE_BACKEND(backend) extern const Backend backend;
BACKENDS(DECLARE_BACKEND)
extern const Backend *const all_backends[]; /* ends with NULL */
const Backend *backend_of(const Target *t);
const Backend *backend_find(const char *name);   /* NULL: unknown name */
const char *precision_name(Precision precision); /* "f32" */
const char *residual_name(Residual residual);    /* "f32" */
const char *numbers_name(const Target *t);       /* both, as options: "bf16", "bf16 --residual bf16" */

#endif
