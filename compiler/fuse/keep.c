/* Which forward values stand in memory until their backward pass, and which the backward kernels
 * recompute: a pointwise value is recomputed when what it is made from is kept anyway, or takes no more
 * room than it would. */
#include "fuse/internal.h"
#include "ops/expression.h"

int space_value(const Node *n) {
  return n->op->kind == OP_REDUCE || n->op->kind == OP_SUM_TO ? n->in[0] : n->out[0];
}

/* A number in a row counts within it: only a row of one looks the same when it is repeated. */
bool counts_elements(const Fuse *f, const Node *n) {
  const Shape *s = &value_at(f, n->out[0])->shape;
  return n->op->kind == OP_POINTWISE &&
         (op_reads_words(n->op, 1u << WORD_ELEMENT) ||
          (op_reads_words(n->op, 1u << WORD_COLUMN) && s->rank > 0 && s->dim[s->rank - 1] == 1));
}

/* inlined: through what is known to be inlined; else through whatever may come to be. */
static void find_counts(Fuse *f, bool inlined) {
  for (int i = 0; i < f->g->nodes.n; i++) {
    const Node *n = node_at(f, i);
    bool counts = counts_elements(f, n);
    for (int j = 0; j < n->n_in && n->op->kind == OP_POINTWISE; j++) {
      int root = view_root(f, n->in[j]);
      counts |= f->counts[root] && (f->inlined[root] || !inlined);
    }
    f->counts[n->out[0]] = counts;
  }
}

static bool same_shape(const Fuse *f, int a, int b) {
  return shape_equal(&value_at(f, a)->shape, &value_at(f, b)->shape);
}

double bytes_of(const Fuse *f, int value) {
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
  f->inlined[root] = false;
  Buffer *b = &f->k->buffers.at[p.buffer];
  if (b->kind == BUFFER_TEMPORARY)
    b->kind = BUFFER_SAVED;
}

/* One value a row, read by more than one a row, or the same for all samples, read by each: as cheap to keep as
 * what it is made from. */
static bool is_repeated(const Fuse *f, int root, int reader) {
  const Shape *s = &value_at(f, root)->shape, *r = &value_at(f, reader)->shape;
  if (s->batched != r->batched)
    return true;
  return s->rank > 0 && r->rank > 0 && s->dim[s->rank - 1] == 1 && r->dim[r->rank - 1] > 1;
}

/* expanded[value] == id: what stands behind it is among the leaves. */
typedef struct Leaves { Ints at; int *expanded, id; } Leaves;

/* Values behind `value` that would have to be kept so that it can be recomputed. */
static void leaves_of(const Fuse *f, int value, Leaves *leaves) {
  const Node *n = producer(f, value);
  for (int i = 0; i < n->n_in; i++) {
    int root = view_root(f, n->in[i]);
    if (stands_anyway(f, root))
      continue;
    bool wide = f->counts[root] && !same_shape(f, root, value);
    bool inside = can_recompute(f, root) && !f->needed[root] && !is_repeated(f, root, value);
    if (!wide && view_is_alias(f, n->in[i]) && (inside || f->inlined[root])) {
      if (leaves->expanded[root] != leaves->id) {
        leaves->expanded[root] = leaves->id;
        leaves_of(f, root, leaves);
      }
      continue;
    }
    bool seen = false;
    for (int j = 0; j < leaves->at.n; j++)
      seen |= leaves->at.at[j] == root;
    if (!seen)
      push(&leaves->at, root);
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

static void decide(Fuse *f, int root, int *expanded) {
  Leaves leaves = {.expanded = expanded, .id = root + 1};
  double extra = 0;
  leaves_of(f, root, &leaves);
  for (int i = 0; i < leaves.at.n; i++)
    extra += bytes_of(f, leaves.at.at[i]);
  /* 5/4: an array that forward writes anyway beats one of its own, even with a scalar a row beside it */
  const Shape *s = &value_at(f, root)->shape;
  bool scalar = s->rank > 0 && s->dim[s->rank - 1] == 1;
  double limit = f->needed[root] || scalar ? 0 : bytes_of(f, root) * 5 / 4;
  if (extra > limit && !f->inlined[root]) {
    keep(f, root);
    return;
  }
  for (int i = 0; i < leaves.at.n; i++)
    keep(f, leaves.at.at[i]);
  mark_inlined(f, root);
}

/* A loop of the backward pass over the elements of `space`, or a node that such loops inline, reads the value. */
static void consider(Fuse *f, bool *candidate, int space, int value, bool loop) {
  int root = view_root(f, value);
  if (stands_anyway(f, root))
    return;
  bool for_all = !value_at(f, root)->shape.batched && value_at(f, space)->shape.batched;
  if (loop && view_is_alias(f, value) && can_recompute(f, root) && (!for_all || f->inlined[root]) &&
      (!f->counts[root] || same_shape(f, root, space)))
    candidate[root] = true;
  else
    keep(f, root);
}

void decide_kept(Fuse *f) {
  bool *candidate = alloc((size_t)f->g->values.n);
  int *expanded = alloc(sizeof(int) * (size_t)f->g->values.n);
  for (int i = 0; i < f->items[BACKWARD].n; i++) {
    const Item *it = &f->items[BACKWARD].at[i];
    const Node *n = node_at(f, it->node);
    if (it->kind == ITEM_COPY)
      consider(f, candidate, it->value, it->value, !it->through);
    for (int j = 0; it->kind == ITEM_NODE && j < n->n_in; j++)
      consider(f, candidate, space_value(n), n->in[j], is_loop_node(n));
  }
  for (int i = 0; i < f->g->nodes.n; i++)
    for (int j = 0; node_at(f, i)->serves >= 0 && f->here[i] && f->inlined[node_at(f, i)->out[0]] &&
                    j < node_at(f, i)->n_in; j++)
      consider(f, candidate, node_at(f, i)->out[0], node_at(f, i)->in[j], true);
  for (int v = 0; v < f->g->values.n; v++)
    if (candidate[v] && !stands_anyway(f, v))
      decide(f, v, expanded);
  find_counts(f, true);
}

static void mark_roots(const Fuse *f, const Ints *values, bool *mark) {
  for (int i = 0; i < values->n; i++)
    if (values->at[i] >= 0)
      mark[view_root(f, values->at[i])] = true;
}

/* Nodes that read nothing of their own pass, but only what stands anyway or comes from the forward pass,
 * and that only loops read, element by element: whoever reads them computes them, so that they neither take
 * memory nor tie loops together. */
void find_inlined(Fuse *f) {
  bool *read_whole = alloc((size_t)f->g->values.n);
  find_counts(f, false);
  for (int i = 0; i < f->g->nodes.n; i++)
    for (int j = 0; f->here[i] && j < node_at(f, i)->n_in; j++) {
      const Node *n = node_at(f, i);
      bool part = (is_loop_node(n) && f->merged[i] < 0) || (n->op->kind == OP_VIEW && alias_step(f, n));
      int root = view_root(f, n->in[j]);
      read_whole[root] |= !part || (f->counts[root] && !same_shape(f, root, space_value(n)));
    }
  for (int i = 0; i < f->g->figures.n; i++)
    read_whole[view_root(f, f->g->figures.at[i].value)] = true;
  for (int i = 0; i < f->g->params.n; i++)
    mark_roots(f, &f->g->params.at[i].gradients, read_whole);
  if (f->first_piece > 0)
    mark_roots(f, &f->p->at[f->first_piece].gradients, read_whole);
  if (f->end_piece < f->p->n)
    mark_roots(f, &f->p->at[f->end_piece].crossing, read_whole);
  for (int i = 0; i < f->g->nodes.n; i++) {
    const Node *n = node_at(f, i);
    if (!f->here[i] || f->table[i] || n->op->kind != OP_POINTWISE || read_whole[n->out[0]] ||
        (n->op->expensive && n->serves < 0))
      continue;
    bool available = true;
    for (int j = 0; j < n->n_in; j++) {
      int root = view_root(f, n->in[j]), from = value_at(f, root)->node;
      bool stands = node_at(f, from)->op->kind == OP_SOURCE || f->table[from];
      bool of_forward = n->serves >= 0 && node_at(f, from)->serves < 0;
      available &= stands || of_forward || f->inlined[root];
    }
    f->inlined[n->out[0]] = available;
  }
  find_again(f, read_whole);
}
