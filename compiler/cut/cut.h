/* Pieces: the forward nodes between adjacent legal cuts, in order. A cut is legal at the start or end of a layer
 * instance, at any depth. Every crossing value must be an f32 value per sample. Values of parameters alone and
 * statistics of a microbatch must not cross. Inputs do not cross: each stage loads those that it reads. Views of
 * whole values do not cross; the reader's stage repeats them (localise). A slice crosses as its own value. A
 * backward node belongs to the piece of its forward node. */
#ifndef PDC_CUT_H
#define PDC_CUT_H

#include "graph/graph.h"

typedef struct Piece {
  int first, end;  /* forward nodes [first, end) */
  Name name;       /* the outermost instance that starts here, such as "h.3.ln_2" (in --split also h[3].ln_2); if
                      one only ends, "after h.3.attn". Unique: a second "wte" is "wte#2" */
  Vec(Name) names; /* all names, including inner instances that start or end here */
  Ints crossing;   /* values made before `first` and used at or after it; empty for piece 0 */
  Ints gradients;  /* for each crossing value the gradient that crosses back: the partial sum over its uses at or
                      after `first`; -1: none */
  Ints returned;   /* gradients sent back, without duplicates (the operands of a sum share one) */
  Ints params;     /* parameters used in this piece, and unused ones declared in it */
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
/* As piece_find, but reports a missing piece with similar names and returns -1. `what`: the origin of the name. */
int piece_find_or_tell(const Graph *g, const Pieces *p, const char *name, Span where, const char *what);
typedef Vec(Name) Patterns;
/* Marks the pieces that begin within instances of a pattern: "h[3]", "h[0..6]" (without h[6]), "h[*].mlp". "*" is every
 * piece, "=NAME" pieces of that name alone. False: none. */
bool pieces_select(const Graph *g, const Pieces *p, const char *pattern, bool *selected);
/* The same for a pattern of a user: false after a diagnostic about its form, its ranges, or a missing instance. `what`:
 * the origin of the pattern. */
bool pieces_selected(const Graph *g, const Pieces *p, const char *pattern, Span where, const char *what,
                     bool *selected);
/* Patterns that select, of pieces [first, end), exactly the selected ones: "h[0..6]", "h[7].mlp". */
Patterns pieces_describe(const Graph *g, const Pieces *p, const bool *selected, int first, int end);
Name piece_last_instance(const Graph *g, const Pieces *p, int piece); /* instance of its last node */
void pieces_dump(const Graph *g, const Pieces *p, FILE *out);
void pieces_verify(const Graph *g, const Pieces *p);

#endif
