/* Pooling of channels-last images: each channel's maximum or mean over windows. Padding is never the maximum, and
 * every window contains image pixels. */
#include <math.h>
#include <string.h>

#include "ops/call.h"
#include "ops/rules.h"

typedef struct Pool {
  int64_t batch, channels, size[2], out[2];
  const int64_t *kernel, *stride, *padding; /* NULL: adaptive */
  bool counts_padding;
} Pool;

/* Positions of x in output position i's window along an axis, [first, end), and the divisor of a mean. */
typedef struct Extent {
  int64_t first, end, count;
} Extent;

static Extent extent(const Pool *p, int axis, int64_t i) {
  int64_t size = p->size[axis], out = p->out[axis];
  if (!p->kernel) {
    Extent e = {i * size / out, ((i + 1) * size + out - 1) / out, 0};
    e.count = e.end - e.first;
    return e;
  }
  int64_t first = i * p->stride[axis] - p->padding[axis], end = first + p->kernel[axis];
  int64_t padded = size + p->padding[axis];
  Extent e = {first > 0 ? first : 0, end < size ? end : size, 0};
  e.count = p->counts_padding ? (end < padded ? end : padded) - first : e.end - e.first;
  return e;
}

static Pool pool_of(const Graph *g, int node, int64_t batch, const Shape *x, const Shape *y, bool adaptive) {
  const Node *n = &g->nodes.at[node];
  Pool p = {.batch = x->batched ? batch : 1,
            .channels = x->dim[2],
            .size = {x->dim[0], x->dim[1]},
            .out = {y->dim[0], y->dim[1]}};
  if (!adaptive) {
    p.kernel = node_attr(n, "kernel_size")->list;
    p.stride = node_attr(n, "stride")->list;
    p.padding = node_attr(n, "padding")->list;
  }
  return p;
}

/* ---- shapes ------------------------------------------------------------------------------------------ */

static bool is_image(ShapeRule *r) {
  if (!rule_f32(r, 0))
    return false;
  if (rule_shape(r, 0)->rank == 3)
    return true;
  Diagnostic *d = error_at(r->span, "PD0331",
                           "'%s' needs an image [height, width, channels], but has a value of"
                           " shape %s",
                           r->op->name, shape_text(rule_shape(r, 0)));
  rule_underline(r, d);
  return false;
}

/* Output positions along an axis. With ceil_mode the last window may extend beyond the padding, but starts in the
 * image or in the leading padding. */
static int64_t positions(int64_t size, int64_t kernel, int64_t stride, int64_t padding, bool ceil_mode) {
  int64_t room = size + 2 * padding - kernel, n = (room + (ceil_mode ? stride - 1 : 0)) / stride + 1;
  return (n - 1) * stride >= size + padding ? n - 1 : n;
}

static bool window_fits(ShapeRule *r, int axis) {
  const Shape *x = rule_shape(r, 0);
  int64_t kernel = rule_attr(r, "kernel_size")->list[axis], padding = rule_attr(r, "padding")->list[axis];
  const char *what = axis ? "width" : "height";
  int64_t room = x->dim[axis] + 2 * padding;
  if (padding < kernel && kernel <= room)
    return true;
  Diagnostic *d =
      padding >= kernel
          ? error_at(r->span, "PD0331",
                     "a window of '%s' would contain only padding: its %s is %lld, the padding %lld", r->op->name,
                     what, (long long)kernel, (long long)padding)
          : error_at(r->span, "PD0331",
                     "the window of '%s' covers %lld pixels of %s, but the image has only %lld%s", r->op->name,
                     (long long)kernel, what, (long long)room, padding ? " with its padding" : "");
  rule_underline(r, d);
  if (padding < kernel)
    rule_origin(r, d, 0, axis);
  return false;
}

/* Fills in the default stride, the window's own size. */
static bool shape_pool(ShapeRule *r) {
  if (!is_image(r) || !rule_pair(r, "kernel_size", 1))
    return false;
  Attr *stride = rule_attr(r, "stride");
  if (stride->n == 0 && stride->number == 0)
    *stride = *rule_attr(r, "kernel_size");
  if (!rule_pair(r, "stride", 1) || !rule_pair(r, "padding", 0) || !window_fits(r, 0) || !window_fits(r, 1))
    return false;
  Shape y = *rule_shape(r, 0);
  for (int i = 0; i < 2; i++)
    y.dim[i] = positions(y.dim[i], rule_attr(r, "kernel_size")->list[i], stride->list[i],
                         rule_attr(r, "padding")->list[i], rule_int(r, "ceil_mode") != 0);
  return rule_result(r, y);
}

static bool shape_adaptive(ShapeRule *r) {
  if (!is_image(r) || !rule_pair(r, "output_size", 1))
    return false;
  Shape y = *rule_shape(r, 0);
  for (int i = 0; i < 2; i++)
    y.dim[i] = rule_attr(r, "output_size")->list[i];
  return rule_result(r, y);
}

static bool shape_max_gradient(ShapeRule *r) {
  ensure(shape_equal(rule_shape(r, 1), rule_shape(r, 2)));
  return rule_result(r, *rule_shape(r, 0));
}

static bool shape_average_gradient(ShapeRule *r) {
  const int64_t *size = rule_attr(r, "size")->list;
  Shape x = *rule_shape(r, 0);
  x.dim[0] = size[0], x.dim[1] = size[1];
  return rule_result(r, x);
}

/* ---- derivatives and costs ---------------------------------------------------------------------------- */

static void derive_max_pool(Gradients *d, int node) {
  const Node *n = &grad_graph(d)->nodes.at[node];
  Attr attr[MAX_ATTR] = {n->attr[0], n->attr[1], n->attr[2]};
  int in[] = {n->in[0], n->out[0], grad_of(d, node, 0)};
  grad_add(d, node, 0, grad_build(d, node, &op_max_pool_gradient, in, 3, attr));
}

static void derive_average_pool(Gradients *d, int node) {
  const Node *n = &grad_graph(d)->nodes.at[node];
  Shape x = *in_shape(grad_graph(d), node, 0);
  Attr attr[MAX_ATTR] = {n->attr[0], n->attr[1], n->attr[2], n->attr[4], {.n = 2, .list = x.dim}};
  int dy = grad_of(d, node, 0);
  grad_add(d, node, 0, grad_build(d, node, &op_average_pool_gradient, &dy, 1, attr));
}

static void derive_adaptive(Gradients *d, int node) {
  Shape x = *in_shape(grad_graph(d), node, 0);
  int dy = grad_of(d, node, 0);
  grad_add(d, node, 0,
           grad_build(d, node, &op_adaptive_average_pool_gradient, &dy, 1,
                      (Attr[MAX_ATTR]){{.n = 2, .list = x.dim}}));
}

/* One operation for each pixel of each window. */
static OpCost cost_windows(const Graph *g, int node, const Shape *y) {
  const int64_t *kernel = node_attr(&g->nodes.at[node], "kernel_size")->list;
  return (OpCost){.other_flops = (double)shape_elements(y) * (double)(kernel[0] * kernel[1]),
                  .bytes = node_bytes(g, node)};
}

static OpCost cost_pool(const Graph *g, int node) { return cost_windows(g, node, out_shape(g, node, 0)); }

static OpCost cost_max_gradient(const Graph *g, int node) { return cost_windows(g, node, in_shape(g, node, 2)); }

static OpCost cost_average_gradient(const Graph *g, int node) {
  return cost_windows(g, node, in_shape(g, node, 0));
}

/* ---- reference semantics -------------------------------------------------------------------------------- */

/* The sum or the maximum of output element i's window. */
static double window_value(const Pool *p, bool maximum, const double *x, Extent row, Extent column) {
  double sum = 0, top = -INFINITY;
  for (int64_t i = row.first; i < row.end; i++)
    for (int64_t j = column.first; j < column.end; j++) {
      double element = x[(i * p->size[1] + j) * p->channels];
      sum += element;
      top = fmax(top, element);
    }
  return maximum ? top : sum / (double)(row.count * column.count);
}

/* Adds output element i's gradient to its window: evenly, or to the first element that equals `top`. */
static void spread(const Pool *p, const double *x, const double *top, double dy, double *dx, Extent row,
                   Extent column) {
  for (int64_t i = row.first; i < row.end; i++)
    for (int64_t j = column.first; j < column.end; j++) {
      int64_t at = (i * p->size[1] + j) * p->channels;
      if (!top) {
        dx[at] += dy / (double)(row.count * column.count);
      } else if (x[at] == *top) {
        dx[at] += dy;
        return;
      }
    }
}

static void forward(const Pool *p, bool maximum, const double *x, double *y) {
  int64_t image = p->size[0] * p->size[1] * p->channels, result = p->out[0] * p->out[1] * p->channels;
  for (int64_t i = 0; i < p->batch * result; i++) {
    int64_t pixel = i % result / p->channels;
    y[i] = window_value(p, maximum, x + i / result * image + i % p->channels, extent(p, 0, pixel / p->out[1]),
                        extent(p, 1, pixel % p->out[1]));
  }
}

/* x and y are NULL for means. */
static void backward(const Pool *p, const double *x, const double *y, const double *dy, double *dx) {
  int64_t image = p->size[0] * p->size[1] * p->channels, result = p->out[0] * p->out[1] * p->channels;
  memset(dx, 0, p->batch * image * sizeof *dx);
  for (int64_t i = 0; i < p->batch * result; i++) {
    int64_t pixel = i % result / p->channels, at = i / result * image + i % p->channels;
    spread(p, x ? x + at : NULL, y ? y + i : NULL, dy[i], dx + at, extent(p, 0, pixel / p->out[1]),
           extent(p, 1, pixel % p->out[1]));
  }
}

static void evaluate_max_pool(const Graph *g, int node, int64_t batch, const double *const *in,
                              double *const *out) {
  Pool p = pool_of(g, node, batch, in_shape(g, node, 0), out_shape(g, node, 0), false);
  forward(&p, true, in[0], out[0]);
}

static void evaluate_max_gradient(const Graph *g, int node, int64_t batch, const double *const *in,
                                  double *const *out) {
  Pool p = pool_of(g, node, batch, in_shape(g, node, 0), in_shape(g, node, 2), false);
  backward(&p, in[0], in[1], in[2], out[0]);
}

static void evaluate_average_pool(const Graph *g, int node, int64_t batch, const double *const *in,
                                  double *const *out) {
  Pool p = pool_of(g, node, batch, in_shape(g, node, 0), out_shape(g, node, 0), false);
  p.counts_padding = node_int(&g->nodes.at[node], "count_include_pad") != 0;
  forward(&p, false, in[0], out[0]);
}

static void evaluate_average_gradient(const Graph *g, int node, int64_t batch, const double *const *in,
                                      double *const *out) {
  Pool p = pool_of(g, node, batch, out_shape(g, node, 0), in_shape(g, node, 0), false);
  p.counts_padding = node_int(&g->nodes.at[node], "count_include_pad") != 0;
  backward(&p, NULL, NULL, in[0], out[0]);
}

static void evaluate_adaptive(const Graph *g, int node, int64_t batch, const double *const *in,
                              double *const *out) {
  Pool p = pool_of(g, node, batch, in_shape(g, node, 0), out_shape(g, node, 0), true);
  forward(&p, false, in[0], out[0]);
}

static void evaluate_adaptive_gradient(const Graph *g, int node, int64_t batch, const double *const *in,
                                       double *const *out) {
  Pool p = pool_of(g, node, batch, out_shape(g, node, 0), in_shape(g, node, 0), true);
  backward(&p, NULL, NULL, in[0], out[0]);
}

/* ---- as calls of pd_pooling and pd_pooling_backward ------------------------------------------------------- */

static void fill_call(const char *function, const Place *x, const Place *y, Call *c) {
  const int64_t *dim = &x->dim[x->rank - 3];
  *c = (Call){.function = function, .object = "pd_pooling"};
  field_int(c, "batch", x->rank == 4 ? x->dim[0] : 1);
  field_int(c, "channels", dim[2]);
  field_int(c, "height", dim[0]);
  field_int(c, "width", dim[1]);
  field_list(c, "out", 2, &y->dim[y->rank - 3]);
  pass_object(c);
}

static void window_fields(const Site *site, Call *c) {
  field_list(c, "kernel", 2, node_attr(site->node, "kernel_size")->list);
  field_list(c, "stride", 2, node_attr(site->node, "stride")->list);
  field_list(c, "padding", 2, node_attr(site->node, "padding")->list);
}

static void call_max_pool(const Site *site, Call *c) {
  fill_call("pd_pooling", &site->in[0], &site->out[0], c);
  field_bool(c, "maximum", true);
  window_fields(site, c);
  pass_place(c, &site->in[0]);
  pass_place(c, &site->out[0]);
}

static void call_max_gradient(const Site *site, Call *c) {
  fill_call("pd_pooling_backward", &site->in[0], &site->in[2], c);
  field_bool(c, "maximum", true);
  window_fields(site, c);
  for (int i = 0; i < 3; i++)
    pass_place(c, &site->in[i]);
  pass_place(c, &site->out[0]);
}

static void call_mean(const Site *site, Call *c) {
  fill_call("pd_pooling", &site->in[0], &site->out[0], c);
  pass_place(c, &site->in[0]);
  pass_place(c, &site->out[0]);
}

static void call_mean_gradient(const Site *site, Call *c) {
  fill_call("pd_pooling_backward", &site->out[0], &site->in[0], c);
  pass_null(c);
  pass_null(c);
  pass_place(c, &site->in[0]);
  pass_place(c, &site->out[0]);
}

static void average_fields(const Site *site, Call *c) {
  field_bool(c, "count_padding", node_int(site->node, "count_include_pad") != 0);
  window_fields(site, c);
}

static void call_average_pool(const Site *site, Call *c) {
  call_mean(site, c);
  average_fields(site, c);
}

static void call_average_gradient(const Site *site, Call *c) {
  call_mean_gradient(site, c);
  average_fields(site, c);
}

static void call_adaptive(const Site *site, Call *c) {
  call_mean(site, c);
  field_bool(c, "adaptive", true);
}

static void call_adaptive_gradient(const Site *site, Call *c) {
  call_mean_gradient(site, c);
  field_bool(c, "adaptive", true);
}

/* Channels are independent. */
static bool divide_channels(const Graph *g, int node, int k, Layout split, Layout *layout) {
  const Node *n = &g->nodes.at[node];
  if (k != 0 || split.axis != 2)
    return false;
  for (int v = 0; v < n->n_in + n->n_out; v++)
    layout[v] = split;
  return true;
}

/* ---- the operations ------------------------------------------------------------------------------------- */

/* The largest element of each channel in each window of x[height, width, channels]. kernel_size, stride and
 * padding are a number or a list [height, width]; stride 0 means kernel_size. ceil_mode: also counts windows that
 * only start in the image. The first of equal maxima gets the gradient. */
const Op op_max_pool = {
    .name = "max_pool",
    .signature = "max_pool(x[height, width, channels], kernel_size, stride = 0, padding = 0, ceil_mode = false)",
    .kind = OP_CALL,
    .divide = divide_channels,
    .min_in = 1,
    .max_in = 1,
    .attr = {{"kernel_size", ATTR_PAIR, true, 0},
             {"stride", ATTR_PAIR, false, 0},
             {"padding", ATTR_PAIR, false, 0},
             {"ceil_mode", ATTR_BOOL, false, 0}},
    .shape = shape_pool,
    .derivative = derive_max_pool,
    .cost = cost_pool,
    .evaluate = evaluate_max_pool,
    .call = call_max_pool,
};

const Op op_max_pool_gradient = {
    .name = "max_pool_gradient",
    .signature = "max_pool_gradient(x, y, dy, kernel_size, stride, padding)",
    .kind = OP_CALL,
    .divide = divide_channels,
    .internal = true,
    .min_in = 3,
    .max_in = 3,
    .attr = {{"kernel_size", ATTR_PAIR, true, 0}, {"stride", ATTR_PAIR, true, 0}, {"padding", ATTR_PAIR, true, 0}},
    .shape = shape_max_gradient,
    .cost = cost_max_gradient,
    .evaluate = evaluate_max_gradient,
    .call = call_max_gradient,
};

/* The mean of each channel in each window, with max_pool's arguments. count_include_pad: the padding's zeros
 * count. */
const Op op_average_pool = {
    .name = "average_pool",
    .signature = "average_pool(x, kernel_size, stride = 0, padding = 0, ceil_mode = false, count_include_pad)",
    .kind = OP_CALL,
    .linear = LINEAR_IN_ALL,
    .divide = divide_channels,
    .min_in = 1,
    .max_in = 1,
    .attr = {{"kernel_size", ATTR_PAIR, true, 0},
             {"stride", ATTR_PAIR, false, 0},
             {"padding", ATTR_PAIR, false, 0},
             {"ceil_mode", ATTR_BOOL, false, 0},
             {"count_include_pad", ATTR_BOOL, false, 1}},
    .shape = shape_pool,
    .derivative = derive_average_pool,
    .cost = cost_pool,
    .evaluate = evaluate_average_pool,
    .call = call_average_pool,
};

const Op op_average_pool_gradient = {
    .name = "average_pool_gradient",
    .signature = "average_pool_gradient(dy, kernel_size, stride, padding, count_include_pad, size)",
    .kind = OP_CALL,
    .linear = LINEAR_IN_ALL,
    .divide = divide_channels,
    .internal = true,
    .min_in = 1,
    .max_in = 1,
    .attr = {{"kernel_size", ATTR_PAIR, true, 0},
             {"stride", ATTR_PAIR, true, 0},
             {"padding", ATTR_PAIR, true, 0},
             {"count_include_pad", ATTR_BOOL, true, 0},
             {"size", ATTR_PAIR, true, 0}},
    .shape = shape_average_gradient,
    .cost = cost_average_gradient,
    .evaluate = evaluate_average_gradient,
    .call = call_average_gradient,
};

/* The mean of each channel in output_size windows that share x[height, width, channels] evenly: of n rows out of
 * height, row i covers floor(i height / n) to before ceil((i + 1) height / n). */
const Op op_adaptive_average_pool = {
    .name = "adaptive_average_pool",
    .signature = "adaptive_average_pool(x[height, width, channels], output_size)",
    .kind = OP_CALL,
    .linear = LINEAR_IN_ALL,
    .divide = divide_channels,
    .min_in = 1,
    .max_in = 1,
    .attr = {{"output_size", ATTR_PAIR, true, 0}},
    .shape = shape_adaptive,
    .derivative = derive_adaptive,
    .cost = cost_inputs,
    .evaluate = evaluate_adaptive,
    .call = call_adaptive,
};

const Op op_adaptive_average_pool_gradient = {
    .name = "adaptive_average_pool_gradient",
    .signature = "adaptive_average_pool_gradient(dy, size)",
    .kind = OP_CALL,
    .linear = LINEAR_IN_ALL,
    .divide = divide_channels,
    .internal = true,
    .min_in = 1,
    .max_in = 1,
    .attr = {{"size", ATTR_PAIR, true, 0}},
    .shape = shape_average_gradient,
    .cost = cost_cheap,
    .evaluate = evaluate_adaptive_gradient,
    .call = call_adaptive_gradient,
};
