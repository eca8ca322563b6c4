/* Products fused with GELU or its gradient, which GPU libraries apply in registers. layout/epilogues.c creates
 * them. GELU is its tanh approximation, x sigmoid(FACTOR (x + CUBE x^3)). */
#include <math.h>

#include "ops/matmul.h"
#include "ops/rules.h"

static const double FACTOR = 1.5957691216057308, CUBE = 0.044715; /* 2 sqrt(2 / pi) */

/* ---- matmul_gelu(a[.., k], b[k, n], bias[n]) -> gelu(a @ b + bias), and the operand of GELU ----------------- */

static bool shape_gelu(ShapeRule *r) {
  const Shape *a = rule_shape(r, 0), *b = rule_shape(r, 1), *bias = rule_shape(r, 2);
  ensure(rule_all_f32(r) && a->rank >= 1 && matmul_is_weight(b) && a->dim[a->rank - 1] == b->dim[0]);
  ensure(bias->rank == 1 && !bias->batched && bias->dim[0] == b->dim[1]);
  rule_result(r, shape_with(*a, a->rank - 1, b->dim[1]));
  r->out[1] = r->out[0];
  r->n_out = 2;
  return true;
}

static int times(Gradients *d, int node, int x, int y) { return grad_2(d, node, &op_mul, x, y); }
static int number(Gradients *d, int node, double x) { return grad_constant(d, node, x); }

/* dy gelu'(x): with s the sigmoid, s + x s (1 - s) FACTOR (1 + 3 CUBE x^2). */
static int gelu_gradient(Gradients *d, int node, int dy, int x) {
  int x2 = grad_1(d, node, &op_square, x), one = number(d, node, 1);
  int cubic = grad_2(d, node, &op_add, x, times(d, node, times(d, node, x2, x), number(d, node, CUBE)));
  int s = grad_1(d, node, &op_sigmoid, times(d, node, cubic, number(d, node, FACTOR)));
  int inner = grad_2(d, node, &op_add, one, times(d, node, x2, number(d, node, 3 * CUBE)));
  int steep = times(d, node, times(d, node, s, grad_2(d, node, &op_sub, one, s)), times(d, node, x, inner));
  int slope = grad_2(d, node, &op_add, s, times(d, node, steep, number(d, node, FACTOR)));
  return times(d, node, dy, slope);
}

/* If dy is a product, fuses it with the gradient of GELU; no cut may separate them (Op.stays). */
static int before_gelu(Gradients *d, int node) {
  Graph *g = grad_graph(d);
  int dy = grad_of(d, node, 0), before = graph_output(g, node, 1);
  const Node *made = &g->nodes.at[g->values.at[dy].node];
  if (made->op != &op_matmul || !matmul_is_weight(&g->values.at[made->in[1]].shape))
    return gelu_gradient(d, node, dy, before);
  int in[3] = {made->in[0], made->in[1], before};
  int made_of_both = grad_build(d, node, &op_matmul_gelu_gradient, in, 3, NULL);
  g->values.at[made_of_both].name = internf("d_%s", g->values.at[before].name);
  return made_of_both;
}

static void derive_gelu(Gradients *d, int node) {
  Graph *g = grad_graph(d);
  int a = g->nodes.at[node].in[0], b = g->nodes.at[node].in[1], dx = before_gelu(d, node);
  if (grad_wanted(d, node, 0))
    grad_add(d, node, 0, grad_2(d, node, &op_matmul, dx, grad_1(d, node, &op_transpose, b)));
  if (grad_wanted(d, node, 1))
    grad_add(d, node, 1, grad_2(d, node, &op_weight_gradient, a, dx));
  grad_add_broadcast(d, node, 2, dx);
}

/* Splits rows of a or columns of b, not the summed axis: GELU needs the whole sum. */
static bool divide_gelu(const Graph *g, int node, int k, Layout split, Layout *layout) {
  int last = in_shape(g, node, 0)->rank - 1;
  if ((k == 0 && split.axis == last) || (k == 1 && split.axis != 1) || k > 1)
    return false;
  layout[k] = split;
  layout[3] = layout[4] = (Layout){LAYOUT_SPLIT, k == 0 ? split.axis : last, split.blocks};
  if (k == 1)
    layout[2] = (Layout){LAYOUT_SPLIT, 0, split.blocks};
  return true;
}

static OpCost cost_gelu(const Graph *g, int node) {
  double results = (double)shape_elements(out_shape(g, node, 0));
  return (OpCost){.matmul_flops = 2 * results * (double)in_shape(g, node, 1)->dim[0],
                  .other_flops = 12 * results,
                  .bytes = node_bytes(g, node),
                  .products = matmul_products(g, node)};
}

static double sigmoid_of(double x) { return 1 / (1 + exp(-FACTOR * (x + CUBE * x * x * x))); }

static void evaluate_gelu(const Graph *g, int node, int64_t batch, const double *const *in, double *const *out) {
  int64_t all = batch_elements(out_shape(g, node, 0), batch), n = in_shape(g, node, 2)->dim[0];
  matmul_evaluate(g, node, batch, in, &out[1]);
  for (int64_t i = 0; i < all; i++) {
    double x = out[1][i] += in[2][i % n];
    out[0][i] = x * sigmoid_of(x);
  }
}

/* The bias is an operand of this op. */
static Site with_bias(const Site *site, int bias) {
  Site own = *site;
  own.bias = bias;
  return own;
}

static void ensure_alike(const Place *a, const Place *b) {
  for (int i = 0; i < a->rank; i++)
    ensure(a->stride[i] == b->stride[i]);
}

static void call_gelu(const Site *site, Call *c) {
  Site own = with_bias(site, 2);
  Matmul x = matmul_describe(&own);
  x.shape.epilogue = PD_GELU;
  ensure_alike(&site->out[0], &site->out[1]);
  matmul_object(c, &x, "pd_matmul_gelu");
  matmul_factors(c, &own, &x);
  pass_place(c, &site->in[2]);
  pass_moving(c, &site->out[0], 2);
  pass_moving(c, &site->out[1], 2);
  pass_scratch(c);
}

static int64_t scratch_gelu(const Site *site) {
  Site own = with_bias(site, 2);
  Matmul x = matmul_describe(&own);
  return site->library->matmul(&x.shape);
}

/* ---- matmul_gelu_gradient(dy[.., k], b[k, n], x[.., n]) -> (dy @ b) gelu'(x) ------------------------------ */

static bool shape_gradient(ShapeRule *r) {
  const Shape *dy = rule_shape(r, 0), *b = rule_shape(r, 1), *x = rule_shape(r, 2);
  ensure(matmul_is_weight(b) && dy->dim[dy->rank - 1] == b->dim[0] && dy->rank == x->rank);
  ensure(x->dim[x->rank - 1] == b->dim[1]);
  return rule_result(r, *x);
}

static bool divide_gradient(const Graph *g, int node, int k, Layout split, Layout *layout) {
  int last = in_shape(g, node, 0)->rank - 1;
  if (k == 3 || (k == 0 && split.axis == last) || (k == 1 && split.axis != 1))
    return false;
  bool columns = k == 1 || (k == 2 && split.axis == last);
  int axis = k == 1 ? last : split.axis;
  if (columns)
    layout[1] = (Layout){LAYOUT_SPLIT, 1, split.blocks};
  else
    layout[0] = (Layout){LAYOUT_SPLIT, axis, split.blocks};
  layout[2] = layout[3] = (Layout){LAYOUT_SPLIT, axis, split.blocks};
  return true;
}

static void evaluate_gradient(const Graph *g, int node, int64_t batch, const double *const *in,
                              double *const *out) {
  int64_t all = batch_elements(out_shape(g, node, 0), batch);
  matmul_evaluate(g, node, batch, in, out);
  for (int64_t i = 0; i < all; i++) {
    double x = in[2][i], s = sigmoid_of(x);
    out[0][i] *= s + x * s * (1 - s) * FACTOR * (1 + 3 * CUBE * x * x);
  }
}

static void call_gradient(const Site *site, Call *c) {
  Matmul x = matmul_describe(site);
  x.shape.epilogue = PD_GELU_GRADIENT;
  ensure_alike(&site->in[2], &site->out[0]);
  matmul_object(c, &x, "pd_matmul_gelu_gradient");
  matmul_factors(c, site, &x);
  pass_moving(c, &site->in[2], 2);
  pass_moving(c, &site->out[0], 2);
  pass_scratch(c);
}

static int64_t scratch_gradient(const Site *site) {
  Matmul x = matmul_describe(site);
  return site->library->matmul(&x.shape);
}

/* ---- the primitives ------------------------------------------------------------------------------------- */

const Op op_matmul_gelu = {
    .name = "matmul_gelu",
    .signature = "matmul_gelu(a[.., k], b[k, n], bias[n])",
    .kind = OP_CALL,
    .transposes = true,
    .internal = true,
    .stays = true,
    .divide = divide_gelu,
    .min_in = 3,
    .max_in = 3,
    .shape = shape_gelu,
    .derivative = derive_gelu,
    .cost = cost_gelu,
    .evaluate = evaluate_gelu,
    .call = call_gelu,
    .scratch = scratch_gelu,
};

const Op op_matmul_gelu_gradient = {
    .name = "matmul_gelu_gradient",
    .signature = "matmul_gelu_gradient(dy[.., k], b[k, n], x[.., n])",
    .kind = OP_CALL,
    .transposes = true,
    .internal = true,
    .divide = divide_gradient,
    .min_in = 3,
    .max_in = 3,
    .shape = shape_gradient,
    .cost = cost_gelu,
    .evaluate = evaluate_gradient,
    .call = call_gradient,
    .scratch = scratch_gradient,
};
