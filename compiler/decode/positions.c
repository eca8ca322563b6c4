/* One position of a node: the results' axis of positions, and the operation for one position. Handles kinds of
 * ops; calls and views with a shape define Op.decode. */
#include "decode/internal.h"
#include "ops/expression.h"
#include "ops/rules.h"

/* Operands are broadcast to the result, aligned at the last axis. */
static int decode_pointwise(const Graph *g, int node, const int *axis) {
  const Node *n = &g->nodes.at[node];
  int rank = out_shape(g, node, 0)->rank, found = -1;
  for (int i = 0; i < n->n_in; i++) {
    if (axis[i] < 0)
      continue;
    int here = rank - (in_shape(g, node, i)->rank - axis[i]);
    if (found >= 0 && found != here)
      return -1;
    found = here;
  }
  bool counts = found == rank - 1 && op_reads_words(n->op, 1u << WORD_COLUMN);
  return counts ? -1 : found;
}

static int decode_view(const Graph *g, int node, const int *axis) {
  const Node *n = &g->nodes.at[node];
  int found = view_axis(g, node, 0, axis[0]);
  for (int i = 1; i < n->n_out; i++)
    if (view_axis(g, node, i, axis[0]) != found)
      return -1;
  return found;
}

/* Concatenates along another axis than positions. */
static int decode_concat(const Graph *g, int node, const int *axis) {
  const Node *n = &g->nodes.at[node];
  int along, found = -1;
  n->op->part(g, node, 0, &along);
  for (int i = 0; i < n->n_in; i++) {
    if (axis[i] >= 0 && found >= 0 && axis[i] != found)
      return -1;
    found = axis[i] >= 0 ? axis[i] : found;
  }
  return found != along ? found : -1;
}

int decode_node(const Graph *g, int node, const int *axis, int64_t context, Decoded *to) {
  const Node *n = &g->nodes.at[node];
  *to = (Decoded){.op = n->op};
  for (int i = 0; i < MAX_ATTR && n->op->attr[i].name; i++)
    to->attr[i] = n->attr[i];
  if (n->op->decode)
    return n->op->decode(g, node, axis, context, to);
  switch (n->op->kind) {
  case OP_POINTWISE: return decode_pointwise(g, node, axis);
  case OP_REDUCE: return axis[0] < in_shape(g, node, 0)->rank - 1 ? axis[0] : -1;
  case OP_VIEW: return decode_view(g, node, axis);
  case OP_CONCAT: return decode_concat(g, node, axis);
  default: return -1;
  }
}
