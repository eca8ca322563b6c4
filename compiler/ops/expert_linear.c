/* Products of each row with the matrices of its experts. A call groups the rows of a microbatch by expert. */
#include <string.h>

#include "ops/call.h"
#include "ops/rules.h"
#include "pd_kernels.h"

enum { X, WEIGHT, EXPERTS, Y }; /* values of expert_linear */
enum { DY = 1, DWEIGHT = 3 };   /* further values of expert_linear_weights: x, dy, experts, dweight */

/* ---- shapes ------------------------------------------------------------------------------------- */

static bool fails(ShapeRule *r, int operand, int axis, const char *why) {
  Diagnostic *d = error_at(r->span, "PD0318", "'expert_linear' needs %s, but operand %d is %s", why, operand + 1,
                           rule_operand(r, operand));
  rule_underline(r, d);
  rule_origin(r, d, operand, axis);
  return false;
}

/* Whether x has one row for all experts of a position, [.., in], or one for each, [.., k, in]. */
static bool is_shared(const Shape *x, const Shape *experts) { return x->rank == experts->rank; }

static bool check_rows(ShapeRule *r) {
  const Shape *x = rule_shape(r, X), *experts = rule_shape(r, EXPERTS);
  const int leading = is_shared(x, experts) ? experts->rank - 1 : experts->rank;
  if (experts->rank < 1)
    return fails(r, EXPERTS, -1, "experts [.., k] of each row");
  if (x->rank != leading + 1 || x->batched != experts->batched)
    return fails(r, X, -1, format("rows [.., in] or [.., k, in] for experts %s", shape_text(experts)));
  for (int i = 0; i < leading; i++)
    if (x->dim[i] != experts->dim[i])
      return fails(r, X, i, format("rows [.., in] or [.., k, in] for experts %s", shape_text(experts)));
  return true;
}

static bool shape_expert_linear(ShapeRule *r) {
  const Shape *x = rule_shape(r, X), *weight = rule_shape(r, WEIGHT);
  if (!rule_f32(r, X) || !rule_f32(r, WEIGHT) || !rule_token(r, EXPERTS) || !check_rows(r))
    return false;
  const int64_t in = x->dim[x->rank - 1];
  if (weight->rank != 3 || weight->batched || weight->dim[2] != in)
    return fails(r, WEIGHT, weight->rank - 1,
                 format("a weight [experts, out, %lld], the same for all samples", (long long)in));
  const Value *experts = rule_value(r, EXPERTS);
  if (experts->classes > weight->dim[0] + rule_int(r, "drops"))
    return fails(r, WEIGHT, 0,
                 format("a matrix for each of %lld experts", (long long)experts->classes - rule_int(r, "drops")));
  if (experts->shape.rank == MAX_RANK)
    return fails(r, EXPERTS, -1, format("at most %d axes", MAX_RANK - 1));
  Shape y = experts->shape;
  y.dim[y.rank++] = weight->dim[1];
  return rule_result(r, y);
}

static bool shape_weights(ShapeRule *r) {
  const Shape *x = rule_shape(r, X), *dy = rule_shape(r, DY);
  return rule_result(r, (Shape){.rank = 3,
                                .dim = {rule_int(r, "count"), dy->dim[dy->rank - 1], x->dim[x->rank - 1]}});
}

/* ---- derivative --------------------------------------------------------------------------------- */

/* The gradient of rows that all experts of a position share is the sum over its experts. */
static int sum_over_experts(Gradients *d, int node, int dx, const Shape *x) {
  Shape kept = *x;
  kept.dim[kept.rank - 1] = 1;
  kept.dim[kept.rank++] = x->dim[x->rank - 1];
  Attr to[MAX_ATTR] = {shape_attr(&kept), {.number = kept.batched}}, flat[MAX_ATTR] = {shape_attr(x)};
  const int sum = grad_build(d, node, &op_sum_to, &dx, 1, to);
  return grad_build(d, node, &op_reshape, &sum, 1, flat);
}

static void derive_expert_linear(Gradients *d, int node) {
  Graph *g = grad_graph(d);
  const int *in = g->nodes.at[node].in, dy = grad_of(d, node, 0);
  const Shape x = *in_shape(g, node, X), experts = *in_shape(g, node, EXPERTS);
  Attr drops[MAX_ATTR] = {{.number = node_number(&g->nodes.at[node], "drops")}};
  if (grad_wanted(d, node, X)) {
    Attr last[MAX_ATTR] = {{.number = 1}, {.number = 2}};
    const int rows[3] = {dy, grad_build(d, node, &op_transpose, &in[WEIGHT], 1, last), in[EXPERTS]};
    const int dx = grad_build(d, node, &op_expert_linear, rows, 3, drops);
    grad_add(d, node, X, is_shared(&x, &experts) ? sum_over_experts(d, node, dx, &x) : dx);
  }
  if (grad_wanted(d, node, WEIGHT)) {
    Attr count[MAX_ATTR] = {drops[0], {.number = (double)in_shape(g, node, WEIGHT)->dim[0]}};
    const int factors[3] = {g->nodes.at[node].in[X], dy, g->nodes.at[node].in[EXPERTS]};
    grad_add(d, node, WEIGHT, grad_build(d, node, &op_expert_linear_weights, factors, 3, count));
  }
}

/* ---- costs, as of one product of the same rows -------------------------------------------------- */

static OpCost cost_products(const Graph *g, int node, SamplesAxis samples, double m, double n, double k) {
  return (
      OpCost){.matmul_flops = 2 * m * n * k,
              .bytes = node_bytes(g, node),
              .products = {.kind = PRODUCTS_OF_MATRICES, .samples = samples, .times = 1, .m = m, .n = n, .k = k}};
}

static OpCost cost_expert_linear(const Graph *g, int node) {
  const Shape *weight = in_shape(g, node, WEIGHT), *experts = in_shape(g, node, EXPERTS);
  return cost_products(g, node, experts->batched ? SAMPLES_IN_M : SAMPLES_NOWHERE, (double)shape_elements(experts),
                       (double)weight->dim[1], (double)weight->dim[2]);
}

static OpCost cost_weights(const Graph *g, int node) {
  const Shape *weight = out_shape(g, node, 0), *experts = in_shape(g, node, EXPERTS);
  return cost_products(g, node, experts->batched ? SAMPLES_IN_K : SAMPLES_NOWHERE, (double)weight->dim[1],
                       (double)weight->dim[2], (double)shape_elements(experts));
}

/* ---- reference in double -------------------------------------------------------------------------- */

static void evaluate_expert_linear(const Graph *g, int node, int64_t batch, const double *const *in,
                                   double *const *out) {
  const Shape *weight = in_shape(g, node, WEIGHT), *experts = in_shape(g, node, EXPERTS);
  const int64_t n = weight->dim[1], k = weight->dim[2], rows = batch_elements(experts, batch);
  const int64_t each = is_shared(in_shape(g, node, X), experts) ? experts->dim[experts->rank - 1] : 1;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t i = 0; i < n; i++) {
      const bool dropped = (int64_t)in[EXPERTS][r] == weight->dim[0];
      const double *x = in[X] + r / each * k, *w = in[WEIGHT] + ((int64_t)in[EXPERTS][r] * n + i) * k;
      double sum = 0;
      for (int64_t j = 0; j < k && !dropped; j++)
        sum += x[j] * w[j];
      out[0][r * n + i] = sum;
    }
}

static void evaluate_weights(const Graph *g, int node, int64_t batch, const double *const *in,
                             double *const *out) {
  const Shape *weight = out_shape(g, node, 0), *experts = in_shape(g, node, EXPERTS);
  const int64_t n = weight->dim[1], k = weight->dim[2], rows = batch_elements(experts, batch);
  const int64_t each = is_shared(in_shape(g, node, X), experts) ? experts->dim[experts->rank - 1] : 1;
  memset(out[0], 0, (size_t)shape_elements(weight) * sizeof *out[0]);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t i = 0; i < n && (int64_t)in[EXPERTS][r] < weight->dim[0]; i++)
      for (int64_t j = 0; j < k; j++)
        out[0][((int64_t)in[EXPERTS][r] * n + i) * k + j] += in[DY][r * n + i] * in[X][r / each * k + j];
}

/* ---- one position, and parts of a shard group ------------------------------------------------------- */

static int decode_expert_linear(const Graph *g, int node, const int *axis, int64_t context, Decoded *to) {
  (void)context, (void)to;
  const bool of_rows = axis[EXPERTS] >= 0 && axis[EXPERTS] < in_shape(g, node, EXPERTS)->rank - 1;
  return of_rows && axis[X] == axis[EXPERTS] && axis[WEIGHT] < 0 ? axis[X] : -1;
}

/* Along `out`; along `in`, where each rank then has a partial sum; along leading axes of rows. */
static bool divide_expert_linear(const Graph *g, int node, int k, Layout split, Layout *layout) {
  const int last = in_shape(g, node, X)->rank - 1, rows = in_shape(g, node, EXPERTS)->rank - 1;
  layout[k] = split;
  if (k == WEIGHT && split.axis == 1) {
    layout[Y] = (Layout){LAYOUT_SPLIT, rows + 1, split.blocks};
  } else if (k == X && split.axis == last) {
    layout[WEIGHT] = (Layout){LAYOUT_SPLIT, 2, split.blocks};
    layout[Y].kind = LAYOUT_PARTIAL;
  } else if (k == X && split.axis < rows) {
    layout[EXPERTS] = layout[Y] = split;
  } else {
    return false;
  }
  return true;
}

static bool divide_weights(const Graph *g, int node, int k, Layout split, Layout *layout) {
  const int last = in_shape(g, node, k)->rank - 1, rows = in_shape(g, node, EXPERTS)->rank - 1;
  layout[k] = split;
  if (k == DY && split.axis == last) {
    layout[DWEIGHT] = (Layout){LAYOUT_SPLIT, 1, split.blocks};
  } else if (k == X && split.axis == last) {
    layout[DWEIGHT] = (Layout){LAYOUT_SPLIT, 2, split.blocks};
  } else if (k == X && split.axis < rows) {
    layout[DY] = layout[EXPERTS] = split;
    layout[DWEIGHT].kind = LAYOUT_PARTIAL;
  } else {
    return false;
  }
  return true;
}

/* ---- as calls of pd_expert_linear and pd_expert_linear_weights ---------------------------------------- */

typedef struct Grouped {
  struct pd_experts sizes;
  Axes outer; /* loops around the call; strides of x, y and experts */
} Grouped;

/* x: rows of `in` elements; y: rows of `out`; weight: [count, out, in] */
static Grouped describe(const Node *n, const Place *x, const Place *y, const Place *experts, const Place *weight) {
  const Place *places[] = {x, y, experts};
  const int last = experts->rank - 1;
  const bool shared = x->rank == experts->rank;
  int64_t row[MAX_PLACES];
  Grouped d = {.outer = merge_axes(places, 3, last, experts->dim)};
  const int64_t rows = take_axis(&d.outer, row);
  d.sizes = (struct pd_experts){.rows = rows,
                                .chosen = experts->dim[last],
                                .count = weight->dim[0],
                                .in = weight->dim[2],
                                .out = weight->dim[1],
                                .x_row = row[0],
                                .x_chosen = shared ? 0 : x->stride[last],
                                .x_column = x->stride[x->rank - 1],
                                .y_row = row[1],
                                .y_chosen = y->stride[last],
                                .y_column = y->stride[last + 1],
                                .experts_row = row[2],
                                .experts_chosen = experts->stride[last],
                                .weight_expert = weight->stride[0],
                                .weight_out = weight->stride[1],
                                .weight_in = weight->stride[2],
                                .drops = node_int(n, "drops") != 0};
  return d;
}

static Grouped describe_forward(const Site *site) {
  return describe(site->node, &site->in[X], &site->out[0], &site->in[EXPERTS], &site->in[WEIGHT]);
}
static Grouped describe_weights(const Site *site) {
  return describe(site->node, &site->in[X], &site->in[DY], &site->in[EXPERTS], &site->out[0]);
}

static void grouped_object(Call *c, const Grouped *d, const char *function) {
  const struct pd_experts *s = &d->sizes;
  const struct {
    const char *name;
    int64_t value;
  } fields[] = {{"rows", s->rows},
                {"chosen", s->chosen},
                {"count", s->count},
                {"in", s->in},
                {"out", s->out},
                {"x_row", s->x_row},
                {"x_chosen", s->x_chosen},
                {"x_column", s->x_column},
                {"y_row", s->y_row},
                {"y_chosen", s->y_chosen},
                {"y_column", s->y_column},
                {"experts_row", s->experts_row},
                {"experts_chosen", s->experts_chosen},
                {"weight_expert", s->weight_expert},
                {"weight_out", s->weight_out},
                {"weight_in", s->weight_in}};
  *c = (Call){.function = function, .object = "pd_experts", .outer = d->outer};
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
    field_int(c, fields[i].name, fields[i].value);
  if (s->drops)
    field_bool(c, "drops", true);
  pass_object(c);
}

static void call_expert_linear(const Site *site, Call *c) {
  const Grouped d = describe_forward(site);
  grouped_object(c, &d, "pd_expert_linear");
  pass_moving(c, &site->in[X], 0);
  pass_place(c, &site->in[WEIGHT]);
  pass_moving(c, &site->in[EXPERTS], 2);
  pass_moving(c, &site->out[0], 1);
  pass_scratch(c);
}

static void call_weights(const Site *site, Call *c) {
  const Grouped d = describe_weights(site);
  grouped_object(c, &d, "pd_expert_linear_weights");
  c->sums = true;
  pass_moving(c, &site->in[X], 0);
  pass_moving(c, &site->in[DY], 1);
  pass_moving(c, &site->in[EXPERTS], 2);
  pass_place(c, &site->out[0]);
  pass_first(c);
  pass_scratch(c);
}

static int64_t scratch_expert_linear(const Site *site) {
  const Grouped d = describe_forward(site);
  return site->library->experts(&d.sizes, site->threads);
}

static int64_t scratch_weights(const Site *site) {
  const Grouped d = describe_weights(site);
  return site->library->experts_weights(&d.sizes, site->threads);
}

/* ---- the primitives ----------------------------------------------------------------------------- */

/* The product of each row with the matrix of each of its experts: x[.., in] and experts[.., k] give [.., k, out]. Rows
 * x[.., k, in] are one for each of the experts. Every row is multiplied, whatever the experts' shares are. With drops = true
 * expert n is none: its rows are zeros and take no time. */
const Op op_expert_linear = {
    .name = "expert_linear",
    .signature = "expert_linear(x[.., in], weight[n, out, in], experts[.., k], drops = false)",
    .kind = OP_CALL,
    .transposes = true,
    .linear = LINEAR_IN_EACH,
    .divide = divide_expert_linear,
    .min_in = 3,
    .max_in = 3,
    .no_gradient = 1u << EXPERTS,
    .attr = {{"drops", ATTR_BOOL, false, 0}},
    .shape = shape_expert_linear,
    .derivative = derive_expert_linear,
    .cost = cost_expert_linear,
    .evaluate = evaluate_expert_linear,
    .call = call_expert_linear,
    .scratch = scratch_expert_linear,
    .decode = decode_expert_linear,
};

/* The gradient of expert_linear's weight, summed over all rows of each expert and the microbatch: [count, out, in]. */
const Op op_expert_linear_weights = {
    .name = "expert_linear_weights",
    .signature = "expert_linear_weights(x[.., in], dy[.., k, out], experts[.., k], drops, count)",
    .kind = OP_CALL,
    .transposes = true,
    .adds = true,
    .internal = true,
    .linear = LINEAR_IN_EACH,
    .divide = divide_weights,
    .min_in = 3,
    .max_in = 3,
    .attr = {{"drops", ATTR_BOOL, false, 0}, {"count", ATTR_INT, true, 0}},
    .shape = shape_weights,
    .cost = cost_weights,
    .evaluate = evaluate_weights,
    .call = call_weights,
    .scratch = scratch_weights,
    .stays_f32 = result_stays_f32,
};
