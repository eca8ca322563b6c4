/* Copies free computations into every run that reads them, so that their sources cross a cut instead of their
 * results. Such are views of parameters, forward views of all elements of a value, and values that depend on no
 * input and no parameter. Views and pointwise values of inputs are copied too, because every stage can load
 * inputs. The backward pass recomputes a value of inputs, such as an attention mask, if a call reads it and it is
 * larger than its inputs. Otherwise every layer with the mask would save its own copy of it. */
#include "ops/rules.h"
#include "simplify/rewrite.h"
#include "simplify/simplify.h"

typedef struct Copy {
  int run, node;
  bool backward;
} Copy;

typedef struct Localise {
  Rewrite *w;
  bool *loose;        /* by node of from */
  bool *made_again;   /* by node of from: backward copies recompute instead of sharing the forward one */
  Vec(Copy) * copies; /* by node of from */
} Localise;

static bool views_all(const Node *n) { return n->op->kind == OP_VIEW && (n->op->view_back || n->op->keeps_order); }

/* `given`: marks inputs and their pointwise values and views. */
static bool *find_loose(const Graph *g, bool *given) {
  bool *pinned = find_pinned(g), *loose = alloc(g->nodes.n + 1), *table = alloc(g->nodes.n + 1);
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *n = &g->nodes.at[i];
    bool all_tables = n->op->source == SOURCE_NONE, all_loose = n->op->kind == OP_VIEW;
    bool all_given = is_forward(g, i) && (n->op->kind == OP_VIEW || n->op->kind == OP_POINTWISE);
    for (int k = 0; k < n->n_in; k++) {
      int from = g->values.at[n->in[k]].node;
      all_tables &= table[from];
      all_loose &= loose[from] || g->nodes.at[from].op->source == SOURCE_PARAMETER;
      all_given &= given[from] || table[from];
    }
    table[i] = all_tables && !pinned[i];
    given[i] = n->op->source == SOURCE_INPUT || (all_given && !pinned[i]);
    loose[i] = n->op->source != SOURCE_INPUT && !pinned[i] &&
               (table[i] || given[i] || all_loose || (is_forward(g, i) && views_all(n)));
  }
  return loose;
}

/* By given forward node: elements of all inputs that it is computed from, counted per use. */
static int64_t *input_elements(const Graph *g, const bool *given) {
  int64_t *elements = alloc((size_t)(g->nodes.n + 1) * sizeof *elements);
  for (int i = 0; i < g->n_forward; i++) {
    const Node *n = &g->nodes.at[i];
    if (given[i] && n->op->source == SOURCE_INPUT)
      elements[i] = shape_elements(out_shape(g, i, 0));
    for (int k = 0; given[i] && k < n->n_in; k++)
      elements[i] += elements[g->values.at[n->in[k]].node];
  }
  return elements;
}

static bool *find_made_again(const Graph *g, const bool *loose, const bool *given) {
  const int64_t *elements = input_elements(g, given);
  bool *again = alloc((size_t)g->nodes.n + 1);
  for (int i = g->n_forward; i < g->nodes.n; i++) {
    const Node *n = &g->nodes.at[i];
    for (int k = 0; n->op->kind == OP_CALL && k < n->n_in; k++) {
      int from = g->values.at[n->in[k]].node, last = from;
      while (loose[last] && g->nodes.at[last].op->kind == OP_VIEW)
        last = g->values.at[g->nodes.at[last].in[0]].node;
      if (!is_forward(g, last) || !loose[last] || !given[last] || g->nodes.at[last].op->kind != OP_POINTWISE ||
          shape_elements(out_shape(g, last, 0)) <= elements[last])
        continue;
      for (again[last] = true; from != last; from = g->values.at[g->nodes.at[from].in[0]].node)
        again[from] = true;
    }
  }
  return again;
}

static int input_for(Localise *l, int value, int like);

static int *inputs_for(Localise *l, int node, int like) {
  const Node *n = &l->w->from->nodes.at[node];
  int *in = alloc(n->n_in * sizeof *in);
  for (int i = 0; i < n->n_in; i++)
    in[i] = input_for(l, n->in[i], like);
  return in;
}

/* The copy of a loose node for the run of `like`. Backward nodes share the forward copy if one exists, unless they
 * recompute it. */
static int copy_for(Localise *l, int node, int like) {
  bool backward = !is_forward(l->w->from, like);
  for (int i = 0; i < l->copies[node].n; i++) {
    Copy c = l->copies[node].at[i];
    if (c.run == l->w->run[like] && (c.backward ? backward : !backward || !l->made_again[node]))
      return c.node;
  }
  int *in = inputs_for(l, node, like);
  int made = rewrite_copy(l->w, node, in, like);
  push(&l->copies[node], (Copy){l->w->run[like], made, backward});
  return made;
}

static int input_for(Localise *l, int value, int like) {
  const Value *v = &l->w->from->values.at[value];
  if (!l->loose[v->node])
    return l->w->value[value];
  int output = v->output;
  return graph_output(l->w->to, copy_for(l, v->node, like), output);
}

void localise(Graph *g) {
  bool *given = alloc((size_t)g->nodes.n + 1);
  Localise l = {.w = rewrite_begin(g), .loose = find_loose(g, given)};
  l.made_again = find_made_again(g, l.loose, given);
  l.copies = alloc((g->nodes.n + 1) * sizeof *l.copies);
  for (int i = 0; i < g->nodes.n; i++)
    if (!l.loose[i]) {
      int *in = inputs_for(&l, i, i);
      rewrite_copy(l.w, i, in, i);
    }
  /* values that cross no cut need no gradient message; a loose gradient is computed at its use */
  for (int v = 0; v < g->values.n; v++)
    if (l.loose[g->values.at[v].node])
      l.w->value[v] = -1;
  rewrite_finish(l.w);
}
