/* Hidden matrices: the parameters of rank two that stand between a model's first and last layer, which optimizers
 * such as Muon are for. */
#ifndef PDC_HIDDEN_H
#define PDC_HIDDEN_H

#include "graph/graph.h"

/* By parameter of a forward graph, of the whole model: it is trained, has two axes and multiplies in matrix
 * products, of which one's result goes through a further product on its way to a loss, as a head's does not; and no
 * other call reads it, such as one that gathers its rows. */
bool *hidden_matrices(const Graph *g);

#endif
