/* A model of token sequences becomes one that generates them. */
#ifndef PDC_DECODE_H
#define PDC_DECODE_H

#include "graph/graph.h"

/* Of a Graph for inference, as elaboration leaves it. Afterwards its one figure is the logits, its inputs are the
 * tokens and, where keys and values are cached, the position, and Graph.generation says which is which:
 * - cached: one position at a time. Tokens are [1], logits [1, classes], and causal attention is to caches.
 * - else all positions for every token: tokens are [context], logits [context, classes].
 * samples: sequences at once, a batch. caches false: never cached. False after diagnostics. */
bool decode(Graph *g, int64_t samples, bool caches);

#endif
