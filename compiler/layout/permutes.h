/* Moves permutes to the readers that need their order. */
#ifndef PDC_PERMUTES_H
#define PDC_PERMUTES_H

#include "graph/graph.h"

/* Takes a Graph as elaborated, forward nodes only. Afterwards values may have another order of axes than in the
 * model, except losses, inputs and parameters. A graph without permutes is unchanged. */
void move_permutes(Graph *g);

#endif
