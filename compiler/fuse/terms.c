/* From groups to kernels: terms of loops and their first stores, operands of calls. arrange.c finishes them after
 * all kernels are built. */
#include <string.h>

#include "fuse/internal.h"
#include "ops/expression.h"

/* The term of every value used so far in the kernel under construction, valid if stamp[value] == its id. */
typedef struct Builder {
  const Fuse *f;
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

static const Group *group_at(const Builder *b) { return &b->f->groups[b->d]->at[b->group]; }

static bool row_of_one(const Builder *b) {
  const Group *s = group_at(b);
  return s->dim[s->n_dims - 1] == 1;
}

static int load_from(Builder *b, int value, const Place *from) {
  const Value *v = value_at(b->f, value);
  Term t = {.kind = TERM_LOAD, .name = b->f->facts->name[value]};
  t.place = place_broadcast(from, v->shape.batched, group_at(b));
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
  Term t = {.kind = TERM_OP, .op = n->op, .node = n, .n_in = n->n_in, .name = b->f->facts->name[value]};
  t.rounded = b->f->facts->bf16[b->f->k->target.precision][value];
  ensure(n->n_in <= 4);
  bool scalar = !op_reads_words(n->op, COUNTING_WORDS);
  for (int i = 0; i < n->n_in; i++)
    t.in[i] = op_reads_operand(n->op, i) ? term_of(b, n->in[i]) : -1;
  for (int i = 0; i < n->n_in; i++)
    if (t.in[i] < 0)
      t.in[i] = t.in[0]; /* the expression does not use it: any term will do */
    else
      scalar &= b->k->terms.at[t.in[i]].scalar;
  t.scalar = scalar;
  return add_term(b, value, t);
}

static int term_of(Builder *b, int value) {
  const Fuse *f = b->f;
  value = f->survey->same[value];
  if (b->stamp[value] == b->id)
    return b->term[value];
  int root = view_root(f, value), node = value_at(f, root)->node;
  const Node *n = node_at(f, node);
  bool alias = view_is_alias(f, value);
  double number;
  if (n->op->constant && n->op->constant(n, &number))
    return add_term(
        b, value, (Term){.kind = TERM_CONSTANT, .constant = number, .scalar = true, .name = f->facts->name[root]});
  if (alias && n->op->kind == OP_SOURCE && n->op->source == SOURCE_NONE)
    return op_term(b, node, value);
  if (alias && root != value && b->stamp[root] == b->id)
    return b->term[root];
  if (alias && is_rematerialised(f, b->d, root))
    return op_term(b, node, root);
  return load_term(b, value);
}

static void add_store(Builder *b, int term, Place place, bool accumulate) {
  Store s = {.term = term, .place = place, .accumulate = accumulate};
  push(&b->k->stores, s);
}

/* A row of one element is its own sum and maximum. In a kernel with longer rows it is a scalar. */
static int reduce_term(Builder *b, const Node *n, const Op *op, int value) {
  int in = term_of(b, n->in[0]);
  const Shape *s = &value_at(b->f, n->in[0])->shape;
  if (s->rank > 0 && s->dim[s->rank - 1] == 1)
    return bind(b, value, in);
  return add_term(b, value,
                  (Term){.kind = TERM_REDUCE,
                         .op = op,
                         .n_in = 1,
                         .in = {in},
                         .scalar = true,
                         .rounded = b->f->facts->bf16[b->f->k->target.precision][value],
                         .name = b->f->facts->name[n->out[0]]});
}

/* Sums over broadcast axes: over the last axis within the row, over earlier axes by accumulating. */
static void sum_to_store(Builder *b, const Node *n) {
  const Fuse *f = b->f;
  int out = n->out[0];
  const Group *s = group_at(b);
  Place to = place_value(f, out);
  Place p = place_broadcast(&to, value_at(f, out)->shape.batched, s);
  int last = s->n_dims - 1;
  int term = p.stride[last] == 0 && s->dim[last] > 1 ? reduce_term(b, n, &op_sum, -1) : term_of(b, n->in[0]);
  bool summed = s->sums != 0 || f->k->buffers.at[p.buffer].kind == BUFFER_ACCUMULATOR;
  bool whole = true;
  for (int i = 0; i < last; i++)
    whole &= !(p.stride[i] == 0 && s->dim[i] > 1);
  add_store(b, term, p, summed && (!whole || f->k->buffers.at[p.buffer].kind == BUFFER_ACCUMULATOR));
}

static void loop_item(Builder *b, const Item *it) {
  const Fuse *f = b->f;
  if (it->kind == ITEM_FILL) {
    int zero = add_term(b, -1, (Term){.kind = TERM_CONSTANT, .scalar = true, .name = intern("zero")});
    add_store(b, zero, place_broadcast(&it->place, group_at(b)->batched, group_at(b)), false);
    return;
  }
  if (it->kind == ITEM_COPY) {
    int term = it->through ? load_from(b, it->target, &it->from) : term_of(b, it->value);
    bool batched = value_at(f, it->through ? it->target : it->value)->shape.batched;
    add_store(b, term, place_broadcast(&it->place, batched, group_at(b)), it->accumulate);
    return;
  }
  const Node *n = node_at(f, it->node);
  int *term = &f->built->term[it->node];
  if (is_row_sum(f, n))
    *term = reduce_term(b, n, &op_sum, n->out[0]);
  else if (n->op->kind == OP_SUM_TO)
    sum_to_store(b, n);
  else if (n->op->kind == OP_REDUCE)
    *term = reduce_term(b, n, n->op, n->out[0]);
  else
    *term = op_term(b, it->node, n->out[0]);
}

static void call_kernel(Builder *b, const Item *it) {
  const Fuse *f = b->f;
  const Node *n = node_at(f, it->node);
  Kernel *k = b->k;
  k->kind = KERNEL_CALL;
  k->node = n;
  k->bias = -1;
  for (int i = 0; i < n->n_in; i++)
    push(&k->in, place_value(f, n->in[i]));
  int vector = f->biases->vector[it->node], sum = f->biases->sum[it->node];
  if (vector >= 0) {
    k->bias = k->in.n;
    push(&k->in, place_value(f, vector));
  }
  for (int i = 0; i < n->n_out; i++)
    push(&k->out, place_value(f, sum >= 0 ? sum : n->out[i]));
  k->accumulate = f->k->buffers.at[k->out.at[0].buffer].kind == BUFFER_ACCUMULATOR;
  for (int i = 1; i < k->out.n; i++) /* both or none */
    ensure(k->accumulate == (f->k->buffers.at[k->out.at[i].buffer].kind == BUFFER_ACCUMULATOR));
}

void build_kernels(const Fuse *f, Direction d) {
  Builder b = {.f = f, .d = d};
  b.term = alloc(sizeof(int) * (size_t)f->g->values.n);
  b.stamp = alloc(sizeof(int) * (size_t)f->g->values.n);
  Kernels *out = kernels_of(f, d);
  for (int i = 0; i < f->groups[d]->n; i++) {
    const Group *group = &f->groups[d]->at[i];
    push(&f->built->group[d], i);
    push(out, (Kernel){.region = group->region, .backward = d == BACKWARD, .bias = -1});
    b.k = &out->at[out->n - 1];
    b.group = i;
    b.id = i + 1;
    if (!group->loop) {
      call_kernel(&b, &f->items->of[d].at[group->items.at[0]]);
      continue;
    }
    b.k->n_dims = group->n_dims;
    memcpy(b.k->dim, group->dim, sizeof group->dim);
    for (int j = 0; j < group->items.n; j++)
      loop_item(&b, &f->items->of[d].at[group->items.at[j]]);
  }
}
