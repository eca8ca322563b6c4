/* Tensor parallelism: a Graph for the ranks of a shard group, each of which has a part of what one rank had. Every
 * value is whole on every rank, split along an axis, or a partial sum (Layout); where a reader needs it otherwise than
 * it is made stands a collective. Nobody annotates: the assignment is the cheapest that a dynamic programme finds, by
 * work, bytes that collectives move, and bytes of weights; where memory is short, also bytes that are kept. It depends on
 * the model, the number of ranks and that alone, as all bits do then. */
#ifndef PDC_TENSOR_H
#define PDC_TENSOR_H

#include "graph/graph.h"

enum { MOST_SHARDS = 64 };

/* Makes g the graph that each of `ranks` ranks runs: shapes are those of its parts. What no rule can divide, or what
 * does not divide evenly, all of them compute. sharding: a file whose lines, as sharding_print() writes them, pin the
 * layouts of parameters; NULL: none is pinned. spread: memory is short, so that what forward passes keep for backward ones
 * counts, too; a line of the file can say that as well. False after diagnostics [PD0515]. */
bool tensor(Graph *g, int ranks, const char *sharding, bool spread);

/* What each parameter of a divided graph is split along; as comments where ranks meet. */
void sharding_print(const Graph *g, FILE *out);

#endif
