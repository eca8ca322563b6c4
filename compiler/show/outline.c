/* The tree of instances as written in the model. */
#include "ops/op.h"
#include "show/show.h"

enum { MOST_OUTPUTS = 2 };

typedef struct Outputs {
  int value[MOST_OUTPUTS];
  int n; /* may exceed the array */
} Outputs;

static bool encloses(const Graph *g, int outer, int scope) {
  for (; scope >= 0; scope = g->scopes.at[scope].parent)
    if (scope == outer)
      return true;
  return false;
}

/* A value read in scope `reader` is an output of every instance that contains its producer but not the reader. */
static void note_read(const Graph *g, Outputs *outputs, int value, int reader) {
  const Node *made = &g->nodes.at[g->values.at[value].node];
  for (int s = made->scope; s > 0 && !encloses(g, s, reader); s = g->scopes.at[s].parent) {
    Outputs *o = &outputs[s];
    bool known = false;
    for (int i = 0; i < o->n && i < MOST_OUTPUTS; i++)
      known |= o->value[i] == value;
    if (known)
      continue;
    if (o->n < MOST_OUTPUTS)
      o->value[o->n] = value;
    o->n++;
  }
}

/* Notes computed values, or parameters. Parameters count only for instances without other outputs, such as
 * position_embedding. */
static void note_outputs(const Graph *g, Outputs *outputs, bool parameters) {
  bool *computes = alloc((size_t)g->scopes.n);
  for (int s = 0; s < g->scopes.n; s++)
    computes[s] = outputs[s].n > 0;
  for (int i = 0; i < g->nodes.n; i++)
    for (int k = 0; k < g->nodes.at[i].n_in; k++) {
      int v = g->nodes.at[i].in[k];
      const Node *made = &g->nodes.at[g->values.at[v].node];
      if (parameters ? made->op->source == SOURCE_PARAMETER && !computes[made->scope]
                     : made->op->kind != OP_SOURCE)
        note_read(g, outputs, v, g->nodes.at[i].scope);
    }
  for (int i = 0; i < g->figures.n && !parameters; i++)
    note_read(g, outputs, g->figures.at[i].value, 0);
}

static const char *shapes_text(const Graph *g, const Outputs *o) {
  Text t = {0};
  for (int i = 0; i < o->n && i < MOST_OUTPUTS; i++)
    text_add(&t, "%s%s", i ? ", " : "", shape_text(&g->values.at[o->value[i]].shape));
  if (o->n > MOST_OUTPUTS)
    text_add(&t, ", ...");
  return t.n ? t.at : "";
}

static void note_parameters(const Graph *g, Outline *o) {
  for (int i = 0; i < g->params.n; i++) {
    const Param *q = &g->params.at[i];
    int64_t n = shape_elements(&q->shape);
    for (int s = g->nodes.at[g->values.at[q->value].node].scope; s >= 0; s = g->scopes.at[s].parent) {
      Elements *e = &o->at[s].declared;
      *(q->buffer ? &e->buffers : q->frozen ? &e->frozen : &e->trained) += n;
    }
  }
}

static void find_leaves(const Graph *g, Outline *o) {
  for (int s = 0; s < o->n; s++)
    o->at[s].leaf = true;
  for (int s = 1; s < o->n; s++) {
    const Elements *e = &o->at[s].declared;
    bool owns = e->trained + e->frozen + e->buffers > 0;
    int up = g->scopes.at[s].parent;
    if (owns || (!o->at[s].empty && !g->scopes.at[up].standard))
      o->at[up].leaf = false;
  }
}

Outline outline_make(const Graph *g) {
  Outline o = {alloc((size_t)g->scopes.n * sizeof *o.at), g->scopes.n};
  Outputs *outputs = alloc((size_t)g->scopes.n * sizeof *outputs);
  for (int s = 0; s < o.n; s++) {
    int up = g->scopes.at[s].parent;
    o.at[s] = (Outlined){.empty = true, .depth = up < 0 ? 0 : o.at[up].depth + 1};
  }
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *n = &g->nodes.at[i];
    for (int s = n->scope; s >= 0; s = g->scopes.at[s].parent)
      o.at[s].empty &= n->op->kind == OP_SOURCE && n->op->source != SOURCE_PARAMETER;
  }
  note_outputs(g, outputs, false);
  note_outputs(g, outputs, true);
  note_parameters(g, &o);
  find_leaves(g, &o);
  for (int s = 0; s < o.n; s++)
    o.at[s].output = shapes_text(g, &outputs[s]);
  return o;
}

void outline_add_up(const Graph *g, double *own) {
  for (int s = g->scopes.n - 1; s > 0; s--) /* inner scopes come later */
    own[g->scopes.at[s].parent] += own[s];
}

int scope_shown(const Graph *g, const Outline *o, int scope, int depth) {
  int shown = scope;
  for (int s = scope; s >= 0; s = g->scopes.at[s].parent)
    if (o->at[s].depth > depth)
      shown = g->scopes.at[s].parent;
    else if (o->at[s].leaf)
      shown = s;
  return shown;
}
