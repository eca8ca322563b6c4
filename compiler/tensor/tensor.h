/* Tensor parallelism: a Graph for the ranks of a shard group. Every value is whole on every rank, split along an
 * axis, or a partial sum (Layout). A collective converts a value if a reader needs another layout. A dynamic
 * programme finds the cheapest assignment by work, bytes of collectives and bytes of weights; if memory is short,
 * also by saved bytes. The assignment, and thereby all bits, depend only on the model, the number of ranks and
 * whether memory is short. */
#ifndef PDC_TENSOR_H
#define PDC_TENSOR_H

#include "graph/graph.h"

enum { MOST_SHARDS = 64 };

/* Turns g into the graph of each of `ranks` ranks, with the shapes of its parts. Values that no rule divides are
 * computed by all ranks. sharding: a file in the form of sharding_print() that pins layouts of parameters; NULL:
 * none. spread: memory is short, so saved activations count as well; a line of the file can also set this. False
 * after diagnostics [PD0515]. */
bool tensor(Graph *g, int ranks, const char *sharding, bool spread);

/* Prints the layout of each parameter of a divided graph; collectives as comments. */
void sharding_print(const Graph *g, FILE *out);

#endif
