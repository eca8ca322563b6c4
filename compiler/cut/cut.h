/* Pieces: the forward nodes between neighbouring legal cuts, in order. A cut is legal where a layer
 * instance starts or ends (at any depth), and every value that crosses it is an f32 value per sample: no value of
 * parameters alone, and no statistic of a microbatch. Inputs do not cross: each stage loads the inputs that it
 * reads. Views of whole values do not cross; the reader's stage repeats them (localise). A slice crosses as a
 * value of its own.
 * A backward node belongs to the piece of the forward node it serves. */
#ifndef PDC_CUT_H
#define PDC_CUT_H

#include "graph/graph.h"

typedef struct Piece {
  int first, end;  /* forward nodes [first, end) */
  Name name;       /* the outermost instance that starts here: "h.3.ln_2", what --split names
                         (h[3].ln_2); where one only ends, "after h.3.attn". Unique: a second
                         "wte" is "wte#2" */
  Vec(Name) names; /* all names: also inner instances that start or end here */
  Ints crossing;   /* values made before `first` and used at or after it; empty for piece 0 */
  Ints gradients;  /* for each crossing value the gradient value that crosses back: the partial
                         sum over its uses at or after `first`; -1: no gradient */
  Ints returned;   /* gradients sent back, each once (the operands of a sum share one) */
  Ints params;     /* parameters with a use in this piece, or declared in it and used nowhere */
} Piece;

typedef struct Pieces {
  Piece *at;
  int n;
} Pieces;

Pieces cut(const Graph *g);
/* The first value that crosses a cut before node `first` and cannot be sent as a message; -1: none. */
int find_obstacle(const Graph *g, int first);
/* The piece with a name in either spelling ("h.3.ln_2", "h[3].ln_2"), or -1. */
int piece_find(const Pieces *p, const char *name);
/* piece_find with a diagnostic that lists similar names; -1 after a diagnostic. `what`: the origin of the name. */
int piece_find_or_tell(const Graph *g, const Pieces *p, const char *name, Span where, const char *what);
Name piece_last_instance(const Graph *g, const Pieces *p, int piece); /* instance of its last node */
void pieces_dump(const Graph *g, const Pieces *p, FILE *out);
void pieces_verify(const Graph *g, const Pieces *p);

#endif
