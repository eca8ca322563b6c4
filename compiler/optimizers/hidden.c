/* Finds the hidden matrices in the whole model, before it is cut. */
#include "optimizers/hidden.h"
#include "ops/op.h"

static bool is_product(const Graph *g, int node) {
  const Node *n = &g->nodes.at[node];
  return n->op->kind == OP_CALL && n->op->cost && n->op->cost(g, node).matmul_flops > 0;
}

/* A value's path to the losses, along operations with gradients. */
typedef struct Way {
  bool to_loss, through_product;
} Way;

static Way *find_ways(const Graph *g) {
  Way *way = alloc((size_t)(g->values.n + 1) * sizeof *way);
  for (int i = 0; i < g->n_losses; i++)
    way[g->figures.at[i].value].to_loss = true;
  for (int i = g->nodes.n - 1; i >= 0; i--) {
    const Node *n = &g->nodes.at[i];
    Way out = {0};
    for (int k = 0; k < n->n_out; k++) {
      out.to_loss |= way[n->out[k]].to_loss;
      out.through_product |= way[n->out[k]].through_product;
    }
    out.through_product |= out.to_loss && is_product(g, i);
    for (int k = 0; k < n->n_in; k++)
      if (node_passes_gradient(n, k)) {
        way[n->in[k]].to_loss |= out.to_loss;
        way[n->in[k]].through_product |= out.through_product;
      }
  }
  return way;
}

/* By value: index of the parameter of which it is a view, from 1; 0: none. */
static int *find_views(const Graph *g) {
  int *of = alloc((size_t)(g->values.n + 1) * sizeof *of);
  for (int i = 0; i < g->params.n; i++)
    of[g->params.at[i].value] = i + 1;
  for (int i = 0; i < g->nodes.n; i++)
    for (int k = 0; g->nodes.at[i].op->kind == OP_VIEW && k < g->nodes.at[i].n_out; k++)
      of[g->nodes.at[i].out[k]] = of[g->nodes.at[i].in[0]];
  return of;
}

bool *hidden_matrices(const Graph *g) {
  const Way *way = find_ways(g);
  const int *view = find_views(g);
  bool *hidden = alloc((size_t)g->params.n + 1), *excluded = alloc((size_t)g->params.n + 1);
  bool *stacked = alloc((size_t)g->params.n + 1); /* matrices of experts, which a product reads as they are */
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *n = &g->nodes.at[i];
    bool product = is_product(g, i), further = false;
    for (int k = 0; k < n->n_out; k++)
      further |= way[n->out[k]].through_product;
    for (int k = 0; k < n->n_in && n->op->kind == OP_CALL; k++) {
      int p = view[n->in[k]] - 1;
      if (p < 0)
        continue;
      stacked[p] |= product && g->values.at[n->in[k]].shape.rank == 3;
      hidden[p] |= product && further;
      excluded[p] |= !product;
    }
  }
  for (int i = 0; i < g->params.n; i++) {
    const Param *p = &g->params.at[i];
    hidden[i] =
        hidden[i] && !excluded[i] && is_trained(p) && (p->shape.rank == 2 || (p->shape.rank == 3 && stacked[i]));
  }
  return hidden;
}
