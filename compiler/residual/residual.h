/* --precision bf16: the residual stream, which is what goes past the blocks of a model and the sums in which they end. */
#ifndef PDC_RESIDUAL_H
#define PDC_RESIDUAL_H

#include "graph/graph.h"
#include "target/target.h"

/* Of the forward nodes of a Graph, before autodiff: library calls that read a value of the stream that stays in f32 read
 * a rounded copy of it instead. */
void round_residuals(Graph *g, Residual kept);
/* Of a whole Graph, after all that rewrites it: the same for the gradients of the stream; and marks what of the stream
 * and its gradients stands in bf16 (Value.bf16). */
void mark_residuals(Graph *g, Residual kept);

#endif
