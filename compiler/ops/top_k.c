/* The largest elements of each row, and where they are. */
#include <math.h>
#include <string.h>

#include "ops/call.h"
#include "ops/rules.h"

static int64_t last_size(const Shape *s) { return s->dim[s->rank - 1]; }

static bool shape_top_k(ShapeRule *r) {
  const Shape *x = rule_shape(r, 0);
  if (!rule_f32(r, 0))
    return false;
  const int64_t k = rule_int(r, "k"), n = x->rank ? last_size(x) : 0;
  if (k < 1 || k > n) {
    Diagnostic *d = error_at(r->span, "PD0317",
                             "'top_k' needs k from 1 to the size of the last axis, but k is %lld "
                             "and x is %s",
                             (long long)k, rule_operand(r, 0));
    rule_underline(r, d);
    rule_origin(r, d, 0, x->rank - 1);
    return false;
  }
  rule_result(r, shape_with(*x, x->rank - 1, k));
  r->out[1] = r->out[0];
  r->out[1].type = TYPE_TOKEN;
  r->out[1].classes = n;
  r->n_out = 2;
  return true;
}

static void derive_top_k(Gradients *d, int node) {
  Graph *g = grad_graph(d);
  const int in[2] = {g->nodes.at[node].out[1], grad_of(d, node, 0)};
  grad_add(d, node, 0, grad_build(d, node, &op_top_k_gradient, in, 2, NULL));
}

/* A comparison an element, and what sorting the k largest takes. */
static OpCost cost_top_k(const Graph *g, int node) {
  const double k = (double)last_size(out_shape(g, node, 0));
  OpCost c = cost_inputs(g, node);
  c.other_flops += 4 * (double)shape_elements(out_shape(g, node, 0)) * log2(1 + k);
  return c;
}

/* Whether a comes before b: NaN first, then larger numbers; of equal ones that with the lower index. */
static bool comes_first(const double *x, int64_t a, int64_t b) {
  const bool a_is_nan = isnan(x[a]), b_is_nan = isnan(x[b]);
  if (a_is_nan != b_is_nan)
    return a_is_nan;
  return x[a] > x[b] || (!(x[a] < x[b]) && a < b);
}

static void evaluate_top_k(const Graph *g, int node, int64_t batch, const double *const *in, double *const *out) {
  const Shape *x = in_shape(g, node, 0);
  const int64_t n = last_size(x), k = last_size(out_shape(g, node, 0)), rows = batch_elements(x, batch) / n;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t i = 0; i < n; i++) {
      int64_t before = 0;
      for (int64_t j = 0; j < n; j++)
        before += j != i && comes_first(in[0] + r * n, j, i);
      if (before < k) {
        out[0][r * k + before] = in[0][r * n + i];
        out[1][r * k + before] = (double)i;
      }
    }
}

static int decode_top_k(const Graph *g, int node, const int *axis, int64_t context, Decoded *to) {
  (void)context, (void)to;
  return axis[0] < in_shape(g, node, 0)->rank - 1 ? axis[0] : -1;
}

/* Along all axes but the last. */
static bool divide_top_k(const Graph *g, int node, int k, Layout split, Layout *layout) {
  if (k != 0 || split.axis == in_shape(g, node, 0)->rank - 1)
    return false;
  layout[0] = layout[1] = layout[2] = split;
  return true;
}

/* ---- top_k_gradient(indices[.., k], dy[.., k]) -> [.., n] ------------------------------------------ */

static bool shape_top_k_gradient(ShapeRule *r) {
  const Value *indices = rule_value(r, 0);
  ensure(indices->type == TYPE_TOKEN && shape_equal(&indices->shape, rule_shape(r, 1)));
  return rule_result(r, shape_with(indices->shape, indices->shape.rank - 1, indices->classes));
}

static void evaluate_top_k_gradient(const Graph *g, int node, int64_t batch, const double *const *in,
                                    double *const *out) {
  const Shape *x = out_shape(g, node, 0);
  const int64_t n = last_size(x), k = last_size(in_shape(g, node, 0)), rows = batch_elements(x, batch) / n;
  memset(out[0], 0, (size_t)(rows * n) * sizeof *out[0]);
  for (int64_t i = 0; i < rows * k; i++)
    out[0][i / k * n + (int64_t)in[0][i]] = in[1][i];
}

static bool divide_top_k_gradient(const Graph *g, int node, int k, Layout split, Layout *layout) {
  if (k != 1 || split.axis == in_shape(g, node, 1)->rank - 1)
    return false;
  layout[0] = layout[1] = layout[2] = split;
  return true;
}

/* ---- as calls of pd_top_k and pd_top_k_gradient ------------------------------------------------------ */

static void pass_sizes(Call *c, const Place *wide, const Place *few) {
  int64_t rows = 1;
  for (int i = 0; i + 1 < wide->rank; i++)
    rows *= wide->dim[i];
  pass_int(c, rows);
  pass_int(c, wide->dim[wide->rank - 1]);
  pass_int(c, few->dim[few->rank - 1]);
}

static void call_top_k(const Site *site, Call *c) {
  c->function = "pd_top_k";
  pass_place(c, &site->in[0]);
  pass_sizes(c, &site->in[0], &site->out[0]);
  pass_place(c, &site->out[0]);
  pass_place(c, &site->out[1]);
}

static void call_top_k_gradient(const Site *site, Call *c) {
  c->function = "pd_top_k_gradient";
  pass_place(c, &site->in[0]);
  pass_place(c, &site->in[1]);
  pass_sizes(c, &site->out[0], &site->in[0]);
  pass_place(c, &site->out[0]);
}

/* The k largest elements along the last axis, in falling order, and their indices, tokens of n classes: x[.., n]
 * gives [.., k] twice. Of equal elements the lower index comes first. The gradient goes to the values' elements. */
const Op op_top_k = {
    .name = "top_k",
    .signature = "top_k(x[.., n], k)",
    .kind = OP_CALL,
    .divide = divide_top_k,
    .min_in = 1,
    .max_in = 1,
    .results = 2,
    .attr = {{"k", ATTR_INT, true, 0}},
    .shape = shape_top_k,
    .derivative = derive_top_k,
    .cost = cost_top_k,
    .evaluate = evaluate_top_k,
    .call = call_top_k,
    .decode = decode_top_k,
    .stays_f32 = all_stays_f32,
};

const Op op_top_k_gradient = {
    .name = "top_k_gradient",
    .signature = "top_k_gradient(indices[.., k], dy[.., k])",
    .kind = OP_CALL,
    .internal = true,
    .divide = divide_top_k_gradient,
    .min_in = 2,
    .max_in = 2,
    .shape = shape_top_k_gradient,
    .cost = cost_copy,
    .evaluate = evaluate_top_k_gradient,
    .call = call_top_k_gradient,
    .stays_f32 = all_stays_f32,
};
