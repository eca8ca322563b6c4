/* Matrix products. If b has rank two and all samples share it, a's leading axes and the microbatch are rows; else
 * both have the same leading axes, with one product for each. */
#include <string.h>

#include "ops/matmul.h"
#include "ops/rules.h"

bool matmul_is_weight(const Shape *b) { return b->rank == 2 && !b->batched; }

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
  if (b->rank < 2 || a->rank < (matmul_is_weight(b) ? 1 : 2))
    return matmul_fails(r, -1, -1, "multiplies matrices");
  if (a->dim[a->rank - 1] != b->dim[b->rank - 2])
    return matmul_fails(r, a->rank - 1, b->rank - 2,
                        "needs the same number of columns on the left and rows on the right");
  if (!matmul_is_weight(b)) {
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
  bool weight = matmul_is_weight(in_shape(g, node, 1));
  if (grad_wanted(d, node, 0))
    grad_add(d, node, 0, grad_2(d, node, &op_matmul, dy, transposed(d, node, b)));
  if (!grad_wanted(d, node, 1))
    return;
  if (weight)
    grad_add(d, node, 1, grad_2(d, node, &op_weight_gradient, a, dy));
  else
    grad_add(d, node, 1, grad_2(d, node, &op_matmul, transposed(d, node, a), dy));
}

/* Split along the summed axis, each rank has a partial sum; along another axis of a, or along b's columns, the
 * result is split alike. */
static bool divide_matmul(const Graph *g, int node, int k, Layout split, Layout *layout) {
  const Shape *a = in_shape(g, node, 0), *b = in_shape(g, node, 1);
  int axis = split.axis, last = b->rank - 1;
  if (k == 2 || (k == 1 && axis != last))
    return false;
  layout[k] = split;
  if (k == 1) {
    layout[2] = (Layout){LAYOUT_SPLIT, a->rank - 1, split.blocks};
  } else if (axis == a->rank - 1) {
    layout[1] = (Layout){LAYOUT_SPLIT, last - 1, split.blocks};
    layout[2].kind = LAYOUT_PARTIAL;
  } else {
    layout[2] = split;
    if (!matmul_is_weight(b) && axis < a->rank - 2)
      layout[1] = split;
  }
  return true;
}

OpProducts matmul_products(const Graph *g, int node) {
  const Shape *a = in_shape(g, node, 0), *b = in_shape(g, node, 1);
  double k = (double)a->dim[a->rank - 1], rows = (double)shape_elements(a) / k;
  bool weight = matmul_is_weight(b);
  double each = weight ? rows : (double)a->dim[a->rank - 2];
  return (OpProducts){.kind = PRODUCTS_OF_MATRICES,
                      .samples = !a->batched ? SAMPLES_NOWHERE
                                 : weight    ? SAMPLES_IN_M
                                             : SAMPLES_TIMES,
                      .times = rows / each,
                      .m = each,
                      .n = (double)b->dim[b->rank - 1],
                      .k = k};
}

static OpCost cost_matmul(const Graph *g, int node) {
  const Shape *a = in_shape(g, node, 0);
  double products = (double)shape_elements(out_shape(g, node, 0)) * (double)a->dim[a->rank - 1];
  return (
      OpCost){.matmul_flops = 2 * products, .bytes = node_bytes(g, node), .products = matmul_products(g, node)};
}

void matmul_evaluate(const Graph *g, int node, int64_t batch, const double *const *in, double *const *out) {
  const Shape *a = in_shape(g, node, 0), *b = in_shape(g, node, 1);
  int64_t k = a->dim[a->rank - 1], n = b->dim[b->rank - 1];
  int64_t rows = batch_elements(a, batch) / k;
  int64_t rows_each = matmul_is_weight(b) ? rows : a->dim[a->rank - 2];
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

/* ---- weight_gradient(a[.., K], dy[.., N]) -> [K, N], summed over all rows and the microbatch ---- */

static bool shape_weight_gradient(ShapeRule *r) {
  const Shape *a = rule_shape(r, 0), *dy = rule_shape(r, 1);
  ensure(a->rank >= 1 && a->rank == dy->rank && a->batched == dy->batched);
  for (int i = 0; i < a->rank - 1; i++)
    ensure(a->dim[i] == dy->dim[i]);
  return rule_result(r, (Shape){.rank = 2, .dim = {a->dim[a->rank - 1], dy->dim[dy->rank - 1]}});
}

static bool divide_weight_gradient(const Graph *g, int node, int k, Layout split, Layout *layout) {
  int last = in_shape(g, node, 0)->rank - 1;
  if (k == 2 || (k == 1 && split.axis != last))
    return false;
  layout[k] = split;
  if (split.axis == last) {
    layout[2] = (Layout){LAYOUT_SPLIT, k, split.blocks};
  } else { /* rows, which are summed */
    layout[1] = split;
    layout[2].kind = LAYOUT_PARTIAL;
  }
  return true;
}

static OpCost cost_weight_gradient(const Graph *g, int node) {
  const Shape *a = in_shape(g, node, 0), *dy = in_shape(g, node, 1);
  double m = (double)a->dim[a->rank - 1], n = (double)dy->dim[dy->rank - 1], k = (double)shape_elements(a) / m;
  return (OpCost){.matmul_flops = 2 * m * n * k,
                  .bytes = node_bytes(g, node),
                  .products = {.kind = PRODUCTS_OF_MATRICES,
                               .samples = a->batched ? SAMPLES_IN_K : SAMPLES_NOWHERE,
                               .times = 1,
                               .m = m,
                               .n = n,
                               .k = k}};
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

/* ---- as calls of pd_matmul ---------------------------------------------------------------------- */

/* c^T = b^T a^T, for a c with contiguous rows. */
static void swap_matmul(Matmul *x) {
  struct pd_matmul_shape s = x->shape;
  x->swapped = true;
  x->shape = (struct pd_matmul_shape){
      .batch = s.batch,
      .m = s.n,
      .n = s.m,
      .k = s.k,
      .a_batch = s.b_batch,
      .a_row = s.b_column,
      .a_column = s.b_row,
      .b_batch = s.a_batch,
      .b_row = s.a_column,
      .b_column = s.a_row,
      .c_batch = s.c_batch,
      .c_row = s.c_row,
  };
}

/* Axes of one element have stride 0; libraries require a plausible one. */
static void plausible_strides(struct pd_matmul_shape *s) {
  if (s->k == 1)
    s->a_column = 1, s->b_row = s->n;
  if (s->m == 1)
    s->a_row = s->k;
  if (s->n == 1)
    s->b_column = 1;
  if (s->m == 1)
    s->c_row = s->n;
  if (s->batch == 1)
    s->a_batch = s->m * s->k, s->b_batch = s->k * s->n, s->c_batch = s->m * s->n;
}

/* Whether the runtime can do the product with one read of b (pd_kernels.h). */
static bool reads_once(const Matmul *x) {
  const struct pd_matmul_shape *s = &x->shape;
  return s->batch == 1 && s->a_column == 1 && (s->b_row == 1 || s->b_column == 1);
}

/* Sets c's strides; transposes the product if c's columns are not contiguous. */
static void place_result(Matmul *x, int64_t row, int64_t column) {
  struct pd_matmul_shape *s = &x->shape;
  bool rows_contiguous = s->n > 1 && column != 1;
  s->c_row = rows_contiguous ? column : row;
  if (rows_contiguous) {
    ensure((row == 1 || s->m == 1) && !s->bias);
    swap_matmul(x);
  }
  plausible_strides(&x->shape);
}

/* Takes the last axis along which one of the two matrices varies as the call's batch; 1: none does. Axes along
 * which both are broadcast remain loops around the call, because oneDNN has no such batch: it derives the result's
 * shape from its operands. */
static int64_t take_batch(Axes *outer, int64_t stride[MAX_PLACES]) {
  for (int i = outer->n - 1; i >= 0; i--) {
    if (outer->stride[i][0] == 0 && outer->stride[i][1] == 0)
      continue;
    move_axis_last(outer, i);
    return take_axis(outer, stride);
  }
  return 1;
}

static Matmul describe_product(const Site *site) {
  const Place *a = &site->in[0], *b = &site->in[1], *c = &site->out[0];
  Matmul x = {0};
  struct pd_matmul_shape *s = &x.shape;
  bool weight = b->rank == 2 && a->rank != 2;
  int n = a->rank, leading = weight || b->rank == 2 ? n - 1 : n - 2;
  const Place *places[] = {a, weight || b->rank == 2 ? NULL : b, c};
  int64_t stride[MAX_PLACES];
  x.outer = merge_axes(places, 3, leading, a->dim);
  *s = (struct pd_matmul_shape){.batch = 1, .k = a->dim[n - 1], .n = b->dim[b->rank - 1], .bias = site->bias >= 0};
  s->a_column = a->stride[n - 1];
  s->b_row = b->stride[b->rank - 2];
  s->b_column = b->stride[b->rank - 1];
  int64_t c_row;
  if (places[1]) {
    s->m = a->dim[n - 2];
    s->a_row = a->stride[n - 2];
    c_row = c->stride[n - 2];
  } else {
    s->m = take_axis(&x.outer, stride);
    s->a_row = stride[0];
    c_row = stride[2];
  }
  s->batch = take_batch(&x.outer, stride);
  if (s->batch > 1) {
    s->a_batch = stride[0];
    s->b_batch = stride[1];
    s->c_batch = stride[2];
  }
  place_result(&x, c_row, c->stride[c->rank - 1]);
  return x;
}

static Matmul describe_weight_gradient(const Site *site) {
  const Place *a = &site->in[0], *dy = &site->in[1], *c = &site->out[0];
  const Place *places[] = {a, dy};
  Matmul x = {0};
  int64_t stride[MAX_PLACES];
  x.outer = merge_axes(places, 2, a->rank - 1, a->dim);
  x.shape = (struct pd_matmul_shape){.batch = 1, .m = c->dim[0], .n = c->dim[1]};
  x.shape.k = take_axis(&x.outer, stride);
  x.shape.a_row = a->stride[a->rank - 1];
  x.shape.a_column = stride[0];
  x.shape.b_row = stride[1];
  x.shape.b_column = dy->stride[dy->rank - 1];
  place_result(&x, c->stride[0], c->stride[1]);
  return x;
}

/* Sets operand types, for libraries that need them. */
static Matmul typed(const Site *site, Matmul x) {
  if (!site->in_bf16)
    return x;
  x.shape.a_type = site->in_bf16[x.swapped] ? PD_BF16 : PD_F32;
  x.shape.b_type = site->in_bf16[!x.swapped] ? PD_BF16 : PD_F32;
  x.shape.bias_type = x.shape.bias && site->in_bf16[site->bias] ? PD_BF16 : PD_F32;
  x.shape.c_type = site->out_bf16[0] ? PD_BF16 : PD_F32;
  return x;
}

static void matmul_fields(Call *c, const struct pd_matmul_shape *s) {
  field_int(c, "batch", s->batch);
  field_int(c, "m", s->m);
  field_int(c, "n", s->n);
  field_int(c, "k", s->k);
  if (s->batch > 1)
    field_int(c, "a_batch", s->a_batch);
  field_int(c, "a_row", s->a_row);
  field_int(c, "a_column", s->a_column);
  if (s->batch > 1)
    field_int(c, "b_batch", s->b_batch);
  field_int(c, "b_row", s->b_row);
  field_int(c, "b_column", s->b_column);
  if (s->batch > 1)
    field_int(c, "c_batch", s->c_batch);
  field_int(c, "c_row", s->c_row);
  field_type(c, "a_type", s->a_type == PD_BF16);
  field_type(c, "b_type", s->b_type == PD_BF16);
  field_type(c, "bias_type", s->bias_type == PD_BF16);
  field_type(c, "c_type", s->c_type == PD_BF16);
  static const char *const epilogue[] = {NULL, "PD_GELU", "PD_GELU_GRADIENT", "PD_SUMS_OF_A", "PD_SUMS_OF_B"};
  if (s->epilogue != PD_PLAIN)
    field_name(c, "epilogue", epilogue[s->epilogue]);
  if (s->bias)
    field_bool(c, "bias", true);
  if (s->few_rows)
    field_bool(c, "few_rows", true);
  if (s->by_sample)
    field_bool(c, "by_sample", true);
}

void matmul_object(Call *c, const Matmul *x, const char *function) {
  const struct pd_matmul_shape *s = &x->shape;
  *c = (Call){.function = function, .object = "pd_matmul", .made = true, .outer = x->outer};
  c->note = internf("%s[%lld, %lld] @ [%lld, %lld]%s", s->batch > 1 ? format("%lld x ", (long long)s->batch) : "",
                    (long long)s->m, (long long)s->k, (long long)s->k, (long long)s->n, s->bias ? " + bias" : "");
  matmul_fields(c, s);
  pass_object(c);
}

void matmul_factors(Call *c, const Site *site, const Matmul *x) {
  pass_moving(c, &site->in[x->swapped], x->swapped);
  pass_moving(c, &site->in[!x->swapped], !x->swapped);
}

static void fill_call(const Site *site, const Matmul *x, Call *c) {
  matmul_object(c, x, "pd_matmul");
  matmul_factors(c, site, x);
  if (x->shape.bias)
    pass_place(c, &site->in[site->bias]);
  else
    pass_null(c);
  pass_moving(c, &site->out[0], 2);
  pass_scratch(c);
}

Matmul matmul_describe(const Site *site) { return typed(site, describe_product(site)); }

static void call_matmul(const Site *site, Call *c) {
  Matmul x = matmul_describe(site);
  fill_call(site, &x, c);
}

static Matmul describe_few_rows(const Site *site) {
  Matmul x = typed(site, describe_product(site));
  bool once = reads_once(&x);
  x.shape.few_rows = once && x.shape.m <= PD_FEW_ROWS;
  x.shape.by_sample = once && !x.shape.few_rows && !x.swapped && x.shape.m == site->in[0].dim[0];
  return x;
}

static void call_few_rows(const Site *site, Call *c) {
  Matmul x = describe_few_rows(site);
  fill_call(site, &x, c);
}

Matmul matmul_describe_weight_gradient(const Site *site) { return typed(site, describe_weight_gradient(site)); }

static void call_weight_gradient(const Site *site, Call *c) {
  Matmul x = matmul_describe_weight_gradient(site);
  fill_call(site, &x, c);
  c->sums = true;
}

int64_t matmul_scratch(const Site *site, struct pd_matmul_shape shape, bool adds) {
  int64_t bytes = site->library->matmul(&shape), more = 0;
  if (adds) {
    shape.accumulate = true;
    more = site->library->matmul(&shape);
  }
  return more > bytes ? more : bytes;
}

static int64_t scratch_matmul(const Site *site) {
  return matmul_scratch(site, matmul_describe(site).shape, site->accumulate);
}

static int64_t scratch_few_rows(const Site *site) {
  return matmul_scratch(site, describe_few_rows(site).shape, false);
}

static int64_t scratch_weight_gradient(const Site *site) {
  Matmul x = matmul_describe_weight_gradient(site);
  return matmul_scratch(site, x.shape, site->accumulate || x.outer.n > 0);
}

/* The product of the position's row with a shared matrix, with a single read of the matrix; or with a sample's. */
static int decode_matmul(const Graph *g, int node, const int *axis, int64_t context, Decoded *to) {
  (void)context;
  if (in_shape(g, node, 1)->batched && axis[1] < 0 && axis[0] == in_shape(g, node, 0)->rank - 2)
    return out_shape(g, node, 0)->rank - 2;
  if (!matmul_is_weight(in_shape(g, node, 1)) || axis[1] >= 0 || axis[0] == in_shape(g, node, 0)->rank - 1)
    return -1;
  to->op = &op_few_rows_matmul;
  return axis[0];
}

/* ---- the primitives ----------------------------------------------------------------------------- */

/* The product of the last two axes, a[.., m, k] @ b[k, n] or of every pair of matrices in a[.., m, k] and b[.., k,
 * n]: [.., m, n]. */
const Op op_matmul = {
    .name = "matmul",
    .signature = "a @ b",
    .infix = "@",
    .kind = OP_CALL,
    .strided_out = true,
    .transposes = true,
    .takes_bias = true,
    .adds = true,
    .linear = LINEAR_IN_EACH,
    .divide = divide_matmul,
    .min_in = 2,
    .max_in = 2,
    .shape = shape_matmul,
    .derivative = derive_matmul,
    .cost = cost_matmul,
    .evaluate = matmul_evaluate,
    .call = call_matmul,
    .scratch = scratch_matmul,
    .decode = decode_matmul,
};

/* matmul of few rows of a with a matrix that all samples share. */
const Op op_few_rows_matmul = {
    .name = "few_rows_matmul",
    .signature = "few_rows_matmul(a[.., m, k], b[k, n])",
    .kind = OP_CALL,
    .strided_out = true,
    .transposes = true,
    .internal = true,
    .takes_bias = true,
    .min_in = 2,
    .max_in = 2,
    .shape = shape_matmul,
    .cost = cost_matmul,
    .evaluate = matmul_evaluate,
    .call = call_few_rows,
    .scratch = scratch_few_rows,
};

const Op op_weight_gradient = {
    .name = "weight_gradient",
    .signature = "weight_gradient(a[.., k], dy[.., n])",
    .kind = OP_CALL,
    .strided_out = true,
    .transposes = true,
    .rows_as_one = true,
    .adds = true,
    .internal = true,
    .linear = LINEAR_IN_EACH,
    .divide = divide_weight_gradient,
    .min_in = 2,
    .max_in = 2,
    .shape = shape_weight_gradient,
    .cost = cost_weight_gradient,
    .evaluate = evaluate_weight_gradient,
    .call = call_weight_gradient,
    .scratch = scratch_weight_gradient,
    .stays_f32 = result_stays_f32,
};
