/* Pieces: the forward nodes between neighbouring legal cuts, in order. A cut is legal where a layer
 * instance starts or ends (at any depth), every value that crosses it is a batched f32 value that
 * stands in memory (no view), and nothing that depends on parameters alone crosses it.
 * A backward node belongs to the piece of the forward node it serves. */
#ifndef PDC_CUT_H
#define PDC_CUT_H

#include "graph/graph.h"

typedef struct Piece {
  int first, end;     /* forward nodes [first, end) */
  Name name;          /* the instance that starts here: "h.3.ln_2", what --split names (h[3].ln_2) */
  Ints crossing;      /* values made before `first` and used at or after it; empty for piece 0 */
  Ints gradients;     /* for each crossing value the gradient value that crosses back: the partial
                         sum over its uses at or after `first`; -1 where it has none */
  Ints params;        /* parameters with a use in this piece */
} Piece;

typedef struct Pieces { Piece *at; int n; } Pieces;

Pieces cut(const Graph *g);
void pieces_dump(const Graph *g, const Pieces *p, FILE *out);
void pieces_verify(const Graph *g, const Pieces *p);

#endif
