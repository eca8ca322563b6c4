/* Pads matrices with many rows, such as vocabularies, by zero rows. */
#ifndef PDC_PAD_ROWS_H
#define PDC_PAD_ROWS_H

#include "graph/graph.h"

/* Takes a Graph of forward nodes only. Pads a parameter [n, k] by zero rows to a multiple of `multiple`
 * (Param.padding). Requirements: its products are x @ w.T, it is otherwise only looked up, n is large, and rows of
 * the product are not 16-byte multiples. A slice removes the products' extra columns before any reader, so no
 * number changes. multiple 0: no padding. */
void pad_rows(Graph *g, int multiple);

#endif
