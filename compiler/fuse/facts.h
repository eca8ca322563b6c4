/* What fuse asks about the whole graph: found once for all of its parts. */
#ifndef PDC_FACTS_H
#define PDC_FACTS_H

#include "fuse/kernel.h"

typedef struct FuseFacts {
  const Graph *g;
  Name *name;      /* by value: the user's; "d_x" of what autodiff made the gradient of x */
  int *n_uses;     /* by value: nodes, figures and gradients of parameters that read it */
  int *itself;     /* by value: the value */
  bool *varies;    /* by value: depends on an input, a parameter or a call */
  bool *statistic; /* by value: computed over samples, the same for all of them */
  bool *counts;  /* by value: it, or what it is computed from by element, numbers the elements of its own shape */
  Ints *serving; /* by forward node: the backward nodes that serve it, in order */
  bool *bf16[N_PRECISIONS]; /* by value: values_in_bf16() */
} FuseFacts;

FuseFacts *fuse_facts(const Graph *g);
/* The value behind all views of it: what stands in memory for them. */
int behind_views(const Graph *g, int value);

/* As fuse(), of a graph whose facts are known. What only sizes are asked of needs no names: its kernels, buffers and
 * terms have none that are good for anything, nor are regions compared. */
StageKernels *fuse_part(const FuseFacts *facts, const Pieces *p, int first_piece, int end_piece, int stage,
                        int n_stages, int64_t microbatch, bool recompute, bool split, Target target, bool named);

#endif
