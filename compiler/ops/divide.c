/* Op.divide of several ops: ways to divide a node among the ranks of a shard group. */
#include "ops/rules.h"

bool divide_pointwise(const Graph *g, int node, int k, Layout split, Layout *layout) {
  const Node *n = &g->nodes.at[node];
  const Shape *y = out_shape(g, node, 0);
  if (k != n->n_in)
    return false;
  layout[k] = split;
  for (int i = 0; i < n->n_in; i++) {
    const Shape *x = in_shape(g, node, i);
    int own = split.axis - (y->rank - x->rank);
    if (own >= 0 && x->dim[own] == y->dim[split.axis])
      layout[i] = (Layout){LAYOUT_SPLIT, own, split.blocks};
  }
  return true;
}

bool divide_reduce(const Graph *g, int node, int k, Layout split, Layout *layout) {
  if (k != 0)
    return false;
  layout[0] = split;
  if (split.axis == in_shape(g, node, 0)->rank - 1)
    layout[1].kind = g->nodes.at[node].op->reduction == REDUCTION_SUM ? LAYOUT_PARTIAL : LAYOUT_BOUND;
  else
    layout[1] = split;
  return true;
}

/* The axis of the result for an axis of the operand; -1: it is not kept as a whole. */
static int axis_behind(const Graph *g, int node, int axis) {
  const Op *op = g->nodes.at[node].op;
  int own;
  if (op->kind != OP_CONCAT)
    return view_axis(g, node, 0, axis);
  op->part(g, node, 0, &own);
  return own == axis ? -1 : axis;
}

bool divide_view(const Graph *g, int node, int k, Layout split, Layout *layout) {
  int axis = k == 0 ? axis_behind(g, node, split.axis) : -1;
  if (axis < 0)
    return false;
  layout[0] = split;
  layout[1] = (Layout){LAYOUT_SPLIT, axis, split.blocks};
  return true;
}

/* Along the concatenated axis, operands of equal sizes are the blocks. */
bool divide_concat(const Graph *g, int node, int k, Layout split, Layout *layout) {
  const Node *n = &g->nodes.at[node];
  int own;
  n->op->part(g, node, 0, &own);
  if (k != 0)
    return false;
  for (int i = 0; i < n->n_in; i++) {
    if (own == split.axis && in_shape(g, node, i)->dim[own] != in_shape(g, node, 0)->dim[own])
      return false;
    layout[i] = split;
  }
  layout[n->n_in] = split;
  layout[n->n_in].blocks *= own == split.axis ? n->n_in : 1;
  return true;
}
