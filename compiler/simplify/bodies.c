/* Simplifies the body of a scan, and drops the inputs that no step reads. */
#include "ops/scan.h"
#include "simplify/rewrite.h"
#include "simplify/simplify.h"

static bool *find_unread(const Graph *body) {
  bool *read = alloc((size_t)body->values.n + 1), *unread = alloc((size_t)body->inputs.n + 1);
  for (int i = 0; i < body->nodes.n; i++)
    for (int k = 0; k < body->nodes.at[i].n_in; k++)
      read[body->nodes.at[i].in[k]] = true;
  for (int i = 0; i < body->figures.n; i++)
    read[body->figures.at[i].value] = true;
  for (int i = 0; i < body->inputs.n; i++)
    unread[i] = !read[body->inputs.at[i].value];
  return unread;
}

/* Removes input i, which nothing reads. */
static void remove_input(Graph *body, int i) {
  const int gone = body->values.at[body->inputs.at[i].value].node;
  Rewrite *w = rewrite_begin(body);
  for (int k = 0; k < body->nodes.n; k++) {
    const Node *n = &body->nodes.at[k];
    int *in = alloc((size_t)(n->n_in + 1) * sizeof *in);
    if (k == gone)
      continue;
    for (int j = 0; j < n->n_in; j++)
      in[j] = w->value[n->in[j]];
    const int copy = rewrite_copy(w, k, in, k);
    Node *made = &w->to->nodes.at[copy];
    if (made->op->source == SOURCE_INPUT && made->attr[0].number > i) {
      made->attr = alloc_copy(made->attr, MAX_ATTR * sizeof *made->attr);
      made->attr[0].number--;
    }
  }
  w->to->inputs.at = alloc_copy(w->to->inputs.at, (size_t)(w->to->inputs.n + 1) * sizeof *w->to->inputs.at);
  for (int k = i; k + 1 < w->to->inputs.n; k++)
    w->to->inputs.at[k] = w->to->inputs.at[k + 1];
  w->to->inputs.n--;
  rewrite_finish(w);
}

bool *simplify_body(Graph *body) {
  simplify(body);
  const int n = body->inputs.n, scanned = body->loop.scanned, states = body->loop.states;
  bool *unread = find_unread(body);
  for (int i = n - 1; i >= 0; i--) {
    bool state = i >= scanned && i < scanned + states;
    if (unread[i] && state)
      body->loop.zeros |= (uint64_t)1 << (i - scanned);
    if (!unread[i] || state)
      continue;
    remove_input(body, i);
    body->loop.scanned -= i < scanned;
  }
  return unread;
}
