/* Image layers take [C, H, W] and compute on [H, W, C], with a permute before and after. Nodes between two such
 * layers that accept any order of axes take the order of their inputs, and the permutes cancel. The pass sees the
 * whole model, before any cut. */
#include "layout/permutes.h"

#include <string.h>

#include "ops/expression.h"
#include "ops/rules.h"
#include "simplify/rewrite.h"

/* The value of `to` with the elements of a value of `from`: its axis dims[i] is axis i of the original. */
typedef struct Counterpart {
  int value, dims[MAX_RANK];
} Counterpart;

/* A value of `to`, reordered and reshaped for the nodes of one run. */
typedef struct Copy {
  int of, run, dims[MAX_RANK], made;
} Copy;

typedef struct Moving {
  Rewrite *w;
  Counterpart *counterpart; /* by value of from */
  Vec(Copy) copies;
} Moving;

static const Shape *shape_of(const Graph *g, int value) { return &g->values.at[value].shape; }

static void identity(int *dims) {
  for (int i = 0; i < MAX_RANK; i++)
    dims[i] = i;
}

static void invert(int rank, const int *dims, int *inverse) {
  identity(inverse);
  for (int i = 0; i < rank; i++)
    inverse[dims[i]] = i;
}

static bool same_order(int rank, const int *a, const int *b) { return !memcmp(a, b, rank * sizeof *a); }

static bool is_ordered(const Moving *m, int value) {
  int plain[MAX_RANK];
  identity(plain);
  return same_order(shape_of(m->w->from, value)->rank, m->counterpart[value].dims, plain);
}

/* ---- values in a reader's order ----------------------------------------------------------------- */

/* Inserts a view of v's counterpart for the run of `like`. */
static int insert(Moving *m, int like, const Op *op, int in, const Attr *attr, const Value *v) {
  int made = rewrite_insert(m->w, like, op, &in, 1, attr), value = graph_output(m->w->to, made, 0);
  m->w->to->nodes.at[made].span = m->w->from->nodes.at[v->node].span;
  m->w->to->values.at[value].name = v->name;
  m->w->to->values.at[value].span = v->span;
  return value;
}

/* Permutes `in` so that axis i is its axis dims[i]. A reshape suffices if only axes of size 1 move or are
 * inserted. */
static int arrange(Moving *m, int like, int in, const int *dims, const Shape *wanted, const Value *v) {
  Shape s = *shape_of(m->w->to, in);
  Attr attr[MAX_ATTR];
  int last = -1;
  bool moves = false;
  for (int i = 0; i < s.rank; i++) {
    moves |= s.dim[dims[i]] > 1 && dims[i] < last;
    last = s.dim[dims[i]] > 1 ? dims[i] : last;
  }
  if (moves) {
    const Op *op = op_of_order(s.rank, dims, attr);
    in = insert(m, like, op, in, attr, v);
  }
  if (!shape_equal(shape_of(m->w->to, in), wanted))
    in = insert(m, like, &op_reshape, in, (Attr[MAX_ATTR]){shape_attr(wanted)}, v);
  return in;
}

/* The value for the run of `like`, in the order `inverse` of a result of this rank: axis k of the order is the
 * result's axis inverse[k]. The value's axes align with the result's from the right; missing leading axes stay
 * missing. */
static int ordered(Moving *m, int like, int value, int rank, const int *inverse) {
  const Value *v = &m->w->from->values.at[value];
  const Counterpart *f = &m->counterpart[value];
  Copy c = {.of = f->value, .run = m->w->run[like]};
  Shape wanted = {.batched = v->shape.batched, .rank = rank};
  int missing = rank - v->shape.rank;
  for (int k = 0, n = 0; k < rank; k++) {
    wanted.dim[k] = inverse[k] < missing ? 1 : v->shape.dim[inverse[k] - missing];
    if (inverse[k] >= missing)
      c.dims[n++] = f->dims[inverse[k] - missing];
  }
  while (wanted.rank > v->shape.rank && inverse[rank - wanted.rank] < missing) {
    wanted.rank--;
    memmove(wanted.dim, wanted.dim + 1, wanted.rank * sizeof wanted.dim[0]);
  }
  for (int i = 0; i < m->copies.n; i++) {
    const Copy *old = &m->copies.at[i];
    if (old->of == c.of && old->run == c.run && same_order(v->shape.rank, old->dims, c.dims) &&
        shape_equal(shape_of(m->w->to, old->made), &wanted))
      return old->made;
  }
  c.made = arrange(m, like, f->value, c.dims, &wanted, v);
  if (c.made != c.of)
    push(&m->copies, c);
  return c.made;
}

/* The value in the model's order of axes. */
static int plain(Moving *m, int like, int value) {
  int dims[MAX_RANK];
  identity(dims);
  return ordered(m, like, value, shape_of(m->w->from, value)->rank, dims);
}

/* ---- nodes -------------------------------------------------------------------------------------- */

/* Gives the name of a reordered x to x. A layer returns the reordered value, and its caller named that one;
 * otherwise an earlier name stays. */
static void hand_on_name(Moving *m, int node) {
  const Node *n = &m->w->from->nodes.at[node];
  const Value *v = &m->w->from->values.at[n->out[0]];
  Value *x = &m->w->to->values.at[m->counterpart[n->out[0]].value];
  const Node *maker_of_x = &m->w->to->nodes.at[x->node];
  bool returned = n->scope != 0 && maker_of_x->scope == n->scope;
  bool nameless = x->name == intern(maker_of_x->op->name);
  if (v->name != intern(n->op->name) && maker_of_x->op->kind != OP_SOURCE && (returned || nameless)) {
    x->name = v->name;
    x->span = v->span;
  }
}

/* Omits a node that only reorders axes: its value is its input in another order. */
static void order_node(Moving *m, int node) {
  const Graph *g = m->w->from;
  const Node *n = &g->nodes.at[node];
  const Counterpart *x = &m->counterpart[n->in[0]];
  Counterpart *y = &m->counterpart[n->out[0]];
  int dims[MAX_RANK];
  n->op->order(g, node, dims);
  y->value = x->value;
  identity(y->dims);
  for (int i = 0; i < out_shape(g, node, 0)->rank; i++)
    y->dims[i] = x->dims[dims[i]];
  hand_on_name(m, node);
}

/* The order of an operand with the results' shape, if the results can adopt it. */
static bool order_of_results(const Moving *m, int node, int *dims) {
  const Node *n = &m->w->from->nodes.at[node];
  const Shape *y = out_shape(m->w->from, node, 0);
  for (int i = 0; i < n->n_in; i++) {
    const Shape *x = in_shape(m->w->from, node, i);
    if (!is_ordered(m, n->in[i]) && (n->op->kind == OP_POINTWISE ? shape_equal(x, y) : x->rank == y->rank)) {
      memcpy(dims, m->counterpart[n->in[i]].dims, MAX_RANK * sizeof *dims);
      return true;
    }
  }
  return false;
}

/* Whether the node can be computed with its axes reordered; sets its attributes for that order. */
static bool can_reorder(const Graph *g, int node, const int *dims, Attr *attr) {
  const Node *n = &g->nodes.at[node];
  int inverse[MAX_RANK], rank = out_shape(g, node, 0)->rank;
  memcpy(attr, n->attr, MAX_ATTR * sizeof *attr);
  if (n->op->kind == OP_POINTWISE)
    return !op_reads_words(n->op, 1u << WORD_COLUMN);
  for (int i = 0; i < n->n_in; i++)
    if (in_shape(g, node, i)->rank != rank)
      return false;
  invert(rank, dims, inverse);
  return n->op->reordered && n->op->reordered(g, node, inverse, attr);
}

static void copy_reordered(Moving *m, int node, const int *dims, const Attr *attr) {
  Graph *from = m->w->from;
  const Node *n = &from->nodes.at[node];
  int inverse[MAX_RANK], rank = out_shape(from, node, 0)->rank, *in = alloc((n->n_in + 1) * sizeof *in);
  invert(rank, dims, inverse);
  for (int i = 0; i < n->n_in; i++)
    in[i] = shape_elements(in_shape(from, node, i)) == 1 ? plain(m, node, n->in[i])
                                                         : ordered(m, node, n->in[i], rank, inverse);
  int made = rewrite_insert(m->w, node, n->op, in, n->n_in, attr);
  for (int i = 0; i < n->n_out; i++) {
    Value *v = &m->w->to->values.at[graph_output(m->w->to, made, i)], *old = &from->values.at[n->out[i]];
    v->name = old->name;
    v->span = old->span;
    m->counterpart[n->out[i]].value = graph_output(m->w->to, made, i);
    memcpy(m->counterpart[n->out[i]].dims, dims, MAX_RANK * sizeof *dims);
  }
}

static void copy_plain(Moving *m, int node) {
  const Node *n = &m->w->from->nodes.at[node];
  int *in = alloc((n->n_in + 1) * sizeof *in);
  for (int i = 0; i < n->n_in; i++)
    in[i] = plain(m, node, n->in[i]);
  int made = rewrite_copy(m->w, node, in, node);
  for (int i = 0; i < n->n_out; i++) {
    m->counterpart[n->out[i]].value = graph_output(m->w->to, made, i);
    identity(m->counterpart[n->out[i]].dims);
  }
}

void move_permutes(Graph *g) {
  Moving m = {.w = rewrite_begin(g), .counterpart = alloc((g->values.n + 1) * sizeof *m.counterpart)};
  const bool *pinned = find_pinned(g);
  ensure(g->nodes.n == g->n_forward);
  for (int i = 0; i < g->nodes.n; i++) {
    int dims[MAX_RANK];
    Attr attr[MAX_ATTR];
    if (g->nodes.at[i].op->order)
      order_node(&m, i);
    else if (order_of_results(&m, i, dims) && can_reorder(g, i, dims, attr))
      copy_reordered(&m, i, dims, attr);
    else
      copy_plain(&m, i);
    for (int k = 0; k < g->nodes.at[i].n_out && pinned[i]; k++)
      m.w->value[g->nodes.at[i].out[k]] = plain(&m, i, g->nodes.at[i].out[k]);
  }
  rewrite_finish(m.w);
}
