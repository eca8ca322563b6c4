/* The part of the backward pass that schedules may defer: products for weight gradients. */
#include "ops/op.h"
#include "plan/cost/cost.h"

int root_value(const Graph *g, int value) {
  for (;;) {
    const Node *n = &g->nodes.at[g->values.at[value].node];
    if (n->op->kind != OP_VIEW)
      return value;
    value = n->in[0];
  }
}

/* By value: number of backward readers, and whether it is the gradient of a use. */
typedef struct Reader {
  int readers;
  bool gradient;
} Reader;

static Reader *find_readers(const Graph *g) {
  Reader *of = alloc((size_t)(g->values.n + 1) * sizeof *of);
  for (int i = 0; i < g->nodes.n; i++)
    for (int k = 0; k < g->nodes.at[i].n_in; k++)
      of[g->nodes.at[i].in[k]].readers++;
  for (int i = 0; i < g->params.n; i++)
    for (int k = 0; k < g->params.at[i].gradients.n; k++)
      if (g->params.at[i].gradients.at[k] >= 0)
        of[g->params.at[i].gradients.at[k]].gradient = true;
  return of;
}

bool *weight_products(const Graph *g) {
  bool *is = alloc((size_t)g->nodes.n + 1);
  const Reader *of = find_readers(g);
  for (int i = g->n_forward; i < g->nodes.n; i++) {
    const Node *n = &g->nodes.at[i];
    is[i] = n->op->kind == OP_CALL && n->n_out == 1 && of[n->out[0]].gradient && of[n->out[0]].readers == 0;
  }
  /* A gradient may be a view of the call's output: a transposed or reshaped product. */
  for (int i = g->nodes.n - 1; i >= g->n_forward; i--) {
    const Node *n = &g->nodes.at[i];
    if (n->op->kind != OP_VIEW || !of[n->out[0]].gradient || of[n->out[0]].readers > 0)
      continue;
    int root = root_value(g, n->out[0]), made = g->values.at[root].node;
    bool alone = made >= g->n_forward && g->nodes.at[made].op->kind == OP_CALL && g->nodes.at[made].n_out == 1;
    for (int v = n->in[0]; alone && v != root; v = g->nodes.at[g->values.at[v].node].in[0])
      alone = of[v].readers == 1;
    if (alone && of[root].readers == 1)
      is[made] = true;
  }
  return is;
}

bool *scopes_with_calls(const Graph *g) {
  bool *calls = alloc((size_t)g->scopes.n + 1);
  for (int i = 0; i < g->n_forward; i++)
    if (g->nodes.at[i].op->kind == OP_CALL)
      for (int s = g->nodes.at[i].scope; s >= 0; s = g->scopes.at[s].parent)
        calls[s] = true;
  return calls;
}
