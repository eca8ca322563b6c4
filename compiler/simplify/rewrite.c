#include "simplify/rewrite.h"

bool reads_param(const Graph *g, int node) {
  for (int i = 0; i < g->nodes.at[node].n_in; i++)
    if (maker(g, g->nodes.at[node].in[i])->op->source == SOURCE_PARAMETER)
      return true;
  return false;
}

bool *find_pinned(const Graph *g) {
  bool *pinned = alloc(g->nodes.n + 1);
  for (int i = 0; i < g->figures.n; i++)
    pinned[g->values.at[g->figures.at[i].value].node] = true;
  for (int i = 0; i < g->params.n; i++)
    for (int k = 0; k < g->params.at[i].gradients.n; k++)
      if (g->params.at[i].gradients.at[k] >= 0)
        pinned[g->values.at[g->params.at[i].gradients.at[k]].node] = true;
  return pinned;
}

static int *filled(int n, int with) {
  int *a = alloc((n + 1) * sizeof *a);
  for (int i = 0; i < n; i++)
    a[i] = with;
  return a;
}

Rewrite *rewrite_begin(Graph *g) {
  Rewrite *w = alloc(sizeof *w);
  w->from = g;
  w->to = alloc(sizeof *w->to);
  *w->to = *g;
  w->to->values.at = NULL;
  w->to->nodes.at = NULL;
  w->to->values.n = w->to->values.room = w->to->nodes.n = w->to->nodes.room = w->to->n_forward = 0;
  w->run = graph_runs(g);
  w->value = filled(g->values.n, -1);
  w->node = filled(g->nodes.n, -1);
  return w;
}

/* The copy of a forward node or of its nearest neighbour: first later, then earlier nodes of its run, then any
 * earlier node. */
static int serving(const Rewrite *w, int node) {
  for (int i = node; i < w->from->n_forward && w->run[i] == w->run[node]; i++)
    if (w->node[i] >= 0)
      return w->node[i];
  for (int i = node; i >= 0; i--)
    if (w->node[i] >= 0)
      return w->node[i];
  BUG("no forward node is left for '%s' to serve", w->from->nodes.at[node].op->name);
}

static Partials partials_of(const Rewrite *w, int value) {
  Partials p = {{0}, {0}};
  const Value *v = &w->from->values.at[value];
  for (int i = 0; i < v->uses.n; i++) {
    push(&p.run, w->run[v->uses.at[i]]);
    push(&p.gradient, v->gradients.at[i]);
  }
  return p;
}

int rewrite_copy(Rewrite *w, int node, const int *in, int like) {
  const Node *old = &w->from->nodes.at[node];
  int made = w->to->nodes.n;
  Node n = *old;
  n.in = alloc_copy(in, n.n_in * sizeof *in);
  n.out = alloc(n.n_out * sizeof *n.out);
  n.scope = w->from->nodes.at[like].scope;
  n.serves = is_forward(w->from, like) ? -1 : serving(w, w->from->nodes.at[like].serves);
  for (int i = 0; i < n.n_out; i++) {
    Value v = w->from->values.at[old->out[i]];
    v.node = made;
    n.out[i] = w->value[old->out[i]] = w->to->values.n;
    push(&w->to->values, v);
    push(&w->partials, partials_of(w, old->out[i]));
  }
  push(&w->to->nodes, n);
  push(&w->run_to, w->run[like]);
  if (n.serves < 0 || !is_forward(w->from, node)) /* recomputed backward nodes serve nothing */
    w->node[node] = made;
  if (n.serves < 0)
    w->to->n_forward = made + 1;
  return made;
}

static int built(Rewrite *w, int made, int run, const Op *op) {
  if (made < 0)
    BUG("a rewrite builds a '%s' that does not fit", op->name);
  push(&w->run_to, run);
  for (int i = 0; i < w->to->nodes.at[made].n_out; i++)
    push(&w->partials, (Partials){{0}, {0}});
  return made;
}

int rewrite_build(Rewrite *w, int like, const Op *op, const int *in, int n_in, const Attr *attr) {
  Node n = w->to->nodes.at[like];
  int made = n.serves < 0 ? graph_node(w->to, op, in, n_in, attr, n.scope, n.span)
                          : graph_backward_node(w->to, op, in, n_in, attr, n.serves);
  return built(w, made, w->run_to.at[like], op);
}

int rewrite_insert(Rewrite *w, int like, const Op *op, const int *in, int n_in, const Attr *attr) {
  const Node *n = &w->from->nodes.at[like];
  int made = is_forward(w->from, like) ? graph_node(w->to, op, in, n_in, attr, n->scope, n->span)
                                       : graph_backward_node(w->to, op, in, n_in, attr, serving(w, n->serves));
  return built(w, made, w->run[like], op);
}

void rewrite_stand_for(Rewrite *w, int value, int old) {
  const Value *v = &w->from->values.at[old];
  Value *made = &w->to->values.at[value];
  made->name = v->name, made->named_in = v->named_in, made->span = v->span;
  w->value[old] = value;
}

/* ---- finishing -------------------------------------------------------------------------------- */

static int mapped(const Rewrite *w, int value) { return value < 0 ? -1 : w->value[value]; }

static void note_param_uses(Graph *g) {
  for (int i = 0; i < g->params.n; i++)
    g->params.at[i].uses = (Ints){0};
  for (int u = 0; u < g->n_forward; u++)
    for (int k = 0; k < g->nodes.at[u].n_in; k++) {
      const Node *from = maker(g, g->nodes.at[u].in[k]);
      if (from->op->source != SOURCE_PARAMETER)
        continue;
      Ints *uses = &g->params.at[node_int(from, "index")].uses;
      if (!uses->n || uses->at[uses->n - 1] != u)
        push(uses, u);
    }
}

/* Each gradient stays with the copy of its use; none is lost. */
static Ints gradients_of_uses(const Rewrite *w, const Param *p, const Ints *old_uses, const Ints *old_gradients) {
  Ints gradients = {0};
  int lost = 0;
  for (int k = 0; k < old_gradients->n; k++)
    lost += old_gradients->at[k] >= 0;
  for (int i = 0; i < p->uses.n && old_gradients->n; i++) {
    int k = 0;
    while (k < old_uses->n && w->node[old_uses->at[k]] != p->uses.at[i])
      k++;
    ensure(k < old_uses->n);
    push(&gradients, mapped(w, old_gradients->at[k]));
    lost -= gradients.at[i] >= 0;
  }
  ensure(lost == 0);
  return gradients;
}

static void finish_params(Rewrite *w) {
  Ints *old = alloc((w->to->params.n + 1) * sizeof *old);
  for (int i = 0; i < w->to->params.n; i++)
    old[i] = w->to->params.at[i].uses;
  note_param_uses(w->to);
  for (int i = 0; i < w->to->params.n; i++) {
    Param *p = &w->to->params.at[i];
    p->value = w->value[p->value];
    p->gradients = gradients_of_uses(w, p, &old[i], &p->gradients);
  }
}

/* The sum over the uses from this run on; uses are ordered by run. */
static int partial_at(const Rewrite *w, int value, int run) {
  const Partials *p = &w->partials.at[value];
  for (int i = 0; i < p->run.n; i++)
    if (p->run.at[i] >= run)
      return mapped(w, p->gradient.at[i]);
  return -1;
}

static void finish_uses(Rewrite *w) {
  Graph *to = w->to;
  for (int v = 0; v < to->values.n; v++)
    to->values.at[v].uses = to->values.at[v].gradients = (Ints){0};
  if (w->from->nodes.n == w->from->n_forward)
    return;
  for (int u = 0; u < to->n_forward; u++)
    for (int k = 0; k < to->nodes.at[u].n_in; k++) {
      int value = to->nodes.at[u].in[k];
      Value *v = &to->values.at[value];
      bool parameter = to->nodes.at[v->node].op->source == SOURCE_PARAMETER;
      if (parameter || (v->uses.n && v->uses.at[v->uses.n - 1] == u))
        continue;
      push(&v->uses, u);
      push(&v->gradients, partial_at(w, value, w->run_to.at[u]));
    }
}

void rewrite_finish(Rewrite *w) {
  Graph *to = w->to;
  finish_params(w);
  finish_uses(w);
  for (int i = 0; i < to->inputs.n; i++)
    to->inputs.at[i].value = w->value[to->inputs.at[i].value];
  for (int i = 0; i < to->figures.n; i++)
    to->figures.at[i].value = w->value[to->figures.at[i].value];
  *w->from = *to;
}
