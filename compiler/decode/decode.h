/* Turns a model of token sequences into a generator of them. */
#ifndef PDC_DECODE_H
#define PDC_DECODE_H

#include "graph/graph.h"

/* Takes a Graph for inference, as elaborated. The result has the logits as its only figure. Its inputs are the
 * tokens and, with cached keys and values, the position; Graph.generation has their indices.
 * - cached: one position at a time. Tokens are [1], logits [1, classes]; causal attention uses caches.
 * - not cached: all positions for every token. Tokens are [context], logits [context, classes].
 *   samples: sequences per batch. caches false: never cached. False after diagnostics. */
bool decode(Graph *g, int64_t samples, bool caches);

#endif
