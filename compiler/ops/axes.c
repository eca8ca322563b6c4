/* Views with the axes in another order; nothing is computed. */
#include <string.h>

#include "ops/rules.h"

static void reorder(int rank, const int *dims, const int64_t *in, int64_t *out) {
  for (int i = 0; i < rank; i++)
    out[i] = in[dims[i]];
}

static void invert(int rank, const int *dims, int *inverse) {
  for (int i = 0; i < rank; i++)
    inverse[dims[i]] = i;
}

static void evaluate_reordered(const Graph *g, int node, int64_t batch, const double *const *in,
                               double *const *out) {
  const Shape *x = in_shape(g, node, 0), *y = out_shape(g, node, 0);
  int dims[MAX_RANK];
  int64_t step[MAX_RANK] = {0}, stride[MAX_RANK] = {0};
  g->nodes.at[node].op->order(g, node, dims);
  for (int i = x->rank - 1; i >= 0; i--)
    step[i] = i + 1 < x->rank ? step[i + 1] * x->dim[i + 1] : 1;
  reorder(y->rank, dims, step, stride);
  int64_t total = batch_elements(x, batch), per_sample = shape_elements(x);
  for (int64_t i = 0; i < total; i++) {
    int64_t from = i / per_sample * per_sample, rest = i % per_sample;
    for (int axis = y->rank - 1; axis >= 0; axis--) {
      from += rest % y->dim[axis] * stride[axis];
      rest /= y->dim[axis];
    }
    out[0][i] = in[0][from];
  }
}

static void place_axes(const Place *from, int rank, const int *dims, Place *to) {
  int first = from->rank - rank; /* the microbatch axis stays first */
  *to = *from;
  reorder(rank, dims, from->dim + first, to->dim + first);
  reorder(rank, dims, from->stride + first, to->stride + first);
}

static bool place_reordered(const Graph *g, int node, int output, const Place *from, Place *to) {
  (void)output;
  int dims[MAX_RANK];
  g->nodes.at[node].op->order(g, node, dims);
  place_axes(from, out_shape(g, node, 0)->rank, dims, to);
  return true;
}

static bool place_reordered_back(const Graph *g, int node, const Place *from, Place *to) {
  int dims[MAX_RANK], back[MAX_RANK], rank = out_shape(g, node, 0)->rank;
  g->nodes.at[node].op->order(g, node, dims);
  invert(rank, dims, back);
  place_axes(from, rank, back, to);
  return true;
}

const Op *op_of_order(int rank, const int *dims, Attr *attr) {
  int moved[MAX_RANK], n = 0;
  int64_t *list = alloc(MAX_RANK * sizeof *list);
  for (int i = 0; i < rank; i++) {
    list[i] = dims[i];
    if (dims[i] != i)
      moved[n++] = i;
  }
  memset(attr, 0, MAX_ATTR * sizeof *attr);
  if (n == 2) {
    attr[0].number = moved[0];
    attr[1].number = moved[1];
    return &op_transpose;
  }
  attr[0] = (Attr){.n = rank, .list = list};
  return &op_permute;
}

#define REORDER                                                                                                 \
  .kind = OP_VIEW, .min_in = 1, .max_in = 1, .cost = cost_none, .linear = LINEAR_IN_ALL, .divide = divide_view, \
  .view = place_reordered, .view_back = place_reordered_back, .evaluate = evaluate_reordered

/* ---- transpose ------------------------------------------------------------------------------- */

static bool shape_transpose(ShapeRule *r) {
  Shape s = *rule_shape(r, 0);
  if (!rule_axis(r, "a", s.rank) || !rule_axis(r, "b", s.rank))
    return false;
  int64_t a = rule_int(r, "a"), b = rule_int(r, "b"), size = s.dim[a];
  s.dim[a] = s.dim[b];
  s.dim[b] = size;
  return rule_view(r, s);
}

static void derive_transpose(Gradients *d, int node) {
  int dy = grad_of(d, node, 0);
  grad_add(d, node, 0, grad_build(d, node, &op_transpose, &dy, 1, grad_graph(d)->nodes.at[node].attr));
}

static void order_of_transpose(const Graph *g, int node, int *dims) {
  const Node *n = &g->nodes.at[node];
  for (int i = 0; i < out_shape(g, node, 0)->rank; i++)
    dims[i] = i;
  dims[node_int(n, "a")] = (int)node_int(n, "b");
  dims[node_int(n, "b")] = (int)node_int(n, "a");
}

/* x with axes a and b swapped, also written x.T for the last two. */
const Op op_transpose = {
    .name = "transpose",
    .signature = "transpose(x, a = -2, b = -1)",
    REORDER,
    .order = order_of_transpose,
    .attr = {{"a", ATTR_INT, false, -2}, {"b", ATTR_INT, false, -1}},
    .shape = shape_transpose,
    .derivative = derive_transpose,
};

/* ---- permute --------------------------------------------------------------------------------- */

static bool shape_permute(ShapeRule *r) {
  const Shape *x = rule_shape(r, 0);
  Attr *dims = rule_attr(r, "dims");
  Shape s = *x;
  int64_t from_left[MAX_RANK];
  unsigned named = 0;
  for (int i = 0; i < dims->n && dims->n == x->rank; i++) {
    int64_t axis = from_left[i] = dims->list[i] + (dims->list[i] < 0 ? x->rank : 0);
    if (axis < 0 || axis >= x->rank)
      break;
    named |= 1u << axis;
    s.dim[i] = x->dim[axis];
  }
  if (dims->n == x->rank && named == (1u << x->rank) - 1) {
    for (int i = 0; i < dims->n; i++)
      dims->list[i] = from_left[i];
    return rule_view(r, s);
  }
  Shape asked = {.rank = dims->n < MAX_RANK ? dims->n : MAX_RANK};
  for (int i = 0; i < asked.rank; i++)
    asked.dim[i] = dims->list[i];
  Diagnostic *d = error_at(r->span, "PD0303", "'permute' needs every axis of %s once, not %s", shape_text(x),
                           shape_text(&asked));
  rule_underline(r, d);
  note_at(d, rule_value(r, 0)->span, "the value with %d axes comes from here", x->rank);
  return false;
}

static void order_of_permute(const Graph *g, int node, int *dims) {
  const Attr *list = node_attr(&g->nodes.at[node], "dims");
  for (int i = 0; i < list->n; i++)
    dims[i] = (int)list->list[i];
}

static void derive_permute(Gradients *d, int node) {
  int dims[MAX_RANK], back[MAX_RANK], rank = in_shape(grad_graph(d), node, 0)->rank, dy = grad_of(d, node, 0);
  order_of_permute(grad_graph(d), node, dims);
  invert(rank, dims, back);
  Attr attr[MAX_ATTR];
  const Op *op = op_of_order(rank, back, attr);
  grad_add(d, node, 0, grad_build(d, node, op, &dy, 1, attr));
}

/* x with its axes in another order: the result's axis i is x's axis dims[i]. */
const Op op_permute = {
    .name = "permute",
    .signature = "permute(x, dims)",
    REORDER,
    .order = order_of_permute,
    .attr = {{"dims", ATTR_LIST, true, 0}},
    .shape = shape_permute,
    .derivative = derive_permute,
};
