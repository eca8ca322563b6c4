/* Facts about the whole graph, independent of the part being fused. */
#include "fuse/facts.h"

#include "fuse/internal.h"

#include <ctype.h>
#include <string.h>

/* An unnamed result of a layer has the layer's name: "mean". */
static Name name_of(const Graph *g, int value) {
  const Value *v = &g->values.at[value];
  const Node *n = &g->nodes.at[v->node];
  const char *path = g->scopes.at[n->scope].path, *dot = strrchr(path, '.'), *last = dot ? dot + 1 : path;
  bool result = false;
  for (int i = 0; i < v->uses.n && v->name == intern(n->op->name); i++)
    result |= g->nodes.at[v->uses.at[i]].scope != n->scope;
  return result && isalpha((unsigned char)*last) ? intern(last) : v->name;
}

/* "d_x" is the gradient of x. */
static void find_names(const Graph *g, FuseFacts *f) {
  for (int v = 0; v < g->values.n; v++)
    f->name[v] = name_of(g, v);
  for (int v = 0; v < g->values.n; v++)
    for (int u = g->values.at[v].gradients.n - 1; u >= 0; u--) {
      int gradient = g->values.at[v].gradients.at[u];
      if (gradient >= 0)
        f->name[gradient] = internf("d_%s", f->name[v]);
    }
}

static void find_uses(const Graph *g, FuseFacts *f) {
  for (int i = 0; i < g->nodes.n; i++)
    for (int j = 0; j < g->nodes.at[i].n_in; j++)
      f->n_uses[g->nodes.at[i].in[j]]++;
  for (int i = 0; i < g->params.n; i++)
    for (int u = 0; u < g->params.at[i].gradients.n; u++)
      if (g->params.at[i].gradients.at[u] >= 0)
        f->n_uses[g->params.at[i].gradients.at[u]]++;
  for (int i = 0; i < g->figures.n; i++)
    f->n_uses[g->figures.at[i].value]++;
}

int behind_views(const Graph *g, int value) {
  const Node *n = &g->nodes.at[g->values.at[value].node];
  for (; n->op->kind == OP_VIEW; n = &g->nodes.at[g->values.at[value].node])
    value = n->in[0];
  return value;
}

static void find_flow(const Graph *g, FuseFacts *f, const Node *n) {
  bool from_samples = false, counts = counts_elements(g, n);
  bool varies = n->op->source != SOURCE_NONE || n->op->varies || n->op->kind == OP_CALL;
  for (int j = 0; j < n->n_in; j++) {
    varies |= f->varies[n->in[j]];
    from_samples |= g->values.at[n->in[j]].shape.batched || f->statistic[n->in[j]];
    counts |= n->op->kind == OP_POINTWISE && f->counts[behind_views(g, n->in[j])];
  }
  for (int j = 0; j < n->n_out; j++) {
    bool batched = g->values.at[n->out[j]].shape.batched;
    f->varies[n->out[j]] = varies || batched;
    f->statistic[n->out[j]] = from_samples && !batched;
  }
  f->counts[n->out[0]] = counts;
}

static void find_served(const Graph *g, FuseFacts *f) {
  for (int i = 0; i < g->nodes.n; i++)
    if (g->nodes.at[i].serves >= 0)
      push(&f->serving[g->nodes.at[i].serves], i);
}

FuseFacts *fuse_facts(const Graph *g) {
  FuseFacts *f = alloc(sizeof *f);
  size_t values = (size_t)g->values.n;
  *f = (FuseFacts){.g = g,
                   .name = alloc(values * sizeof *f->name),
                   .n_uses = alloc(values * sizeof *f->n_uses),
                   .itself = alloc(values * sizeof *f->itself),
                   .varies = alloc(values),
                   .statistic = alloc(values),
                   .counts = alloc(values),
                   .once = nodes_once(g),
                   .serving = alloc((size_t)g->nodes.n * sizeof *f->serving)};
  for (int v = 0; v < g->values.n; v++)
    f->itself[v] = v;
  find_names(g, f);
  find_uses(g, f);
  for (int i = 0; i < g->nodes.n; i++)
    find_flow(g, f, &g->nodes.at[i]);
  find_served(g, f);
  for (Precision p = 0; p < N_PRECISIONS; p++)
    f->bf16[p] = values_in_bf16(g, p);
  return f;
}
