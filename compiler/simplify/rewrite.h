/* Writing a Graph anew node by node, with all that refers to values and nodes brought along. */
#ifndef PDC_REWRITE_H
#define PDC_REWRITE_H

#include "ops/op.h"

/* Value.uses and Value.gradients of a value being written, by run instead of by node. */
typedef struct Partials {
  Ints run, gradient;
} Partials; /* gradients are values of `from` */

typedef struct Rewrite {
  Graph *from, *to;
  int *run;               /* by node of from, see graph_runs */
  int *value;             /* by value of from: the value of `to` that stands for it, -1 when there is none */
  int *node;              /* by node of from: its copy, -1 when there is none (yet) */
  Ints run_to;            /* by node of to, in from's numbers */
  Vec(Partials) partials; /* by value of to */
} Rewrite;

Rewrite *rewrite_begin(Graph *g);
/* Copies a node; all its inputs must have been. Returns its number in `to`. Runs and the served node are
 * those of `like`: the node itself, or the one beside which a copy is wanted. */
int rewrite_copy(Rewrite *w, int node, const int *in, int like);
/* Appends a new node in the run of `like`, a node of `to`, serving what it serves. */
int rewrite_build(Rewrite *w, int like, const Op *op, const int *in, int n_in, const Attr *attr);
/* Appends a new node in the scope and the run of `like`, a node of `from`, that is forward or serves what that does. */
int rewrite_insert(Rewrite *w, int like, const Op *op, const int *in, int n_in, const Attr *attr);
/* The value of `to` takes the name of one of `from`, for which it stands. */
void rewrite_stand_for(Rewrite *w, int value, int old);
/* Replaces the graph by what was written. */
void rewrite_finish(Rewrite *w);

static inline const Node *maker(const Graph *g, int value) { return &g->nodes.at[g->values.at[value].node]; }
static inline bool is_forward(const Graph *g, int node) { return g->nodes.at[node].serves < 0; }
bool reads_param(const Graph *g, int node);
/* By node: it makes a loss, a metric or a parameter's gradient, for which no other value may be read. */
bool *find_pinned(const Graph *g);

#endif
