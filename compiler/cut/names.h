/* Private to compiler/cut: what pieces are called. */
#ifndef PDC_CUT_NAMES_H
#define PDC_CUT_NAMES_H

#include "cut/cut.h"

bool scope_encloses(const Graph *g, int outer, int scope); /* or equals it */
void name_first_piece(const Graph *g, Piece *p);
/* Fills names from the instances that start and end between nodes first - 1 and first. */
void name_boundary(const Graph *g, int first, Piece *p);
/* Makes names unique over all pieces and picks each piece's own. */
void name_pieces(Pieces *p);

#endif
