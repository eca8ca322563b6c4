/* Places of values: strides through views, buffers on demand, and direct writes into the buffer of a larger
 * value. */
#include <string.h>

#include "fuse/internal.h"

Placement *placement(const Fuse *f) {
  Placement *p = alloc(sizeof *p);
  size_t values = (size_t)f->g->values.n;
  *p = (Placement){.root = alloc(sizeof *p->root * values), .needed = alloc(values)};
  memset(p->root, 0xff, sizeof *p->root * values);
  return p;
}

static Place *root_place(const Fuse *f, int value) {
  ensure(is_placed(f, value));
  return &f->places->all.at[f->places->root[value]];
}

static void set_place(const Fuse *f, int value, Place place) {
  if (!is_placed(f, value)) {
    f->places->root[value] = f->places->all.n;
    push(&f->places->all, place);
  }
  *root_place(f, value) = place;
}

int placed_buffer(const Fuse *f, int value) { return is_placed(f, value) ? root_place(f, value)->buffer : -1; }

int dims_of(const Fuse *f, int value, int64_t *dim) {
  const Shape *s = &value_at(f, value)->shape;
  int n = 0;
  if (s->batched)
    dim[n++] = f->k->microbatch;
  for (int i = 0; i < s->rank; i++)
    dim[n++] = s->dim[i];
  return n;
}

double bytes_of(const Fuse *f, int value) {
  int64_t dim[MAX_DIM];
  double bytes = 4;
  for (int i = dims_of(f, value, dim) - 1; i >= 0; i--)
    bytes *= (double)dim[i];
  return bytes;
}

Place contiguous(int buffer, int n, const int64_t *dim) {
  Place p = {.buffer = buffer, .rank = n};
  int64_t stride = 1;
  for (int i = n - 1; i >= 0; i--) {
    p.dim[i] = dim[i];
    p.stride[i] = stride;
    stride *= dim[i];
  }
  return p;
}

int view_root(const Fuse *f, int value) {
  while (producer(f, value)->op->kind == OP_VIEW && !is_placed(f, value))
    value = producer(f, value)->in[0];
  return f->survey->same[value];
}

/* Each axis, from the right, is the input's or a broadcast of it, including the sample axis. */
bool alias_step(const Fuse *f, const Node *n) {
  const Shape *a = &value_at(f, n->in[0])->shape, *b = &value_at(f, n->out[0])->shape;
  bool alias = n->op->keeps_order && a->batched <= b->batched;
  for (int i = 1; alias && i <= (a->rank > b->rank ? a->rank : b->rank); i++) {
    int64_t from = i <= a->rank ? a->dim[a->rank - i] : 1, to = i <= b->rank ? b->dim[b->rank - i] : 1;
    alias = from == to || from == 1;
  }
  return alias;
}

bool view_is_alias(const Fuse *f, int value) {
  for (; producer(f, value)->op->kind == OP_VIEW && !is_placed(f, value); value = producer(f, value)->in[0])
    if (!alias_step(f, producer(f, value)))
      return false;
  return true;
}

static bool is_contiguous(const Place *p) {
  int64_t stride = 1;
  for (int i = p->rank - 1; i >= 0; i--) {
    if (p->dim[i] != 1 && p->stride[i] != stride)
      return false;
    stride *= p->dim[i];
  }
  return true;
}

/* Whether a call can write there: along the last axis, or transposed if it supports that. */
static bool call_fits(const Op *op, const Place *p, bool bias) {
  int last = p->rank - 1;
  if (!op->strided_out || last < 0 || p->dim[last] == 1 || p->stride[last] == 1)
    return op->strided_out;
  return op->transposes && !bias && last > 0 && p->dim[last - 1] > 1 && p->stride[last - 1] == 1;
}

/* Whether all axes but the last merge into one. */
static bool rows_as_one(const Place *p) {
  int64_t stride = -1; /* required stride of the next axis to the left */
  for (int i = p->rank - 2; i >= 0; i--) {
    if (p->dim[i] == 1)
      continue;
    if (stride >= 0 && p->stride[i] != stride)
      return false;
    stride = p->stride[i] * p->dim[i];
  }
  return true;
}

bool calls_read(const Fuse *f, int value, const Place *p) {
  int last = p->rank - 1;
  bool rows = last < 0 || p->dim[last] == 1 || p->stride[last] == 1;
  return (rows || !f->survey->read_in_rows[value]) && (!f->survey->read_dense[value] || is_contiguous(p)) &&
         (!f->survey->read_as_one[value] || rows_as_one(p));
}

/* The layout of an unplaced value: contiguous. If the value is transposed next, a call with strided output writes
 * it transposed, so the transposed value is contiguous. */
static Place default_place(const Fuse *f, int value) {
  int64_t dim[MAX_DIM];
  int n = dims_of(f, value, dim);
  Place p = contiguous(-1, n, dim);
  if (!producer(f, value)->op->strided_out || f->facts->n_uses[value] == 0)
    return p;
  for (int i = f->survey->reordered[value]; i >= 0; i = f->survey->next_reordered[i]) {
    Place back;
    n = dims_of(f, node_at(f, i)->out[0], dim);
    Place t = contiguous(-1, n, dim);
    if (node_at(f, i)->op->view_back(f->g, i, &t, &back) && call_fits(producer(f, value)->op, &back, false) &&
        calls_read(f, value, &back))
      return back;
  }
  return p;
}

bool place_of(const Fuse *f, int value, Place *out) {
  value = f->survey->same[value];
  const Node *n = producer(f, value);
  if (n->op->kind == OP_VIEW && !is_placed(f, value)) {
    const Value *v = value_at(f, value);
    Place from;
    if (!place_of(f, n->in[0], &from) || !n->op->view(f->g, v->node, v->output, &from, out))
      return false;
    if (v->shape.batched)
      out->dim[0] = f->k->microbatch;
    return true;
  }
  if (!is_placed(f, value))
    set_place(f, value, default_place(f, value));
  *out = *root_place(f, value);
  return true;
}

/* A stage's own values begin as TEMPORARY; find_lifetimes() decides their kind. */
static int new_buffer(const Fuse *f, BufferKind kind, int value, int n, const int64_t *dim, Type type) {
  Buffer b = {.kind = kind,
              .value = value,
              .rank = n,
              .type = type,
              .elements = 1,
              .then = -1,
              .param = -1,
              .use = -1,
              .figure = -1,
              .region = -1,
              .first = -1,
              .last = -1};
  for (int i = 0; i < n; i++) {
    b.dim[i] = dim[i];
    b.elements *= dim[i];
  }
  push(&f->k->buffers, b);
  return f->k->buffers.n - 1;
}

/* Of a stacked result of a scan's body: the first row, because the loop moves the buffer from step to step. */
Place whole(const Fuse *f, int buffer) {
  const Buffer *b = &f->k->buffers.at[buffer];
  Place p = contiguous(buffer, b->rank, b->dim);
  if (b->kind != BUFFER_FIGURE || !is_stacked(f->g, b->figure))
    return p;
  int axis = value_at(f, b->value)->shape.batched;
  p.rank--;
  for (int i = axis; i < p.rank; i++)
    p.dim[i] = p.dim[i + 1], p.stride[i] = p.stride[i + 1];
  return p;
}

int value_buffer(const Fuse *f, BufferKind kind, int value) {
  int64_t dim[MAX_DIM];
  int n = dims_of(f, value, dim);
  return new_buffer(f, kind, value, n, dim, value_at(f, value)->type);
}

int figure_buffer(const Fuse *f, int figure) {
  int64_t dim[MAX_DIM];
  int value = f->g->figures.at[figure].value, n = dims_of(f, value, dim), axis = value_at(f, value)->shape.batched;
  if (is_stacked(f->g, figure)) {
    memmove(dim + axis + 1, dim + axis, (size_t)(n++ - axis) * sizeof *dim);
    dim[axis] = f->g->loop.steps;
  }
  int buffer = new_buffer(f, BUFFER_FIGURE, value, n, dim, value_at(f, value)->type);
  f->k->buffers.at[buffer].figure = figure;
  return buffer;
}

void place_at(const Fuse *f, int value, int buffer) { set_place(f, value, whole(f, buffer)); }

/* Creates the buffer of an unplaced value, with dims in memory order: the place's axes by decreasing stride. */
static int buffer_of_place(const Fuse *f, int root, const Place *p) {
  int order[MAX_DIM];
  int64_t dim[MAX_DIM];
  for (int i = 0; i < p->rank; i++)
    order[i] = i;
  for (int i = 1; i < p->rank; i++)
    for (int j = i; j > 0 && p->stride[order[j]] > p->stride[order[j - 1]]; j--) {
      int t = order[j];
      order[j] = order[j - 1], order[j - 1] = t;
    }
  for (int i = 0; i < p->rank; i++)
    dim[i] = p->dim[order[i]];
  const Value *v = value_at(f, root);
  BufferKind kind = f->survey->table[v->node]                    ? BUFFER_TABLE
                    : node_keeps(node_at(f, v->node), v->output) ? BUFFER_CACHE
                                                                 : BUFFER_TEMPORARY;
  return new_buffer(f, kind, root, p->rank, dim, v->type);
}

Place place_value(const Fuse *f, int value) {
  int root = view_root(f, f->survey->same[value]);
  Place p;
  ensure(place_of(f, root, &p));
  f->places->needed[root] = true;
  if (p.buffer < 0)
    root_place(f, root)->buffer = buffer_of_place(f, root, &p);
  Place out;
  if (!place_of(f, value, &out))
    BUG("value %d of %s has no place", value, f->g->name);
  return out;
}

bool place_into(const Fuse *f, int value, const Place *target) {
  Place p = *target;
  int node = value_at(f, value)->node;
  for (;; node = value_at(f, value)->node) {
    const Node *n = node_at(f, node);
    if (is_placed(f, value) || !f->survey->here[node] || f->survey->table[node])
      return false;
    if (n->op->kind != OP_VIEW)
      break;
    Place back;
    if (!n->op->view_back || !n->op->view_back(f->g, node, &p, &back))
      return false;
    p = back;
    value = n->in[0];
  }
  bool bias = f->biases->call[node] >= 0;
  const Op *op = node_at(f, bias ? f->biases->call[node] : node)->op;
  if (op->kind == OP_SOURCE || (op->kind == OP_CONCAT && !f->g->loop.steps))
    return false;
  if (op->kind == OP_CALL && !call_fits(op, &p, bias) && !is_contiguous(&p))
    return false;
  if ((op->kind == OP_SUM_TO && !is_contiguous(&p)) || !calls_read(f, value, &p))
    return false;
  set_place(f, value, p);
  f->places->needed[value] = true;
  return true;
}

/* Strides of a value in an iteration space that it broadcasts to. */
Place place_broadcast(const Place *from, bool batched, const Group *to) {
  Place p = {.buffer = from->buffer, .offset = from->offset, .rank = to->n_dims};
  for (int i = 0; i < to->n_dims; i++) {
    p.dim[i] = to->dim[i];
    int back = to->n_dims - i, axis = from->rank - back;
    bool sample_axis = axis >= (batched ? 1 : 0) && !(to->batched && i == 0);
    if (to->batched && i == 0)
      p.stride[i] = batched && from->dim[0] > 1 ? from->stride[0] : 0;
    else if (sample_axis && from->dim[axis] > 1)
      p.stride[i] = from->stride[axis];
  }
  return p;
}
