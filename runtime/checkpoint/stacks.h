/* Parameters of all experts that files hold as a tensor for each expert (shared/stacked.h). */
#ifndef PD_STACKS_H
#define PD_STACKS_H

#include "checkpoint/sources.h"

struct pd_parameter;

/* The tensors of a parameter, in the order of its elements. */
struct pd_stack {
  int n;
  const struct pd_source **part; /* NULL: missing */
  const struct pd_source *some;  /* the first tensor found */
  char *missing;                 /* the name of the first missing tensor; NULL: none */
  const struct pd_source *other; /* a tensor of the same parameter under another form of names; NULL: none */
};

/* Finds the tensors of a parameter with this name and number of experts. False: none is there. */
bool pd_stack_find(const struct pd_sources *s, const char *name, int64_t experts, struct pd_stack *to);
void pd_stack_free(struct pd_stack *x);
/* The first tensor with another shape than a part of a parameter [experts, rows, columns]; NULL: none. Fills in
 * the part's shape. No tensor is missing. */
const struct pd_source *pd_stack_misfit(const struct pd_stack *x, const int64_t *whole, int64_t part[2]);
/* Copies this rank's part of the parameter. */
void pd_stack_copy(const struct pd_stack *x, const struct pd_parameter *p, float *to);

#endif
