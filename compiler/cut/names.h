/* Private to compiler/cut: names of pieces. */
#ifndef PDC_CUT_NAMES_H
#define PDC_CUT_NAMES_H

#include "cut/cut.h"

bool scope_encloses(const Graph *g, int outer, int scope); /* true for equal scopes */
void name_first_piece(const Graph *g, Piece *p);
/* Fills names from the instances that start and end between nodes first - 1 and first. */
void name_boundary(const Graph *g, int first, Piece *p);
/* Makes names unique over all pieces and selects each piece's main name. */
void name_pieces(Pieces *p);

#endif
