/* Prints one stage's program in C or CUDA. The arguments fix kernels, order and places; emit chooses names and
 * functions. */
#ifndef PDC_EMIT_H
#define PDC_EMIT_H

#include "allocate/allocation.h"
#include "graph/identity.h"
#include "plan/plan.h"

/* The text of stage<i>.c or stage<i>.cu, deterministic to the byte. plan_hash: 64 characters that all stages'
 * programs compare. identity: of the model's training. */
char *emit_stage(const Graph *g, const Pieces *pieces, const Plan *plan, const LoweredStage *lowered,
                 const Program *p, const Allocation *allocation, const Identity *identity, const char *plan_hash);
/* A library of a model for inference or generation: NAME.c, and NAME.h for its users. `name`: library_name(). */
typedef struct LibraryText {
  char *source, *header;
} LibraryText;
LibraryText emit_library(const Graph *g, const Pieces *pieces, const Plan *plan, const LoweredStage *lowered,
                         const Program *p, const Allocation *allocation, const char *name);
const char *library_name(const char *wanted); /* as an identifier that no name of emitted files is */

/* Measurements of `pdc profile`. */
typedef struct ProfileTask {
  const LoweredStage *const *stages;    /* the whole model as one stage, one entry per microbatch */
  const Allocation *const *allocations; /* of `stages` */
  int n;
  int processes; /* simultaneous processes, such as the ranks of a run */
  int64_t room;  /* bytes, memory limit of each process */
  /* An elementwise update rule of the runtime, measured on `elements` elements; NULL: not measured. */
  const char *rule;
  int n_moments;
  int64_t elements;
  const char *target; /* profile_target(): "cuda bf16" */
  bool rates;         /* on processors: also measure the peak rates */
  bool link;          /* on GPUs: also measure copies to and from the host, and updates on the host */
} ProfileTask;
/* The text of a program that times every distinct kernel of the task's stages. It prints lines "SIGNATURE
 * SECONDS", on GPUs each followed by the algorithms of its products (profile/algorithms.h). On processors it adds
 * "update SECONDS" and "norm SECONDS", per element. With `rates` it adds "products RATE" (operations a second, in
 * the target's precision), "operations RATE" (the same in f32) and "memory RATE" (bytes a second). On GPUs `link`
 * adds "to_device SECONDS" and "from_device SECONDS", per byte, with both directions busy. It also adds "at_home
 * SECONDS", per byte that the host reads or writes in an update. The last line is "end TARGET". */
char *emit_profile(const ProfileTask *task);

/* Adds a setting to those of checkpoints if cuts decide the weights of a gradient: the first piece of each stage,
 * and the delay of its gradients in updates. */
void identity_add_delays(Identity *to, const Pieces *p, const Plan *plan, const Program *programs);

#endif
