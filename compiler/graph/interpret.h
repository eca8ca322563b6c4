/* A reference interpreter: the whole Graph on one microbatch in double, a node at a time, by plain loops.
 * Tests compare the other passes, and the programs pdc emits, with it. */
#ifndef PDC_INTERPRET_H
#define PDC_INTERPRET_H

#include "graph/graph.h"

/* input[i], param[i]: the values of inputs and parameters, contiguous; inputs with a leading axis of
 * `batch`. Returns every value's elements, by value number, batched ones with that axis. */
double **interpret(const Graph *g, int64_t batch, const double *const *input, const double *const *param);
/* The same on the ranks of a shard group at once: param[r] and the result's [r] are rank r's. */
double ***interpret_shards(const Graph *g, int ranks, int64_t batch, const double *const *input,
                           const double *const *const *param);
/* One element of a value, by its number in row-major order; false where it depends on an input, a parameter or a random
 * number, or is behind other than pointwise operations and views that keep the order of elements. */
bool interpret_element(const Graph *g, int value, int64_t index, double *x);
/* The weighted sum of the losses' elements that Param.gradients are the gradients of. */
double interpret_loss(const Graph *g, int64_t batch, double *const *value);

#endif
