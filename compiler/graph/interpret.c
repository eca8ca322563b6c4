#include "graph/interpret.h"

#include "ops/rules.h"

/* The index in a broadcast operand of element `index` of a pointwise result. */
static int64_t broadcast_index(const Shape *result, const Shape *operand, int64_t index) {
  int64_t per_sample = shape_elements(result), rest = index % per_sample, stride = 1;
  int64_t at = operand->batched ? index / per_sample * shape_elements(operand) : 0;
  for (int right = 1; right <= operand->rank; right++) {
    int64_t size = operand->dim[operand->rank - right];
    at += size > 1 ? rest % result->dim[result->rank - right] * stride : 0;
    rest /= result->dim[result->rank - right];
    stride *= size;
  }
  return at;
}

static void interpret_pointwise(const Graph *g, int node, int64_t batch, const double *const *in, double *out) {
  const Node *n = &g->nodes.at[node];
  const Shape *s = out_shape(g, node, 0);
  double *operand = alloc(n->n_in * sizeof *operand);
  bool *whole = alloc(n->n_in * sizeof *whole);
  int64_t elements = batch_elements(s, batch);
  for (int k = 0; k < n->n_in; k++)
    whole[k] = batch_elements(in_shape(g, node, k), batch) == elements;
  for (int64_t i = 0; i < elements; i++) {
    for (int k = 0; k < n->n_in; k++)
      operand[k] = in[k][whole[k] ? i : broadcast_index(s, in_shape(g, node, k), i)];
    out[i] = n->op->fold(operand, n->attr);
  }
}

/* `steps`: nodes that may still be visited; limits values that share operands repeatedly. */
static bool element_of(const Graph *g, int value, int64_t index, double *x, int *steps) {
  enum { MOST_OPERANDS = 3 };
  const int node = g->values.at[value].node;
  const Node *n = &g->nodes.at[node];
  const Shape *s = out_shape(g, node, 0);
  double operand[MOST_OPERANDS];
  if ((*steps)-- <= 0 || n->n_out != 1 || n->n_in > MOST_OPERANDS || s->batched)
    return false;
  if (n->op == &op_iota) {
    *x = (double)index;
    return true;
  }
  if (n->op->constant)
    return n->op->constant(n, x);
  if (n->op->kind == OP_VIEW && n->op->keeps_order && shape_elements(s) == shape_elements(in_shape(g, node, 0)))
    return element_of(g, n->in[0], index, x, steps);
  if (n->op->kind != OP_POINTWISE || !n->op->fold)
    return false;
  for (int k = 0; k < n->n_in; k++)
    if (!element_of(g, n->in[k], broadcast_index(s, in_shape(g, node, k), index), &operand[k], steps))
      return false;
  *x = n->op->fold(operand, n->attr);
  return true;
}

bool interpret_element(const Graph *g, int value, int64_t index, double *x) {
  int steps = 1000;
  return element_of(g, value, index, x, &steps);
}

static double **room_for(const Graph *g, int64_t batch) {
  double **value = alloc((g->values.n + 1) * sizeof *value);
  for (int v = 0; v < g->values.n; v++)
    value[v] = alloc(batch_elements(&g->values.at[v].shape, batch) * sizeof **value);
  return value;
}

static void interpret_node(const Graph *g, int i, int64_t batch, double **value, const double *const *input,
                           const double *const *param) {
  const Node *n = &g->nodes.at[i];
  const double **in = alloc((n->n_in + 1) * sizeof *in);
  double **out = alloc(n->n_out * sizeof *out);
  for (int k = 0; k < n->n_in; k++)
    in[k] = value[n->in[k]];
  for (int k = 0; k < n->n_out; k++)
    out[k] = value[n->out[k]];
  if (n->op->source == SOURCE_PARAMETER)
    value[n->out[0]] = (double *)param[node_int(n, "index")];
  else if (n->op->source == SOURCE_INPUT)
    value[n->out[0]] = (double *)input[node_int(n, "index")];
  else if (n->op->evaluate)
    n->op->evaluate(g, i, batch, in, out);
  else
    interpret_pointwise(g, i, batch, in, out[0]);
}

static void meet(const Graph *g, int i, int ranks, int64_t batch, double ***value) {
  const Node *n = &g->nodes.at[i];
  const double ***in = alloc(ranks * sizeof *in);
  double ***out = alloc(ranks * sizeof *out);
  for (int r = 0; r < ranks; r++) {
    in[r] = alloc((n->n_in + 1) * sizeof **in);
    out[r] = alloc((n->n_out + 1) * sizeof **out);
    for (int k = 0; k < n->n_in; k++)
      in[r][k] = value[r][n->in[k]];
    for (int k = 0; k < n->n_out; k++)
      out[r][k] = value[r][n->out[k]];
  }
  n->op->meet(g, i, batch, ranks, (const double *const *const *)in, (double *const *const *)out);
}

double ***interpret_shards(const Graph *g, int ranks, int64_t batch, const double *const *input,
                           const double *const *const *param) {
  double ***value = alloc(ranks * sizeof *value);
  for (int r = 0; r < ranks; r++)
    value[r] = room_for(g, batch);
  for (int i = 0; i < g->nodes.n; i++) {
    if (g->nodes.at[i].op->meet)
      meet(g, i, ranks, batch, value);
    for (int r = 0; r < ranks && !g->nodes.at[i].op->meet; r++)
      interpret_node(g, i, batch, value[r], input, param[r]);
  }
  return value;
}

double **interpret(const Graph *g, int64_t batch, const double *const *input, const double *const *param) {
  return interpret_shards(g, 1, batch, input, &param)[0];
}

double interpret_loss(const Graph *g, int64_t batch, double *const *value) {
  double total = 0;
  for (int i = 0; i < g->n_losses; i++) {
    const Shape *first = &g->values.at[g->figures.at[0].value].shape,
                *s = &g->values.at[g->figures.at[i].value].shape;
    double weight = (double)shape_elements(first) / (double)shape_elements(s);
    for (int64_t k = 0; k < batch_elements(s, batch); k++)
      total += weight * value[g->figures.at[i].value][k];
  }
  return total;
}
