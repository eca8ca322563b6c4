/* What stage programs are made for. A target is one Backend: what each step of the compiler does otherwise for it,
 * a struct a step, each declared by that step. A new target is those structs in files of its own and a line of
 * BACKENDS. */
#ifndef PDC_TARGET_H
#define PDC_TARGET_H

/* Of library calls' operands, as --precision lists them. TF32: f32 in memory, products of operands rounded to 10
 * bits. BF16: the tensors that library calls read and write are stored in bf16; fuse/precision.c says which. */
typedef enum { PRECISION_F32, PRECISION_TF32, PRECISION_BF16 } Precision;
enum { N_PRECISIONS = PRECISION_BF16 + 1 };

/* Of PRECISION_BF16, as --residual lists them: what the residual stream is stored in. F32: where PyTorch's autocast has
 * it in f32; residual/residual.h says what it is. */
typedef enum { RESIDUAL_F32, RESIDUAL_BF16 } Residual;
enum { N_RESIDUALS = RESIDUAL_BF16 + 1 };

typedef struct Backend {
  const char *name;                  /* as --target and plan.json have it: "c" */
  const struct Device *device;       /* device/device.h: what a rank runs on, how fast that is */
  const struct Lowering *lowering;   /* lower/lower.h: how kernels are dealt to threads, what libraries take */
  const struct Dialect *dialect;     /* emit/print.h: how programs are printed */
  const struct Toolchain *toolchain; /* build/build.h: how they are compiled and linked */
} Backend;

/* Workspaces that a plan gives to library calls, by what the runtime calls those: measurements say which. */
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
  int threads;                  /* a rank's: what scratch is sized for */
  const Workspaces *workspaces; /* NULL: no call has one that a plan says */
} Target;

/* All there are, in the order in which --help names them. */
#define BACKENDS(X) \
  X(backend_c)      \
  X(backend_cuda)
#define DECLARE_BACKEND(backend) extern const Backend backend;
BACKENDS(DECLARE_BACKEND)
extern const Backend *const all_backends[]; /* ends with NULL */
const Backend *backend_of(const Target *t);
const Backend *backend_find(const char *name);   /* NULL: there is none */
const char *precision_name(Precision precision); /* "f32" */
const char *residual_name(Residual residual);    /* "f32" */
const char *numbers_name(const Target *t);       /* both, as options: "bf16", "bf16 --residual bf16" */

#endif
