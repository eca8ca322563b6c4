/* --precision bf16: the residual stream, which consists of the bypasses of a model's blocks and the sums at their
 * ends. */
#ifndef PDC_RESIDUAL_H
#define PDC_RESIDUAL_H

#include "graph/graph.h"
#include "target/target.h"

/* Takes forward nodes before autodiff. Library calls read rounded copies of the stream's f32 values. */
void round_residuals(Graph *g, Residual kept);

/* Takes the final Graph. Does the same for the stream's gradients, and marks the bf16 values of the stream and its
 * gradients (Value.bf16). */
void mark_residuals(Graph *g, Residual kept);

#endif
