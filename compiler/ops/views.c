/* Views with another shape or other strides; nothing is computed. */
#include <string.h>

#include "ops/rules.h"

/* A value's dims with `like`'s microbatch axis first; a value shared by all samples is repeated, the number of
 * times set by the caller. */
static int placed_dims(const Shape *s, const Place *like, int64_t *dim) {
  int n = 0;
  if (s->batched)
    dim[n++] = like->rank > 0 ? like->dim[0] : 1;
  for (int i = 0; i < s->rank; i++)
    dim[n++] = s->dim[i];
  return n;
}

/* The axis of positions in the view's result, if the view keeps them whole, or -1. Found by the place of an
 * operand in which only steps along that axis change the element. */
int view_axis(const Graph *g, int node, int output, int axis) {
  const Shape *x = in_shape(g, node, 0), *y = out_shape(g, node, output);
  Place from = {.rank = x->rank + x->batched, .dim = {1}}, to = {0};
  int found = -1;
  memcpy(from.dim + x->batched, x->dim, sizeof x->dim);
  from.stride[x->batched + axis] = 1;
  if (!g->nodes.at[node].op->view(g, node, output, &from, &to) || to.offset != 0)
    return -1;
  for (int i = 0; i < y->rank; i++)
    if (to.stride[to.rank - y->rank + i] != 0)
      found = found < 0 && y->dim[i] == x->dim[axis] ? i : y->rank;
  return found < y->rank ? found : -1;
}

int decode_shape(const Graph *g, int node, const int *axis, int64_t context, Decoded *to) {
  int found = view_axis(g, node, 0, axis[0]);
  (void)context;
  if (found < 0)
    return -1;
  Attr shape = shape_attr(out_shape(g, node, 0));
  shape.list[found] = 1;
  to->attr[0] = shape;
  return found;
}

#define VIEW .kind = OP_VIEW, .min_in = 1, .max_in = 1, .cost = cost_none, .linear = LINEAR_IN_ALL

/* ---- reshape --------------------------------------------------------------------------------- */

static bool reshape_fails(ShapeRule *r, const char *why) {
  Shape asked = {.rank = rule_attr(r, "shape")->n};
  memcpy(asked.dim, rule_attr(r, "shape")->list, asked.rank * sizeof asked.dim[0]);
  Diagnostic *d = error_at(r->span, "PD0304", "'reshape' cannot make %s into %s%s", rule_operand(r, 0),
                           shape_text(&asked), why);
  rule_underline(r, d);
  note_at(d, rule_value(r, 0)->span, "the value with %lld elements per sample comes from here",
          (long long)shape_elements(rule_shape(r, 0)));
  return false;
}

/* One size may be -1: it follows from the number of elements. */
static bool shape_reshape(ShapeRule *r) {
  Attr *sizes = rule_attr(r, "shape");
  int64_t elements = shape_elements(rule_shape(r, 0)), known = 1;
  int open = -1;
  for (int i = 0; i < sizes->n && sizes->n <= MAX_RANK; i++) {
    if (sizes->list[i] != -1) {
      if (__builtin_mul_overflow(known, sizes->list[i], &known))
        return reshape_fails(r, "");
    } else if (open >= 0)
      return reshape_fails(r, ": only one size can be -1");
    else
      open = i;
  }
  if (open >= 0) {
    if (known < 1 || elements % known)
      return reshape_fails(r, ": the other sizes do not divide its elements");
    sizes->list[open] = elements / known;
  }
  Shape s = {.batched = rule_shape(r, 0)->batched};
  if (!rule_sizes(r, "shape", &s))
    return false;
  if (shape_elements(&s) != elements)
    return reshape_fails(r, "");
  return rule_view(r, s);
}

static void derive_reshape(Gradients *d, int node) {
  const Shape *x = in_shape(grad_graph(d), node, 0);
  int dy = grad_of(d, node, 0);
  grad_add(d, node, 0, grad_build(d, node, &op_reshape, &dy, 1, (Attr[MAX_ATTR]){shape_attr(x)}));
}

static void evaluate_reshape(const Graph *g, int node, int64_t batch, const double *const *in,
                             double *const *out) {
  memcpy(out[0], in[0], batch_elements(out_shape(g, node, 0), batch) * sizeof *out[0]);
}

static bool place_reshaped(const Graph *g, int node, int output, const Place *from, Place *to) {
  int64_t dim[MAX_DIM];
  int n = placed_dims(out_shape(g, node, output), from, dim);
  return place_reshape(from, n, dim, to);
}

static bool place_reshaped_back(const Graph *g, int node, const Place *from, Place *to) {
  int64_t dim[MAX_DIM];
  int n = placed_dims(in_shape(g, node, 0), from, dim);
  return place_reshape(from, n, dim, to);
}

/* In memory order a rank has a part of each of several runs of elements, which must be blocks of one axis of the
 * result. Axes further right have smaller blocks. */
static bool divide_reshape(const Graph *g, int node, int k, Layout split, Layout *layout) {
  const Shape *x = in_shape(g, node, 0), *y = out_shape(g, node, 0);
  int64_t runs = split.blocks, before = 1;
  if (k != 0)
    return false;
  for (int i = 0; i < split.axis; i++)
    runs *= x->dim[i];
  layout[0] = split;
  for (int axis = 0; axis < y->rank && runs % before == 0; before *= y->dim[axis++])
    if (y->dim[axis] % (runs / before) == 0 && y->dim[axis] > runs / before)
      layout[1] = (Layout){LAYOUT_SPLIT, axis, runs / before};
  return layout[1].kind == LAYOUT_SPLIT;
}

/* The same elements in the same order with another shape; one size may be -1 and then follows from the others. */
const Op op_reshape = {
    .name = "reshape",
    .signature = "reshape(x, shape)",
    VIEW,
    .divide = divide_reshape,
    .view = place_reshaped,
    .view_back = place_reshaped_back,
    .decode = decode_shape,
    .keeps_order = true,
    .attr = {{"shape", ATTR_LIST, true, 0}},
    .shape = shape_reshape,
    .derivative = derive_reshape,
    .evaluate = evaluate_reshape,
};

/* ---- slice ----------------------------------------------------------------------------------- */

/* Negative bounds count from the end; `to` 0 is the end. */
static bool shape_slice(ShapeRule *r) {
  const Shape *x = rule_shape(r, 0);
  if (!rule_axis(r, "axis", x->rank))
    return false;
  int axis = (int)rule_int(r, "axis");
  int64_t size = x->dim[axis], from = rule_int(r, "from"), to = rule_int(r, "to");
  from += from < 0 ? size : 0;
  to += to <= 0 ? size : 0;
  if (from < 0 || to > size || from >= to) {
    Diagnostic *d = error_at(r->span, "PD0305", "the slice %lld..%lld of axis %d, of size %lld, is %s",
                             (long long)rule_int(r, "from"), (long long)rule_int(r, "to"), axis, (long long)size,
                             from >= to ? "empty" : "out of range");
    rule_underline(r, d);
    rule_origin(r, d, 0, axis);
    return false;
  }
  rule_attr(r, "from")->number = (double)from;
  rule_attr(r, "to")->number = (double)to;
  return rule_view(r, shape_with(*x, axis, to - from));
}

static void derive_slice(Gradients *d, int node) {
  const Graph *g = grad_graph(d);
  const Node *n = &g->nodes.at[node];
  int64_t axis = node_int(n, "axis"), from = node_int(n, "from"), to = node_int(n, "to");
  Attr attr[MAX_ATTR] = {{.number = (double)axis},
                         {.number = (double)from},
                         {.number = (double)(in_shape(g, node, 0)->dim[axis] - to)}};
  int dy = grad_of(d, node, 0);
  grad_add(d, node, 0, grad_build(d, node, &op_pad, &dy, 1, attr));
}

static void copy_slice(const Shape *x, int64_t batch, int axis, int64_t from, int64_t size, const double *in,
                       double *out) {
  Around a = around_axis(x, batch, axis);
  for (int64_t o = 0; o < a.outer; o++)
    memcpy(out + o * size * a.inner, in + (o * a.middle + from) * a.inner, size * a.inner * sizeof *out);
}

static void evaluate_slice(const Graph *g, int node, int64_t batch, const double *const *in, double *const *out) {
  const Node *n = &g->nodes.at[node];
  int axis = (int)node_int(n, "axis");
  copy_slice(in_shape(g, node, 0), batch, axis, node_int(n, "from"), out_shape(g, node, 0)->dim[axis], in[0],
             out[0]);
}

static bool place_sliced(const Graph *g, int node, int output, const Place *from, Place *to) {
  const Node *n = &g->nodes.at[node];
  const Shape *y = out_shape(g, node, output);
  int axis = (int)node_int(n, "axis");
  *to = place_slice(from, axis + y->batched, node_int(n, "from"), y->dim[axis]);
  return true;
}

/* The first positions keep theirs: all in front of others, such as those of a padded convolution, or all but the last,
 * which a delay drops. A single one could be broadcast to others. */
static int decode_slice(const Graph *g, int node, const int *axis, int64_t context, Decoded *to) {
  const Node *n = &g->nodes.at[node];
  const int along = (int)node_int(n, "axis");
  if (axis[0] != along)
    return axis[0];
  to->attr[1] = (Attr){.number = 0};
  to->attr[2] = (Attr){.number = 1};
  const int64_t size = out_shape(g, node, 0)->dim[along];
  return node_int(n, "from") == 0 && (size == context || (size > 1 && size < context)) ? along : -1;
}

/* The elements of x from `from` to before `to` along an axis, also written x[.., 1..3]; negative bounds count from
 * the end. */
const Op op_slice = {
    .name = "slice",
    .signature = "slice(x, axis = -1, from = 0, to = 0)",
    VIEW,
    .divide = divide_view,
    .view = place_sliced,
    .decode = decode_slice,
    .reordered = reordered_axis,
    .attr = {{"axis", ATTR_INT, false, -1}, {"from", ATTR_INT, false, 0}, {"to", ATTR_INT, false, 0}},
    .shape = shape_slice,
    .derivative = derive_slice,
    .evaluate = evaluate_slice,
};

/* ---- split ----------------------------------------------------------------------------------- */

static bool shape_split(ShapeRule *r) {
  const Value *x = rule_value(r, 0);
  int64_t n = rule_int(r, "n"), room = sizeof r->out / sizeof r->out[0];
  int last = x->shape.rank - 1;
  if (last < 0 || n < 1 || n > room || x->shape.dim[last] % n) {
    Diagnostic *d = error_at(r->span, "PD0305", "'split' cannot cut the last axis of %s into %lld equal parts%s",
                             shape_text(&x->shape), (long long)n, n > room ? ": at most 64" : "");
    rule_underline(r, d);
    rule_origin(r, d, 0, last);
    return false;
  }
  rule_view(r, shape_with(x->shape, last, x->shape.dim[last] / n));
  for (int i = 1; i < n; i++)
    r->out[i] = r->out[0];
  r->n_out = (int)n;
  return true;
}

static void derive_split(Gradients *d, int node) {
  Graph *g = grad_graph(d);
  int n = g->nodes.at[node].n_out;
  int *parts = alloc(n * sizeof *parts);
  for (int i = 0; i < n; i++) {
    Shape s = *out_shape(g, node, i);
    parts[i] = grad_of(d, node, i);
    if (parts[i] < 0) {
      Attr zeros[MAX_ATTR] = {{.number = 0}, shape_attr(&s), {.number = s.batched}};
      parts[i] = grad_build(d, node, &op_full, NULL, 0, zeros);
    }
  }
  grad_add(d, node, 0, grad_build(d, node, &op_concat, parts, n, NULL));
}

static void evaluate_split(const Graph *g, int node, int64_t batch, const double *const *in, double *const *out) {
  const Shape *x = in_shape(g, node, 0);
  int n = g->nodes.at[node].n_out;
  int64_t size = x->dim[x->rank - 1] / n;
  for (int i = 0; i < n; i++)
    copy_slice(x, batch, x->rank - 1, i * size, size, in[0], out[i]);
}

static bool place_split(const Graph *g, int node, int output, const Place *from, Place *to) {
  const Shape *y = out_shape(g, node, output);
  int64_t size = y->dim[y->rank - 1];
  *to = place_slice(from, from->rank - 1, output * size, size);
  return true;
}

/* Along the last axis each result gets its share of the blocks. */
static bool divide_split(const Graph *g, int node, int k, Layout split, Layout *layout) {
  const Node *n = &g->nodes.at[node];
  bool last = split.axis == in_shape(g, node, 0)->rank - 1;
  if (k != 0 || (last && split.blocks % n->n_out))
    return false;
  layout[0] = split;
  split.blocks /= last ? n->n_out : 1;
  for (int i = 0; i < n->n_out; i++)
    layout[1 + i] = split;
  return true;
}

/* n equal parts of the last axis: x[.., n * k] gives n values [.., k]. */
const Op op_split = {
    .name = "split",
    .signature = "split(x, n)",
    VIEW,
    .divide = divide_split,
    .view = place_split,
    .reordered = reordered_before_last,
    .attr = {{"n", ATTR_INT, true, 0}},
    .shape = shape_split,
    .derivative = derive_split,
    .evaluate = evaluate_split,
};

/* ---- expand ---------------------------------------------------------------------------------- */

static bool shape_expand(ShapeRule *r) {
  const Shape *x = rule_shape(r, 0);
  Shape to = {.batched = x->batched || rule_int(r, "$batched")}, wide = *x;
  int axis;
  rule_attr(r, "$batched")->number = to.batched;
  if (!rule_sizes(r, "shape", &to))
    return false;
  if (!shape_broadcast(&wide, &to, &axis) || !shape_equal(&wide, &to)) {
    Diagnostic *d =
        error_at(r->span, "PD0301", "'expand' cannot broadcast %s to %s", shape_text(x), shape_text(&to));
    rule_underline(r, d);
    note_at(d, rule_value(r, 0)->span, "the value comes from here");
    return false;
  }
  return rule_view(r, to);
}

static void derive_expand(Gradients *d, int node) { grad_add_broadcast(d, node, 0, grad_of(d, node, 0)); }

static void evaluate_expand(const Graph *g, int node, int64_t batch, const double *const *in, double *const *out) {
  const Shape *x = in_shape(g, node, 0), *y = out_shape(g, node, 0);
  int64_t total = batch_elements(y, batch), per_sample = shape_elements(y);
  for (int64_t i = 0; i < total; i++) {
    int64_t from = x->batched ? i / per_sample * shape_elements(x) : 0, rest = i % per_sample, stride = 1;
    for (int right = 1; right <= x->rank; right++) {
      int64_t size = x->dim[x->rank - right];
      from += size > 1 ? rest % y->dim[y->rank - right] * stride : 0;
      rest /= y->dim[y->rank - right];
      stride *= size;
    }
    out[0][i] = in[0][from];
  }
}

static bool place_expanded(const Graph *g, int node, int output, const Place *from, Place *to) {
  const Shape *x = in_shape(g, node, 0);
  int64_t dim[MAX_DIM];
  *to = (Place){.buffer = from->buffer, .offset = from->offset};
  to->rank = placed_dims(out_shape(g, node, output), from, dim);
  memcpy(to->dim, dim, sizeof dim);
  if (x->batched)
    to->stride[0] = from->stride[0];
  for (int right = 1; right <= x->rank; right++)
    to->stride[to->rank - right] = x->dim[x->rank - right] > 1 ? from->stride[from->rank - right] : 0;
  return true;
}

/* Along an axis that x has, or that is repeated. */
static bool divide_expand(const Graph *g, int node, int k, Layout split, Layout *layout) {
  const Shape *x = in_shape(g, node, 0), *y = out_shape(g, node, 0);
  int own = split.axis - (y->rank - x->rank);
  if (k != 1)
    return false;
  layout[1] = split;
  if (own >= 0 && x->dim[own] == y->dim[split.axis])
    layout[0] = (Layout){LAYOUT_SPLIT, own, split.blocks};
  return true;
}

/* x broadcast to a shape. */
const Op op_expand = {
    .name = "expand",
    .signature = "expand(x, shape)",
    VIEW,
    .divide = divide_expand,
    .view = place_expanded,
    .decode = decode_shape,
    .reordered = reordered_shape,
    .keeps_order = true,
    .attr = {{"shape", ATTR_LIST, true, 0}, {"$batched", ATTR_BOOL, false, 0}},
    .shape = shape_expand,
    .derivative = derive_expand,
    .evaluate = evaluate_expand,
};

/* ---- detach: the value without a gradient -------------------------------------------------------- */

static bool shape_detach(ShapeRule *r) { return rule_f32(r, 0) && rule_view(r, *rule_shape(r, 0)); }

/* x without a gradient. */
const Op op_detach = {
    .name = "detach",
    .signature = "detach(x)",
    VIEW,
    .divide = divide_view,
    .view = place_reshaped,
    .view_back = place_reshaped_back,
    .keeps_order = true,
    .reordered = reordered_alike,
    .shape = shape_detach,
    .evaluate = evaluate_reshape,
};
