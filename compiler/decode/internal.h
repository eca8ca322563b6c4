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
  bool *stepped;   /* by node: depends on the tokens */
  /* Of a model with an encoder: the index of the input with the tokens that it reads, -1: no encoder; the tokens before
   * the first one and behind sources, pad -1: unknown. */
  int source;
  int64_t start, pad;
} Sequence;

/* False after a diagnostic. */
bool find_sequence(const Graph *g, Sequence *s);
/* The first value before the logits in which a position may depend on later ones, judged by operations; -1:
 * none. */
int find_not_causal(const Graph *g, const Sequence *s);

/* ---- inputs of an encoder (source.c) ----------------------------------------------------------------- */

/* Finds the source among the inputs that logits need beside the tokens. False after a diagnostic. */
bool find_source(const Graph *g, Sequence *s);

/* ---- attention written as products (keys.c) ------------------------------------------------------- */

/* Elements by key, along an axis with all positions: anything; so low for positions behind the query's that softmax
 * gives 0; or 0 there. */
typedef enum { KEYS_SEEN, KEYS_HIDDEN, KEYS_ZERO } KeysState;
typedef struct Keys {
  int axis; /* -1: none */
  KeysState state;
} Keys;
/* The results' keys, for a node whose operands have positions along axis[i] and keys of[i], and results along `found`, -1:
 * not known; returns their axis of positions. *whole: the operand of which all positions are needed, -1: none. Returns
 * -1 if results may depend on later positions. */
int decode_keys(const Graph *g, int node, const int *axis, const Keys *of, int found, Keys *to, int *whole);

/* ---- one position of a node (positions.c) --------------------------------------------------------- */

/* The node's attributes and op for one position; axis[i] is operand i's axis of positions, or -1. */
int decode_node(const Graph *g, int node, const int *axis, int64_t context, Decoded *to);

#endif
