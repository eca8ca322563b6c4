/* Facts about the whole graph, computed once for all of its parts. */
#ifndef PDC_FACTS_H
#define PDC_FACTS_H

#include "fuse/kernel.h"

typedef struct FuseFacts {
  const Graph *g;
  Name *name;               /* by value: the user's name; "d_x" for the gradient of x */
  int *n_uses;              /* by value: its readers: nodes, figures and gradients of parameters */
  int *itself;              /* by value: the value itself */
  bool *varies;             /* by value: depends on an input, a parameter or a call */
  bool *statistic;          /* by value: computed over samples, equal for all of them */
  bool *counts;             /* by value: depends elementwise on the index of an element in its own shape */
  bool *once;               /* by node: nodes_once(); NULL: none */
  Ints *serving;            /* by forward node: its backward nodes, in order */
  bool *bf16[N_PRECISIONS]; /* by value: values_in_bf16() */
} FuseFacts;

FuseFacts *fuse_facts(const Graph *g);
/* The value behind all views of it, which has the memory. */
int behind_views(const Graph *g, int value);

/* Like fuse(), with known facts. `again`: as StagePlan.again. `named` false suffices for sizes: kernels, buffers and
 * terms get no useful names, and regions are not compared. */
StageKernels *fuse_part(const FuseFacts *facts, const Pieces *p, int first_piece, int end_piece, int stage,
                        int n_stages, int64_t microbatch, bool recompute, Name again, bool split, Target target,
                        bool named);

#endif
