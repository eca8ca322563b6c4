/* Pointwise arithmetic and comparisons of two operands, negation and squares. */
#include "ops/rules.h"

#include <math.h>

static double fold_add(const double *x, const Attr *attr) { return (void)attr, x[0] + x[1]; }
static double fold_sub(const double *x, const Attr *attr) { return (void)attr, x[0] - x[1]; }
static double fold_mul(const double *x, const Attr *attr) { return (void)attr, x[0] * x[1]; }
static double fold_div(const double *x, const Attr *attr) { return (void)attr, x[0] / x[1]; }
static double fold_neg(const double *x, const Attr *attr) { return (void)attr, -x[0]; }
static double fold_square(const double *x, const Attr *attr) { return (void)attr, x[0] * x[0]; }
static double fold_maximum(const double *x, const Attr *attr) { return (void)attr, fmax(x[0], x[1]); }
static double fold_minimum(const double *x, const Attr *attr) { return (void)attr, fmin(x[0], x[1]); }
static double fold_greater(const double *x, const Attr *attr) { return (void)attr, x[0] > x[1]; }
static double fold_equal(const double *x, const Attr *attr) { return (void)attr, x[0] == x[1]; }
static double fold_select(const double *x, const Attr *attr) { return (void)attr, x[0] != 0 ? x[1] : x[2]; }

static int operand(Gradients *d, int node, int i) { return grad_graph(d)->nodes.at[node].in[i]; }

static void derive_add(Gradients *d, int node) {
  int dy = grad_of(d, node, 0);
  grad_add_broadcast(d, node, 0, dy);
  grad_add_broadcast(d, node, 1, dy);
}

static void derive_sub(Gradients *d, int node) {
  int dy = grad_of(d, node, 0);
  grad_add_broadcast(d, node, 0, dy);
  if (grad_wanted(d, node, 1))
    grad_add_broadcast(d, node, 1, grad_1(d, node, &op_neg, dy));
}

static void derive_mul(Gradients *d, int node) {
  int dy = grad_of(d, node, 0);
  if (grad_wanted(d, node, 0))
    grad_add_broadcast(d, node, 0, grad_2(d, node, &op_mul, dy, operand(d, node, 1)));
  if (grad_wanted(d, node, 1))
    grad_add_broadcast(d, node, 1, grad_2(d, node, &op_mul, dy, operand(d, node, 0)));
}

/* d(a/b)/db = -(a/b)/b */
static void derive_div(Gradients *d, int node) {
  int dy = grad_of(d, node, 0), b = operand(d, node, 1), y = graph_output(grad_graph(d), node, 0);
  if (grad_wanted(d, node, 0))
    grad_add_broadcast(d, node, 0, grad_2(d, node, &op_div, dy, b));
  if (grad_wanted(d, node, 1)) {
    int slope = grad_1(d, node, &op_neg, grad_2(d, node, &op_div, y, b));
    grad_add_broadcast(d, node, 1, grad_2(d, node, &op_mul, dy, slope));
  }
}

static void derive_neg(Gradients *d, int node) {
  grad_add(d, node, 0, grad_1(d, node, &op_neg, grad_of(d, node, 0)));
}

static void derive_square(Gradients *d, int node) {
  int twice = grad_2(d, node, &op_mul, operand(d, node, 0), grad_constant(d, node, 2));
  grad_add(d, node, 0, grad_2(d, node, &op_mul, grad_of(d, node, 0), twice));
}

/* Ties give half to each side, as in PyTorch. */
static void derive_extreme(Gradients *d, int node, int above, int below) {
  int dy = grad_of(d, node, 0);
  int tie = grad_2(d, node, &op_mul, grad_2(d, node, &op_equal, above, below), grad_constant(d, node, 0.5));
  int share = grad_2(d, node, &op_add, grad_2(d, node, &op_greater, above, below), tie);
  if (grad_wanted(d, node, 0))
    grad_add_broadcast(d, node, 0, grad_2(d, node, &op_mul, dy, share));
  if (grad_wanted(d, node, 1)) {
    int rest = grad_2(d, node, &op_sub, grad_constant(d, node, 1), share);
    grad_add_broadcast(d, node, 1, grad_2(d, node, &op_mul, dy, rest));
  }
}

static void derive_maximum(Gradients *d, int node) {
  derive_extreme(d, node, operand(d, node, 0), operand(d, node, 1));
}

static void derive_minimum(Gradients *d, int node) {
  derive_extreme(d, node, operand(d, node, 1), operand(d, node, 0));
}

static void derive_select(Gradients *d, int node) {
  int dy = grad_of(d, node, 0), condition = operand(d, node, 0);
  for (int side = 1; side <= 2; side++) {
    if (!grad_wanted(d, node, side))
      continue;
    int zero = grad_constant(d, node, 0);
    int in[3] = {condition, side == 1 ? dy : zero, side == 1 ? zero : dy};
    grad_add_broadcast(d, node, side, grad_build(d, node, &op_select, in, 3, NULL));
  }
}

#define BINARY .kind = OP_POINTWISE, .min_in = 2, .max_in = 2, .cost = cost_cheap, .divide = divide_pointwise
#define UNARY .kind = OP_POINTWISE, .min_in = 1, .max_in = 1, .cost = cost_cheap, .divide = divide_pointwise

const Op op_add = {.name = "add",
                   .signature = "a + b",
                   .infix = "+",
                   .adds_bias = true,
                   BINARY,
                   .linear = LINEAR_IN_ALL,
                   .shape = shape_pointwise,
                   .derivative = derive_add,
                   .expression = "$0 + $1",
                   .fold = fold_add};
const Op op_sub = {.name = "sub",
                   .signature = "a - b",
                   .infix = "-",
                   BINARY,
                   .linear = LINEAR_IN_ALL,
                   .shape = shape_pointwise,
                   .derivative = derive_sub,
                   .expression = "$0 - $1",
                   .fold = fold_sub};
const Op op_mul = {.name = "mul",
                   .signature = "a * b",
                   .infix = "*",
                   BINARY,
                   .linear = LINEAR_IN_EACH,
                   .shape = shape_pointwise,
                   .derivative = derive_mul,
                   .expression = "$0 * $1",
                   .fold = fold_mul};
const Op op_div = {.name = "div",
                   .signature = "a / b",
                   .infix = "/",
                   BINARY,
                   .linear = LINEAR_IN_FIRST,
                   .shape = shape_pointwise,
                   .derivative = derive_div,
                   .expression = "$0 / $1",
                   .fold = fold_div};
const Op op_neg = {.name = "neg",
                   .signature = "neg(x)",
                   UNARY,
                   .linear = LINEAR_IN_ALL,
                   .shape = shape_pointwise,
                   .derivative = derive_neg,
                   .expression = "-$0",
                   .fold = fold_neg};
const Op op_square = {.name = "square",
                      .signature = "square(x)",
                      UNARY,
                      .shape = shape_pointwise,
                      .derivative = derive_square,
                      .expression = "$0 * $0",
                      .fold = fold_square};
/* The larger of two numbers; a tie shares the gradient equally. */
const Op op_maximum = {.name = "maximum",
                       .signature = "maximum(a, b)",
                       BINARY,
                       .shape = shape_pointwise,
                       .derivative = derive_maximum,
                       .expression = "pd_max($0, $1)",
                       .fold = fold_maximum};
/* The smaller of two numbers; a tie shares the gradient equally. */
const Op op_minimum = {.name = "minimum",
                       .signature = "minimum(a, b)",
                       BINARY,
                       .shape = shape_pointwise,
                       .derivative = derive_minimum,
                       .expression = "pd_min($0, $1)",
                       .fold = fold_minimum};
/* 1 where a > b, else 0, also written a > b and b < a. No gradient flows. Tokens compare with numbers, as in tests
 * of lengths. */
const Op op_greater = {.name = "greater",
                       .signature = "greater(a, b)",
                       BINARY,
                       .shape = rule_broadcast,
                       .expression = "$0 > $1 ? 1.0f : 0.0f",
                       .fold = fold_greater};
/* 1 where a equals b, else 0, also written a == b. No gradient flows. Tokens compare with numbers, as in tests for
 * padding. Exact, because classes stay below 2^24. */
const Op op_equal = {.name = "equal",
                     .signature = "equal(a, b)",
                     BINARY,
                     .shape = rule_broadcast,
                     .expression = "$0 == $1 ? 1.0f : 0.0f",
                     .fold = fold_equal};
/* a where the condition is not 0, else b. */
const Op op_select = {.name = "select",
                      .signature = "select(condition, a, b)",
                      .kind = OP_POINTWISE,
                      .min_in = 3,
                      .max_in = 3,
                      .divide = divide_pointwise,
                      .cost = cost_cheap,
                      .no_gradient = 1u << 0, /* the condition */
                      .shape = shape_pointwise,
                      .derivative = derive_select,
                      .expression = "$0 != 0.0f ? $1 : $2",
                      .fold = fold_select};
