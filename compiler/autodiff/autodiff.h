/* Autodiff appends, unless the graph is for inference, behind the forward nodes and in reverse order, the nodes
 * that compute the gradient of every parameter use (Param.gradients).
 * - The seed of a loss is 1 for each of its elements (for the i-th of several losses the ratio of
 *   elements N_0 / N_i): the division by the batch's count of targets happens at the update.
 * - A value's gradients are added from last use to first: g = ((g_last + g_previous) + ...). The node
 *   that adds use k's contribution serves the forward node of use k, so that a cut between two uses
 *   leaves a partial sum that can be sent.
 * - A frozen parameter has no gradient, nor have values that come from no other ones.
 * - A buffer (Param.buffer) has no gradient; its use gives it a share, which no loss asks for.
 * - Gradients flow through batched f32 values and parameters only; inputs of type token have none. */
#ifndef PDC_AUTODIFF_H
#define PDC_AUTODIFF_H

#include "graph/graph.h"
#include "ops/op.h"

void autodiff(Graph *g);

/* What a derivative rule may call. Nodes it builds serve `node`, in its scope and with its span. */
Graph *grad_graph(Gradients *d);
int grad_of(Gradients *d, int node, int output); /* the output's gradient, or -1: none reached it */
bool grad_wanted(Gradients *d, int node, int input);
void grad_add(Gradients *d, int node, int input, int value); /* value: same shape as the input */
/* Builds a node with these inputs and attributes (NULL: defaults) and returns its first output. */
int grad_build(Gradients *d, int node, const Op *op, const int *in, int n_in, const Attr *attr);
int grad_constant(Gradients *d, int node, double x);
static inline int grad_1(Gradients *d, int node, const Op *op, int a) {
  return grad_build(d, node, op, (int[]){a}, 1, NULL);
}
static inline int grad_2(Gradients *d, int node, const Op *op, int a, int b) {
  return grad_build(d, node, op, (int[]){a, b}, 2, NULL);
}
/* The input is a buffer: `value` is what the microbatch adds to it, summed over a batch like a gradient. */
void grad_share(Gradients *d, int node, int input, int value);
/* Sums `value` over what was broadcast, so that it has the shape of the node's input, and adds it. */
void grad_add_broadcast(Gradients *d, int node, int input, int value);

#endif
