/* Gives matrices of many odd rows, a vocabulary's, rows of zeros behind their own. */
#ifndef PDC_PAD_ROWS_H
#define PDC_PAD_ROWS_H

#include "graph/graph.h"

/* Of a Graph of forward nodes alone. A parameter [n, k] whose products are x @ w.T, and which is otherwise only
 * looked up, gets rows of zeros up to a multiple of `multiple` (Param.padding), where n is large and the elements of
 * a row of the product would not lie 16 bytes side by side. Its products have as many columns more, which a slice
 * leaves out before anybody reads them: no number changes. multiple 0: nothing does. */
void pad_rows(Graph *g, int multiple);

#endif
