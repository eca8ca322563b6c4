/* From groups to kernels: terms, passes over the row, merged dims. */
#include <string.h>

#include "fuse/internal.h"
#include "ops/expression.h"

enum { WIDEST_ROW_BUFFER = 1 << 16 }; /* elements: they stand on a thread's stack */

/* The term of every value met in the kernel under construction; valid where stamp[value] == its id. */
typedef struct Builder {
  Fuse *f;
  Direction d;
  int group;
  Kernel *k;
  int *term, *stamp, id;
} Builder;

static int bind(Builder *b, int value, int term) {
  if (value >= 0) {
    b->term[value] = term;
    b->stamp[value] = b->id;
  }
  return term;
}

static int add_term(Builder *b, int value, Term t) {
  push(&b->k->terms, t);
  return bind(b, value, b->k->terms.n - 1);
}

static const Group *group_at(const Builder *b) { return &b->f->groups[b->d].at[b->group]; }

static bool row_of_one(const Builder *b) {
  const Group *s = group_at(b);
  return s->dim[s->n_dims - 1] == 1;
}

static int load_from(Builder *b, int value, const Place *from) {
  const Value *v = value_at(b->f, value);
  Term t = {.kind = TERM_LOAD, .name = b->f->name[value]};
  t.place = place_broadcast(b->f, from, v->shape.batched, group_at(b));
  t.scalar = t.place.stride[t.place.rank - 1] == 0 && !row_of_one(b);
  return add_term(b, -1, t);
}

static int load_term(Builder *b, int value) {
  Place from = place_value(b->f, value);
  return bind(b, value, load_from(b, value, &from));
}

static int term_of(Builder *b, int value);

static int op_term(Builder *b, int node, int value) {
  const Node *n = node_at(b->f, node);
  Term t = {.kind = TERM_OP, .op = n->op, .node = n, .n_in = n->n_in, .name = b->f->name[value]};
  ensure(n->n_in <= 4);
  bool scalar = !op_reads_words(n->op, COUNTING_WORDS);
  for (int i = 0; i < n->n_in; i++)
    t.in[i] = op_reads_operand(n->op, i) ? term_of(b, n->in[i]) : -1;
  for (int i = 0; i < n->n_in; i++)
    if (t.in[i] < 0)
      t.in[i] = t.in[0]; /* stands where nobody looks */
    else
      scalar &= b->k->terms.at[t.in[i]].scalar;
  t.scalar = scalar;
  return add_term(b, value, t);
}

static int term_of(Builder *b, int value) {
  Fuse *f = b->f;
  value = f->same[value];
  if (b->stamp[value] == b->id)
    return b->term[value];
  int root = view_root(f, value), node = value_at(f, root)->node;
  const Node *n = node_at(f, node);
  bool alias = view_is_alias(f, value);
  double number;
  if (n->op->constant && n->op->constant(n, &number))
    return add_term(b, value, (Term){.kind = TERM_CONSTANT, .constant = number, .scalar = true,
                                     .name = f->name[root]});
  if (alias && n->op->kind == OP_SOURCE && n->op->source == SOURCE_NONE)
    return op_term(b, node, value);
  if (alias && root != value && b->stamp[root] == b->id)
    return b->term[root];
  if (alias && f->inlined[root])
    return op_term(b, node, root);
  return load_term(b, value);
}

static void add_store(Builder *b, int term, Place place, bool accumulate) {
  Store s = {.term = term, .place = place, .accumulate = accumulate};
  push(&b->k->stores, s);
}

/* A row of one is its own sum and maximum: the kernel's rows may be longer, the value then one a row. */
static int reduce_term(Builder *b, const Node *n, const Op *op, int value) {
  int in = term_of(b, n->in[0]);
  const Shape *s = &value_at(b->f, n->in[0])->shape;
  if (s->rank > 0 && s->dim[s->rank - 1] == 1)
    return bind(b, value, in);
  return add_term(b, value, (Term){.kind = TERM_REDUCE, .op = op, .n_in = 1, .in = {in}, .scalar = true,
                                   .name = b->f->name[n->out[0]]});
}

/* Sums over broadcast axes: over the last axis within the row, over others by accumulating. */
static void sum_to_store(Builder *b, const Node *n) {
  Fuse *f = b->f;
  int out = n->out[0];
  const Group *s = group_at(b);
  Place to = place_value(f, out);
  Place p = place_broadcast(f, &to, value_at(f, out)->shape.batched, s);
  int last = s->n_dims - 1;
  int term = p.stride[last] == 0 && s->dim[last] > 1 ? reduce_term(b, n, &op_sum, -1) : term_of(b, n->in[0]);
  bool summed = s->sums != 0 || f->k->buffers.at[p.buffer].kind == BUFFER_ACCUMULATOR;
  bool whole = true;
  for (int i = 0; i < last; i++)
    whole &= !(p.stride[i] == 0 && s->dim[i] > 1);
  add_store(b, term, p, summed && (!whole || f->k->buffers.at[p.buffer].kind == BUFFER_ACCUMULATOR));
}

static void loop_item(Builder *b, Item *it) {
  Fuse *f = b->f;
  if (it->kind == ITEM_FILL) {
    int zero = add_term(b, -1, (Term){.kind = TERM_CONSTANT, .scalar = true, .name = intern("zero")});
    add_store(b, zero, place_broadcast(f, &it->place, group_at(b)->batched, group_at(b)), false);
    return;
  }
  if (it->kind == ITEM_COPY) {
    int term = it->through ? load_from(b, it->target, &it->from) : term_of(b, it->value);
    bool batched = value_at(f, it->value)->shape.batched;
    add_store(b, term, place_broadcast(f, &it->place, batched, group_at(b)), it->accumulate);
    return;
  }
  const Node *n = node_at(f, it->node);
  if (is_row_sum(f, n))
    it->term = reduce_term(b, n, &op_sum, n->out[0]);
  else if (n->op->kind == OP_SUM_TO)
    sum_to_store(b, n);
  else if (n->op->kind == OP_REDUCE)
    it->term = reduce_term(b, n, n->op, n->out[0]);
  else
    it->term = op_term(b, it->node, n->out[0]);
}

static void call_kernel(Builder *b, const Item *it) {
  Fuse *f = b->f;
  const Node *n = node_at(f, it->node);
  Kernel *k = b->k;
  k->kind = KERNEL_CALL;
  k->node = n;
  k->bias = -1;
  for (int i = 0; i < n->n_in; i++)
    push(&k->in, place_value(f, n->in[i]));
  int sum = -1;
  if (f->bias[it->node] >= 0) {
    for (int i = it->node + 1; sum < 0; i++)
      if (f->merged[i] == it->node)
        sum = node_at(f, i)->out[0];
    k->bias = k->in.n;
    push(&k->in, place_value(f, f->bias[it->node]));
  }
  for (int i = 0; i < n->n_out; i++)
    push(&k->out, place_value(f, sum >= 0 ? sum : n->out[i]));
  k->accumulate = f->k->buffers.at[k->out.at[0].buffer].kind == BUFFER_ACCUMULATOR;
}

static Kernels *kernels_of(Fuse *f, Direction d) {
  return d == SETUP ? &f->k->setup : d == FORWARD ? &f->k->forward : &f->k->backward;
}

void build_kernels(Fuse *f, Direction d) {
  Builder b = {.f = f, .d = d};
  b.term = alloc(sizeof(int) * (size_t)f->g->values.n);
  b.stamp = alloc(sizeof(int) * (size_t)f->g->values.n);
  Kernels *out = kernels_of(f, d);
  for (int i = 0; i < f->groups[d].n; i++) {
    const Group *group = &f->groups[d].at[i];
    push(out, (Kernel){.region = group->region, .backward = d == BACKWARD, .bias = -1});
    b.k = &out->at[out->n - 1];
    b.group = i;
    b.id = i + 1;
    if (!group->loop) {
      call_kernel(&b, &f->items[d].at[group->items.at[0]]);
      continue;
    }
    b.k->n_dims = group->n_dims;
    memcpy(b.k->dim, group->dim, sizeof group->dim);
    for (int j = 0; j < group->items.n; j++)
      loop_item(&b, &f->items[d].at[group->items.at[j]]);
  }
}

/* ---- stores of what others read ------------------------------------------------------------- */

static void store_needed(Fuse *f, Direction d, int at) {
  const Group *group = &f->groups[d].at[at];
  Builder b = {.f = f, .d = d, .group = at, .k = &kernels_of(f, d)->at[at]};
  for (int i = 0; i < group->items.n; i++) {
    const Item *it = &f->items[d].at[group->items.at[i]];
    const Node *n = node_at(f, it->node);
    bool summed = n->op->kind == OP_SUM_TO && !is_row_sum(f, n);
    if (it->kind != ITEM_NODE || summed || !f->needed[n->out[0]])
      continue;
    Place to = place_value(f, n->out[0]);
    bool accumulate = f->k->buffers.at[to.buffer].kind == BUFFER_ACCUMULATOR;
    add_store(&b, it->term, place_broadcast(f, &to, value_at(f, n->out[0])->shape.batched, group), accumulate);
  }
}

/* ---- passes over the row ----------------------------------------------------------------------- */

static int lowest_bit(unsigned x) { return __builtin_ctz(x); }

static void assign_passes(Kernel *k) {
  int n = k->terms.n, last = -1;
  int *ready = alloc(sizeof(int) * (size_t)n);
  unsigned *needs = alloc(sizeof(unsigned) * (size_t)n);
  for (int i = 0; i < n; i++) {
    Term *t = &k->terms.at[i];
    for (int j = 0; j < t->n_in; j++)
      if (ready[t->in[j]] > ready[i])
        ready[i] = ready[t->in[j]];
    t->phase = ready[i];
    if (t->kind == TERM_REDUCE) {
      last = t->phase > last ? t->phase : last;
      ready[i]++;
    }
  }
  for (int i = 0; i < k->stores.n; i++) {
    Store *s = &k->stores.at[i];
    const Term *t = &k->terms.at[s->term];
    bool row = s->place.stride[k->n_dims - 1] != 0 || k->dim[k->n_dims - 1] == 1;
    s->phase = ready[s->term];
    if (!t->scalar || row) {
      needs[s->term] |= 1u << s->phase;
      last = s->phase > last ? s->phase : last;
    }
  }
  k->phases = last + 1;
  for (int i = n - 1; i >= 0; i--) {
    Term *t = &k->terms.at[i];
    unsigned mask = t->kind == TERM_REDUCE ? 1u << t->phase : needs[i];
    if (t->scalar && t->kind != TERM_REDUCE)
      t->passes = 1u << t->phase;
    else
      t->passes = mask;
    if (t->scalar && t->kind != TERM_REDUCE)
      continue;
    if (mask && t->kind != TERM_REDUCE)
      t->phase = lowest_bit(mask);
    t->row_buffer = t->kind == TERM_OP && t->op->expensive && (mask & (mask - 1)) &&
                    k->dim[k->n_dims - 1] <= WIDEST_ROW_BUFFER;
    for (int j = 0; j < t->n_in; j++)
      needs[t->in[j]] |= t->row_buffer ? mask & -mask : mask;
  }
}

/* ---- dims ------------------------------------------------------------------------------------------ */

static void drop_dim(Kernel *k, int d) {
  for (Access a = {0}; next_access(k, &a);) {
    Place *p = a.place;
    p->rank--;
    for (int j = d; j < p->rank; j++) {
      p->dim[j] = p->dim[j + 1];
      p->stride[j] = p->stride[j + 1];
    }
  }
  k->n_dims--;
  for (int j = d; j < k->n_dims; j++)
    k->dim[j] = k->dim[j + 1];
}

static bool merge_dims(Kernel *k, int d) { /* d with d + 1 */
  for (Access a = {0}; next_access(k, &a);)
    if (k->dim[d] > 1 && a.place->stride[d] != a.place->stride[d + 1] * k->dim[d + 1])
      return false;
  int64_t size = k->dim[d] * k->dim[d + 1];
  drop_dim(k, d);
  k->dim[d] = size;
  for (Access a = {0}; next_access(k, &a);)
    a.place->dim[d] = size;
  return true;
}

/* Axes that accumulate move behind those that do not, in their order. */
static void move_sums_last(Kernel *k, unsigned sums) {
  int order[MAX_DIM], n = 0;
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i + 1 < k->n_dims; i++)
      if (((sums >> i) & 1) == (unsigned)pass)
        order[n++] = i;
  k->parallel = k->n_dims - 1 - __builtin_popcount(sums);
  Kernel old = *k;
  for (int j = 0; j < n; j++)
    k->dim[j] = old.dim[order[j]];
  for (Access a = {0}; next_access(k, &a);) {
    Place q = *a.place;
    for (int j = 0; j < n; j++) {
      a.place->dim[j] = q.dim[order[j]];
      a.place->stride[j] = q.stride[order[j]];
    }
  }
}

static void merge_outer(Kernel *k) {
  int first = k->samples ? 1 : 0;
  for (int d = first; d + 1 < k->n_dims && k->n_dims > 1 + first;)
    if (k->dim[d] == 1) {
      k->parallel -= d < k->parallel;
      drop_dim(k, d);
    } else {
      d++;
    }
  for (int d = first; d + 2 < k->n_dims;) {
    bool same_class = (d < k->parallel) == (d + 1 < k->parallel);
    if (same_class && merge_dims(k, d))
      k->parallel -= d < k->parallel;
    else
      d++;
  }
}

static void merge_rows(Kernel *k, bool counts_columns) {
  for (int i = 0; i < k->terms.n; i++)
    if (k->terms.at[i].kind == TERM_REDUCE || (k->terms.at[i].scalar && k->terms.at[i].kind == TERM_LOAD))
      return;
  int first = k->samples ? 1 : 0;
  if (k->dim[k->n_dims - 1] == 1 && k->n_dims > 1 + first && !counts_columns) {
    drop_dim(k, k->n_dims - 1);
    k->parallel = k->n_dims - 1;
  }
  while (k->n_dims > 1 + first && k->parallel == k->n_dims - 1 && !counts_columns &&
         k->dim[k->n_dims - 1] < 256 && merge_dims(k, k->n_dims - 2))
    k->parallel--;
}

/* Rows are dealt to chunks by their number alone, so that bits depend on nothing else. */
static void deal_chunks(Kernel *k) {
  int64_t rows = 1;
  for (int i = 0; i + 1 < k->n_dims; i++)
    rows *= k->dim[i];
  k->chunks = rows >= 512 ? 16 : rows >= 128 ? 4 : 1;
}

static void arrange(Kernel *k, unsigned sums) {
  bool counts_columns = false;
  for (int i = 0; i < k->terms.n; i++)
    if (k->terms.at[i].op) {
      k->samples |= op_reads_words(k->terms.at[i].op, 1u << WORD_ELEMENT | 1u << WORD_SAMPLE);
      counts_columns |= op_reads_words(k->terms.at[i].op, 1u << WORD_COLUMN);
    }
  unsigned outer = 0;
  for (int i = 0; i + 1 < k->n_dims; i++)
    outer |= k->dim[i] > 1 ? 1u << i : 0;
  bool whole = sums && (sums & outer) == outer;
  if (whole)
    k->parallel = 0;
  else
    move_sums_last(k, sums);
  if (whole)
    deal_chunks(k);
  merge_outer(k);
  if (!sums)
    merge_rows(k, counts_columns);
}

/* A loop that stores nothing is left out: nothing reads a running average that serves only the buffer, and what
 * its share is made of backward may compute again. */
void finish_loops(Fuse *f, Direction d) {
  Kernels *kernels = kernels_of(f, d);
  int kept = 0;
  for (int i = 0; i < kernels->n; i++) {
    Kernel *k = &kernels->at[i];
    if (k->kind == KERNEL_LOOP) {
      store_needed(f, d, i);
      if (!k->stores.n)
        continue;
      assign_passes(k);
      arrange(k, f->groups[d].at[i].sums);
    }
    f->groups[d].at[kept] = f->groups[d].at[i];
    kernels->at[kept++] = *k;
  }
  kernels->n = f->groups[d].n = kept;
}
