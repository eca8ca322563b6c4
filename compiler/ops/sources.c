/* Values without operands: parameters, inputs, constants, tables. */
#include "ops/rules.h"

#include <math.h>

static bool shape_param(ShapeRule *r) {
  return rule_result(r, padded_shape(&r->g->params.at[rule_int(r, "index")]));
}

/* The pass also records the layout in Param.layout. */
static bool divide_param(const Graph *g, int node, int k, Layout split, Layout *layout) {
  layout[k] = split;
  return !g->params.at[node_int(&g->nodes.at[node], "index")].buffer;
}

const Op op_param = {
    .name = "param",
    .signature = "param(index)",
    .kind = OP_SOURCE,
    .source = SOURCE_PARAMETER,
    .internal = true,
    .attr = {{"index", ATTR_INT, true, 0}},
    .divide = divide_param,
    .shape = shape_param,
    .cost = cost_none,
};

static bool shape_input(ShapeRule *r) {
  Shape s = {.batched = true};
  if (!rule_sizes(r, "shape", &s))
    return false;
  rule_result(r, s);
  r->out[0].type = rule_int(r, "token") ? TYPE_TOKEN : TYPE_F32;
  r->out[0].classes = rule_int(r, "classes");
  return true;
}

const Op op_input = {
    .name = "input",
    .signature = "input(index, token, classes, shape)",
    .kind = OP_SOURCE,
    .source = SOURCE_INPUT,
    .internal = true,
    .attr = {{"index", ATTR_INT, true, 0},
             {"token", ATTR_BOOL, true, 0},
             {"classes", ATTR_INT, true, 0},
             {"shape", ATTR_LIST, true, 0}},
    .shape = shape_input,
    .cost = cost_none,
};

static bool shape_operand(ShapeRule *r) {
  if (!shape_input(r))
    return false;
  r->out[0].shape.batched = rule_int(r, "batched") != 0;
  return true;
}

/* An input of a scan's body. */
const Op op_operand = {
    .name = "operand",
    .signature = "operand(index, token, classes, batched, shape)",
    .kind = OP_SOURCE,
    .source = SOURCE_INPUT,
    .internal = true,
    .attr = {{"index", ATTR_INT, true, 0},
             {"token", ATTR_BOOL, true, 0},
             {"classes", ATTR_INT, true, 0},
             {"batched", ATTR_BOOL, true, 0},
             {"shape", ATTR_LIST, true, 0}},
    .shape = shape_operand,
    .cost = cost_none,
};

static bool shape_constant(ShapeRule *r) { return rule_result(r, (Shape){.batched = false}); }

static void evaluate_fill(const Graph *g, int node, int64_t batch, const double *const *in, double *const *out) {
  (void)in;
  double value = node_number(&g->nodes.at[node], "value");
  int64_t n = batch_elements(out_shape(g, node, 0), batch);
  for (int64_t i = 0; i < n; i++)
    out[0][i] = value;
}

static bool number_of_fill(const Node *n, double *number) {
  *number = node_number(n, "value");
  return true;
}

const Op op_constant = {
    .name = "constant",
    .signature = "constant(value)",
    .kind = OP_SOURCE,
    .internal = true,
    .attr = {{"value", ATTR_NUMBER, true, 0}},
    .shape = shape_constant,
    .cost = cost_none,
    .expression = "${value}",
    .constant = number_of_fill,
    .evaluate = evaluate_fill,
};

static bool shape_full(ShapeRule *r) {
  Shape s = {.batched = rule_int(r, "$batched") != 0};
  return rule_sizes(r, "shape", &s) && rule_result(r, s);
}

static bool divide_full(const Graph *g, int node, int k, Layout split, Layout *layout) {
  (void)g, (void)node;
  layout[k] = split;
  return true;
}

/* A number in every element: [..], the same for all samples. */
const Op op_full = {
    .name = "full",
    .signature = "full(value, shape)",
    .kind = OP_SOURCE,
    .attr = {{"value", ATTR_NUMBER, true, 0}, {"shape", ATTR_LIST, true, 0}, {"$batched", ATTR_BOOL, false, 0}},
    .divide = divide_full,
    .shape = shape_full,
    .cost = cost_copy,
    .expression = "${value}",
    .constant = number_of_fill,
    .evaluate = evaluate_fill,
};

static bool shape_iota(ShapeRule *r) {
  int64_t n = rule_int(r, "n");
  if (n < 1) {
    error_at(r->span, "PD0202", "'iota' counts to a positive number, not to %lld", (long long)n);
    return false;
  }
  return rule_result(r, (Shape){.rank = 1, .dim = {n}});
}

static void evaluate_iota(const Graph *g, int node, int64_t batch, const double *const *in, double *const *out) {
  (void)in, (void)batch;
  int64_t n = node_int(&g->nodes.at[node], "n");
  for (int64_t i = 0; i < n; i++)
    out[0][i] = (double)i;
}

static bool number_of_iota(const Node *n, double *number) {
  *number = 0;
  return node_int(n, "n") == 1;
}

static bool divide_iota(const Graph *g, int node, int k, Layout split, Layout *layout) {
  (void)g, (void)node;
  layout[k] = split;
  return split.blocks == 1;
}

static bool shape_iota_part(ShapeRule *r) {
  return rule_result(r, (Shape){.rank = 1, .dim = {rule_int(r, "part")}});
}

static void meet_iota_part(const Graph *g, int node, int64_t batch, int ranks, const double *const *const *in,
                           double *const *const *out) {
  (void)in, (void)batch;
  const int64_t part = node_int(&g->nodes.at[node], "part");
  for (int rank = 0; rank < ranks; rank++)
    for (int64_t i = 0; i < part; i++)
      out[rank][0][i] = (double)(rank * part + i);
}

/* 0, 1 .. n - 1: [n], the same for all samples. */
const Op op_iota = {
    .name = "iota",
    .signature = "iota(n)",
    .kind = OP_SOURCE,
    .attr = {{"n", ATTR_INT, true, 0}},
    .divide = divide_iota,
    .divided = &op_iota_part,
    .shape = shape_iota,
    .cost = cost_copy,
    .expression = "(float)$j",
    .constant = number_of_iota,
    .evaluate = evaluate_iota,
};

/* A rank's part of a shard group's 0, 1 .. n - 1. */
const Op op_iota_part = {
    .name = "iota_part",
    .signature = "iota_part(n, part)",
    .kind = OP_SOURCE,
    .internal = true,
    .attr = {{"n", ATTR_INT, true, 0}, {"part", ATTR_INT, false, 1}},
    .shape = shape_iota_part,
    .cost = cost_copy,
    .expression = "(float)((int32_t)$j + (int32_t)$shard * ${part})",
    .meet = meet_iota_part,
};
