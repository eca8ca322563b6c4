/* What the files of this folder share. */
#ifndef PDC_DECODE_INTERNAL_H
#define PDC_DECODE_INTERNAL_H

#include "decode/decode.h"
#include "simplify/rewrite.h"

/* ---- what is generated from what (sequence.c) ------------------------------------------------------ */

typedef struct Sequence {
  int logits;      /* the value to sample from, [context, classes] */
  int tokens;      /* the input of tokens [context]: its index */
  int64_t context; /* positions */
  bool *needed;    /* by node: logits depend on it */
} Sequence;

/* False after a diagnostic. */
bool find_sequence(const Graph *g, Sequence *s);
/* The value behind logits in which a position may see later ones, as far as operations tell; -1: there is none. */
int find_not_causal(const Graph *g, const Sequence *s);

/* ---- one position of a node (positions.c) --------------------------------------------------------- */

/* The node's attributes and op for one position, from operands whose axis of positions is axis[i], or -1. */
int decode_node(const Graph *g, int node, const int *axis, int64_t context, Decoded *to);

#endif
