/* Shared by the files of decode/. */
#ifndef PDC_DECODE_INTERNAL_H
#define PDC_DECODE_INTERNAL_H

#include "decode/decode.h"
#include "simplify/rewrite.h"

/* ---- logits and tokens of a model (sequence.c) -------------------------------------------------------- */

typedef struct Sequence {
  int logits;      /* the value to sample from, [context, classes] */
  int tokens;      /* the index of the token input [context] */
  int64_t context; /* positions */
  bool *needed;    /* by node: logits depend on it */
} Sequence;

/* False after a diagnostic. */
bool find_sequence(const Graph *g, Sequence *s);
/* The first value before the logits in which a position may depend on later ones, judged by operations; -1:
 * none. */
int find_not_causal(const Graph *g, const Sequence *s);

/* ---- one position of a node (positions.c) --------------------------------------------------------- */

/* The node's attributes and op for one position; axis[i] is operand i's axis of positions, or -1. */
int decode_node(const Graph *g, int node, const int *axis, int64_t context, Decoded *to);

#endif
