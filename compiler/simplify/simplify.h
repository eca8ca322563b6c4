/* Graph -> Graph: folds constants, shares equal nodes, drops identities and dead nodes. Runs once after autodiff.
 * Requires and keeps topological order with forward nodes first; renumbers ids. Forward and backward pass never
 * share a node, and neither do two instances, because a stage may hold either alone. Free computations
 * (localise.c) are copied into each reader's instance, so that they never cross a cut. */
#ifndef PDC_SIMPLIFY_H
#define PDC_SIMPLIFY_H

#include "graph/graph.h"

void simplify(Graph *g);

/* Simplifies the body of a scan and drops inputs that it does not read; an unread state starts from zeros. Returns, by
 * earlier input, whether the scan has no operand for it any more; states that started from zeros had none. */
bool *simplify_body(Graph *body);

/* Runs only the copying (localise.c). Autodiff starts with it, so that every copy of a parameter's view is a use
 * with its own gradient. */
void localise(Graph *g);

#endif
