/* Pointwise functions of one operand; derivatives use the output if that is cheaper. */
#include <math.h>

#include "ops/rules.h"

static double fold_exp(const double *x, const Attr *attr) { return (void)attr, exp(x[0]); }
static double fold_expm1(const double *x, const Attr *attr) { return (void)attr, expm1(x[0]); }
static double fold_log(const double *x, const Attr *attr) { return (void)attr, log(x[0]); }
static double fold_log1p(const double *x, const Attr *attr) { return (void)attr, log1p(x[0]); }
static double fold_sigmoid(const double *x, const Attr *attr) { return (void)attr, 1 / (1 + exp(-x[0])); }
static double fold_tanh(const double *x, const Attr *attr) { return (void)attr, tanh(x[0]); }
static double fold_erf(const double *x, const Attr *attr) { return (void)attr, erf(x[0]); }
static double fold_erfc(const double *x, const Attr *attr) { return (void)attr, erfc(x[0]); }
static double fold_sqrt(const double *x, const Attr *attr) { return (void)attr, sqrt(x[0]); }
static double fold_rsqrt(const double *x, const Attr *attr) { return (void)attr, 1 / sqrt(x[0]); }
static double fold_sin(const double *x, const Attr *attr) { return (void)attr, sin(x[0]); }
static double fold_cos(const double *x, const Attr *attr) { return (void)attr, cos(x[0]); }
static double fold_relu(const double *x, const Attr *attr) { return (void)attr, x[0] > 0 ? x[0] : 0; }

static double fold_floor(const double *x, const Attr *attr) { return (void)attr, floor(x[0]); }
static double fold_round(const double *x, const Attr *attr) { return (void)attr, rint(x[0]); }
static double fold_abs(const double *x, const Attr *attr) { return (void)attr, fabs(x[0]); }

static int operand(Gradients *d, int node) { return grad_graph(d)->nodes.at[node].in[0]; }
static int output(Gradients *d, int node) { return graph_output(grad_graph(d), node, 0); }
static void chain(Gradients *d, int node, int slope) {
  grad_add(d, node, 0, grad_2(d, node, &op_mul, grad_of(d, node, 0), slope));
}

static void derive_exp(Gradients *d, int node) { chain(d, node, output(d, node)); }

/* exp(x), because y + 1 would be 0 for very negative x */
static void derive_expm1(Gradients *d, int node) { chain(d, node, grad_1(d, node, &op_exp, operand(d, node))); }

static void derive_log(Gradients *d, int node) {
  grad_add(d, node, 0, grad_2(d, node, &op_div, grad_of(d, node, 0), operand(d, node)));
}

/* 1 / (1 + x) */
static void derive_log1p(Gradients *d, int node) {
  int above = grad_2(d, node, &op_add, grad_constant(d, node, 1), operand(d, node));
  grad_add(d, node, 0, grad_2(d, node, &op_div, grad_of(d, node, 0), above));
}

/* y (1 - y) */
static void derive_sigmoid(Gradients *d, int node) {
  int y = output(d, node), rest = grad_2(d, node, &op_sub, grad_constant(d, node, 1), y);
  chain(d, node, grad_2(d, node, &op_mul, y, rest));
}

/* 1 - y^2 */
static void derive_tanh(Gradients *d, int node) {
  int y2 = grad_1(d, node, &op_square, output(d, node));
  chain(d, node, grad_2(d, node, &op_sub, grad_constant(d, node, 1), y2));
}

/* `factor` exp(-x^2) */
static void derive_bell(Gradients *d, int node, double factor) {
  int x2 = grad_1(d, node, &op_square, operand(d, node));
  int bell = grad_1(d, node, &op_exp, grad_1(d, node, &op_neg, x2));
  chain(d, node, grad_2(d, node, &op_mul, bell, grad_constant(d, node, factor)));
}

static void derive_erf(Gradients *d, int node) { derive_bell(d, node, M_2_SQRTPI); }
static void derive_erfc(Gradients *d, int node) { derive_bell(d, node, -M_2_SQRTPI); }

/* 1 / (2 y) */
static void derive_sqrt(Gradients *d, int node) {
  chain(d, node, grad_2(d, node, &op_div, grad_constant(d, node, 0.5), output(d, node)));
}

/* -y^3 / 2. The gradient is multiplied first: y^3 alone would vanish for y below 1e-13, while the gradient is
 * mostly large for small y. */
static void derive_rsqrt(Gradients *d, int node) {
  int y = output(d, node), dy = grad_2(d, node, &op_mul, grad_of(d, node, 0), y);
  int slope = grad_2(d, node, &op_mul, grad_1(d, node, &op_square, y), grad_constant(d, node, -0.5));
  grad_add(d, node, 0, grad_2(d, node, &op_mul, dy, slope));
}

static void derive_sin(Gradients *d, int node) { chain(d, node, grad_1(d, node, &op_cos, operand(d, node))); }

static void derive_cos(Gradients *d, int node) {
  chain(d, node, grad_1(d, node, &op_neg, grad_1(d, node, &op_sin, operand(d, node))));
}

/* dy for y > 0: the operand need not be saved. */
static void derive_relu(Gradients *d, int node) {
  int zero = grad_constant(d, node, 0), positive = grad_2(d, node, &op_greater, output(d, node), zero);
  int in[3] = {positive, grad_of(d, node, 0), zero};
  grad_add(d, node, 0, grad_build(d, node, &op_select, in, 3, NULL));
}

/* The sign, 0 at 0. */
static void derive_abs(Gradients *d, int node) {
  int x = operand(d, node), zero = grad_constant(d, node, 0);
  int above = grad_2(d, node, &op_greater, x, zero), below = grad_2(d, node, &op_greater, zero, x);
  chain(d, node, grad_2(d, node, &op_sub, above, below));
}

#define FUNCTION(f, dear)                                        \
  const Op op_##f = {.name = #f,                                 \
                     .signature = #f "(x)",                      \
                     .kind = OP_POINTWISE,                       \
                     .expensive = dear,                          \
                     .min_in = 1,                                \
                     .max_in = 1,                                \
                     .shape = shape_pointwise,                   \
                     .derivative = derive_##f,                   \
                     .divide = divide_pointwise,                 \
                     .cost = dear ? cost_expensive : cost_cheap, \
                     .expression = "pd_" #f "($0)",              \
                     .fold = fold_##f}

FUNCTION(exp, true);
FUNCTION(expm1, true);
FUNCTION(log, true);
FUNCTION(log1p, true);
FUNCTION(sigmoid, true);
FUNCTION(tanh, true);
FUNCTION(erf, true);
FUNCTION(erfc, true);
FUNCTION(sqrt, false);
FUNCTION(rsqrt, false);
FUNCTION(sin, true);
FUNCTION(cos, true);
FUNCTION(relu, false);
FUNCTION(abs, false);

/* Steps have no gradient. */
#define STEP(f, function)                           \
  const Op op_##f = {.name = #f,                    \
                     .signature = #f "(x)",         \
                     .kind = OP_POINTWISE,          \
                     .min_in = 1,                   \
                     .max_in = 1,                   \
                     .shape = shape_pointwise,      \
                     .divide = divide_pointwise,    \
                     .cost = cost_cheap,            \
                     .expression = function "($0)", \
                     .fold = fold_##f}

STEP(floor, "pd_floor");
STEP(round, "pd_rint");
