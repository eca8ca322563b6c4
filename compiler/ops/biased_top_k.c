/* The choice of experts by scores and a bias that balances their loads without a loss: the bias is a buffer, which each
 * update moves towards equal loads. */
#include <math.h>
#include <string.h>

#include "ops/call.h"
#include "ops/rules.h"
#include "pd_kernels.h"

enum { BIAS, SCORES, VALUES, INDICES }; /* values */

static int64_t last_size(const Shape *s) { return s->dim[s->rank - 1]; }

/* ---- shape ---------------------------------------------------------------------------------------------- */

static bool fails(ShapeRule *r, int operand, const char *why) {
  Diagnostic *d = error_at(r->span, "PD0318", "'biased_top_k' needs %s, but operand %d is %s", why, operand + 1,
                           rule_operand(r, operand));
  rule_underline(r, d);
  return false;
}

static bool check_groups(ShapeRule *r, int64_t n) {
  const int64_t k = rule_int(r, "k"), groups = rule_int(r, "groups"), kept = rule_int(r, "kept_groups");
  if (groups < 1 || groups > PD_MOST_GROUPS || n % groups || (groups > 1 && n / groups < 2))
    return fails(r, SCORES,
                 format("%lld equal groups of at least 2 scores, at most %d groups", (long long)groups,
                        PD_MOST_GROUPS));
  if (kept < 1 || kept > groups)
    return fails(r, SCORES, format("kept_groups from 1 to %lld, not %lld", (long long)groups, (long long)kept));
  if (k < 1 || k > n / groups * kept)
    return fails(r, SCORES,
                 format("k from 1 to the %lld scores of the kept groups, not %lld", (long long)(n / groups * kept),
                        (long long)k));
  return true;
}

static bool shape_biased_top_k(ShapeRule *r) {
  const Shape *bias = rule_shape(r, BIAS), *scores = rule_shape(r, SCORES);
  const double rate = rule_attr(r, "rate")->number;
  if (!rule_all_f32(r) || !rule_buffer(r, BIAS))
    return false;
  if (scores->rank < 1 || !scores->batched)
    return fails(r, SCORES, "scores [.., n] of each sample");
  if (bias->rank != 1 || bias->dim[0] != last_size(scores))
    return fails(r, BIAS, format("a bias [%lld], one number for each score", (long long)last_size(scores)));
  if (!(rate >= 0 && rate < INFINITY)) {
    error_at(r->span, "PD0202", "'biased_top_k' takes a rate of at least 0, not %g", rate);
    return false;
  }
  if (!check_groups(r, last_size(scores)))
    return false;
  rule_result(r, shape_with(*scores, scores->rank - 1, rule_int(r, "k")));
  r->out[1] = r->out[0];
  r->out[1].type = TYPE_TOKEN;
  r->out[1].classes = last_size(scores);
  r->n_out = 2;
  return true;
}

/* ---- derivative ----------------------------------------------------------------------------------------- */

/* The share of the bias: the load of all experts minus n times the expert's own, summed over the microbatch. Sums of these
 * integers are exact up to 2^24, so the sign of a batch's sum does not depend on the plan. */
static int excess(Gradients *d, int node, int64_t n) {
  Graph *g = grad_graph(d);
  const int indices = g->nodes.at[node].out[1];
  Shape rows = *out_shape(g, node, 1), load = {.rank = 1, .dim = {n}};
  rows.dim[rows.rank++] = 1;
  Attr each[MAX_ATTR] = {shape_attr(&rows)}, classes[MAX_ATTR] = {{.number = (double)n}};
  Attr all[MAX_ATTR] = {shape_attr(&load)}, count[MAX_ATTR] = {{.number = (double)n}};
  const int column = grad_build(d, node, &op_reshape, &indices, 1, each);
  const int chosen = grad_build(d, node, &op_one_hot, &column, 1, classes);
  const int loads = grad_build(d, node, &op_sum_to, &chosen, 1, all);
  const int own = grad_2(d, node, &op_mul, loads, grad_build(d, node, &op_constant, NULL, 0, count));
  return grad_2(d, node, &op_sub, grad_1(d, node, &op_sum, loads), own);
}

static void derive_biased_top_k(Gradients *d, int node) {
  Graph *g = grad_graph(d);
  const int64_t n = last_size(in_shape(g, node, SCORES));
  const int dy = grad_of(d, node, 0), indices = g->nodes.at[node].out[1];
  if (dy >= 0 && grad_wanted(d, node, SCORES))
    grad_add(d, node, SCORES, grad_build(d, node, &op_top_k_gradient, (int[]){indices, dy}, 2, NULL));
  grad_share(d, node, BIAS, excess(d, node, n));
}

/* ---- reference in double -------------------------------------------------------------------------------- */

/* Whether a comes before b: NaN first, then larger numbers; of equal ones that with the lower index. */
static bool comes_first(const double *x, int64_t a, int64_t b) {
  const bool a_is_nan = isnan(x[a]), b_is_nan = isnan(x[b]);
  if (a_is_nan != b_is_nan)
    return a_is_nan;
  return x[a] > x[b] || (!(x[a] < x[b]) && a < b);
}

static int64_t rank_of(const double *x, int64_t i, int64_t n) {
  int64_t before = 0;
  for (int64_t j = 0; j < n; j++)
    before += j != i && comes_first(x, j, i);
  return before;
}

/* The sum of the two largest of a group. */
static double score_of_group(const double *x, int64_t size) {
  double two[2] = {0};
  for (int64_t i = 0; i < size; i++)
    if (rank_of(x, i, size) < 2)
      two[rank_of(x, i, size)] = x[i];
  return two[0] + two[1];
}

static void evaluate_biased_top_k(const Graph *g, int node, int64_t batch, const double *const *in,
                                  double *const *out) {
  const Node *of = &g->nodes.at[node];
  const Shape *s = in_shape(g, node, SCORES);
  const int64_t n = last_size(s), k = node_int(of, "k"), rows = batch_elements(s, batch) / n;
  const int64_t groups = node_int(of, "groups"), size = n / groups, kept = node_int(of, "kept_groups");
  double *x = alloc((size_t)n * sizeof *x), *group = alloc((size_t)groups * sizeof *group);
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t i = 0; i < n; i++)
      x[i] = in[SCORES][r * n + i] + in[BIAS][i];
    for (int64_t i = 0; i < groups && groups > 1; i++)
      group[i] = score_of_group(x + i * size, size);
    for (int64_t i = 0; i < n && groups > 1; i++)
      if (rank_of(group, i / size, groups) >= kept)
        x[i] = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
      const int64_t at = rank_of(x, i, n);
      if (at >= k)
        continue;
      out[0][r * k + at] = in[SCORES][r * n + i];
      out[1][r * k + at] = (double)i;
    }
  }
}

/* ---- one position; as a call of pd_biased_top_k -------------------------------------------------------- */

static int decode_biased_top_k(const Graph *g, int node, const int *axis, int64_t context, Decoded *to) {
  (void)context, (void)to;
  return axis[SCORES] < in_shape(g, node, SCORES)->rank - 1 ? axis[SCORES] : -1;
}

static OpCost cost_biased_top_k(const Graph *g, int node) {
  const double k = (double)last_size(out_shape(g, node, 0));
  OpCost c = cost_inputs(g, node);
  c.other_flops += 4 * (double)shape_elements(out_shape(g, node, 0)) * log2(1 + k);
  return c;
}

static void call_biased_top_k(const Site *site, Call *c) {
  const Place *scores = &site->in[SCORES];
  int64_t rows = 1;
  for (int i = 0; i + 1 < scores->rank; i++)
    rows *= scores->dim[i];
  c->function = "pd_biased_top_k";
  pass_place(c, scores);
  pass_place(c, &site->in[BIAS]);
  pass_int(c, rows);
  pass_int(c, scores->dim[scores->rank - 1]);
  pass_int(c, node_int(site->node, "k"));
  pass_int(c, node_int(site->node, "groups"));
  pass_int(c, node_int(site->node, "kept_groups"));
  pass_place(c, &site->out[0]);
  pass_place(c, &site->out[1]);
}

/* The k scores of the last axis with the largest sums of score and bias, without the bias, and their indices, tokens of n
 * classes, as of top_k. Of `groups` equal groups only the kept_groups with the largest sums of their two best are considered.
 * bias is a buffer. Each update adds `rate` to the biases of indices that were chosen less often than the mean in the batch,
 * and subtracts it from those chosen more often. The gradient goes to the scores. */
const Op op_biased_top_k = {
    .name = "biased_top_k",
    .signature = "biased_top_k(bias[n], scores[.., n], k, groups = 1, kept_groups = 1, rate = 0)",
    .kind = OP_CALL,
    .moves_by = "rate",
    .min_in = 2,
    .max_in = 2,
    .results = 2,
    .no_gradient = 1u << BIAS,
    .attr = {{"k", ATTR_INT, true, 0},
             {"groups", ATTR_INT, false, 1},
             {"kept_groups", ATTR_INT, false, 1},
             {"rate", ATTR_NUMBER, false, 0}},
    .shape = shape_biased_top_k,
    .derivative = derive_biased_top_k,
    .cost = cost_biased_top_k,
    .evaluate = evaluate_biased_top_k,
    .call = call_biased_top_k,
    .decode = decode_biased_top_k,
    .stays_f32 = all_stays_f32,
};
