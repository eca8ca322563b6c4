/* Gradients of a product's weight and of the bias after it, from the same operand: GPU libraries sum its rows
 * during the product. biases/biases.c creates them. */
#include <string.h>

#include "ops/matmul.h"
#include "ops/rules.h"

static bool shape_both(ShapeRule *r) {
  const Shape *dy = rule_shape(r, 1);
  Shape bias = {.rank = 1, .dim = {dy->dim[dy->rank - 1]}};
  ensure(op_weight_gradient.shape(r));
  r->out[1] = r->out[0];
  r->out[1].shape = bias;
  r->n_out = 2;
  return true;
}

static OpCost cost_both(const Graph *g, int node) {
  OpCost c = op_weight_gradient.cost(g, node);
  c.other_flops = (double)shape_elements(in_shape(g, node, 1));
  return c;
}

static void evaluate_both(const Graph *g, int node, int64_t batch, const double *const *in, double *const *out) {
  int64_t n = out_shape(g, node, 1)->dim[0], all = batch_elements(in_shape(g, node, 1), batch);
  op_weight_gradient.evaluate(g, node, batch, in, out);
  memset(out[1], 0, (size_t)n * sizeof *out[1]);
  for (int64_t i = 0; i < all; i++)
    out[1][i % n] += in[1][i];
}

/* Requires a single product: rows are one axis (rows_as_one). */
static Matmul describe_both(const Site *site) {
  Matmul x = matmul_describe_weight_gradient(site);
  ensure(x.outer.n == 0 && (site->out[1].stride[0] == 1 || site->out[1].dim[0] == 1));
  x.shape.epilogue = x.swapped ? PD_SUMS_OF_A : PD_SUMS_OF_B;
  return x;
}

static void call_both(const Site *site, Call *c) {
  Matmul x = describe_both(site);
  matmul_object(c, &x, "pd_matmul_sums");
  matmul_factors(c, site, &x);
  pass_place(c, &site->out[0]);
  pass_place(c, &site->out[1]);
  pass_scratch(c);
}

static int64_t scratch_both(const Site *site) {
  return matmul_scratch(site, describe_both(site).shape, site->accumulate);
}

/* weight_and_bias_gradient(a[.., k], dy[.., n]) -> weight_gradient(a, dy), and the sum of dy over all rows and the
 * microbatch */
const Op op_weight_and_bias_gradient = {
    .name = "weight_and_bias_gradient",
    .signature = "weight_and_bias_gradient(a[.., k], dy[.., n])",
    .kind = OP_CALL,
    .strided_out = true,
    .transposes = true,
    .rows_as_one = true,
    .adds = true,
    .internal = true,
    .min_in = 2,
    .max_in = 2,
    .shape = shape_both,
    .cost = cost_both,
    .evaluate = evaluate_both,
    .call = call_both,
    .scratch = scratch_both,
    .stays_f32 = result_stays_f32,
};
