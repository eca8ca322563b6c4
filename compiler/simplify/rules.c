/* Local rules: each looks at one node and the producers of its inputs. Results keep all bits except the sign of
 * zeros. */
#include "simplify/rules.h"

#include "ops/rules.h"

static const Shape *shape_of(const Rewrite *w, int value) { return &w->to->values.at[value].shape; }
static const Shape *result_shape(const Rewrite *w, int node) { return shape_of(w, graph_output(w->to, node, 0)); }
static int input(const Rewrite *w, int node, int i) { return w->to->nodes.at[node].in[i]; }

static int build(Rewrite *w, int like, const Op *op, const int *in, int n_in, const Attr *attr) {
  int made = rewrite_build(w, like, op, in, n_in, attr);
  int simpler = rule_apply(w, made);
  return simpler >= 0 ? simpler : graph_output(w->to, made, 0);
}

/* The producer of `value` if `node` may see through it; else NULL. */
static const Node *seen(const Rewrite *w, int node, int value) {
  const Graph *g = w->to;
  int from = g->values.at[value].node;
  if (w->run_to.at[from] != w->run_to.at[node] || (is_forward(g, node) && reads_param(g, from)))
    return NULL;
  return &g->nodes.at[from];
}

/* The same if the producer is an `op`. */
static const Node *made_by(const Rewrite *w, int node, int value, const Op *op) {
  return maker(w->to, value)->op == op ? seen(w, node, value) : NULL;
}

/* Whether the value is a number: a constant or a `full`. */
static bool is_number(const Rewrite *w, int node, int value, double *x) {
  const Node *n = made_by(w, node, value, &op_constant);
  if (!n)
    n = made_by(w, node, value, &op_full);
  if (n)
    *x = node_number(n, "value");
  return n != NULL;
}

static bool is(const Rewrite *w, int node, int i, double x) {
  double y;
  return is_number(w, node, input(w, node, i), &y) && y == x;
}

/* Input i if it has the result's shape, else -1. */
static int same_shape(const Rewrite *w, int node, int i) {
  return shape_equal(shape_of(w, input(w, node, i)), result_shape(w, node)) ? input(w, node, i) : -1;
}

static int merge_pads(Rewrite *w, int node, int a, int b); /* -1 unless these are adjacent pads */

/* ---- pointwise --------------------------------------------------------------------------------- */

static int fold(Rewrite *w, int node) {
  const Node *n = &w->to->nodes.at[node];
  double x[3];
  if (!n->op->fold || n->n_in > 3)
    return -1;
  for (int i = 0; i < n->n_in; i++)
    if (!is_number(w, node, n->in[i], &x[i]))
      return -1;
  Shape s = *result_shape(w, node);
  Attr attr[MAX_ATTR] = {{.number = n->op->fold(x, n->attr)}, shape_attr(&s), {.number = s.batched}};
  return build(w, node, s.rank || s.batched ? &op_full : &op_constant, NULL, 0, attr);
}

/* A view of equal elements is the same number in another shape. */
static int view_of_full(Rewrite *w, int node) {
  const Node *full = made_by(w, node, input(w, node, 0), &op_full);
  if (!full)
    return -1;
  Shape s = *result_shape(w, node);
  Attr attr[MAX_ATTR] = {{.number = node_number(full, "value")}, shape_attr(&s), {.number = s.batched}};
  return build(w, node, &op_full, NULL, 0, attr);
}

/* Operands need no explicit broadcast: replaces `full` by its constant and `expand` by its input, if the result's
 * shape stays. */
static int bare_operands(Rewrite *w, int node) {
  Node n = w->to->nodes.at[node];
  for (int i = 0; i < n.n_in; i++) {
    const Node *expand = made_by(w, node, n.in[i], &op_expand), *full = made_by(w, node, n.in[i], &op_full);
    if (!expand && !full)
      continue;
    Shape s = expand ? *shape_of(w, expand->in[0]) : (Shape){.rank = 0};
    bool fits = true;
    int axis;
    for (int k = 0; k < n.n_in && fits; k++)
      if (k != i)
        fits = shape_broadcast(&s, shape_of(w, n.in[k]), &axis);
    if (!fits || !shape_equal(&s, result_shape(w, node)))
      continue;
    int *in = alloc_copy(n.in, n.n_in * sizeof *in);
    in[i] = expand ? expand->in[0] : build(w, node, &op_constant, NULL, 0, full->attr);
    return build(w, node, n.op, in, n.n_in, n.attr);
  }
  return -1;
}

static int rule_add(Rewrite *w, int node) {
  int a = input(w, node, 0), b = input(w, node, 1);
  for (int i = 0; i < 2; i++)
    if (is(w, node, i, 0) && same_shape(w, node, 1 - i) >= 0)
      return same_shape(w, node, 1 - i);
  const Node *negated = made_by(w, node, b, &op_neg);
  if (negated)
    return build(w, node, &op_sub, (int[]){a, negated->in[0]}, 2, NULL);
  int merged = merge_pads(w, node, a, b);
  const Node *sum = made_by(w, node, a, &op_add);
  if (merged >= 0 || !sum)
    return merged;
  int before = sum->in[0]; /* (g + pad) + pad: at each element of g, at most one pad is nonzero */
  merged = merge_pads(w, node, sum->in[1], b);
  return merged >= 0 ? build(w, node, &op_add, (int[]){before, merged}, 2, NULL) : -1;
}

static int rule_sub(Rewrite *w, int node) {
  if (is(w, node, 1, 0))
    return same_shape(w, node, 0);
  if (is(w, node, 0, 0) && same_shape(w, node, 1) >= 0)
    return build(w, node, &op_neg, (int[]){input(w, node, 1)}, 1, NULL);
  const Node *negated = made_by(w, node, input(w, node, 1), &op_neg);
  return negated ? build(w, node, &op_add, (int[]){input(w, node, 0), negated->in[0]}, 2, NULL) : -1;
}

/* Moves the negation of an operand out of a product or quotient. */
static int negate_outside(Rewrite *w, int node) {
  Node n = w->to->nodes.at[node];
  for (int i = 0; i < 2; i++) {
    const Node *negated = made_by(w, node, n.in[i], &op_neg);
    if (!negated)
      continue;
    int in[2] = {n.in[0], n.in[1]};
    in[i] = negated->in[0];
    int positive = build(w, node, n.op, in, 2, NULL);
    return build(w, node, &op_neg, &positive, 1, NULL);
  }
  return -1;
}

static int rule_mul(Rewrite *w, int node) {
  for (int i = 0; i < 2; i++)
    if (is(w, node, i, 1) && same_shape(w, node, 1 - i) >= 0)
      return same_shape(w, node, 1 - i);
  if (input(w, node, 0) == input(w, node, 1))
    return build(w, node, &op_square, (int[]){input(w, node, 0)}, 1, NULL);
  return negate_outside(w, node);
}

static int rule_div(Rewrite *w, int node) {
  return is(w, node, 1, 1) ? same_shape(w, node, 0) : negate_outside(w, node);
}

static int rule_neg(Rewrite *w, int node) {
  const Node *twice = made_by(w, node, input(w, node, 0), &op_neg);
  return twice ? twice->in[0] : -1;
}

static int rule_select(Rewrite *w, int node) {
  double condition;
  if (input(w, node, 1) == input(w, node, 2))
    return same_shape(w, node, 1);
  if (!is_number(w, node, input(w, node, 0), &condition))
    return -1;
  return same_shape(w, node, condition != 0 ? 1 : 2);
}

static int rule_dropout(Rewrite *w, int node) {
  return node_number(&w->to->nodes.at[node], "p") == 0 ? input(w, node, 0) : -1;
}

/* ---- reductions, views --------------------------------------------------------------------------- */

static int rule_unchanged(Rewrite *w, int node) { return same_shape(w, node, 0); }

/* Moves a negation out of a sum. */
static int rule_sum(Rewrite *w, int node) {
  if (same_shape(w, node, 0) >= 0)
    return same_shape(w, node, 0);
  Node n = w->to->nodes.at[node];
  const Node *negated = made_by(w, node, n.in[0], &op_neg);
  if (!negated)
    return -1;
  int positive = build(w, node, n.op, negated->in, 1, n.attr);
  return build(w, node, &op_neg, &positive, 1, NULL);
}

/* A sum over the last axis only becomes a plain sum. */
static int rule_sum_to(Rewrite *w, int node) {
  Shape x = *shape_of(w, input(w, node, 0));
  int last = x.rank - 1;
  if (last < 0 || x.dim[last] == 1)
    return rule_sum(w, node);
  x.dim[last] = 1;
  if (!shape_equal(&x, result_shape(w, node)))
    return rule_sum(w, node);
  return build(w, node, &op_sum, (int[]){input(w, node, 0)}, 1, (Attr[MAX_ATTR]){{.number = last}});
}

static int rule_reshape(Rewrite *w, int node) {
  if (same_shape(w, node, 0) >= 0)
    return same_shape(w, node, 0);
  const Node *inner = made_by(w, node, input(w, node, 0), &op_reshape);
  Attr *attr = w->to->nodes.at[node].attr;
  return inner ? build(w, node, &op_reshape, inner->in, 1, attr) : -1;
}

/* Whether the axes larger than 1 keep their order. */
static bool order_stays(const Shape *x, const int *dims) {
  int last = -1;
  for (int i = 0; i < x->rank; i++)
    if (x->dim[dims[i]] > 1) {
      if (dims[i] < last)
        return false;
      last = dims[i];
    }
  return true;
}

/* Combines two permutations into one; a permutation without effect on elements becomes a reshape. */
static int rule_order(Rewrite *w, int node) {
  const Node *n = &w->to->nodes.at[node], *inner = seen(w, node, n->in[0]);
  Shape x = *shape_of(w, n->in[0]), y = *result_shape(w, node);
  int dims[MAX_RANK], behind[MAX_RANK], value = n->in[0];
  n->op->order(w->to, node, dims);
  bool composed = inner && inner->op->order;
  if (composed) {
    inner->op->order(w->to, w->to->values.at[value].node, behind);
    for (int i = 0; i < x.rank; i++)
      dims[i] = behind[dims[i]];
    value = inner->in[0];
    x = *shape_of(w, value);
  }
  if (order_stays(&x, dims))
    return shape_equal(&x, &y) ? value : build(w, node, &op_reshape, &value, 1, (Attr[MAX_ATTR]){shape_attr(&y)});
  if (!composed)
    return -1;
  Attr attr[MAX_ATTR];
  const Op *op = op_of_order(x.rank, dims, attr);
  return build(w, node, op, &value, 1, attr);
}

static int rule_expand(Rewrite *w, int node) {
  if (same_shape(w, node, 0) >= 0)
    return same_shape(w, node, 0);
  const Node *inner = made_by(w, node, input(w, node, 0), &op_expand);
  Attr *attr = w->to->nodes.at[node].attr;
  return inner ? build(w, node, &op_expand, inner->in, 1, attr) : -1;
}

/* The body of a scan keeps it for its derivative, which is taken later. */
static int rule_detach(Rewrite *w, int node) { return w->to->loop.steps ? -1 : input(w, node, 0); }

/* ---- concatenations ---------------------------------------------------------------------------- */

/* concat(concat(a, b), c) is concat(a, b, c). */
static int flatten(Rewrite *w, int node) {
  const Node *n = &w->to->nodes.at[node];
  Ints in = {0};
  for (int i = 0; i < n->n_in; i++) {
    const Node *inner = made_by(w, node, n->in[i], &op_concat);
    bool along = inner && node_int(inner, "axis") == node_int(n, "axis");
    for (int k = 0; k < (along ? inner->n_in : 1); k++)
      push(&in, along ? inner->in[k] : n->in[i]);
  }
  return in.n > n->n_in ? build(w, node, &op_concat, in.at, in.n, n->attr) : -1;
}

/* Concatenating all outputs of a split in order gives its input. */
static int rejoined(Rewrite *w, int node) {
  const Node *n = &w->to->nodes.at[node], *split = made_by(w, node, n->in[0], &op_split);
  if (!split || split->n_out != n->n_in || !shape_equal(shape_of(w, split->in[0]), result_shape(w, node)))
    return -1;
  for (int i = 0; i < n->n_in; i++)
    if (n->in[i] != split->out[i])
      return -1;
  return node_int(n, "axis") == shape_of(w, split->in[0])->rank - 1 ? split->in[0] : -1;
}

static int rule_concat(Rewrite *w, int node) {
  if (w->to->nodes.at[node].n_in == 1)
    return input(w, node, 0);
  int whole = rejoined(w, node);
  return whole >= 0 ? whole : flatten(w, node);
}

static bool adjoin(const Rewrite *w, const Node *first, const Node *second) {
  int64_t axis = node_int(first, "axis");
  return axis == node_int(second, "axis") &&
         node_int(first, "before") + shape_of(w, first->in[0])->dim[axis] == node_int(second, "before");
}

/* The sum of two pads with adjacent contents is the pad of their concat. */
static int merge_pads(Rewrite *w, int node, int a, int b) {
  const Node *first = made_by(w, node, a, &op_pad), *second = made_by(w, node, b, &op_pad);
  if (!first || !second || !shape_equal(shape_of(w, a), shape_of(w, b)))
    return -1;
  if (!adjoin(w, first, second)) {
    const Node *swapped = first;
    first = second;
    second = swapped;
    if (!adjoin(w, first, second))
      return -1;
  }
  Attr pad[MAX_ATTR] = {first->attr[0], first->attr[1], second->attr[2]};
  Attr concat[MAX_ATTR] = {first->attr[0]};
  int merged = build(w, node, &op_concat, (int[]){first->in[0], second->in[0]}, 2, concat);
  return build(w, node, &op_pad, &merged, 1, pad);
}

/* ---- the table ------------------------------------------------------------------------------------- */

static const struct {
  const Op *op;
  int (*rule)(Rewrite *, int);
} rules[] = {
    {&op_add, rule_add},       {&op_sub, rule_sub},       {&op_mul, rule_mul},         {&op_div, rule_div},
    {&op_neg, rule_neg},       {&op_select, rule_select}, {&op_dropout, rule_dropout}, {&op_sum, rule_sum},
    {&op_max, rule_unchanged}, {&op_sum_to, rule_sum_to}, {&op_reshape, rule_reshape}, {&op_transpose, rule_order},
    {&op_permute, rule_order}, {&op_expand, rule_expand}, {&op_slice, rule_unchanged}, {&op_detach, rule_detach},
    {&op_concat, rule_concat}, {&op_pad, rule_unchanged},
};

int rule_apply(Rewrite *w, int node) {
  const Graph *g = w->to;
  const Op *op = g->nodes.at[node].op;
  if (g->inference && op->trains)
    return input(w, node, 0);
  if (g->nodes.at[node].n_out != 1 || (is_forward(g, node) && reads_param(g, node)))
    return -1;
  int value = -1;
  if (op->kind == OP_POINTWISE)
    value = fold(w, node);
  else if (op->kind == OP_VIEW)
    value = view_of_full(w, node);
  for (size_t i = 0; value < 0 && i < sizeof rules / sizeof rules[0]; i++)
    if (rules[i].op == op)
      value = rules[i].rule(w, node);
  if (value < 0 && op->kind == OP_POINTWISE)
    value = bare_operands(w, node);
  return value;
}
