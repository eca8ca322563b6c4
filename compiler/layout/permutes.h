/* Moves permutes to the readers that need the order they make. */
#ifndef PDC_PERMUTES_H
#define PDC_PERMUTES_H

#include "graph/graph.h"

/* Of a Graph as elaboration leaves it, forward nodes alone. Afterwards a value may have its axes in another
 * order than the user's; losses, inputs and parameters never do. A graph without permutes stays as it is. */
void move_permutes(Graph *g);

#endif
