/* Rows of a table selected by tokens, and tokens as rows of an identity matrix. */
#include <string.h>

#include "ops/call.h"
#include "ops/rules.h"

static bool shape_gather(ShapeRule *r) {
  if (!rule_f32(r, 0) || !rule_token(r, 1))
    return false;
  const Value *table = rule_value(r, 0), *tokens = rule_value(r, 1);
  if (table->shape.rank != 2 || table->shape.batched || tokens->shape.rank >= MAX_RANK) {
    Diagnostic *d =
        error_at(r->span, "PD0309",
                 "'gather' needs a table [classes, width] that does not depend on the sample, but has %s",
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
  return (OpCost){.bytes = 8.0 * (double)shape_elements(out_shape(g, node, 0))};
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
  return (OpCost){.other_flops = rows, .bytes = 12 * rows};
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

/* ---- of a part of the classes ---------------------------------------------------------------------- */

static bool shape_gather_part(ShapeRule *r) {
  Shape s = *rule_shape(r, 1);
  s.dim[s.rank++] = rule_shape(r, 0)->dim[1];
  return rule_result(r, s);
}

/* The row of a token within the rank's part of the table; -1: another rank's row. */
static int64_t own_row(double token, int rank, int64_t rows) {
  int64_t row = (int64_t)token - rank * rows;
  return row >= 0 && row < rows ? row : -1;
}

static void meet_gather_part(const Graph *g, int node, int64_t batch, int ranks, const double *const *const *in,
                             double *const *const *out) {
  const Shape *table = in_shape(g, node, 0);
  int64_t width = table->dim[1], rows = batch_elements(in_shape(g, node, 1), batch);
  for (int rank = 0; rank < ranks; rank++)
    for (int64_t r = 0; r < rows; r++) {
      int64_t own = own_row(in[rank][1][r], rank, table->dim[0]);
      for (int64_t i = 0; i < width; i++)
        out[rank][0][r * width + i] = own < 0 ? 0 : in[rank][0][own * width + i];
    }
}

static void meet_gather_gradient_part(const Graph *g, int node, int64_t batch, int ranks,
                                      const double *const *const *in, double *const *const *out) {
  const Shape *y = out_shape(g, node, 0);
  int64_t width = y->dim[1], rows = batch_elements(in_shape(g, node, 0), batch);
  for (int rank = 0; rank < ranks; rank++) {
    memset(out[rank][0], 0, (size_t)shape_elements(y) * sizeof ***out);
    for (int64_t r = 0; r < rows; r++) {
      int64_t own = own_row(in[rank][0][r], rank, y->dim[0]);
      for (int64_t i = 0; own >= 0 && i < width; i++)
        out[rank][0][own * width + i] += in[rank][1][r * width + i];
    }
  }
}

/* ---- as calls of pd_gather and pd_gather_gradient ------------------------------------------------ */

/* The rows of `values` (all axes but the last) with their tokens, in loops over runs of rows. */
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

static void call_gather_part(const Site *site, Call *c) {
  int64_t rows = site->in[0].dim[0];
  call_gather(site, c);
  c->function = "pd_gather_part";
  pass_int(c, rows);
  pass_shard(c, rows);
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

static void call_gather_gradient_part(const Site *site, Call *c) {
  call_gather_gradient(site, c);
  c->function = "pd_gather_gradient_part";
  pass_shard(c, site->out[0].dim[0]);
}

static int decode_gather(const Graph *g, int node, const int *axis, int64_t context, Decoded *to) {
  (void)g, (void)node, (void)context, (void)to;
  return axis[0] < 0 ? axis[1] : -1;
}

/* Splits by columns, or by rows: then each rank contributes its own rows to a sum. */
static bool divide_gather(const Graph *g, int node, int k, Layout split, Layout *layout) {
  if (k != 0 || (split.axis == 0 && split.blocks > 1))
    return false;
  layout[0] = split;
  if (split.axis == 0)
    layout[2].kind = LAYOUT_PARTIAL;
  else
    layout[2] = (Layout){LAYOUT_SPLIT, out_shape(g, node, 0)->rank - 1, split.blocks};
  return true;
}

static bool divide_gather_gradient(const Graph *g, int node, int k, Layout split, Layout *layout) {
  if (k == 1 && split.axis == in_shape(g, node, 1)->rank - 1) {
    layout[1] = split;
    layout[2] = (Layout){LAYOUT_SPLIT, 1, split.blocks};
    return true;
  }
  layout[2] = split;
  return k == 2 && split.axis == 0 && split.blocks == 1;
}

static bool is_by_rows(Layout table) { return table.kind == LAYOUT_SPLIT && table.axis == 0; }
static bool counts_gather(const Graph *g, int node, const Layout *layout) {
  return (void)g, (void)node, is_by_rows(layout[0]);
}
static bool counts_gather_gradient(const Graph *g, int node, const Layout *layout) {
  return (void)g, (void)node, is_by_rows(layout[2]);
}

/* Rows of the table, which all samples share: tokens[..] give [.., width]. */
const Op op_gather = {
    .name = "gather",
    .signature = "gather(table[classes, width], tokens[..])",
    .kind = OP_CALL,
    .divide = divide_gather,
    .divided = &op_gather_part,
    .counts = counts_gather,
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
    .divided = &op_gather_gradient_part,
    .counts = counts_gather_gradient,
    .min_in = 2,
    .max_in = 2,
    .attr = {{"classes", ATTR_INT, true, 0}},
    .shape = shape_gather_gradient,
    .cost = cost_gather_gradient,
    .evaluate = evaluate_gather_gradient,
    .call = call_gather_gradient,
    .stays_f32 = all_stays_f32,
};

/* gather with a rank's rows of the table: tokens[..] give [.., width], zeros for rows of another rank. */
const Op op_gather_part = {
    .name = "gather_part",
    .signature = "gather_part(table[rows, width], tokens[..])",
    .kind = OP_CALL,
    .internal = true,
    .min_in = 2,
    .max_in = 2,
    .shape = shape_gather_part,
    .cost = cost_gather,
    .meet = meet_gather_part,
    .call = call_gather_part,
    .stays_f32 = all_stays_f32,
};

/* classes: those of the rank. */
const Op op_gather_gradient_part = {
    .name = "gather_gradient_part",
    .signature = "gather_gradient_part(tokens[..], dy[.., width], classes)",
    .kind = OP_CALL,
    .adds = true,
    .internal = true,
    .min_in = 2,
    .max_in = 2,
    .attr = {{"classes", ATTR_INT, true, 0}},
    .shape = shape_gather_gradient,
    .cost = cost_gather_gradient,
    .meet = meet_gather_gradient_part,
    .call = call_gather_gradient_part,
    .stays_f32 = all_stays_f32,
};

/* ---- one_hot --------------------------------------------------------------------------------- */

/* `classes` defaults to that of the tokens. */
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
    Diagnostic *d = error_at(r->span, "PD0309", "'one_hot' has %lld classes, but its tokens have %lld",
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

static bool shape_one_hot_part(ShapeRule *r) {
  const Shape *s = rule_shape(r, 0);
  return rule_result(r, shape_with(*s, s->rank - 1, rule_int(r, "classes")));
}

static void meet_one_hot_part(const Graph *g, int node, int64_t batch, int ranks, const double *const *const *in,
                              double *const *const *out) {
  int64_t classes = node_int(&g->nodes.at[node], "classes"), rows = batch_elements(in_shape(g, node, 0), batch);
  for (int rank = 0; rank < ranks; rank++)
    for (int64_t r = 0; r < rows; r++)
      for (int64_t j = 0; j < classes; j++)
        out[rank][0][r * classes + j] = own_row(in[rank][0][r], rank, classes) == j;
}

static bool is_last(const Graph *g, int node, int axis) { return axis == out_shape(g, node, 0)->rank - 1; }

static bool divide_one_hot(const Graph *g, int node, int k, Layout split, Layout *layout) {
  return !(is_last(g, node, split.axis) && split.blocks > 1) && divide_pointwise(g, node, k, split, layout);
}

/* A split by classes needs the part's op, because the expression uses the class index. */
static bool counts_one_hot(const Graph *g, int node, const Layout *layout) {
  return layout[1].kind == LAYOUT_SPLIT && is_last(g, node, layout[1].axis);
}

/* 1 at the token, else 0: tokens[.., 1] give [.., classes]. classes 0 means those of the tokens. */
const Op op_one_hot = {
    .name = "one_hot",
    .signature = "one_hot(tokens[.., 1], classes = 0)",
    .kind = OP_POINTWISE,
    .min_in = 1,
    .max_in = 1,
    .attr = {{"classes", ATTR_INT, false, 0}},
    .divide = divide_one_hot,
    .divided = &op_one_hot_part,
    .counts = counts_one_hot,
    .shape = shape_one_hot,
    .cost = cost_cheap,
    .expression = "(int32_t)$j == $0 ? 1.0f : 0.0f",
    .evaluate = evaluate_one_hot,
};

/* one_hot with a rank's part of the classes: tokens[.., 1] give [.., classes], zeros for classes of another
 * rank. */
const Op op_one_hot_part = {
    .name = "one_hot_part",
    .signature = "one_hot_part(tokens[.., 1], classes)",
    .kind = OP_POINTWISE,
    .internal = true,
    .min_in = 1,
    .max_in = 1,
    .attr = {{"classes", ATTR_INT, true, 0}},
    .shape = shape_one_hot_part,
    .cost = cost_cheap,
    .expression = "(int32_t)$j + (int32_t)$shard * ${classes} == $0 ? 1.0f : 0.0f",
    .meet = meet_one_hot_part,
};
