/* Names pieces after the layer instances that start or end at their first node. */
#include "cut/names.h"

#include "base/table.h"
#include "ops/op.h"

bool scope_encloses(const Graph *g, int outer, int scope) {
  for (; scope >= 0; scope = g->scopes.at[scope].parent)
    if (scope == outer)
      return true;
  return false;
}

/* The scopes around `scope`, itself included, that do not enclose `other`; outermost first. */
static Ints chain(const Graph *g, int scope, int other) {
  Ints inner_first = {0}, result = {0};
  for (; scope >= 0 && !scope_encloses(g, scope, other); scope = g->scopes.at[scope].parent)
    push(&inner_first, scope);
  for (int i = inner_first.n - 1; i >= 0; i--)
    push(&result, inner_first.at[i]);
  return result;
}

/* Skips scopes without a path: the model and anonymous ones. */
static void add_names(const Graph *g, Ints scopes, const char *prefix, Piece *p) {
  for (int i = 0; i < scopes.n; i++) {
    Name path = g->scopes.at[scopes.at[i]].path;
    if (path && *path)
      push(&p->names, internf("%s%s", prefix, path));
  }
}

void name_boundary(const Graph *g, int first, Piece *p) {
  int before = g->nodes.at[first - 1].scope, here = g->nodes.at[first].scope;
  add_names(g, chain(g, here, before), "", p);
  add_names(g, chain(g, before, here), "after ", p);
}

/* Names the first piece after the instances around its first computation, else after the model. */
void name_first_piece(const Graph *g, Piece *p) {
  for (int i = 0; i < g->n_forward; i++) {
    const Node *n = &g->nodes.at[i];
    if (n->op->kind == OP_SOURCE || n->op->kind == OP_VIEW)
      continue;
    add_names(g, chain(g, n->scope, -1), "", p);
    break;
  }
  if (p->names.n == 0)
    push(&p->names, g->name);
}

/* The counter of earlier uses of the name by pieces. */
static int *uses_of(Table *counts, Name name) {
  int *n = table_find(counts, &name);
  if (!n)
    table_add(counts, &name, n = alloc(sizeof *n));
  return n;
}

void name_pieces(Pieces *p) {
  Table counts = {.key_bytes = sizeof(Name)};
  for (int i = 0; i < p->n; i++) {
    Piece *piece = &p->at[i];
    if (piece->names.n == 0)
      push(&piece->names, internf("piece %d", i));
    int **uses = alloc((size_t)piece->names.n * sizeof *uses);
    for (int k = 0; k < piece->names.n; k++)
      uses[k] = uses_of(&counts, piece->names.at[k]);
    for (int k = 0; k < piece->names.n; k++)
      if (*uses[k] > 0)
        piece->names.at[k] = internf("%s#%d", piece->names.at[k], *uses[k] + 1);
    for (int k = 0; k < piece->names.n; k++)
      ++*uses[k];
    piece->name = piece->names.at[0];
  }
}

Name piece_last_instance(const Graph *g, const Pieces *p, int piece) {
  int last = p->at[piece].end - 1;
  while (last > p->at[piece].first &&
         (g->nodes.at[last].op->kind == OP_SOURCE || g->nodes.at[last].op->kind == OP_VIEW))
    last--;
  int scope = g->nodes.at[last].scope;
  int next = p->at[piece].end < g->n_forward ? g->nodes.at[p->at[piece].end].scope : -1;
  Ints ended = chain(g, scope, next);
  for (int i = 0; i < ended.n; i++)
    if (*g->scopes.at[ended.at[i]].path)
      return g->scopes.at[ended.at[i]].path;
  Name own = g->scopes.at[scope].path;
  return *own ? own : g->values.at[g->nodes.at[last].out[0]].name;
}
