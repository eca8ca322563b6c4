/* Hidden matrices: parameters of rank two between a model's first and last layer, for optimizers such as Muon. */
#ifndef PDC_HIDDEN_H
#define PDC_HIDDEN_H

#include "graph/graph.h"

/* By parameter of the forward graph of the whole model. A hidden matrix is trained, has two axes and is a factor
 * of matrix products. One such result passes a further product on its way to a loss, which excludes heads. No
 * other call reads the parameter, which excludes tables of gathered rows. */
bool *hidden_matrices(const Graph *g);

#endif
