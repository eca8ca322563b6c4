/* Where values stand: strides through views, buffers on demand, and writing a value straight into the
 * larger buffer it is a part of. */
#include "fuse/internal.h"

int dims_of(const Fuse *f, int value, int64_t *dim) {
  const Shape *s = &value_at(f, value)->shape;
  int n = 0;
  if (s->batched)
    dim[n++] = f->k->microbatch;
  for (int i = 0; i < s->rank; i++)
    dim[n++] = s->dim[i];
  return n;
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

/* The same elements in row-major order under other dims; false when they cannot be reached by strides.
 * Runs of old axes are matched with runs of new axes of the same size; within a run the old axes must
 * lie in memory as one. */
bool place_reshape(const Place *from, int n, const int64_t *dim, Place *to) {
  Place r = {.buffer = from->buffer, .offset = from->offset, .rank = n};
  int64_t old_dim[MAX_DIM], old_stride[MAX_DIM];
  int m = 0;
  for (int i = 0; i < from->rank; i++)
    if (from->dim[i] != 1) {
      old_dim[m] = from->dim[i];
      old_stride[m++] = from->stride[i];
    }
  for (int i = 0, j = 0; i < m;) {
    int64_t size = old_dim[i], wanted = 1;
    int i_end = i + 1, j_end = j;
    while (j_end < n && (wanted < size || dim[j_end] == 1)) {
      wanted *= dim[j_end++];
      while (wanted > size && i_end < m)
        size *= old_dim[i_end++];
    }
    if (wanted != size)
      return false;
    for (int k = i; k + 1 < i_end; k++)
      if (old_stride[k] != old_stride[k + 1] * old_dim[k + 1])
        return false;
    int64_t stride = old_stride[i_end - 1];
    for (int k = j_end - 1; k >= j; k--) {
      r.stride[k] = stride;
      stride *= dim[k];
    }
    i = i_end;
    j = j_end;
  }
  for (int k = 0; k < n; k++) {
    r.dim[k] = dim[k];
    if (dim[k] == 1)
      r.stride[k] = 0;
  }
  *to = r;
  return true;
}

Place place_slice(const Place *from, int axis, int64_t offset, int64_t size) {
  Place p = *from;
  p.offset += offset * p.stride[axis];
  p.dim[axis] = size;
  return p;
}

static Place place_swap(const Place *from, int a, int b) {
  Place p = *from;
  p.dim[a] = from->dim[b], p.dim[b] = from->dim[a];
  p.stride[a] = from->stride[b], p.stride[b] = from->stride[a];
  return p;
}

int view_root(const Fuse *f, int value) {
  while (producer(f, value)->op->kind == OP_VIEW && !f->placed[value])
    value = producer(f, value)->in[0];
  return f->same[value];
}

/* Shapes equal but for leading axes of size 1, or a broadcast. */
bool alias_step(const Fuse *f, const Node *n) {
  if (n->op == &op_expand || n->op == &op_detach)
    return true;
  if (n->op != &op_reshape)
    return false;
  const Shape *a = &value_at(f, n->in[0])->shape, *b = &value_at(f, n->out[0])->shape;
  int low = a->rank < b->rank ? a->rank : b->rank;
  for (int i = 0; i < a->rank - low; i++)
    if (a->dim[i] != 1)
      return false;
  for (int i = 0; i < b->rank - low; i++)
    if (b->dim[i] != 1)
      return false;
  for (int i = 1; i <= low; i++)
    if (a->dim[a->rank - i] != b->dim[b->rank - i])
      return false;
  return a->batched == b->batched;
}

bool view_is_alias(const Fuse *f, int value) {
  for (; producer(f, value)->op->kind == OP_VIEW && !f->placed[value]; value = producer(f, value)->in[0])
    if (!alias_step(f, producer(f, value)))
      return false;
  return true;
}

/* Axis attributes count per-sample axes, negative ones from the end. */
static int axis_of(const Fuse *f, const Node *n, const char *name, int value) {
  const Shape *s = &value_at(f, value)->shape;
  int axis = (int)node_int(n, name);
  return (axis < 0 ? axis + s->rank : axis) + s->batched;
}

static bool view_place(Fuse *f, const Node *n, int output, const Place *from, Place *out) {
  int64_t dim[MAX_DIM];
  int value = n->out[output], rank = dims_of(f, value, dim);
  if (n->op == &op_reshape || n->op == &op_detach)
    return place_reshape(from, rank, dim, out);
  if (n->op == &op_transpose) {
    *out = place_swap(from, axis_of(f, n, "a", n->in[0]), axis_of(f, n, "b", n->in[0]));
    return true;
  }
  if (n->op == &op_slice) {
    int axis = axis_of(f, n, "axis", n->in[0]);
    *out = place_slice(from, axis, node_int(n, "from"), dim[axis]);
    return true;
  }
  if (n->op == &op_split) {
    *out = place_slice(from, rank - 1, output * dim[rank - 1], dim[rank - 1]);
    return true;
  }
  ensure(n->op == &op_expand);
  Group to = {.batched = value_at(f, value)->shape.batched, .n_dims = rank};
  for (int i = 0; i < rank; i++)
    to.dim[i] = dim[i];
  *out = place_broadcast(f, from, value_at(f, n->in[0])->shape.batched, &to);
  return true;
}

/* The layout of a value nobody has placed: contiguous; calls that may write strided put what will be
 * transposed at once into the transposed order, so that what follows is contiguous. */
static Place default_place(Fuse *f, int value) {
  int64_t dim[MAX_DIM];
  int n = dims_of(f, value, dim);
  Place p = contiguous(-1, n, dim);
  if (!producer(f, value)->op->strided_out || f->n_uses[value] == 0)
    return p;
  for (int i = 0; i < f->g->nodes.n; i++) {
    const Node *user = node_at(f, i);
    if (!f->here[i] || user->n_in == 0 || user->in[0] != value || user->op != &op_transpose)
      continue;
    int a = axis_of(f, user, "a", value), b = axis_of(f, user, "b", value);
    int64_t swapped[MAX_DIM];
    dims_of(f, user->out[0], swapped);
    Place t = contiguous(-1, n, swapped);
    return place_swap(&t, a, b);
  }
  return p;
}

bool place_of(Fuse *f, int value, Place *out) {
  value = f->same[value];
  const Node *n = producer(f, value);
  if (n->op->kind == OP_VIEW && !f->placed[value]) {
    Place from;
    return place_of(f, n->in[0], &from) && view_place(f, n, value_at(f, value)->output, &from, out);
  }
  if (!f->placed[value]) {
    f->root[value] = default_place(f, value);
    f->placed[value] = true;
  }
  *out = f->root[value];
  return true;
}

int new_buffer(Fuse *f, BufferKind kind, int value, int n, const int64_t *dim, Type type) {
  Buffer b = {.kind = kind, .value = value, .rank = n, .type = type, .elements = 1, .param = -1, .use = -1,
              .loss = -1, .region = -1, .first = -1, .last = -1};
  for (int i = 0; i < n; i++) {
    b.dim[i] = dim[i];
    b.elements *= dim[i];
  }
  push(&f->k->buffers, b);
  return f->k->buffers.n - 1;
}

Place place_value(Fuse *f, int value) {
  int root = view_root(f, f->same[value]);
  Place p;
  ensure(place_of(f, root, &p));
  f->needed[root] = true;
  if (p.buffer < 0) {
    /* the buffer's dims in memory order: the place's axes by falling stride */
    int order[MAX_DIM];
    int64_t dim[MAX_DIM];
    for (int i = 0; i < p.rank; i++)
      order[i] = i;
    for (int i = 1; i < p.rank; i++)
      for (int j = i; j > 0 && p.stride[order[j]] > p.stride[order[j - 1]]; j--) {
        int t = order[j];
        order[j] = order[j - 1], order[j - 1] = t;
      }
    for (int i = 0; i < p.rank; i++)
      dim[i] = p.dim[order[i]];
    const Node *n = producer(f, root);
    BufferKind kind = f->table[value_at(f, root)->node] ? BUFFER_TABLE : BUFFER_TEMPORARY;
    f->root[root].buffer = new_buffer(f, kind, root, p.rank, dim, value_at(f, root)->type);
    f->k->buffers.at[f->root[root].buffer].backward = n->serves >= 0;
  }
  Place out;
  if (!place_of(f, value, &out))
    BUG("value %d of %s has no place", value, f->g->name);
  return out;
}

static bool unit_stride(const Place *p, int axis) {
  return axis < 0 || p->dim[axis] == 1 || p->stride[axis] == 1;
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

bool place_claim(Fuse *f, int value, const Place *target) {
  Place p = *target;
  for (;;) {
    const Node *n = producer(f, value);
    if (f->placed[value] || !f->here[value_at(f, value)->node] || f->table[value_at(f, value)->node])
      return false;
    if (n->op->kind != OP_VIEW)
      break;
    int64_t dim[MAX_DIM];
    int rank = dims_of(f, n->in[0], dim);
    if (n->op == &op_reshape || n->op == &op_detach) {
      if (!place_reshape(&p, rank, dim, &p))
        return false;
    } else if (n->op == &op_transpose) {
      p = place_swap(&p, axis_of(f, n, "a", n->in[0]), axis_of(f, n, "b", n->in[0]));
    } else {
      return false;
    }
    value = n->in[0];
  }
  const Node *n = producer(f, value);
  bool strided = n->op->strided_out && (unit_stride(&p, p.rank - 1) || unit_stride(&p, p.rank - 2));
  if (n->op->kind == OP_SOURCE || n->op->kind == OP_JOIN)
    return false;
  if (((n->op->kind == OP_CALL && !strided) || n->op->kind == OP_SUM_TO) && !is_contiguous(&p))
    return false;
  f->root[value] = p;
  f->placed[value] = true;
  f->needed[value] = true;
  return true;
}

/* Strides of a value in an iteration space it broadcasts to. */
Place place_broadcast(const Fuse *f, const Place *from, bool batched, const Group *to) {
  (void)f;
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
