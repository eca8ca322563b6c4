/* Tensor cores need rows that start at multiples of 16 bytes. Logits of a vocabulary of 50257 violate this forward
 * and backward; those of 50304 do not. So the vocabulary's matrix gets zero rows in memory. Files, the optimizer
 * and the model's own shapes exclude them. The pass sees the whole model, before any cut. */
#include "layout/pad_rows.h"

#include "ops/op.h"
#include "ops/rules.h"
#include "simplify/rewrite.h"

enum {
  SIDE_BY_SIDE = 8, /* elements of bf16 in 16 bytes */
  FEWEST_ROWS = 512 /* a multiple of 128 adds at most a quarter to these */
};

/* Whether the node is the view [k, n] of a matrix [n, k]. */
static bool is_transposed(const Graph *g, int node) {
  const Node *n = &g->nodes.at[node];
  int dims[MAX_RANK];
  if (n->op->kind != OP_VIEW || !n->op->order || g->values.at[n->out[0]].shape.rank != 2)
    return false;
  n->op->order(g, node, dims);
  return dims[0] == 1;
}

/* Whether the value has readers, all of which use it as a product's right factor. */
static bool only_multiplies(const Graph *g, int value) {
  bool read = false;
  for (int i = 0; i < g->nodes.n; i++)
    for (int k = 0; k < g->nodes.at[i].n_in; k++) {
      if (g->nodes.at[i].in[k] != value)
        continue;
      if (g->nodes.at[i].op != &op_matmul || k != 1)
        return false;
      read = true;
    }
  return read;
}

static bool can_be_padded(const Graph *g, const Param *p) {
  bool multiplies = false;
  if (p->shape.rank != 2 || p->buffer || p->shape.dim[0] < FEWEST_ROWS || p->shape.dim[0] % SIDE_BY_SIDE == 0)
    return false;
  for (int i = 0; i < p->uses.n; i++) {
    const Node *use = &g->nodes.at[p->uses.at[i]];
    bool product = is_transposed(g, p->uses.at[i]) && only_multiplies(g, use->out[0]);
    if (!product && (use->op != &op_gather || use->in[1] == p->value))
      return false;
    multiplies |= product;
  }
  return multiplies;
}

/* Copies the node with inputs of other sizes. */
static int rebuild(Rewrite *w, int node, const int *in) {
  const Node *old = &w->from->nodes.at[node];
  int made = rewrite_insert(w, node, old->op, in, old->n_in, old->attr);
  w->node[node] = made;
  return graph_output(w->to, made, 0);
}

static void write_product(Rewrite *w, int node, const int *in) {
  int old = w->from->nodes.at[node].out[0], whole = rebuild(w, node, in);
  const Shape *s = &w->from->values.at[old].shape;
  Attr attr[MAX_ATTR] = {{.number = s->rank - 1}, {.number = 0}, {.number = (double)s->dim[s->rank - 1]}};
  rewrite_stand_for(w, whole, old);
  rewrite_stand_for(w, graph_output(w->to, rewrite_insert(w, node, &op_slice, &whole, 1, attr), 0), old);
}

static void write_node(Rewrite *w, int node, bool *wider) {
  const Node *n = &w->from->nodes.at[node];
  int *in = alloc((size_t)(n->n_in + 1) * sizeof *in);
  for (int k = 0; k < n->n_in; k++)
    in[k] = w->value[n->in[k]];
  if (n->op->source == SOURCE_PARAMETER) {
    const Param *p = &w->to->params.at[node_int(n, "index")];
    rewrite_copy(w, node, in, node);
    w->to->values.at[w->value[p->value]].shape = padded_shape(p);
    wider[p->value] = p->padding > 0;
  } else if (n->op->kind == OP_VIEW && wider[n->in[0]]) {
    wider[n->out[0]] = true;
    rewrite_stand_for(w, rebuild(w, node, in), n->out[0]);
  } else if (n->op == &op_matmul && wider[n->in[1]]) {
    write_product(w, node, in);
  } else {
    rewrite_copy(w, node, in, node);
  }
}

void pad_rows(Graph *g, int multiple) {
  bool any = false;
  for (int i = 0; i < g->params.n && multiple; i++) {
    Param *p = &g->params.at[i];
    if (can_be_padded(g, p))
      p->padding = (multiple - p->shape.dim[0] % multiple) % multiple;
    any |= p->padding > 0;
  }
  if (!any)
    return;
  Rewrite *w = rewrite_begin(g);
  bool *wider = alloc((size_t)g->values.n + 1); /* by value of g: has extra rows or columns */
  for (int i = 0; i < g->nodes.n; i++)
    write_node(w, i, wider);
  rewrite_finish(w);
}
