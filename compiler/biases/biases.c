/* The gradient of a bias is the sum over all rows of what comes back to it. Where a loop makes that, or reads it anyway,
 * the sum is a part of the loop and costs nothing. Where library calls alone do, the loop would be the sum's own and read
 * all of it once more, which the product that makes the gradient of the weights reads, too. The choice follows from the
 * graph alone, so that no bit depends on cuts, schedules or recomputation. */
#include "biases/biases.h"

#include "ops/op.h"
#include "simplify/rewrite.h"

typedef struct Reads {
  int *loops; /* by value that is no view: nodes other than calls that read it, or a view of it */
  int *all;   /* by value: nodes, parameters' gradients and figures that read it */
} Reads;

static int behind(const Graph *g, int value) {
  while (maker(g, value)->op->kind == OP_VIEW)
    value = maker(g, value)->in[0];
  return value;
}

static Reads count_reads(const Graph *g) {
  size_t bytes = (size_t)(g->values.n + 1) * sizeof(int);
  Reads r = {.loops = alloc(bytes), .all = alloc(bytes)};
  for (int i = 0; i < g->nodes.n; i++)
    for (int k = 0; k < g->nodes.at[i].n_in; k++) {
      const Node *n = &g->nodes.at[i];
      r.all[n->in[k]]++;
      r.loops[behind(g, n->in[k])] += n->op->kind != OP_VIEW && n->op->kind != OP_CALL;
    }
  for (int i = 0; i < g->figures.n; i++)
    r.all[g->figures.at[i].value]++;
  for (int i = 0; i < g->params.n; i++)
    for (int u = 0; u < g->params.at[i].gradients.n; u++)
      if (g->params.at[i].gradients.at[u] >= 0)
        r.all[g->params.at[i].gradients.at[u]]++;
  return r;
}

/* By value: it is the gradient of a use of a parameter. */
static bool *find_gradients(const Graph *g) {
  bool *gradient = alloc((size_t)g->values.n + 1);
  for (int i = 0; i < g->params.n; i++)
    for (int u = 0; u < g->params.at[i].gradients.n; u++)
      if (g->params.at[i].gradients.at[u] >= 0)
        gradient[g->params.at[i].gradients.at[u]] = true;
  return gradient;
}

/* Over all rows of what samples have, to a vector. */
static bool is_sum(const Graph *g, const Node *n) {
  if (n->op != &op_sum_to)
    return false;
  const Shape *from = &g->values.at[n->in[0]].shape, *to = &g->values.at[n->out[0]].shape;
  return from->batched && !to->batched && from->rank > 0 && to->rank == 1 &&
         to->dim[0] == from->dim[from->rank - 1];
}

/* Calls write straight into their parts of a concatenation. */
static bool is_made_by_calls(const Graph *g, int value) {
  const Node *n = maker(g, behind(g, value));
  bool calls = n->op->kind == OP_CALL || n->op->kind == OP_CONCAT;
  for (int k = 0; n->op->kind == OP_CONCAT && k < n->n_in; k++)
    calls = calls && maker(g, behind(g, n->in[k]))->op->kind == OP_CALL;
  return calls;
}

/* The first product of the run that makes the gradient of weights from `dy`; else -1. */
static int find_product(const Graph *g, const int *run, int in_run, int dy) {
  for (int i = g->n_forward; i < g->nodes.n; i++)
    if (g->nodes.at[i].op == &op_weight_gradient && g->nodes.at[i].in[1] == dy && run[i] == in_run)
      return i;
  return -1;
}

/* By node: the product that makes this sum, too; by product: the sum. -1: none. */
static int *match_sums(const Graph *g) {
  const Reads reads = count_reads(g);
  const bool *gradient = find_gradients(g);
  const int *run = graph_runs(g);
  int *other = alloc((size_t)(g->nodes.n + 1) * sizeof *other);
  for (int i = 0; i < g->nodes.n; i++)
    other[i] = -1;
  for (int i = g->n_forward; i < g->nodes.n; i++) {
    const Node *n = &g->nodes.at[i];
    if (!is_sum(g, n) || reads.all[n->out[0]] != 1 || !gradient[n->out[0]])
      continue;
    if (reads.loops[behind(g, n->in[0])] != 1 || !is_made_by_calls(g, n->in[0]))
      continue;
    int product = find_product(g, run, run[i], n->in[0]);
    if (product >= 0)
      other[i] = product, other[product] = i;
  }
  return other;
}

static void write_both(Rewrite *w, int product, int sum) {
  const Node *n = &w->from->nodes.at[product];
  int in[2] = {w->value[n->in[0]], w->value[n->in[1]]};
  int made = rewrite_insert(w, product, &op_weight_and_bias_gradient, in, 2, NULL);
  rewrite_stand_for(w, graph_output(w->to, made, 0), n->out[0]);
  rewrite_stand_for(w, graph_output(w->to, made, 1), w->from->nodes.at[sum].out[0]);
  w->node[product] = w->node[sum] = made;
}

void merge_bias_gradients(Graph *g) {
  const int *other = match_sums(g);
  Rewrite *w = rewrite_begin(g);
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *n = &g->nodes.at[i];
    int *in = alloc((size_t)(n->n_in + 1) * sizeof *in);
    for (int k = 0; k < n->n_in; k++)
      in[k] = w->value[n->in[k]];
    if (other[i] < 0)
      rewrite_copy(w, i, in, i);
    else if (n->op == &op_weight_gradient)
      write_both(w, i, other[i]);
  }
  rewrite_finish(w);
}
