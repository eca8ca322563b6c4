/* Autodiff appends backward nodes that compute the gradient of every parameter use (Param.gradients). They follow
 * the forward nodes in reverse order. Inference graphs get none.
 * - The seed of a loss is 1 per element; for the i-th of several losses it is the ratio of elements N_0 / N_i. The
 *   update divides by the batch's count of targets.
 * - A value's gradients are added from last use to first: g = ((g_last + g_previous) + ...). The node that adds
 *   use k's contribution serves the forward node of use k. A cut between two uses thus leaves a partial sum to
 *   send.
 * - A frozen parameter has no gradient, nor have values that depend only on frozen parameters.
 * - A buffer (Param.buffer) has no gradient; its use contributes a share instead, independent of losses.
 * - Gradients flow only through batched f32 values and parameters, not through tokens. */
#ifndef PDC_AUTODIFF_H
#define PDC_AUTODIFF_H

#include "graph/graph.h"
#include "ops/op.h"

void autodiff(Graph *g);

/* The derivative of a scan: another one (autodiff/scan.c). */
void derive_scan(Gradients *d, int node);
/* Adds to the results of scans the values that their derivatives read. `wanted`: by value. */
void save_for_derivatives(Graph *g, const bool *wanted);
/* Appends the backward nodes of a body. `wanted`: by value; `gradient`: by value, -1 or the seed of its gradient; on
 * return the gradient. */
void autodiff_step(Graph *body, bool *wanted, int *gradient);

/* For derivative rules. Built nodes serve `node`, in its scope and with its span. */
Graph *grad_graph(Gradients *d);
int grad_of(Gradients *d, int node, int output); /* the output's gradient; -1: none */
bool grad_wanted(Gradients *d, int node, int input);
void grad_add(Gradients *d, int node, int input, int value); /* value: has the input's shape */
/* Builds a node from inputs and attributes (NULL: defaults) and returns its first output. */
int grad_build(Gradients *d, int node, const Op *op, const int *in, int n_in, const Attr *attr);
int grad_constant(Gradients *d, int node, double x);
static inline int grad_1(Gradients *d, int node, const Op *op, int a) {
  return grad_build(d, node, op, (int[]){a}, 1, NULL);
}
static inline int grad_2(Gradients *d, int node, const Op *op, int a, int b) {
  return grad_build(d, node, op, (int[]){a, b}, 2, NULL);
}
/* For buffers: `value` is the microbatch's contribution, summed over a batch like a gradient. */
void grad_share(Gradients *d, int node, int input, int value);
/* Sums `value` over broadcast axes to the shape of the node's input, and adds it. */
void grad_add_broadcast(Gradients *d, int node, int input, int value);

#endif
