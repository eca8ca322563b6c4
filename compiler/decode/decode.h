/* Turns a model of token sequences into a generator of them. */
#ifndef PDC_DECODE_H
#define PDC_DECODE_H

#include "graph/graph.h"

/* Takes a Graph for inference, as elaborated. The result has the logits as its only figure. Its inputs are the
 * tokens and, with cached keys and values, the position and the sequence; Graph.generation has their indices.
 * - cached: a row of the batch is one position of a sequence. Tokens are [1], logits [1, classes]; causal attention
 *   uses caches. Several rows may be positions of one sequence, in ascending order.
 * - not cached: all positions for every token. Tokens are [context], logits [context, classes].
 *   samples: sequences at the same time. rows: of a batch, if cached and more than samples. caches false: never
 *   cached. False after diagnostics. */
bool decode(Graph *g, int64_t samples, int64_t rows, bool caches);

#endif
