/* Rows of a table picked by tokens, and tokens as rows of an identity matrix. */
#include <string.h>

#include "ops/call.h"
#include "ops/rules.h"

static bool shape_gather(ShapeRule *r) {
  if (!rule_f32(r, 0) || !rule_token(r, 1))
    return false;
  const Value *table = rule_value(r, 0), *tokens = rule_value(r, 1);
  if (table->shape.rank != 2 || table->shape.batched || tokens->shape.rank >= MAX_RANK) {
    Diagnostic *d =
        error_at(r->span, "PD0309", "'gather' needs a table [classes, width] that is no sample's, but has %s",
                 shape_text(&table->shape));
    rule_underline(r, d);
    note_at(d, table->span, "the table comes from here");
    return false;
  }
  if (tokens->classes > table->shape.dim[0]) {
    Diagnostic *d = error_at(r->span, "PD0309", "'gather' has tokens of %lld classes, but a table of %lld rows",
                             (long long)tokens->classes, (long long)table->shape.dim[0]);
    rule_underline(r, d);
    note_at(d, tokens->span, "the tokens come from here");
    rule_origin(r, d, 0, 0);
    return false;
  }
  Shape s = tokens->shape;
  s.dim[s.rank++] = table->shape.dim[1];
  return rule_result(r, s);
}

static void derive_gather(Gradients *d, int node) {
  Graph *g = grad_graph(d);
  Attr attr[MAX_ATTR] = {{.number = (double)in_shape(g, node, 0)->dim[0]}};
  int in[2] = {g->nodes.at[node].in[1], grad_of(d, node, 0)};
  grad_add(d, node, 0, grad_build(d, node, &op_gather_gradient, in, 2, attr));
}

static OpCost cost_gather(const Graph *g, int node) {
  return (OpCost){0, 0, 8.0 * (double)shape_elements(out_shape(g, node, 0))};
}

static void evaluate_gather(const Graph *g, int node, int64_t batch, const double *const *in, double *const *out) {
  int64_t width = in_shape(g, node, 0)->dim[1], rows = batch_elements(in_shape(g, node, 1), batch);
  for (int64_t r = 0; r < rows; r++)
    memcpy(out[0] + r * width, in[0] + (int64_t)in[1][r] * width, width * sizeof *out[0]);
}

/* ---- gather_gradient(tokens[..], dy[.., width]) -> [classes, width] ------------------------------ */

static bool shape_gather_gradient(ShapeRule *r) {
  const Shape *dy = rule_shape(r, 1);
  return rule_result(r, (Shape){.rank = 2, .dim = {rule_int(r, "classes"), dy->dim[dy->rank - 1]}});
}

static OpCost cost_gather_gradient(const Graph *g, int node) {
  double rows = (double)shape_elements(in_shape(g, node, 1));
  return (OpCost){0, rows, 12 * rows};
}

static void evaluate_gather_gradient(const Graph *g, int node, int64_t batch, const double *const *in,
                                     double *const *out) {
  const Shape *y = out_shape(g, node, 0);
  int64_t width = y->dim[1], rows = batch_elements(in_shape(g, node, 0), batch);
  memset(out[0], 0, shape_elements(y) * sizeof *out[0]);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t i = 0; i < width; i++)
      out[0][(int64_t)in[0][r] * width + i] += in[1][r * width + i];
}

/* ---- as calls of pd_gather and pd_gather_gradient ------------------------------------------------ */

/* The rows of `values` (all axes but the last) beside their tokens, in loops around runs of rows. */
typedef struct Rows {
  Axes outer;
  int64_t n, width, stride;
} Rows;

static Rows describe_rows(const Place *tokens, const Place *values) {
  const Place *places[] = {tokens, values};
  int64_t step[MAX_PLACES];
  Rows r = {.outer = merge_axes(places, 2, tokens->rank, tokens->dim), .width = values->dim[values->rank - 1]};
  r.n = take_axis(&r.outer, step);
  r.stride = r.n == 1 ? r.width : step[1];
  ensure(r.n == 1 || step[0] == 1);
  return r;
}

static void call_gather(const Site *site, Call *c) {
  Rows r = describe_rows(&site->in[1], &site->out[0]);
  c->function = "pd_gather";
  c->outer = r.outer;
  pass_place(c, &site->in[0]);
  pass_moving(c, &site->in[1], 0);
  pass_int(c, r.n);
  pass_int(c, r.width);
  pass_moving(c, &site->out[0], 1);
  pass_int(c, r.stride);
}

static void call_gather_gradient(const Site *site, Call *c) {
  Rows r = describe_rows(&site->in[0], &site->in[1]);
  c->function = "pd_gather_gradient";
  c->outer = r.outer;
  c->sums = true;
  pass_place(c, &site->out[0]);
  pass_moving(c, &site->in[0], 0);
  pass_moving(c, &site->in[1], 1);
  pass_int(c, r.n);
  pass_int(c, r.width);
  pass_int(c, r.stride);
  pass_int(c, site->out[0].dim[0]);
  pass_first(c);
}

static int decode_gather(const Graph *g, int node, const int *axis, int64_t context, Decoded *to) {
  (void)g, (void)node, (void)context, (void)to;
  return axis[0] < 0 ? axis[1] : -1;
}

static bool divide_gather(const Graph *g, int node, int k, Layout split, Layout *layout) {
  if (k != 0 || split.axis != 1)
    return false;
  layout[0] = split;
  layout[2] = (Layout){LAYOUT_SPLIT, out_shape(g, node, 0)->rank - 1, split.blocks};
  return true;
}

static bool divide_gather_gradient(const Graph *g, int node, int k, Layout split, Layout *layout) {
  if (k != 1 || split.axis != in_shape(g, node, 1)->rank - 1)
    return false;
  layout[1] = split;
  layout[2] = (Layout){LAYOUT_SPLIT, 1, split.blocks};
  return true;
}

/* Rows of the table, which is the same for all samples: tokens[..] give [.., width]. */
const Op op_gather = {
    .name = "gather",
    .signature = "gather(table[classes, width], tokens[..])",
    .kind = OP_CALL,
    .divide = divide_gather,
    .min_in = 2,
    .max_in = 2,
    .shape = shape_gather,
    .derivative = derive_gather,
    .cost = cost_gather,
    .evaluate = evaluate_gather,
    .call = call_gather,
    .decode = decode_gather,
    .stays_f32 = all_stays_f32,
};

const Op op_gather_gradient = {
    .name = "gather_gradient",
    .signature = "gather_gradient(tokens[..], dy[.., width], classes)",
    .kind = OP_CALL,
    .adds = true,
    .internal = true,
    .divide = divide_gather_gradient,
    .min_in = 2,
    .max_in = 2,
    .attr = {{"classes", ATTR_INT, true, 0}},
    .shape = shape_gather_gradient,
    .cost = cost_gather_gradient,
    .evaluate = evaluate_gather_gradient,
    .call = call_gather_gradient,
    .stays_f32 = result_stays_f32,
};

/* ---- one_hot --------------------------------------------------------------------------------- */

/* Without `classes`, as many as the tokens have. */
static bool shape_one_hot(ShapeRule *r) {
  if (!rule_token(r, 0))
    return false;
  const Value *tokens = rule_value(r, 0);
  const Shape *s = &tokens->shape;
  if (s->rank < 1 || s->dim[s->rank - 1] != 1) {
    Diagnostic *d = error_at(r->span, "PD0309", "'one_hot' needs tokens [.., 1], but has %s", shape_text(s));
    rule_underline(r, d);
    help(d, "'reshape' adds a last axis of size 1");
    return false;
  }
  Attr *classes = rule_attr(r, "classes");
  if (classes->number == 0)
    classes->number = (double)tokens->classes;
  if (classes->number < (double)tokens->classes) {
    Diagnostic *d = error_at(r->span, "PD0309", "'one_hot' to %lld classes has tokens of %lld",
                             (long long)classes->number, (long long)tokens->classes);
    rule_underline(r, d);
    note_at(d, tokens->span, "the tokens come from here");
    return false;
  }
  return rule_result(r, shape_with(*s, s->rank - 1, (int64_t)classes->number));
}

static void evaluate_one_hot(const Graph *g, int node, int64_t batch, const double *const *in,
                             double *const *out) {
  int64_t classes = node_int(&g->nodes.at[node], "classes"), rows = batch_elements(in_shape(g, node, 0), batch);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t j = 0; j < classes; j++)
      out[0][r * classes + j] = (double)j == in[0][r];
}

/* Not by classes: the expression counts them. */
static bool divide_one_hot(const Graph *g, int node, int k, Layout split, Layout *layout) {
  return split.axis < out_shape(g, node, 0)->rank - 1 && divide_pointwise(g, node, k, split, layout);
}

/* 1 at the token, else 0: tokens[.., 1] give [.., classes]. classes 0 are the tokens' own. */
const Op op_one_hot = {
    .name = "one_hot",
    .signature = "one_hot(tokens[.., 1], classes = 0)",
    .kind = OP_POINTWISE,
    .min_in = 1,
    .max_in = 1,
    .attr = {{"classes", ATTR_INT, false, 0}},
    .divide = divide_one_hot,
    .shape = shape_one_hot,
    .cost = cost_cheap,
    .expression = "(int32_t)$j == $0 ? 1.0f : 0.0f",
    .evaluate = evaluate_one_hot,
};
