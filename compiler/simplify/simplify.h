/* Graph -> Graph: fold constants, share equal nodes, drop identities and dead nodes. Runs once after autodiff.
 * Requires and keeps topological order with forward nodes first; rewrites ids. A node is never shared by the
 * forward and the backward pass, nor by two instances: a stage must be able to hold either alone. What costs
 * nothing to compute again (localise.c) is copied next to each consumer's instance, so that it never crosses a
 * cut. */
#ifndef PDC_SIMPLIFY_H
#define PDC_SIMPLIFY_H

#include "graph/graph.h"

void simplify(Graph *g);

/* The copying alone (localise.c). Autodiff begins with it, so that every copy of a view of a parameter is
 * a use with a gradient of its own. */
void localise(Graph *g);

#endif
