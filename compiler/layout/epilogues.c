/* GPU libraries apply GELU to a product's sums in registers. A separate GELU would read and write all sums once
 * more. The pass sees the whole model, before any cut. */
#include "layout/epilogues.h"

#include <math.h>

#include "ops/op.h"
#include "simplify/rewrite.h"

enum { MOST_NODES = 16 };

/* x sigmoid(2 sqrt(2 / pi) (x + 0.044715 x^3)), as nodes. */
typedef struct Gelu {
  const Graph *g;
  int x;                /* value index */
  int node[MOST_NODES]; /* all nodes, last first */
  int n;
} Gelu;

static bool has(const Gelu *u, int node) {
  for (int i = 0; i < u->n; i++)
    if (u->node[i] == node)
      return true;
  return false;
}

/* The producer of a value, added to GELU's nodes, if it is this operation; else NULL. */
static const Node *take(Gelu *u, int value, const Op *op) {
  const Node *n = maker(u->g, value);
  int node = u->g->values.at[value].node;
  if (n->op != op || u->n == MOST_NODES)
    return NULL;
  if (!has(u, node))
    u->node[u->n++] = node;
  return n;
}

/* The n of value = factor x^n, or -1. */
static int power(Gelu *u, int value, double *factor) {
  double one, other;
  *factor = 1;
  if (value == u->x)
    return 1;
  if (maker(u->g, value)->op == &op_constant) {
    *factor = node_number(maker(u->g, value), "value");
    return 0;
  }
  const Node *n = take(u, value, &op_mul);
  int a = n ? power(u, n->in[0], &one) : -1, b = a >= 0 ? power(u, n->in[1], &other) : -1;
  *factor = b >= 0 ? one * other : 0;
  return b >= 0 ? a + b : -1;
}

static bool near(double x, double y) { return fabs(x - y) < 1e-6; }

/* value = x + 0.044715 x^3 */
static bool is_cubic(Gelu *u, int value) {
  const Node *n = take(u, value, &op_add);
  double factor;
  for (int side = 0; n && side < 2; side++)
    if (n->in[side] == u->x)
      return power(u, n->in[1 - side], &factor) == 3 && near(factor, 0.044715);
  return false;
}

/* value = 2 sqrt(2 / pi) (x + 0.044715 x^3) */
static bool is_scaled(Gelu *u, int value) {
  const Node *n = take(u, value, &op_mul);
  double factor;
  for (int side = 0; n && side < 2; side++)
    if (power(u, n->in[side], &factor) == 0)
      return near(factor, 1.5957691216057308) && is_cubic(u, n->in[1 - side]);
  return false;
}

static bool find_gelu(const Graph *g, int node, Gelu *u) {
  const Node *last = &g->nodes.at[node];
  for (int side = 0; side < 2 && last->op == &op_mul; side++) {
    *u = (Gelu){.g = g, .x = last->in[side], .node = {node}, .n = 1};
    const Node *sigmoid = take(u, last->in[1 - side], &op_sigmoid);
    if (sigmoid && is_scaled(u, sigmoid->in[0]))
      return true;
  }
  return false;
}

/* By value: number of nodes and figures that read it. */
static int *count_readers(const Graph *g) {
  int *readers = alloc((size_t)(g->values.n + 1) * sizeof *readers);
  for (int i = 0; i < g->nodes.n; i++)
    for (int k = 0; k < g->nodes.at[i].n_in; k++)
      readers[g->nodes.at[i].in[k]]++;
  for (int i = 0; i < g->figures.n; i++)
    readers[g->figures.at[i].value]++;
  return readers;
}

/* Whether x and the intermediate values have no other readers. */
static bool is_read_by_itself(const Gelu *u, const int *readers) {
  for (int i = 0; i <= u->n; i++) {
    int value = i == 0 ? u->x : i < u->n ? u->g->nodes.at[u->node[i]].out[0] : -1, own = 0;
    for (int k = 0; k < u->n; k++)
      for (int j = 0; j < u->g->nodes.at[u->node[k]].n_in; j++)
        own += u->g->nodes.at[u->node[k]].in[j] == value;
    if (value >= 0 && own != readers[value])
      return false;
  }
  return true;
}

/* The product's node if x is its sum with a bias, with the new node's inputs; else -1. */
static int find_product(const Gelu *u, const int *readers, int in[3]) {
  const Graph *g = u->g;
  const Node *add = maker(g, u->x);
  for (int side = 0; add->op->adds_bias && side < 2; side++) {
    const Node *product = maker(g, add->in[side]);
    const Shape *bias = &g->values.at[add->in[1 - side]].shape, *y = &g->values.at[u->x].shape;
    if (product->op != &op_matmul || readers[add->in[side]] != 1 || bias->rank != 1 || bias->batched ||
        bias->dim[0] != y->dim[y->rank - 1])
      continue;
    const Shape *weight = &g->values.at[product->in[1]].shape;
    in[0] = product->in[0], in[1] = product->in[1], in[2] = add->in[1 - side];
    return weight->rank == 2 && !weight->batched && y->batched ? g->values.at[add->in[side]].node : -1;
  }
  return -1;
}

/* Nodes to merge. The addition of a bias becomes the new node. */
typedef struct Merge {
  Rewrite *w;
  int *part, *result; /* part: by node, 1 + the last node of its GELU. result: by addition */
} Merge;

static void write_node(Merge *m, const int *readers, int node) {
  Rewrite *w = m->w;
  const Node *n = &w->from->nodes.at[node];
  int *in = alloc((size_t)(n->n_in + 1) * sizeof *in), operand[3];
  Gelu u;
  if (m->result[node]) {
    int last = m->result[node] - 1;
    ensure(find_gelu(w->from, last, &u) && find_product(&u, readers, operand) >= 0);
    for (int k = 0; k < 3; k++)
      operand[k] = w->value[operand[k]];
    w->node[node] = rewrite_insert(w, node, &op_matmul_gelu, operand, 3, NULL);
    rewrite_stand_for(w, graph_output(w->to, w->node[node], 0), w->from->nodes.at[last].out[0]);
    rewrite_stand_for(w, graph_output(w->to, w->node[node], 1), u.x);
    return;
  }
  for (int k = 0; k < n->n_in && !m->part[node]; k++)
    in[k] = w->value[n->in[k]];
  if (!m->part[node])
    rewrite_copy(w, node, in, node);
}

void merge_gelus(Graph *g) {
  const int *readers = count_readers(g);
  size_t bytes = (size_t)(g->nodes.n + 1) * sizeof(int);
  Merge m = {.part = alloc(bytes), .result = alloc(bytes)};
  bool any = false;
  for (int i = 0; i < g->nodes.n; i++) {
    Gelu u;
    int operand[3], product = -1;
    if (find_gelu(g, i, &u) && is_read_by_itself(&u, readers))
      product = find_product(&u, readers, operand);
    if (product < 0)
      continue;
    m.part[product] = m.result[g->values.at[u.x].node] = i + 1;
    for (int k = 0; k < u.n; k++)
      m.part[u.node[k]] = i + 1;
    any = true;
  }
  if (!any)
    return;
  m.w = rewrite_begin(g);
  for (int i = 0; i < g->nodes.n; i++)
    write_node(&m, readers, i);
  rewrite_finish(m.w);
}
