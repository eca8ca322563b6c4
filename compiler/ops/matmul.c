/* Matrix products. With b of rank two and the same for all samples, a's leading axes and the microbatch
 * are rows; else both have the same leading axes and there is one product for each. */
#include <string.h>

#include "ops/rules.h"

static bool is_weight(const Shape *b) { return b->rank == 2 && !b->batched; }

static bool matmul_fails(ShapeRule *r, int axis_a, int axis_b, const char *why) {
  Diagnostic *d = error_at(r->span, "PD0302", "'@' %s, but has %s and %s", why, shape_text(rule_shape(r, 0)),
                           shape_text(rule_shape(r, 1)));
  rule_underline(r, d);
  rule_origin(r, d, 0, axis_a);
  rule_origin(r, d, 1, axis_b);
  return false;
}

static bool shape_matmul(ShapeRule *r) {
  const Shape *a = rule_shape(r, 0), *b = rule_shape(r, 1);
  if (!rule_all_f32(r))
    return false;
  if (b->rank < 2 || a->rank < (is_weight(b) ? 1 : 2))
    return matmul_fails(r, -1, -1, "multiplies matrices");
  if (a->dim[a->rank - 1] != b->dim[b->rank - 2])
    return matmul_fails(r, a->rank - 1, b->rank - 2,
                        "needs as many columns on the left as rows on the right");
  if (!is_weight(b)) {
    if (a->batched != b->batched)
      return matmul_fails(r, -1, -1,
                          "needs two values of each sample, or a matrix on the right that is no sample's");
    if (a->rank != b->rank)
      return matmul_fails(r, -1, -1, "needs equal leading axes");
    for (int i = 0; i < a->rank - 2; i++)
      if (a->dim[i] != b->dim[i])
        return matmul_fails(r, i, i, "needs equal leading axes");
  }
  return rule_result(r, shape_with(*a, a->rank - 1, b->dim[b->rank - 1]));
}

static int transposed(Gradients *d, int node, int value) { return grad_1(d, node, &op_transpose, value); }

static void derive_matmul(Gradients *d, int node) {
  Graph *g = grad_graph(d);
  int a = g->nodes.at[node].in[0], b = g->nodes.at[node].in[1], dy = grad_of(d, node, 0);
  bool weight = is_weight(in_shape(g, node, 1));
  if (grad_wanted(d, node, 0))
    grad_add(d, node, 0, grad_2(d, node, &op_matmul, dy, transposed(d, node, b)));
  if (!grad_wanted(d, node, 1))
    return;
  if (weight)
    grad_add(d, node, 1, grad_2(d, node, &op_weight_gradient, a, dy));
  else
    grad_add(d, node, 1, grad_2(d, node, &op_matmul, transposed(d, node, a), dy));
}

static OpCost cost_matmul(const Graph *g, int node) {
  const Shape *a = in_shape(g, node, 0);
  double products = (double)shape_elements(out_shape(g, node, 0)) * (double)a->dim[a->rank - 1];
  return (OpCost){2 * products, 0, node_bytes(g, node)};
}

static void evaluate_matmul(const Graph *g, int node, int64_t batch, const double *const *in,
                            double *const *out) {
  const Shape *a = in_shape(g, node, 0), *b = in_shape(g, node, 1);
  int64_t k = a->dim[a->rank - 1], n = b->dim[b->rank - 1];
  int64_t rows = batch_elements(a, batch) / k;
  int64_t rows_each = is_weight(b) ? rows : a->dim[a->rank - 2];
  for (int64_t r = 0; r < rows; r++) {
    const double *matrix = in[1] + r / rows_each * k * n;
    for (int64_t j = 0; j < n; j++) {
      double sum = 0;
      for (int64_t i = 0; i < k; i++)
        sum += in[0][r * k + i] * matrix[i * n + j];
      out[0][r * n + j] = sum;
    }
  }
}

/* The product of the last two axes, a[.., m, k] @ b[k, n] or of every pair of matrices in a[.., m, k] and
 * b[.., k, n]: [.., m, n]. */
const Op op_matmul = {
    .name = "matmul", .signature = "a @ b", .kind = OP_CALL, .strided_out = true, .transposes = true,
    .min_in = 2, .max_in = 2,
    .shape = shape_matmul, .derivative = derive_matmul, .cost = cost_matmul, .evaluate = evaluate_matmul,
};

/* ---- weight_gradient(a[.., K], dy[.., N]) -> [K, N], summed over all rows and the microbatch ---- */

static bool shape_weight_gradient(ShapeRule *r) {
  const Shape *a = rule_shape(r, 0), *dy = rule_shape(r, 1);
  ensure(a->rank >= 1 && a->rank == dy->rank && a->batched == dy->batched);
  for (int i = 0; i < a->rank - 1; i++)
    ensure(a->dim[i] == dy->dim[i]);
  return rule_result(r, (Shape){.rank = 2, .dim = {a->dim[a->rank - 1], dy->dim[dy->rank - 1]}});
}

static OpCost cost_weight_gradient(const Graph *g, int node) {
  const Shape *dy = in_shape(g, node, 1);
  double products = (double)shape_elements(in_shape(g, node, 0)) * (double)dy->dim[dy->rank - 1];
  return (OpCost){2 * products, 0, node_bytes(g, node)};
}

static void evaluate_weight_gradient(const Graph *g, int node, int64_t batch, const double *const *in,
                                     double *const *out) {
  const Shape *y = out_shape(g, node, 0);
  int64_t k = y->dim[0], n = y->dim[1], rows = batch_elements(in_shape(g, node, 0), batch) / k;
  memset(out[0], 0, k * n * sizeof *out[0]);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t i = 0; i < k; i++)
      for (int64_t j = 0; j < n; j++)
        out[0][i * n + j] += in[0][r * k + i] * in[1][r * n + j];
}

const Op op_weight_gradient = {
    .name = "weight_gradient", .signature = "weight_gradient(a[.., k], dy[.., n])", .kind = OP_CALL,
    .strided_out = true, .transposes = true, .internal = true,
    .min_in = 2, .max_in = 2,
    .shape = shape_weight_gradient, .cost = cost_weight_gradient, .evaluate = evaluate_weight_gradient,
};
