/* Concatenation: concat, and pad with zeros. */
#include <string.h>

#include "ops/rules.h"
#include "ops/scan.h"

/* Reports that operand i does not fit the first. clash: an axis with different sizes; -1: none. */
static bool concat_fails(ShapeRule *r, int i, int axis, int clash) {
  const Shape *first = rule_shape(r, 0), *x = rule_shape(r, i);
  Diagnostic *d;
  if (x->rank != first->rank || clash >= 0) {
    d = error_at(r->span, "PD0307", "'concat' along axis %d needs %s, but has %s and %s", axis,
                 x->rank != first->rank ? "values with the same number of axes" : "equal sizes on all other axes",
                 shape_text(first), shape_text(x));
    rule_underline(r, d);
    rule_origin(r, d, i, clash);
    return false;
  }
  int same = x->batched ? 0 : i;
  d = error_at(r->span, "PD0307", "'concat' needs a value per sample, but %s is the same for all samples",
               rule_operand(r, same));
  rule_underline(r, d);
  note_at(d, rule_value(r, same)->span, "the value comes from here");
  help(d, "write 'x + 0 * y' to repeat x for every sample, where y is one number per sample");
  return false;
}

static bool shape_concat(ShapeRule *r) {
  Shape s = *rule_shape(r, 0);
  if (!rule_all_f32(r) || !rule_axis(r, "axis", s.rank))
    return false;
  int axis = (int)rule_int(r, "axis");
  for (int i = 1; i < r->n_in; i++) {
    const Shape *x = rule_shape(r, i);
    int clash = -1;
    for (int k = 0; k < s.rank && x->rank == s.rank; k++)
      if (k != axis && x->dim[k] != s.dim[k])
        clash = k;
    if (clash >= 0 || x->rank != s.rank || x->batched != s.batched)
      return concat_fails(r, i, axis, clash);
    s.dim[axis] += x->dim[axis];
  }
  return rule_result(r, s);
}

static void derive_concat(Gradients *d, int node) {
  Graph *g = grad_graph(d);
  int64_t axis = node_int(&g->nodes.at[node], "axis"), from = 0;
  int dy = grad_of(d, node, 0);
  for (int i = 0; i < g->nodes.at[node].n_in; i++) {
    int64_t size = in_shape(g, node, i)->dim[axis];
    Attr attr[MAX_ATTR] = {{.number = (double)axis}, {.number = (double)from}, {.number = (double)(from + size)}};
    if (grad_wanted(d, node, i))
      grad_add(d, node, i, grad_build(d, node, &op_slice, &dy, 1, attr));
    from += size;
  }
}

/* Copies x to its offset in y along the axis. */
static void place(const Shape *x, const Shape *y, int64_t batch, int axis, int64_t at, const double *in,
                  double *out) {
  Around from = around_axis(x, batch, axis), to = around_axis(y, batch, axis);
  for (int64_t o = 0; o < to.outer; o++)
    memcpy(out + (o * to.middle + at) * to.inner, in + o * from.middle * from.inner,
           from.middle * from.inner * sizeof *out);
}

static void evaluate_concat(const Graph *g, int node, int64_t batch, const double *const *in, double *const *out) {
  int axis = (int)node_int(&g->nodes.at[node], "axis");
  int64_t at = 0;
  for (int i = 0; i < g->nodes.at[node].n_in; i++) {
    place(in_shape(g, node, i), out_shape(g, node, 0), batch, axis, at, in[i], out[0]);
    at += in_shape(g, node, i)->dim[axis];
  }
}

static int64_t part_of_concat(const Graph *g, int node, int i, int *axis) {
  int64_t from = 0;
  *axis = (int)node_int(&g->nodes.at[node], "axis");
  for (int k = 0; k < i; k++)
    from += in_shape(g, node, k)->dim[*axis];
  return from;
}

/* The values concatenated along an axis; their sizes along all other axes are equal. */
const Op op_concat = {
    .name = "concat",
    .signature = "concat(x, .., axis = -1)",
    .kind = OP_CONCAT,
    .linear = LINEAR_IN_ALL,
    .divide = divide_concat,
    .min_in = 1,
    .max_in = -1,
    .attr = {{"axis", ATTR_INT, false, -1}},
    .part = part_of_concat,
    .reordered = reordered_axis,
    .shape = shape_concat,
    .derivative = derive_concat,
    .cost = cost_copy,
    .evaluate = evaluate_concat,
};

/* ---- pad ------------------------------------------------------------------------------------- */

static bool shape_pad(ShapeRule *r) {
  const Shape *x = rule_shape(r, 0);
  if (!rule_f32(r, 0) || !rule_axis(r, "axis", x->rank))
    return false;
  int axis = (int)rule_int(r, "axis");
  int64_t before = rule_int(r, "before"), after = rule_int(r, "after");
  if (before < 0 || after < 0) {
    Diagnostic *d = error_at(r->span, "PD0305", "'pad' cannot remove elements: %lld before and %lld after",
                             (long long)before, (long long)after);
    help(d, "use a slice to remove elements: 'x[1..3]'");
    return false;
  }
  return rule_result(r, shape_with(*x, axis, before + x->dim[axis] + after));
}

static void derive_pad(Gradients *d, int node) {
  Graph *g = grad_graph(d);
  const Node *n = &g->nodes.at[node];
  int64_t axis = node_int(n, "axis"), from = node_int(n, "before");
  Attr attr[MAX_ATTR] = {{.number = (double)axis},
                         {.number = (double)from},
                         {.number = (double)(from + in_shape(g, node, 0)->dim[axis])}};
  int dy = grad_of(d, node, 0);
  grad_add(d, node, 0, grad_build(d, node, &op_slice, &dy, 1, attr));
}

static void evaluate_pad(const Graph *g, int node, int64_t batch, const double *const *in, double *const *out) {
  const Node *n = &g->nodes.at[node];
  const Shape *x = in_shape(g, node, 0), *y = out_shape(g, node, 0);
  memset(out[0], 0, batch_elements(y, batch) * sizeof *out[0]);
  place(x, y, batch, (int)node_int(n, "axis"), node_int(n, "before"), in[0], out[0]);
}

static int64_t part_of_pad(const Graph *g, int node, int i, int *axis) {
  (void)i;
  *axis = (int)node_int(&g->nodes.at[node], "axis");
  return node_int(&g->nodes.at[node], "before");
}

/* x with `before` zeros before it and `after` after it along an axis. */
const Op op_pad = {
    .name = "pad",
    .signature = "pad(x, axis = -1, before = 0, after = 0)",
    .kind = OP_CONCAT,
    .linear = LINEAR_IN_ALL,
    .divide = divide_view,
    .min_in = 1,
    .max_in = 1,
    .attr = {{"axis", ATTR_INT, false, -1}, {"before", ATTR_INT, false, 0}, {"after", ATTR_INT, false, 0}},
    .part = part_of_pad,
    .reordered = reordered_axis,
    .shape = shape_pad,
    .derivative = derive_pad,
    .cost = cost_copy,
    .evaluate = evaluate_pad,
    .decode = decode_pad,
};
