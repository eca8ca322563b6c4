/* Merges GELU into the product that it is applied to. */
#ifndef PDC_EPILOGUES_H
#define PDC_EPILOGUES_H

#include "graph/graph.h"

/* Takes a Graph of forward nodes only. A product with a sample-independent matrix and a bias, read only by a
 * tanh-approximated GELU, becomes one node (op_matmul_gelu). Its derivative merges GELU's gradient into the
 * product that yields it. GELU then sees the exact sum instead of the rounded one. On every plan, no cut remains
 * between the product and the next one. */
void merge_gelus(Graph *g);

#endif
