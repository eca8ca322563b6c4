/* Pieces are named after the layer instances that start or end where they begin. */
#include "cut/names.h"

#include <string.h>

#include "ops/op.h"

enum { MOST_LISTED = 8 };

static bool encloses(const Graph *g, int outer, int scope) {
  for (; scope >= 0; scope = g->scopes.at[scope].parent)
    if (scope == outer)
      return true;
  return false;
}

/* The scopes around `scope`, itself included, that do not enclose `other`; outermost first. */
static Ints chain(const Graph *g, int scope, int other) {
  Ints inner_first = {0}, result = {0};
  for (; scope >= 0 && !encloses(g, scope, other); scope = g->scopes.at[scope].parent)
    push(&inner_first, scope);
  for (int i = inner_first.n - 1; i >= 0; i--)
    push(&result, inner_first.at[i]);
  return result;
}

/* Scopes without a path of their own (the model, anonymous ones) name nothing. */
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

/* The first piece answers to the instances around its first computation, else to the model's name. */
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

static int count_name(const Pieces *p, int pieces, Name name) {
  int n = 0;
  for (int i = 0; i < pieces; i++)
    for (int k = 0; k < p->at[i].names.n; k++)
      n += p->at[i].names.at[k] == name;
  return n;
}

void name_pieces(Pieces *p) {
  for (int i = p->n - 1; i >= 0; i--) {
    Piece *piece = &p->at[i];
    if (piece->names.n == 0)
      push(&piece->names, internf("piece %d", i));
    for (int k = 0; k < piece->names.n; k++) {
      int earlier = count_name(p, i, piece->names.at[k]);
      if (earlier > 0)
        piece->names.at[k] = internf("%s#%d", piece->names.at[k], earlier + 1);
    }
    piece->name = piece->names.at[0];
  }
}

/* ---- asking ------------------------------------------------------------------------------------ */

/* "h[3].ln_2" -> "h.3.ln_2"; blanks around it go. */
static Name normal(const char *name) {
  Text t = {0};
  name += strspn(name, " \t");
  size_t n = strlen(name);
  while (n > 0 && (name[n - 1] == ' ' || name[n - 1] == '\t'))
    n--;
  for (size_t i = 0; i < n; i++) {
    if (name[i] == '[')
      text_add(&t, ".");
    else if (name[i] != ']')
      text_add(&t, "%c", name[i]);
  }
  return intern(t.at ? t.at : "");
}

int piece_find(const Pieces *p, const char *name) {
  Name wanted = normal(name);
  for (int i = 0; i < p->n; i++)
    for (int k = 0; k < p->at[i].names.n; k++)
      if (p->at[i].names.at[k] == wanted)
        return i;
  return -1;
}

/* The forward nodes of the instance, and of those within it: [*first, *end). False: there is no such one. */
static bool find_instance(const Graph *g, Name path, int *first, int *end) {
  bool known = false;
  *first = *end = -1;
  for (int s = 0; s < g->scopes.n; s++) {
    if (g->scopes.at[s].path != path)
      continue;
    known = true;
    for (int i = 0; i < g->n_forward; i++) {
      if (!encloses(g, s, g->nodes.at[i].scope))
        continue;
      *first = *first < 0 ? i : *first;
      *end = i + 1;
    }
  }
  return known;
}

/* Why no stage starts where the instance starts, or ends. */
static void tell_obstacle(Diagnostic *d, const Graph *g, int first) {
  int value = first > 0 ? find_obstacle(g, first) : -1;
  if (value < 0) {
    note_at(d, NO_SPAN, first < 0 ? "it computes nothing itself: views and constants are made where they are read"
                                  : "what is computed before or after that is no stage of its own");
    return;
  }
  const Value *v = &g->values.at[value];
  const char *what = v->shape.batched ? "is no f32" : "is the same for all samples";
  note_at(d, v->span, "'%s' is used before and after that and %s: it cannot be sent", v->name, what);
}

/* The names nearest to `name`: those that share the longest beginning with it, in order. */
static char *near_names(const Pieces *p, Name name) {
  size_t longest = 0;
  Text t = {0};
  int listed = 0;
  for (int i = 1; i < p->n; i++) {
    size_t n = 0;
    while (name[n] && name[n] == p->at[i].name[n])
      n++;
    longest = n > longest ? n : longest;
  }
  for (int i = 1; i < p->n && listed < MOST_LISTED; i++)
    if (!strncmp(p->at[i].name, name, longest) && strncmp(p->at[i].name, "after ", 6) != 0)
      text_add(&t, "%s'%s'", listed++ ? ", " : "", p->at[i].name);
  return t.at;
}

int piece_find_or_tell(const Graph *g, const Pieces *p, const char *name, Span where, const char *what) {
  int found = piece_find(p, name);
  if (found >= 0)
    return found;
  Name wanted = normal(name);
  bool after = !strncmp(wanted, "after ", 6);
  int first, end;
  bool known = find_instance(g, after ? intern(wanted + 6) : wanted, &first, &end);
  Diagnostic *d = known ? error_at(where, "PD0503", "%s: the model cannot be cut at '%s'", what, wanted)
                        : error_at(where, "PD0502", "%s: no layer instance '%s'", what, wanted);
  if (known)
    tell_obstacle(d, g, after ? end : first);
  Vec(const char *) all = {0};
  for (int i = 1; i < p->n; i++)
    for (int k = 0; k < p->at[i].names.n; k++)
      push(&all, p->at[i].names.at[k]);
  const char *near = nearest(wanted, all.at, all.n), *listed = near_names(p, wanted);
  if (near && !known)
    help(d, "a stage can start at '%s'", near);
  else if (listed)
    help(d, "stages can start at %s ...", listed);
  return -1;
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
