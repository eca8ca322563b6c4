/* Makes GELU part of the product whose result it is applied to. */
#ifndef PDC_EPILOGUES_H
#define PDC_EPILOGUES_H

#include "graph/graph.h"

/* Of a Graph of forward nodes alone. Where GELU, by its approximation with tanh, is all that becomes of a product with a
 * matrix that is no sample's and a bias, one node makes both (op_matmul_gelu); its derivative makes the gradient of GELU
 * part of the product that it comes from. GELU is of the whole sum then, and not of the sum rounded. No cut is left
 * between that product and the next one, on any plan. */
void merge_gelus(Graph *g);

#endif
