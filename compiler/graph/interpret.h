/* A reference interpreter: runs the whole Graph on one microbatch in double, node by node, with plain loops. Tests
 * compare other passes and the emitted programs with it. */
#ifndef PDC_INTERPRET_H
#define PDC_INTERPRET_H

#include "graph/graph.h"

/* input[i], param[i]: contiguous values; inputs have a leading axis of `batch`. Returns the elements of every
 * value by value index; batched values have that leading axis. */
double **interpret(const Graph *g, int64_t batch, const double *const *input, const double *const *param);
/* The same for all ranks of a shard group: param[r] and result[r] belong to rank r. */
double ***interpret_shards(const Graph *g, int ranks, int64_t batch, const double *const *input,
                           const double *const *const *param);
/* One element of a value, by row-major index. False if it depends on an input, a parameter or a random number.
 * Also false beyond pointwise operations and order-preserving views. */
bool interpret_element(const Graph *g, int value, int64_t index, double *x);
/* The weighted sum of the losses' elements; Param.gradients are its gradients. */
double interpret_loss(const Graph *g, int64_t batch, double *const *value);

#endif
