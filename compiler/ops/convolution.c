/* Convolution of channels-last images. Weights are [out, in / groups, height, width], as files hold them;
 * output channel o sees the input channels of its group, o / (out / groups). Without padding it is the sum
 *   y[i, j, o] = sum over a, b, c of x[i stride + a dilation, j stride + b dilation, c] weight[o, c, a, b]
 * and padding surrounds x with zeros. */
#include <string.h>

#include "kernels/winograd.h"
#include "ops/call.h"
#include "ops/rules.h"
#include "ops/scan.h"
#include "pd_kernels.h"

enum { MOST_GROUPS = 1 << 20 };

typedef struct Sizes {
  int64_t batch, height, width, in, out_height, out_width, out, groups;
  const int64_t *kernel, *stride, *padding, *dilation;
} Sizes;

static const int64_t *pair(const Node *n, const char *name) { return node_attr(n, name)->list; }

static Sizes sizes(const Graph *g, int node, int64_t batch, const Shape *x, const Shape *weight, const Shape *y) {
  const Node *n = &g->nodes.at[node];
  return (Sizes){x->batched ? batch : 1,
                 x->dim[0],
                 x->dim[1],
                 x->dim[2],
                 y->dim[0],
                 y->dim[1],
                 y->dim[2],
                 node_int(n, "groups"),
                 &weight->dim[2],
                 pair(n, "stride"),
                 pair(n, "padding"),
                 pair(n, "dilation")};
}

static bool convolution_fails(ShapeRule *r, int operand, int axis, const char *why) {
  Diagnostic *d = error_at(r->span, "PD0330", "'convolution' needs %s, but has an image %s and a weight %s", why,
                           shape_text(rule_shape(r, 0)), shape_text(rule_shape(r, 1)));
  rule_underline(r, d);
  if (operand >= 0)
    rule_origin(r, d, operand, axis);
  return false;
}

static bool channels_fit(ShapeRule *r) {
  const Shape *x = rule_shape(r, 0), *weight = rule_shape(r, 1);
  int64_t groups = rule_int(r, "groups");
  if (groups < 1 || groups > MOST_GROUPS)
    return convolution_fails(r, -1, 0, format("from 1 to %d groups and not %lld", MOST_GROUPS, (long long)groups));
  if (x->dim[2] % groups)
    return convolution_fails(r, 0, 2, format("input channels that %lld groups divide", (long long)groups));
  if (weight->dim[0] % groups)
    return convolution_fails(r, 1, 0, format("output channels that %lld groups divide", (long long)groups));
  if (x->dim[2] / groups == weight->dim[1])
    return true;
  convolution_fails(r, 0, 2,
                    format("a weight of %lld input channels%s at axis 1", (long long)(x->dim[2] / groups),
                           groups > 1 ? " a group" : ""));
  rule_origin(r, diagnostic_last(), 1, 1);
  return false;
}

/* Output positions along an axis; at least one if the kernel fits. */
static int64_t positions(int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation) {
  return (size + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
}

static bool kernel_fits(ShapeRule *r, int axis) {
  const Shape *x = rule_shape(r, 0), *weight = rule_shape(r, 1);
  int64_t padding = rule_attr(r, "padding")->list[axis], kernel = weight->dim[2 + axis];
  int64_t extent = rule_attr(r, "dilation")->list[axis] * (kernel - 1) + 1, room = x->dim[axis] + 2 * padding;
  if (extent <= room)
    return true;
  Diagnostic *d =
      error_at(r->span, "PD0330",
               "the kernel of 'convolution' covers %lld pixels of %s, but the image has only %lld%s",
               (long long)extent, axis ? "width" : "height", (long long)room, padding ? " with its padding" : "");
  rule_underline(r, d);
  rule_origin(r, d, 0, axis);
  rule_origin(r, d, 1, 2 + axis);
  return false;
}

static bool shape_convolution(ShapeRule *r) {
  const Shape *x = rule_shape(r, 0), *weight = rule_shape(r, 1);
  if (!rule_all_f32(r))
    return false;
  if (x->rank != 3)
    return convolution_fails(r, 0, -1, "an image [height, width, channels]");
  if (weight->rank != 4 || weight->batched)
    return convolution_fails(r, 1, -1, "a weight [out, in / groups, height, width], the same for all samples");
  if (!rule_pair(r, "stride", 1) || !rule_pair(r, "padding", 0) || !rule_pair(r, "dilation", 1) ||
      !channels_fit(r) || !kernel_fits(r, 0) || !kernel_fits(r, 1))
    return false;
  Shape y = *x;
  for (int i = 0; i < 2; i++)
    y.dim[i] = positions(x->dim[i], weight->dim[2 + i], rule_attr(r, "stride")->list[i],
                         rule_attr(r, "padding")->list[i], rule_attr(r, "dilation")->list[i]);
  y.dim[2] = weight->dim[0];
  return rule_result(r, y);
}

static void derive_convolution(Gradients *d, int node) {
  Graph *g = grad_graph(d);
  const Node *n = &g->nodes.at[node];
  int x = n->in[0], weight = n->in[1], dy = grad_of(d, node, 0);
  Shape image = *in_shape(g, node, 0), kernel = *in_shape(g, node, 1);
  Attr attr[MAX_ATTR] = {n->attr[0], n->attr[1], n->attr[2], n->attr[3]};
  if (grad_wanted(d, node, 0)) {
    attr[4] = (Attr){.n = 2, .list = image.dim};
    grad_add(d, node, 0, grad_build(d, node, &op_convolution_backward, (int[]){dy, weight}, 2, attr));
  }
  if (grad_wanted(d, node, 1)) {
    attr[4] = (Attr){.n = 2, .list = kernel.dim + 2};
    grad_add(d, node, 1, grad_build(d, node, &op_convolution_weights, (int[]){x, dy}, 2, attr));
  }
}

/* Whether processors use fewer multiplications (Winograd). */
static bool spares(const Graph *g, int node, const Shape *x, const Shape *weight, const Shape *y) {
  Sizes s = sizes(g, node, 1, x, weight, y);
  struct pd_convolution_shape shape = {
      .in_channels = s.in, .out_channels = s.out, .groups = s.groups, .height = s.height, .width = s.width};
  for (int i = 0; i < 2; i++) {
    shape.kernel[i] = s.kernel[i], shape.stride[i] = s.stride[i];
    shape.padding[i] = s.padding[i], shape.dilation[i] = s.dilation[i];
  }
  return pd_winograd_suits(&shape);
}

/* Products of each output pixel with the whole kernel, including padding. As products of matrices: pixels of
 * `rows` with its channels as columns, or if rows is the weight, its output channels with its other sizes. Kernels
 * for depthwise convolutions compute no such products. */
static OpCost cost_of(const Graph *g, int node, const Shape *x, const Shape *weight, const Shape *y,
                      const Shape *rows) {
  int64_t kernel = shape_elements(weight) / weight->dim[0], groups = node_int(&g->nodes.at[node], "groups");
  double flops = 2 * (double)shape_elements(y) * (double)kernel;
  double spared = spares(g, node, x, weight, y) ? flops * (1 - PD_WINOGRAD_SHARE) : 0;
  bool of_weight = rows == weight, depthwise = groups > 1 && weight->dim[1] == 1;
  int64_t columns = of_weight ? kernel : rows->dim[2] / groups;
  int64_t m = of_weight ? weight->dim[0] / groups : rows->dim[0] * rows->dim[1];
  OpProducts products = {.kind = depthwise ? PRODUCTS_UNKNOWN : PRODUCTS_OF_MATRICES,
                         .samples = !x->batched ? SAMPLES_NOWHERE
                                    : of_weight ? SAMPLES_IN_K
                                                : SAMPLES_IN_M,
                         .times = (double)groups,
                         .m = (double)m,
                         .n = (double)columns,
                         .k = flops / (2.0 * (double)groups * (double)m * (double)columns)};
  return (OpCost){.matmul_flops = flops, .bytes = node_bytes(g, node), .spared = spared, .products = products};
}

static OpCost cost_convolution(const Graph *g, int node) {
  const Shape *y = out_shape(g, node, 0);
  return cost_of(g, node, in_shape(g, node, 0), in_shape(g, node, 1), y, y);
}

/* ---- by channels ------------------------------------------------------------------------------------- */

/* Roles of the operands and results of the three operations. */
typedef enum { IMAGE, KERNEL, RESULT } Role;

/* Splits input channels of image and kernel, or output channels of kernel and result. A value without these
 * channels is whole or, if it is the result, a partial sum on each rank. */
static bool divide_channels(const Graph *g, int node, int k, Layout split, const Role role[3], Layout *layout) {
  static const int axes[2][3] = {{[IMAGE] = 2, [KERNEL] = 1, [RESULT] = -1},
                                 {[IMAGE] = -1, [KERNEL] = 0, [RESULT] = 2}};
  const int *axis = axes[0][role[k]] == split.axis ? axes[0] : axes[1];
  if (node_int(&g->nodes.at[node], "groups") > 1 || axis[role[k]] != split.axis)
    return false;
  for (int v = 0; v < 3; v++)
    if (axis[role[v]] >= 0)
      layout[v] = (Layout){LAYOUT_SPLIT, axis[role[v]], split.blocks};
    else if (v == 2)
      layout[v].kind = LAYOUT_PARTIAL;
  return true;
}

static bool divide_convolution(const Graph *g, int node, int k, Layout split, Layout *layout) {
  return divide_channels(g, node, k, split, (Role[]){IMAGE, KERNEL, RESULT}, layout);
}

static bool divide_backward(const Graph *g, int node, int k, Layout split, Layout *layout) {
  return divide_channels(g, node, k, split, (Role[]){RESULT, KERNEL, IMAGE}, layout);
}

static bool divide_weights(const Graph *g, int node, int k, Layout split, Layout *layout) {
  return divide_channels(g, node, k, split, (Role[]){IMAGE, RESULT, KERNEL}, layout);
}

/* ---- reference semantics -------------------------------------------------------------------------- */

typedef enum { MAKES_Y, MAKES_X, MAKES_WEIGHT } Makes;

/* Adds the products of one output element to the result. */
static void multiply(const Sizes *s, Makes makes, int64_t row, int64_t column, int64_t o, double *x,
                     double *weight, double *y) {
  int64_t in = s->in / s->groups, first = o / (s->out / s->groups) * in;
  for (int64_t k = 0; k < s->kernel[0] * s->kernel[1]; k++) {
    int64_t i = row * s->stride[0] - s->padding[0] + k / s->kernel[1] * s->dilation[0];
    int64_t j = column * s->stride[1] - s->padding[1] + k % s->kernel[1] * s->dilation[1];
    if (i < 0 || i >= s->height || j < 0 || j >= s->width)
      continue;
    for (int64_t c = 0; c < in; c++) {
      double *a = &x[(i * s->width + j) * s->in + first + c];
      double *b = &weight[(o * in + c) * s->kernel[0] * s->kernel[1] + k];
      if (makes == MAKES_Y)
        *y += *a * *b;
      else if (makes == MAKES_X)
        *a += *y * *b;
      else
        *b += *a * *y;
    }
  }
}

static void evaluate(const Sizes *s, Makes makes, double *x, double *weight, double *y) {
  int64_t image = s->height * s->width * s->in, result = s->out_height * s->out_width * s->out;
  int64_t kernel = s->out * (s->in / s->groups) * s->kernel[0] * s->kernel[1];
  int64_t made = makes == MAKES_WEIGHT ? kernel : s->batch * (makes == MAKES_X ? image : result);
  memset(makes == MAKES_Y ? y : makes == MAKES_X ? x : weight, 0, made * sizeof *y);
  for (int64_t i = 0; i < s->batch * result; i++) {
    int64_t pixel = i % result / s->out;
    multiply(s, makes, pixel / s->out_width, pixel % s->out_width, i % s->out, x + i / result * image, weight,
             y + i);
  }
}

static void evaluate_convolution(const Graph *g, int node, int64_t batch, const double *const *in,
                                 double *const *out) {
  Sizes s = sizes(g, node, batch, in_shape(g, node, 0), in_shape(g, node, 1), out_shape(g, node, 0));
  evaluate(&s, MAKES_Y, (double *)in[0], (double *)in[1], out[0]);
}

static void evaluate_backward(const Graph *g, int node, int64_t batch, const double *const *in,
                              double *const *out) {
  Sizes s = sizes(g, node, batch, out_shape(g, node, 0), in_shape(g, node, 1), in_shape(g, node, 0));
  evaluate(&s, MAKES_X, out[0], (double *)in[1], (double *)in[0]);
}

static void evaluate_weights(const Graph *g, int node, int64_t batch, const double *const *in,
                             double *const *out) {
  Sizes s = sizes(g, node, batch, in_shape(g, node, 0), out_shape(g, node, 0), in_shape(g, node, 1));
  evaluate(&s, MAKES_WEIGHT, (double *)in[0], out[0], (double *)in[1]);
}

/* ---- convolution_backward(dy, weight) -> dx, of size [height, width] ------------------------------ */

static bool rule_geometry(ShapeRule *r) {
  return rule_pair(r, "stride", 1) && rule_pair(r, "padding", 0) && rule_pair(r, "dilation", 1);
}

/* Checks that dy has the shape of the result of x and weight. */
static void ensure_result(ShapeRule *r, const Shape *x, const Shape *weight, const Shape *dy) {
  ensure(dy->rank == 3 && dy->batched == x->batched && dy->dim[2] == weight->dim[0]);
  for (int i = 0; i < 2; i++)
    ensure(dy->dim[i] == positions(x->dim[i], weight->dim[2 + i], rule_attr(r, "stride")->list[i],
                                   rule_attr(r, "padding")->list[i], rule_attr(r, "dilation")->list[i]));
}

static bool shape_backward(ShapeRule *r) {
  const Shape *dy = rule_shape(r, 0), *weight = rule_shape(r, 1);
  const int64_t *size = rule_attr(r, "size")->list;
  Shape x = {dy->batched, 3, {size[0], size[1], weight->dim[1] * rule_int(r, "groups")}};
  ensure(rule_geometry(r) && weight->rank == 4);
  ensure_result(r, &x, weight, dy);
  return rule_result(r, x);
}

static OpCost cost_backward(const Graph *g, int node) {
  const Shape *x = out_shape(g, node, 0);
  return cost_of(g, node, x, in_shape(g, node, 1), in_shape(g, node, 0), x);
}

/* ---- convolution_weights(x, dy) -> [out, in / groups, kernel], summed over the microbatch ---------- */

static bool shape_weights(ShapeRule *r) {
  const Shape *x = rule_shape(r, 0), *dy = rule_shape(r, 1);
  const int64_t *kernel = rule_attr(r, "kernel")->list;
  Shape weight = {.rank = 4, .dim = {dy->dim[2], x->dim[2] / rule_int(r, "groups"), kernel[0], kernel[1]}};
  ensure(rule_geometry(r) && x->rank == 3);
  ensure_result(r, x, &weight, dy);
  return rule_result(r, weight);
}

static OpCost cost_weights(const Graph *g, int node) {
  const Shape *weight = out_shape(g, node, 0);
  return cost_of(g, node, in_shape(g, node, 0), weight, in_shape(g, node, 1), weight);
}

/* ---- as calls of pd_convolution ----------------------------------------------------------------------- */

static const char *const kinds[] = {
    [PD_CONVOLUTION] = "PD_CONVOLUTION",
    [PD_CONVOLUTION_BACKWARD] = "PD_CONVOLUTION_BACKWARD",
    [PD_CONVOLUTION_WEIGHTS] = "PD_CONVOLUTION_WEIGHTS",
};
typedef enum pd_convolution_kind Kind;

/* The shape of images and weights; the microbatch comes first if samples have separate images. */
static struct pd_convolution_shape describe(const Site *site, Kind kind) {
  const Place *x = kind == PD_CONVOLUTION_BACKWARD ? &site->out[0] : &site->in[0];
  const Place *weight = kind == PD_CONVOLUTION_WEIGHTS ? &site->out[0] : &site->in[1];
  const int64_t *dim = &x->dim[x->rank - 3];
  struct pd_convolution_shape s = {.kind = kind,
                                   .batch = x->rank == 4 ? x->dim[0] : 1,
                                   .in_channels = dim[2],
                                   .out_channels = weight->dim[0],
                                   .groups = node_int(site->node, "groups"),
                                   .height = dim[0],
                                   .width = dim[1],
                                   .bias = site->bias >= 0};
  if (site->in_bf16) {
    enum pd_type in[] = {site->in_bf16[0] ? PD_BF16 : PD_F32, site->in_bf16[1] ? PD_BF16 : PD_F32};
    enum pd_type out = site->out_bf16[0] ? PD_BF16 : PD_F32;
    s.x_type = kind == PD_CONVOLUTION_BACKWARD ? out : in[0];
    s.w_type = kind == PD_CONVOLUTION_WEIGHTS ? out : in[1];
    s.y_type = kind == PD_CONVOLUTION ? out : in[kind == PD_CONVOLUTION_WEIGHTS];
    s.bias_type = s.bias && site->in_bf16[site->bias] ? PD_BF16 : PD_F32;
  }
  for (int i = 0; i < 2; i++) {
    s.kernel[i] = weight->dim[2 + i];
    s.stride[i] = pair(site->node, "stride")[i];
    s.padding[i] = pair(site->node, "padding")[i];
    s.dilation[i] = pair(site->node, "dilation")[i];
  }
  return s;
}

static void fill_call(const Site *site, Kind kind, Call *c) {
  struct pd_convolution_shape s = describe(site, kind);
  static const char *const functions[] = {"pd_convolution", "pd_convolution_backward", "pd_convolution_weights"};
  *c = (Call){.function = functions[kind], .object = "pd_convolution", .made = true};
  c->note = internf("%lld x %lld of [%lld, %lld, %lld] to %lld%s", (long long)s.kernel[0], (long long)s.kernel[1],
                    (long long)s.height, (long long)s.width, (long long)s.in_channels, (long long)s.out_channels,
                    s.bias ? " + bias" : "");
  field_name(c, "kind", kinds[kind]);
  field_int(c, "batch", s.batch);
  field_int(c, "in_channels", s.in_channels);
  field_int(c, "out_channels", s.out_channels);
  field_int(c, "groups", s.groups);
  field_int(c, "height", s.height);
  field_int(c, "width", s.width);
  field_type(c, "x_type", s.x_type == PD_BF16);
  field_type(c, "w_type", s.w_type == PD_BF16);
  field_type(c, "bias_type", s.bias_type == PD_BF16);
  field_type(c, "y_type", s.y_type == PD_BF16);
  if (s.bias)
    field_bool(c, "bias", true);
  field_list(c, "kernel", 2, s.kernel);
  field_list(c, "stride", 2, s.stride);
  field_list(c, "padding", 2, s.padding);
  field_list(c, "dilation", 2, s.dilation);
  pass_object(c);
  pass_place(c, &site->in[0]);
  pass_place(c, &site->in[1]);
  if (kind == PD_CONVOLUTION && s.bias)
    pass_place(c, &site->in[site->bias]);
  else if (kind == PD_CONVOLUTION)
    pass_null(c);
  pass_place(c, &site->out[0]);
  pass_scratch(c);
}

static void call_convolution(const Site *site, Call *c) { fill_call(site, PD_CONVOLUTION, c); }
static void call_backward(const Site *site, Call *c) { fill_call(site, PD_CONVOLUTION_BACKWARD, c); }
static void call_weights(const Site *site, Call *c) { fill_call(site, PD_CONVOLUTION_WEIGHTS, c); }

static int64_t scratch_convolution(const Site *site) {
  struct pd_convolution_shape s = describe(site, PD_CONVOLUTION);
  return site->library->convolution(&s);
}
static int64_t scratch_backward(const Site *site) {
  struct pd_convolution_shape s = describe(site, PD_CONVOLUTION_BACKWARD);
  return site->library->convolution(&s);
}

/* The larger scratch size of overwriting and adding. */
static int64_t scratch_weights(const Site *site) {
  struct pd_convolution_shape s = describe(site, PD_CONVOLUTION_WEIGHTS);
  int64_t bytes = site->library->convolution(&s), more = 0;
  if (site->accumulate) {
    s.accumulate = true;
    more = site->library->convolution(&s);
  }
  return more > bytes ? more : bytes;
}

/* ---- the primitives ------------------------------------------------------------------------------------- */

/* A kernel's sum at every position: x[height, width, in] and weight[out, in / groups, kh, kw] give [height',
 * width', out], with height' = (height + 2 padding - dilation (kh - 1) - 1) // stride + 1. stride, padding and
 * dilation are a number or a list [height, width]. */
const Op op_convolution = {
    .name = "convolution",
    .signature = "convolution(x[height, width, in], weight, stride = 1, padding = 0, dilation = 1, groups = 1)",
    .kind = OP_CALL,
    .takes_bias = true,
    .linear = LINEAR_IN_EACH,
    .divide = divide_convolution,
    .min_in = 2,
    .max_in = 2,
    .attr = {{"stride", ATTR_PAIR, false, 1},
             {"padding", ATTR_PAIR, false, 0},
             {"dilation", ATTR_PAIR, false, 1},
             {"groups", ATTR_INT, false, 1}},
    .shape = shape_convolution,
    .derivative = derive_convolution,
    .cost = cost_convolution,
    .evaluate = evaluate_convolution,
    .decode = decode_convolution,
    .call = call_convolution,
    .scratch = scratch_convolution,
};

const Op op_convolution_backward = {
    .name = "convolution_backward",
    .signature = "convolution_backward(dy, weight, stride, padding, dilation, groups, size)",
    .kind = OP_CALL,
    .internal = true,
    .linear = LINEAR_IN_EACH,
    .divide = divide_backward,
    .min_in = 2,
    .max_in = 2,
    .attr = {{"stride", ATTR_PAIR, true, 0},
             {"padding", ATTR_PAIR, true, 0},
             {"dilation", ATTR_PAIR, true, 0},
             {"groups", ATTR_INT, true, 0},
             {"size", ATTR_PAIR, true, 0}},
    .shape = shape_backward,
    .cost = cost_backward,
    .evaluate = evaluate_backward,
    .call = call_backward,
    .scratch = scratch_backward,
};

const Op op_convolution_weights = {
    .name = "convolution_weights",
    .signature = "convolution_weights(x, dy, stride, padding, dilation, groups, kernel)",
    .kind = OP_CALL,
    .adds = true,
    .internal = true,
    .linear = LINEAR_IN_EACH,
    .divide = divide_weights,
    .min_in = 2,
    .max_in = 2,
    .attr = {{"stride", ATTR_PAIR, true, 0},
             {"padding", ATTR_PAIR, true, 0},
             {"dilation", ATTR_PAIR, true, 0},
             {"groups", ATTR_INT, true, 0},
             {"kernel", ATTR_PAIR, true, 0}},
    .shape = shape_weights,
    .cost = cost_weights,
    .evaluate = evaluate_weights,
    .call = call_weights,
    .scratch = scratch_weights,
    .stays_f32 = result_stays_f32,
};
