/* The weighted sum over the experts of each row: a call, so that its result is kept and the experts' are not read again. */
#include <string.h>

#include "ops/call.h"
#include "ops/rules.h"

enum { Y, WEIGHTS, SUM }; /* values */

static bool shape_expert_sum(ShapeRule *r) {
  if (!rule_all_f32(r))
    return false;
  const Shape *y = rule_shape(r, Y), *weights = rule_shape(r, WEIGHTS);
  Shape rows = *y;
  rows.rank--;
  if (y->rank < 2 || !shape_equal(&rows, weights)) {
    Diagnostic *d =
        error_at(r->span, "PD0318", "'expert_sum' needs y [.., k, width] and weights [.., k], but has %s and %s",
                 shape_text(y), shape_text(weights));
    rule_underline(r, d);
    rule_origin(r, d, WEIGHTS, weights->rank - 1);
    return false;
  }
  rows.dim[rows.rank - 1] = y->dim[y->rank - 1];
  return rule_result(r, rows);
}

static int reshaped(Gradients *d, int node, int value, const Shape *s) {
  Attr to[MAX_ATTR] = {shape_attr(s)};
  return grad_build(d, node, &op_reshape, &value, 1, to);
}

static void derive_expert_sum(Gradients *d, int node) {
  Graph *g = grad_graph(d);
  const int y = g->nodes.at[node].in[Y], weights = g->nodes.at[node].in[WEIGHTS];
  const Shape of_y = *in_shape(g, node, Y), of_weights = *in_shape(g, node, WEIGHTS);
  const int last = of_y.rank - 1;
  Shape row = shape_with(of_y, last - 1, 1), column = shape_with(of_y, last, 1);
  const int dy = reshaped(d, node, grad_of(d, node, 0), &row);
  if (grad_wanted(d, node, Y))
    grad_add(d, node, Y, grad_2(d, node, &op_mul, dy, reshaped(d, node, weights, &column)));
  if (grad_wanted(d, node, WEIGHTS)) {
    const int sum = grad_1(d, node, &op_sum, grad_2(d, node, &op_mul, dy, y));
    grad_add(d, node, WEIGHTS, reshaped(d, node, sum, &of_weights));
  }
}

static void evaluate_expert_sum(const Graph *g, int node, int64_t batch, const double *const *in,
                                double *const *out) {
  const Shape *y = in_shape(g, node, Y), *sum = out_shape(g, node, 0);
  const int64_t width = y->dim[y->rank - 1], k = y->dim[y->rank - 2], all = batch_elements(sum, batch);
  for (int64_t i = 0; i < all; i++) {
    out[0][i] = 0;
    for (int64_t j = 0; j < k; j++)
      out[0][i] += in[WEIGHTS][i / width * k + j] * in[Y][(i / width * k + j) * width + i % width];
  }
}

static int decode_expert_sum(const Graph *g, int node, const int *axis, int64_t context, Decoded *to) {
  (void)context, (void)to;
  return axis[Y] == axis[WEIGHTS] && axis[Y] < in_shape(g, node, WEIGHTS)->rank - 1 ? axis[Y] : -1;
}

/* Along rows, or along width. */
static bool divide_expert_sum(const Graph *g, int node, int k, Layout split, Layout *layout) {
  const int last = in_shape(g, node, Y)->rank - 1;
  if (k != Y || split.axis == last - 1)
    return false;
  layout[Y] = split;
  if (split.axis < last - 1)
    layout[WEIGHTS] = split;
  layout[SUM] = (Layout){LAYOUT_SPLIT, split.axis == last ? last - 1 : split.axis, split.blocks};
  return true;
}

static void call_expert_sum(const Site *site, Call *c) {
  const Place *y = &site->in[Y];
  int64_t rows = 1;
  for (int i = 0; i + 2 < y->rank; i++)
    rows *= y->dim[i];
  c->function = "pd_expert_sum";
  pass_place(c, y);
  pass_place(c, &site->in[WEIGHTS]);
  pass_int(c, rows);
  pass_int(c, y->dim[y->rank - 2]);
  pass_int(c, y->dim[y->rank - 1]);
  pass_place(c, &site->out[0]);
}

static bool weights_stay_f32(const Node *n, bool result, int index) {
  (void)n;
  return !result && index == WEIGHTS;
}

/* The sum over the experts of each row, in their order: y[.., k, width] times weights[.., k], [.., width]. */
const Op op_expert_sum = {
    .name = "expert_sum",
    .signature = "expert_sum(y[.., k, width], weights[.., k])",
    .kind = OP_CALL,
    .linear = LINEAR_IN_EACH,
    .divide = divide_expert_sum,
    .min_in = 2,
    .max_in = 2,
    .shape = shape_expert_sum,
    .derivative = derive_expert_sum,
    .cost = cost_inputs,
    .evaluate = evaluate_expert_sum,
    .call = call_expert_sum,
    .decode = decode_expert_sum,
    .stays_f32 = weights_stay_f32,
};
