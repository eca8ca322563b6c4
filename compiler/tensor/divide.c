/* Writes the graph of one rank of a shard group: each node on its parts, with collectives between different
 * layouts. */
#include "ops/rules.h"
#include "simplify/rewrite.h"
#include "tensor/internal.h"

#include <float.h>
#include <string.h>

/* A value in the layout that readers of one run and direction need. */
typedef struct Reading {
  int value, run, made; /* value: in `from`; made: in `to` */
  bool forward;
  LayoutId as;
} Reading;

/* A value in uneven parts, with `fill` after its end. */
typedef struct Ending {
  int value, run, made; /* as in Reading */
  bool forward;
  double fill;
} Ending;

typedef struct Writing {
  const Division *d;
  const Assignment *a;
  Rewrite *w;
  Vec(Reading) readings;
  Vec(Ending) endings;
} Writing;

static int part_of_axis(const Writing *x, int node, const Op *op, int value, Layout split) {
  int rank = x->w->to->values.at[value].shape.rank;
  Attr attr[MAX_ATTR] = {
      {.number = split.axis}, {.number = (double)split.blocks}, {.number = x->d->ranks}, {.number = rank}};
  return rewrite_insert(x->w, node, op, &value, 1, attr);
}

/* Converts `value` of `to` from one layout to another, by a node at the position of `node` in `from`. */
static int convert(const Writing *x, int node, int value, LayoutId from, LayoutId to) {
  int made;
  if (from == to)
    return value;
  if (to == PARTIAL)
    made = rewrite_insert(x->w, node, &op_summand, &value, 1, NULL);
  else if (from == PARTIAL && to != WHOLE)
    made = part_of_axis(x, node, &op_reduce_scatter, value, layout_of(x->d, to));
  else if (from == PARTIAL || from == BOUND)
    made = rewrite_insert(x->w, node, from == PARTIAL ? &op_all_reduce : &op_all_reduce_max, &value, 1,
                          (Attr[MAX_ATTR]){{.number = x->d->ranks}});
  else if (to == WHOLE)
    made = part_of_axis(x, node, &op_all_gather, value, layout_of(x->d, from));
  else
    made = part_of_axis(x, node, &op_own_part, value, layout_of(x->d, to));
  return graph_output(x->w->to, made, 0);
}

static int read_as(Writing *x, int node, int value, LayoutId as) {
  LayoutId has = x->a->at[value];
  int run = x->w->run[node];
  bool forward = is_forward(x->w->from, node);
  if (has == as)
    return x->w->value[value];
  for (int i = 0; i < x->readings.n; i++) {
    const Reading *r = &x->readings.at[i];
    if (r->value == value && r->run == run && r->forward == forward && r->as == as)
      return r->made;
  }
  int made = convert(x, node, x->w->value[value], has, as);
  push(&x->readings, (Reading){value, run, made, forward, as});
  return made;
}

/* For readers that combine elements of an axis: neutralizes the elements after its end. */
static int end_at(Writing *x, int node, int old, int value, LayoutId as) {
  const Op *op = x->w->from->nodes.at[node].op;
  bool forward = is_forward(x->w->from, node);
  int run = x->w->run[node];
  if (op->kind == OP_POINTWISE || op->kind == OP_VIEW || !is_uneven(x->d, old, as) || x->d->clean[old])
    return value;
  double fill = op->reduction == REDUCTION_MAX ? -FLT_MAX : 0;
  for (int i = 0; i < x->endings.n; i++) {
    const Ending *e = &x->endings.at[i];
    if (e->value == value && e->run == run && e->forward == forward && e->fill == fill)
      return e->made;
  }
  const Shape *whole = &x->w->from->values.at[old].shape, *part = &x->w->to->values.at[value].shape;
  int last = whole->rank - 1;
  Attr attr[MAX_ATTR] = {{.number = (double)part->dim[last]},
                         {.number = (double)whole->dim[last]},
                         {.number = fill}};
  int made = graph_output(x->w->to, rewrite_insert(x->w, node, &op_own_columns, &value, 1, attr), 0);
  push(&x->endings, (Ending){value, run, made, forward, fill});
  return made;
}

/* Replaces shapes in attributes by the shapes of the rank's part. */
static void adapt_attributes(Graph *to, Node *n) {
  n->attr = alloc_copy(n->attr, MAX_ATTR * sizeof *n->attr);
  const Shape *s = &to->values.at[n->out[0]].shape;
  for (int i = 0; i < MAX_ATTR && n->op->attr[i].name; i++)
    if (!strcmp(n->op->attr[i].name, "shape"))
      n->attr[i] = (Attr){.n = s->rank, .list = alloc_copy(s->dim, (size_t)s->rank * sizeof s->dim[0])};
}

/* The converted value replaces the original: it takes over its name and its gradients by use. */
static void convert_output(Writing *x, int node, int value, LayoutId made) {
  Rewrite *w = x->w;
  int old = w->value[value], now = convert(x, node, old, made, x->a->at[value]);
  if (now == old)
    return;
  w->to->values.at[now].name = w->to->values.at[old].name;
  w->to->values.at[now].named_in = w->to->values.at[old].named_in;
  w->to->values.at[now].span = w->to->values.at[old].span;
  w->partials.at[now] = w->partials.at[old];
  w->partials.at[old] = (Partials){{0}, {0}};
  w->value[value] = now;
}

static void set_number(Node *n, const char *name, int64_t number) {
  for (int i = 0; i < MAX_ATTR && n->op->attr[i].name; i++)
    if (!strcmp(n->op->attr[i].name, name))
      n->attr[i].number = (double)number;
}

static bool must_know_part(const Writing *x, int node, const Node *n, const Way *way) {
  int all = n->n_in + n->n_out;
  Layout *layout = alloc((size_t)all * sizeof *layout);
  for (int k = 0; k < all; k++)
    layout[k] = layout_of(x->d, way->at[k]);
  if (!n->op->divided)
    return false;
  return n->op->counts ? n->op->counts(x->d->g, node, layout) : layout[n->n_in].kind == LAYOUT_SPLIT;
}

/* Replaces an op that cannot derive its part by its divided form, with the part's sizes. */
static void tell_part(const Writing *x, int node, Node *n) {
  const Way *way = &x->a->way[node];
  if (!must_know_part(x, node, n, way))
    return;
  n->op = n->op->divided;
  Layout made = layout_of(x->d, way->at[n->n_in]);
  if (made.kind != LAYOUT_SPLIT)
    return;
  const Shape *s = &x->w->to->values.at[n->out[0]].shape, *all = out_shape(x->w->from, node, 0);
  int64_t inner = 1;
  for (int i = made.axis + 1; i < s->rank; i++)
    inner *= s->dim[i];
  set_number(n, "part", s->dim[made.axis] / made.blocks * inner);
  set_number(n, "whole", all->dim[made.axis] / made.blocks * inner);
  set_number(n, "classes", s->dim[made.axis]);
}

static void write_node(Writing *x, int node) {
  Rewrite *w = x->w;
  const Node *n = &w->from->nodes.at[node];
  const Way *way = &x->a->way[node];
  int *in = alloc((size_t)(n->n_in + 1) * sizeof *in);
  for (int k = 0; k < n->n_in; k++)
    in[k] = end_at(x, node, n->in[k], read_as(x, node, n->in[k], way->at[k]), way->at[k]);
  int made = rewrite_copy(w, node, in, node);
  for (int k = 0; k < n->n_out; k++) {
    Value *v = &w->to->values.at[w->to->nodes.at[made].out[k]];
    v->shape = part_shape(x->d, &v->shape, layout_of(x->d, way->at[n->n_in + k]));
  }
  adapt_attributes(w->to, &w->to->nodes.at[made]);
  tell_part(x, node, &w->to->nodes.at[made]);
  for (int k = 0; k < n->n_out; k++)
    convert_output(x, node, n->out[k], way->at[n->n_in + k]);
}

static void divide_params(const Writing *x) {
  Graph *g = x->w->to;
  for (int i = 0; i < g->params.n; i++) {
    Param *p = &g->params.at[i];
    p->layout = layout_of(x->d, x->a->at[p->value]);
    int64_t rows = p->shape.dim[0];
    p->shape = part_shape(x->d, &p->shape, p->layout);
    if (p->layout.kind == LAYOUT_SPLIT && p->layout.axis == 0)
      p->surplus = p->shape.dim[0] * x->d->ranks - rows;
  }
}

static double matmul_flops(const Graph *g) {
  double flops = 0;
  for (int i = 0; i < g->nodes.n; i++)
    if (g->nodes.at[i].op->cost)
      flops += g->nodes.at[i].op->cost(g, i).matmul_flops;
  return flops;
}

bool tensor_by(Division *d) {
  Assignment a;
  if (!assign(d, &a))
    return false;
  Writing x = {.d = d, .a = &a, .w = rewrite_begin(d->g)};
  divide_params(&x);
  for (int i = 0; i < d->g->nodes.n; i++)
    write_node(&x, i);
  x.w->to->shards = d->ranks;
  x.w->to->spread = d->spread;
  x.w->to->whole_flops = matmul_flops(d->g);
  rewrite_finish(x.w);
  return true;
}

bool tensor(Graph *g, int ranks, const char *sharding, bool spread) {
  Division d = division_of(g, ranks);
  d.spread = spread;
  return (!sharding || sharding_read(&d, sharding)) && tensor_by(&d);
}
