/* Sums and maxima over the last axis, and sums over broadcast axes. */
#include <math.h>
#include <string.h>

#include "ops/rules.h"

static bool shape_reduce(ShapeRule *r) {
  const Shape *x = rule_shape(r, 0);
  if (!rule_f32(r, 0) || !rule_axis(r, "axis", x->rank))
    return false;
  int axis = (int)rule_int(r, "axis");
  if (axis != x->rank - 1) {
    Diagnostic *d = error_at(r->span, "PD0303", "'%s' works along the last axis only, not along axis %d of %s",
                             r->op->name, axis, shape_text(x));
    rule_underline(r, d);
    help(d, "use 'transpose(x, %d, -1)' to make it the last axis", axis);
    return false;
  }
  return rule_result(r, shape_with(*x, axis, 1));
}

static int expand_like(Gradients *d, int node, int value, const Shape *s) {
  return grad_build(d, node, &op_expand, &value, 1, (Attr[MAX_ATTR]){shape_attr(s), {.number = s->batched}});
}

static void derive_sum(Gradients *d, int node) {
  Shape x = *in_shape(grad_graph(d), node, 0);
  grad_add(d, node, 0, expand_like(d, node, grad_of(d, node, 0), &x));
}

/* All elements that equal the maximum share the gradient equally. */
static void derive_max(Gradients *d, int node) {
  Graph *g = grad_graph(d);
  int hit = grad_2(d, node, &op_equal, g->nodes.at[node].in[0], graph_output(g, node, 0));
  int share = grad_2(d, node, &op_div, hit, grad_1(d, node, &op_sum, hit));
  grad_add(d, node, 0, grad_2(d, node, &op_mul, grad_of(d, node, 0), share));
}

static void evaluate_sum(const Graph *g, int node, int64_t batch, const double *const *in, double *const *out) {
  const Shape *x = in_shape(g, node, 0);
  int64_t n = x->dim[x->rank - 1], rows = batch_elements(x, batch) / n;
  for (int64_t r = 0; r < rows; r++) {
    out[0][r] = 0;
    for (int64_t j = 0; j < n; j++)
      out[0][r] += in[0][r * n + j];
  }
}

static void evaluate_max(const Graph *g, int node, int64_t batch, const double *const *in, double *const *out) {
  const Shape *x = in_shape(g, node, 0);
  int64_t n = x->dim[x->rank - 1], rows = batch_elements(x, batch) / n;
  for (int64_t r = 0; r < rows; r++) {
    out[0][r] = -INFINITY;
    for (int64_t j = 0; j < n; j++)
      out[0][r] = fmax(out[0][r], in[0][r * n + j]);
  }
}

/* The sum over an axis or a list of axes, which keep size 1: x[.., n] gives [.., 1]. keepdim = false drops them. */
const Op op_sum = {
    .name = "sum",
    .signature = "sum(x, axis = -1, keepdim = true)",
    .kind = OP_REDUCE,
    .reduction = REDUCTION_SUM,
    .linear = LINEAR_IN_ALL,
    .divide = divide_reduce,
    .min_in = 1,
    .max_in = 1,
    .attr = {{"axis", ATTR_INT, false, -1}},
    .reordered = reordered_before_last,
    .shape = shape_reduce,
    .derivative = derive_sum,
    .cost = cost_inputs,
    .evaluate = evaluate_sum,
};

/* The maximum over an axis or a list of axes, which keep size 1: x[.., n] gives [.., 1]. keepdim = false drops them. */
const Op op_max = {
    .name = "max",
    .signature = "max(x, axis = -1, keepdim = true)",
    .kind = OP_REDUCE,
    .reduction = REDUCTION_MAX,
    .by_element = "maximum",
    .divide = divide_reduce,
    .min_in = 1,
    .max_in = 1,
    .attr = {{"axis", ATTR_INT, false, -1}},
    .reordered = reordered_before_last,
    .shape = shape_reduce,
    .derivative = derive_max,
    .cost = cost_inputs,
    .evaluate = evaluate_max,
};

/* ---- sum_to ---------------------------------------------------------------------------------- */

static bool shape_sum_to(ShapeRule *r) {
  const Shape *x = rule_shape(r, 0);
  Shape to = {.batched = rule_int(r, "$batched") != 0};
  if (!rule_f32(r, 0) || !rule_sizes(r, "shape", &to))
    return false;
  Shape wide = to;
  int axis;
  bool fits = shape_broadcast(&wide, x, &axis);
  wide.batched = x->batched;
  if (fits && x->batched >= to.batched && shape_equal(&wide, x))
    return rule_result(r, to);
  Diagnostic *d = error_at(r->span, "PD0301", "'sum_to' cannot sum %s to %s", shape_text(x), shape_text(&to));
  rule_underline(r, d);
  note_at(d, rule_value(r, 0)->span, "the value comes from here");
  help(d, "compared from the right, each axis of the sum must keep its size or have size 1");
  return false;
}

static void derive_sum_to(Gradients *d, int node) {
  Shape x = *in_shape(grad_graph(d), node, 0);
  grad_add(d, node, 0, expand_like(d, node, grad_of(d, node, 0), &x));
}

static void evaluate_sum_to(const Graph *g, int node, int64_t batch, const double *const *in, double *const *out) {
  const Shape *x = in_shape(g, node, 0), *y = out_shape(g, node, 0);
  int64_t per_sample = shape_elements(x), total = batch_elements(x, batch);
  memset(out[0], 0, batch_elements(y, batch) * sizeof *out[0]);
  for (int64_t i = 0; i < total; i++) {
    int64_t to = y->batched ? i / per_sample * shape_elements(y) : 0;
    int64_t rest = i % per_sample, stride = 1;
    for (int right = 1; right <= x->rank; right++) {
      int64_t index = rest % x->dim[x->rank - right];
      rest /= x->dim[x->rank - right];
      int64_t size = right <= y->rank ? y->dim[y->rank - right] : 1;
      to += size > 1 ? index * stride : 0;
      stride *= size;
    }
    out[0][to] += in[0][i];
  }
}

/* Split along a summed axis, each rank has a partial sum. */
static bool divide_sum_to(const Graph *g, int node, int k, Layout split, Layout *layout) {
  const Shape *x = in_shape(g, node, 0), *y = out_shape(g, node, 0);
  int own = split.axis - (x->rank - y->rank);
  if (k != 0)
    return false;
  layout[0] = split;
  if (own < 0 || y->dim[own] != x->dim[split.axis])
    layout[1].kind = LAYOUT_PARTIAL;
  else
    layout[1] = (Layout){LAYOUT_SPLIT, own, split.blocks};
  return true;
}

/* The sum over the microbatch's samples, over the axes of x with size 1 in `shape`, and over leading axes that
 * `shape` lacks: the same for all samples. */
const Op op_sum_to = {
    .name = "sum_to",
    .signature = "sum_to(x, shape)",
    .kind = OP_SUM_TO,
    .linear = LINEAR_IN_ALL,
    .divide = divide_sum_to,
    .min_in = 1,
    .max_in = 1,
    .attr = {{"shape", ATTR_LIST, true, 0}, {"$batched", ATTR_BOOL, false, 0}},
    .reordered = reordered_shape,
    .shape = shape_sum_to,
    .derivative = derive_sum_to,
    .cost = cost_inputs,
    .evaluate = evaluate_sum_to,
};
