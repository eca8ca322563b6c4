/* Decides which forward values are saved until backward, and which the backward kernels rematerialise. A pointwise
 * value is rematerialised if its operands are saved anyway, or need no more memory than it. */
#include "fuse/internal.h"

typedef struct Saving {
  const Fuse *f;
  Remat *remat;    /* of the backward pass */
  bool *saved;     /* by value */
  bool *candidate; /* by value: backward loops read it and could compute it */
  int *expanded;   /* by value: visit number of leaves_of */
} Saving;

static bool same_shape(const Fuse *f, int a, int b) {
  return shape_equal(&value_at(f, a)->shape, &value_at(f, b)->shape);
}

/* Whether the value is in memory anyway: parameters, inputs, constants, tables, received values. */
static bool stands_anyway(const Saving *s, int root) {
  const Fuse *f = s->f;
  int node = value_at(f, root)->node;
  return node_at(f, node)->op->kind == OP_SOURCE || f->survey->table[node] || !f->survey->here[node] ||
         node_at(f, node)->serves >= 0 || s->saved[root];
}

static bool can_rematerialise(const Fuse *f, int root) {
  int node = value_at(f, root)->node;
  return node_at(f, node)->op->kind == OP_POINTWISE && f->biases->call[node] < 0;
}

static void save(Saving *s, int root) {
  if (stands_anyway(s, root))
    return;
  place_value(s->f, root);
  s->saved[root] = true;
  s->remat->value[root] = false;
}

/* Whether the reader broadcasts one value per row, or one value for all samples. Saving it costs as little as
 * saving its operands. */
static bool is_repeated(const Fuse *f, int root, int reader) {
  const Shape *s = &value_at(f, root)->shape, *r = &value_at(f, reader)->shape;
  if (s->batched != r->batched)
    return true;
  return s->rank > 0 && r->rank > 0 && s->dim[s->rank - 1] == 1 && r->dim[r->rank - 1] > 1;
}

/* Collects the unsaved values that rematerialising `value` would need; `id` numbers the visit. expanded[v] == id:
 * v's operands are already in the list. */
static void leaves_of(Saving *s, int value, int id, Ints *leaves) {
  const Fuse *f = s->f;
  const Node *n = producer(f, value);
  for (int i = 0; i < n->n_in; i++) {
    int root = view_root(f, n->in[i]);
    if (stands_anyway(s, root))
      continue;
    bool wide = s->remat->counts[root] && !same_shape(f, root, value);
    bool inside = can_rematerialise(f, root) && !f->places->needed[root] && !is_repeated(f, root, value);
    if (!wide && view_is_alias(f, n->in[i]) && (inside || s->remat->value[root])) {
      if (s->expanded[root] != id) {
        s->expanded[root] = id;
        leaves_of(s, root, id, leaves);
      }
      continue;
    }
    bool seen = false;
    for (int j = 0; j < leaves->n; j++)
      seen |= leaves->at[j] == root;
    if (!seen)
      push(leaves, root);
  }
}

static void mark(Saving *s, int value) {
  s->remat->value[value] = true;
  const Node *n = producer(s->f, value);
  for (int i = 0; i < n->n_in; i++) {
    int root = view_root(s->f, n->in[i]);
    if (!stands_anyway(s, root) && !s->remat->value[root])
      mark(s, root);
  }
}

static void decide(Saving *s, int root) {
  Ints leaves = {0};
  double extra = 0;
  leaves_of(s, root, root + 1, &leaves);
  for (int i = 0; i < leaves.n; i++)
    extra += bytes_of(s->f, leaves.at[i]);
  /* 5/4: an array that forward writes anyway beats a separate one, even with an additional scalar per row */
  const Shape *shape = &value_at(s->f, root)->shape;
  bool scalar = shape->rank > 0 && shape->dim[shape->rank - 1] == 1;
  double limit = s->f->places->needed[root] || scalar ? 0 : bytes_of(s->f, root) * 5 / 4;
  if (extra > limit && !s->remat->value[root]) {
    save(s, root);
    return;
  }
  for (int i = 0; i < leaves.n; i++)
    save(s, leaves.at[i]);
  mark(s, root);
}

/* Considers a value that a backward loop over the elements of `space`, or a node rematerialised there, reads. */
static void consider(Saving *s, int space, int value, bool loop) {
  const Fuse *f = s->f;
  int root = view_root(f, value);
  if (stands_anyway(s, root))
    return;
  bool for_all = !value_at(f, root)->shape.batched && value_at(f, space)->shape.batched;
  if (loop && view_is_alias(f, value) && can_rematerialise(f, root) && (!for_all || s->remat->value[root]) &&
      (!s->remat->counts[root] || same_shape(f, root, space)))
    s->candidate[root] = true;
  else
    save(s, root);
}

const Remat *save_values(const Fuse *f) {
  size_t values = (size_t)f->g->values.n;
  const Remat *forward = f->remat[FORWARD];
  Remat *remat = alloc(sizeof *remat);
  *remat = (Remat){alloc_copy(forward->value, values), alloc_copy(forward->counts, values)};
  Saving s = {.f = f,
              .remat = remat,
              .saved = alloc(values),
              .candidate = alloc(values),
              .expanded = alloc(sizeof(int) * values)};
  for (int i = 0; i < f->items->of[BACKWARD].n; i++) {
    const Item *it = &f->items->of[BACKWARD].at[i];
    const Node *n = node_at(f, it->node);
    if (it->kind == ITEM_COPY)
      consider(&s, it->value, it->value, !it->through);
    for (int j = 0; it->kind == ITEM_NODE && j < n->n_in; j++)
      consider(&s, space_value(n), n->in[j], is_loop_node(n));
  }
  for (int i = 0; i < f->survey->nodes.n; i++) {
    const Node *n = node_at(f, f->survey->nodes.at[i]);
    for (int j = 0; n->serves >= 0 && remat->value[n->out[0]] && j < n->n_in; j++)
      consider(&s, n->out[0], n->in[j], true);
  }
  for (int i = 0; i < f->survey->values.n; i++)
    if (s.candidate[f->survey->values.at[i]] && !stands_anyway(&s, f->survey->values.at[i]))
      decide(&s, f->survey->values.at[i]);
  find_counts(f, remat->value, remat->counts);
  return remat;
}
