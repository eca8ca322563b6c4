/* Decides which values loops rematerialise, that is, recompute instead of reading. First come values without
 * operands from the loop's own pass. Second come cheap values read by several loops that sums over the batch
 * separate. Batch normalisation reads x - mean for the sum of squares, for scaling, and in the backward pass.
 * There x is in memory as the result of a call, so storing x - mean costs more than subtracting again. */
#include "fuse/internal.h"
#include "ops/expression.h"

/* Terms with $i need a loop over their own shape. Terms with $j need it only for rows of one element, because a
 * loop with longer rows repeats these. */
bool counts_elements(const Graph *g, const Node *n) {
  const Shape *s = &g->values.at[n->out[0]].shape;
  return n->op->kind == OP_POINTWISE &&
         (op_reads_words(n->op, 1u << WORD_ELEMENT) ||
          (op_reads_words(n->op, 1u << WORD_COLUMN) && s->rank > 0 && s->dim[s->rank - 1] == 1));
}

void find_counts(const Fuse *f, const bool *through, bool *counts) {
  for (int i = 0; i < f->survey->nodes.n; i++) {
    const Node *n = node_at(f, f->survey->nodes.at[i]);
    bool any = counts_elements(f->g, n);
    for (int j = 0; j < n->n_in && n->op->kind == OP_POINTWISE; j++) {
      int root = view_root(f, n->in[j]);
      any |= counts[root] && (!through || through[root]);
    }
    counts[n->out[0]] = any;
  }
}

/* ---- values without operands of their own pass -------------------------------------------------- */

static void mark_roots(const Fuse *f, const Ints *values, bool *mark) {
  for (int i = 0; i < values->n; i++)
    if (values->at[i] >= 0)
      mark[view_root(f, values->at[i])] = true;
}

/* By value: a node other than a loop over its elements reads it, or it leaves the stage. */
static const bool *find_read_whole(const Fuse *f, const Remat *r) {
  bool *whole = alloc((size_t)f->g->values.n);
  for (int k = 0; k < f->survey->nodes.n; k++) {
    int i = f->survey->nodes.at[k];
    const Node *n = node_at(f, i);
    for (int j = 0; j < n->n_in; j++) {
      bool part = (is_loop_node(n) && f->biases->call[i] < 0) || (n->op->kind == OP_VIEW && alias_step(f, n));
      int root = view_root(f, n->in[j]);
      bool same = shape_equal(&value_at(f, root)->shape, &value_at(f, space_value(n))->shape);
      whole[root] |= !part || (r->counts[root] && !same);
    }
  }
  for (int i = 0; i < f->g->figures.n; i++)
    whole[view_root(f, f->g->figures.at[i].value)] = true;
  for (int i = 0; i < f->g->params.n; i++)
    mark_roots(f, &f->g->params.at[i].gradients, whole);
  if (f->first_piece > 0)
    mark_roots(f, &f->p->at[f->first_piece].gradients, whole);
  if (f->end_piece < f->p->n)
    mark_roots(f, &f->p->at[f->end_piece].crossing, whole);
  return whole;
}

/* Whether the node's operands are in memory anyway or come from the forward pass. */
static bool is_available(const Fuse *f, const Remat *r, const Node *n) {
  for (int j = 0; j < n->n_in; j++) {
    int root = view_root(f, n->in[j]), from = value_at(f, root)->node;
    bool stands = node_at(f, from)->op->kind == OP_SOURCE || f->survey->table[from];
    bool of_forward = n->serves >= 0 && node_at(f, from)->serves < 0;
    if (!stands && !of_forward && !r->value[root])
      return false;
  }
  return true;
}

/* Available nodes that only loops read elementwise: each reader recomputes them, so they need no memory and do not
 * order loops. */
static void find_available(const Fuse *f, Remat *r, const bool *read_whole) {
  for (int k = 0; k < f->survey->nodes.n; k++) {
    int i = f->survey->nodes.at[k];
    const Node *n = node_at(f, i);
    if (!f->survey->table[i] && n->op->kind == OP_POINTWISE && !read_whole[n->out[0]] &&
        !(n->op->expensive && n->serves < 0))
      r->value[n->out[0]] = is_available(f, r, n);
  }
}

/* ---- values separated by sums over the batch ---------------------------------------------------- */

typedef struct Search {
  const Fuse *f;
  Remat *remat;
  bool *may;     /* by value: can be rematerialised */
  Ints *readers; /* by value: nodes of this stage that read it, including through views */
  int *seen, id; /* seen[value] == id: already visited */
} Search;

/* The operands of a value when everything possible is rematerialised. */
typedef struct Leaves {
  double bytes;   /* of per-sample values */
  bool statistic; /* some operand is a statistic */
} Leaves;

static void add_leaves(Search *s, int value, Leaves *b) {
  const Fuse *f = s->f;
  const Node *n = producer(f, value);
  for (int i = 0; i < n->n_in; i++) {
    int root = view_root(f, n->in[i]);
    if (s->seen[root] == s->id)
      continue;
    s->seen[root] = s->id;
    if (s->may[root] || s->remat->value[root])
      add_leaves(s, root, b);
    else if (value_at(f, root)->shape.batched)
      b->bytes += bytes_of(f, root);
    b->statistic |= f->facts->statistic[root];
  }
}

static Leaves leaves(Search *s, int value) {
  Leaves b = {0};
  s->id++;
  add_leaves(s, value, &b);
  return b;
}

static bool only_for_sums(const Search *s, int value) {
  for (int i = 0; i < s->readers[value].n; i++) {
    const Node *n = node_at(s->f, s->readers[value].at[i]);
    if (n->op->kind != OP_SUM_TO && !s->may[n->out[0]])
      return false;
  }
  return true;
}

/* Whether rematerialising costs less than storing. One read for another is free; two reads for one pay off if at
 * most two loops read the value, because the store is saved. */
static bool pays(Search *s, int value) {
  Leaves b = leaves(s, value);
  double own = bytes_of(s->f, value);
  if (b.bytes <= own * 5 / 4)
    return true;
  return b.bytes <= own * 2 && (b.statistic ? s->f->facts->n_uses[value] <= 2 : only_for_sums(s, value));
}

/* Too many operands: stores the operands instead, except those that depend on statistics. If all depend on
 * statistics, the value itself is stored. */
static void refuse(Search *s, int value) {
  const Node *n = producer(s->f, value);
  bool parted = false;
  for (int i = 0; i < n->n_in; i++) {
    int root = view_root(s->f, n->in[i]);
    if (s->may[root] && !s->remat->value[root] && !leaves(s, root).statistic)
      s->may[root] = false, parted = true;
  }
  if (!parted)
    s->may[value] = false;
}

static void mark(Search *s, int value) {
  const Node *n = producer(s->f, value);
  s->remat->value[value] = true;
  for (int i = 0; i < n->n_in; i++) {
    int root = view_root(s->f, n->in[i]);
    if (s->may[root] && !s->remat->value[root])
      mark(s, root);
  }
}

static void find_readers(Search *s, const bool *read_whole) {
  const Fuse *f = s->f;
  for (int k = 0; k < f->survey->nodes.n; k++) {
    int i = f->survey->nodes.at[k];
    const Node *n = node_at(f, i);
    s->may[n->out[0]] = n->op->kind == OP_POINTWISE && !n->op->expensive && !f->survey->table[i] &&
                        f->biases->call[i] < 0 && value_at(f, n->out[0])->shape.batched && !read_whole[n->out[0]];
    for (int j = 0; n->op->kind != OP_VIEW && j < n->n_in; j++) {
      int root = view_root(f, n->in[j]), from = value_at(f, root)->node;
      push(&s->readers[root], i);
      s->may[root] &= !f->survey->here[from] || region_of(f, from) == region_of(f, i); /* regions stay alike */
    }
  }
}

static void find_cheap(const Fuse *f, Remat *r, const bool *read_whole) {
  size_t values = (size_t)f->g->values.n;
  const Ints *here = &f->survey->values;
  Search s = {.f = f,
              .remat = r,
              .may = alloc(values),
              .readers = alloc(values * sizeof(Ints)),
              .seen = alloc(values * sizeof(int))};
  find_readers(&s, read_whole);
  for (bool changed = true; changed;) {
    changed = false;
    for (int i = 0; i < here->n; i++)
      if (s.may[here->at[i]] && !r->value[here->at[i]] && !pays(&s, here->at[i])) {
        refuse(&s, here->at[i]);
        changed = true;
      }
  }
  for (int i = 0; i < here->n; i++)
    if (s.may[here->at[i]] && !r->value[here->at[i]] && leaves(&s, here->at[i]).statistic)
      mark(&s, here->at[i]);
}

const Remat *rematerialise(const Fuse *f) {
  size_t values = (size_t)f->g->values.n;
  Remat *r = alloc(sizeof *r);
  *r = (Remat){.value = alloc(values), .counts = alloc_copy(f->facts->counts, values)};
  find_counts(f, NULL, r->counts);
  const bool *read_whole = find_read_whole(f, r);
  find_available(f, r, read_whole);
  find_cheap(f, r, read_whole);
  return r;
}
