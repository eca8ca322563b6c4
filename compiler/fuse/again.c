/* What loops compute again rather than read: a cheap value that several loops need because sums over the
 * batch part them. Batch normalisation reads x - mean to sum its squares, once more to scale it, and in the
 * backward pass; x stands in memory anyway, as the result of a call, and to store x - mean beside it costs
 * more than to subtract. */
#include "fuse/internal.h"

typedef struct Again {
  Fuse *f;
  bool *may;       /* by value: can be computed again */
  bool *statistic; /* by value: no sample's, but computed from samples, by a loop of its own */
  Ints *readers;   /* by value: nodes of this stage that read it, also through views */
  int *seen, id;   /* seen[value] == id: looked at already */
} Again;

/* What a value is computed from when all that may be computed again is. */
typedef struct Behind {
  double bytes;   /* of values of each sample */
  bool statistic; /* among the others */
} Behind;

static void look_behind(Again *a, int value, Behind *b) {
  const Fuse *f = a->f;
  const Node *n = producer(f, value);
  for (int i = 0; i < n->n_in; i++) {
    int root = view_root(f, n->in[i]);
    if (a->seen[root] == a->id)
      continue;
    a->seen[root] = a->id;
    if (a->may[root] || f->inlined[root])
      look_behind(a, root, b);
    else if (value_at(f, root)->shape.batched)
      b->bytes += bytes_of(f, root);
    b->statistic |= a->statistic[root];
  }
}

static Behind behind(Again *a, int value) {
  Behind b = {0};
  a->id++;
  look_behind(a, value, &b);
  return b;
}

static bool only_for_sums(const Again *a, int value) {
  for (int i = 0; i < a->readers[value].n; i++) {
    const Node *n = node_at(a->f, a->readers[value].at[i]);
    if (n->op->kind != OP_SUM_TO && !a->may[n->out[0]])
      return false;
  }
  return true;
}

/* One array in the place of another is free; two for one save the store, if only two loops read them. */
static bool pays(Again *a, int value) {
  Behind b = behind(a, value);
  double own = bytes_of(a->f, value);
  if (b.bytes <= own * 5 / 4)
    return true;
  return b.bytes <= own * 2 && (b.statistic ? a->f->n_uses[value] <= 2 : only_for_sums(a, value));
}

/* What it is made of is stored, where no statistic is in that; else it is itself. */
static void refuse(Again *a, int value) {
  const Node *n = producer(a->f, value);
  bool parted = false;
  for (int i = 0; i < n->n_in; i++) {
    int root = view_root(a->f, n->in[i]);
    if (a->may[root] && !a->f->inlined[root] && !behind(a, root).statistic)
      a->may[root] = false, parted = true;
  }
  if (!parted)
    a->may[value] = false;
}

static void mark(Again *a, int value) {
  const Node *n = producer(a->f, value);
  a->f->inlined[value] = true;
  for (int i = 0; i < n->n_in; i++) {
    int root = view_root(a->f, n->in[i]);
    if (a->may[root] && !a->f->inlined[root])
      mark(a, root);
  }
}

static void find_statistics(Again *a) {
  const Graph *g = a->f->g;
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *n = &g->nodes.at[i];
    bool from_samples = false;
    for (int j = 0; j < n->n_in; j++)
      from_samples |= g->values.at[n->in[j]].shape.batched || a->statistic[n->in[j]];
    for (int j = 0; j < n->n_out; j++)
      a->statistic[n->out[j]] = from_samples && !g->values.at[n->out[j]].shape.batched;
  }
}

/* read_whole: by value, something reads it that is no loop over its elements. */
void find_again(Fuse *f, const bool *read_whole) {
  size_t values = (size_t)f->g->values.n;
  Again a = {.f = f, .may = alloc(values), .statistic = alloc(values), .readers = alloc(values * sizeof(Ints)),
             .seen = alloc(values * sizeof(int))};
  find_statistics(&a);
  for (int i = 0; i < f->g->nodes.n; i++) {
    const Node *n = node_at(f, i);
    a.may[n->out[0]] = f->here[i] && n->op->kind == OP_POINTWISE && !n->op->expensive && !f->table[i] &&
                       f->merged[i] < 0 && value_at(f, n->out[0])->shape.batched && !read_whole[n->out[0]];
    for (int j = 0; f->here[i] && n->op->kind != OP_VIEW && j < n->n_in; j++) {
      int root = view_root(f, n->in[j]), from = value_at(f, root)->node;
      push(&a.readers[root], i);
      a.may[root] &= !f->here[from] || region_of(f, from) == region_of(f, i); /* regions stay alike */
    }
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (int v = 0; v < f->g->values.n; v++)
      if (a.may[v] && !f->inlined[v] && !pays(&a, v)) {
        refuse(&a, v);
        changed = true;
      }
  }
  for (int v = 0; v < f->g->values.n; v++)
    if (a.may[v] && !f->inlined[v] && behind(&a, v).statistic)
      mark(&a, v);
}
