/* Which forward values stand in memory until their backward pass, and which the backward kernels
 * recompute: a pointwise value is recomputed when what it is made from is kept anyway, or takes no more
 * room than it would. */
#include "fuse/internal.h"

static double bytes_of(const Fuse *f, int value) {
  int64_t dim[MAX_DIM];
  double bytes = 4;
  for (int i = dims_of(f, value, dim) - 1; i >= 0; i--)
    bytes *= (double)dim[i];
  return bytes;
}

/* Nothing to decide: parameters, inputs, constants, tables, and what was received stand anyway. */
static bool stands_anyway(const Fuse *f, int root) {
  int node = value_at(f, root)->node;
  return node_at(f, node)->op->kind == OP_SOURCE || f->table[node] || !f->here[node] ||
         node_at(f, node)->serves >= 0 || f->kept[root];
}

static bool can_recompute(const Fuse *f, int root) {
  int node = value_at(f, root)->node;
  return node_at(f, node)->op->kind == OP_POINTWISE && f->merged[node] < 0;
}

static void keep(Fuse *f, int root) {
  if (stands_anyway(f, root))
    return;
  Place p = place_value(f, root);
  f->kept[root] = true;
  Buffer *b = &f->k->buffers.at[p.buffer];
  if (b->kind == BUFFER_TEMPORARY)
    b->kind = BUFFER_SAVED;
}

/* Values behind `value` that would have to be kept so that it can be recomputed. */
static void leaves_of(const Fuse *f, int value, Ints *leaves) {
  const Node *n = producer(f, value);
  for (int i = 0; i < n->n_in; i++) {
    int root = view_root(f, n->in[i]);
    if (stands_anyway(f, root))
      continue;
    bool inside = can_recompute(f, root) && view_is_alias(f, n->in[i]) && !f->needed[root] &&
                  !(uses_index(producer(f, root)->op) && bytes_of(f, root) != bytes_of(f, value));
    if (inside || f->inlined[root]) {
      leaves_of(f, root, leaves);
      continue;
    }
    bool seen = false;
    for (int j = 0; j < leaves->n; j++)
      seen |= leaves->at[j] == root;
    if (!seen)
      push(leaves, root);
  }
}

static void mark_inlined(Fuse *f, int value) {
  f->inlined[value] = true;
  const Node *n = producer(f, value);
  for (int i = 0; i < n->n_in; i++) {
    int root = view_root(f, n->in[i]);
    if (!stands_anyway(f, root) && !f->inlined[root])
      mark_inlined(f, root);
  }
}

static void decide(Fuse *f, int root) {
  Ints leaves = {0};
  double extra = 0;
  leaves_of(f, root, &leaves);
  for (int i = 0; i < leaves.n; i++)
    extra += bytes_of(f, leaves.at[i]);
  /* 5/4: an array that forward writes anyway beats one of its own, even with a scalar a row beside it */
  double limit = f->needed[root] ? 0 : bytes_of(f, root) * 5 / 4;
  if (extra > limit) {
    keep(f, root);
    return;
  }
  for (int i = 0; i < leaves.n; i++)
    keep(f, leaves.at[i]);
  mark_inlined(f, root);
}

void decide_kept(Fuse *f) {
  bool *candidate = alloc((size_t)f->g->values.n);
  for (int i = 0; i < f->items[BACKWARD].n; i++) {
    const Item *it = &f->items[BACKWARD].at[i];
    const Node *n = node_at(f, it->node);
    int n_in = it->kind == ITEM_FILL ? 0 : it->kind == ITEM_COPY ? 1 : n->n_in;
    const int *in = it->kind == ITEM_COPY ? &it->value : n->in;
    for (int j = 0; j < n_in; j++) {
      int root = view_root(f, in[j]);
      if (stands_anyway(f, root))
        continue;
      bool loop = it->kind != ITEM_NODE || is_loop_node(n);
      int64_t a[MAX_DIM], b[MAX_DIM];
      bool same_space = it->kind == ITEM_NODE && dims_of(f, root, a) == dims_of(f, n->out[0], b) &&
                        bytes_of(f, root) == bytes_of(f, n->out[0]);
      if (loop && view_is_alias(f, in[j]) && can_recompute(f, root) &&
          (same_space || !uses_index(producer(f, root)->op)))
        candidate[root] = true;
      else
        keep(f, root);
    }
  }
  for (int v = 0; v < f->g->values.n; v++)
    if (candidate[v] && !stands_anyway(f, v) && !f->inlined[v])
      decide(f, v);
}
