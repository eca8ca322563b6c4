/* Gradients of biases that GPUs' products make. */
#ifndef PDC_BIASES_H
#define PDC_BIASES_H

#include "graph/graph.h"

/* Of a whole Graph, after all that rewrites it. Where the gradient of a bias would be a loop of its own, the product that makes
 * the gradient of the weights, and reads the same operand, makes it, too (op_weight_and_bias_gradient). */
void merge_bias_gradients(Graph *g);

#endif
