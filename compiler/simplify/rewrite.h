/* Rewrites a Graph node by node, including all references to values and nodes. */
#ifndef PDC_REWRITE_H
#define PDC_REWRITE_H

#include "ops/op.h"

/* Value.uses and Value.gradients during a rewrite, by run instead of by node. */
typedef struct Partials {
  Ints run, gradient;
} Partials; /* gradients are values of `from` */

typedef struct Rewrite {
  Graph *from, *to;
  int *run;               /* by node of from, as from graph_runs() */
  int *value;             /* by value of from: its replacement in `to`, or -1 */
  int *node;              /* by node of from: its copy, or -1 */
  Ints run_to;            /* by node of to: the run number in `from` */
  Vec(Partials) partials; /* by value of to */
} Rewrite;

Rewrite *rewrite_begin(Graph *g);
/* Copies a node after all its inputs; returns its index in `to`. It gets the run and the served node of `like`:
 * the node itself, or a neighbour. */
int rewrite_copy(Rewrite *w, int node, const int *in, int like);
/* Appends a new node in the run of `like`, a node of `to`, that serves the same node. */
int rewrite_build(Rewrite *w, int like, const Op *op, const int *in, int n_in, const Attr *attr);
/* Appends a new node in the scope and run of `like`, a node of `from`. It is forward or serves the node that
 * `like` serves. */
int rewrite_insert(Rewrite *w, int like, const Op *op, const int *in, int n_in, const Attr *attr);
/* Gives a value of `to` the name of the value of `from` that it replaces. */
void rewrite_stand_for(Rewrite *w, int value, int old);
/* Replaces the graph by the rewritten one. */
void rewrite_finish(Rewrite *w);

static inline const Node *maker(const Graph *g, int value) { return &g->nodes.at[g->values.at[value].node]; }
static inline bool is_forward(const Graph *g, int node) { return g->nodes.at[node].serves < 0; }
bool reads_param(const Graph *g, int node);
/* By node: it computes a loss, a metric or a parameter's gradient, which no other value may replace. */
bool *find_pinned(const Graph *g);

#endif
