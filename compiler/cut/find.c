/* Finds pieces by user-given names, with diagnostics. */
#include <string.h>

#include "cut/names.h"

enum { MOST_LISTED = 8 };

/* "h[3].ln_2" -> "h.3.ln_2"; trims blanks at both ends. */
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

/* The forward nodes of the instance and of its inner instances: [*first, *end). False: no such instance. */
static bool find_instance(const Graph *g, Name path, int *first, int *end) {
  bool known = false;
  *first = *end = -1;
  for (int s = 0; s < g->scopes.n; s++) {
    if (g->scopes.at[s].path != path)
      continue;
    known = true;
    for (int i = 0; i < g->n_forward; i++) {
      if (!scope_encloses(g, s, g->nodes.at[i].scope))
        continue;
      *first = *first < 0 ? i : *first;
      *end = i + 1;
    }
  }
  return known;
}

/* Explains why no stage starts at the instance's start or end. */
static void tell_obstacle(Diagnostic *d, const Graph *g, int first) {
  int value = first > 0 ? find_obstacle(g, first) : -1;
  if (value < 0) {
    note_at(
        d, NO_SPAN,
        first < 0
            ? "this place computes nothing: views and constants belong to their readers, and on GPUs GELU to a matrix product"
            : "a cut there would leave a stage without computation");
    return;
  }
  const Value *v = &g->values.at[value];
  const char *what = !v->shape.batched     ? "is the same for all samples"
                     : v->type != TYPE_F32 ? "is no f32"
                                           : "is part of the products on either side";
  note_at(d, v->span, "'%s' is used before and after that and %s: it cannot be sent", v->name, what);
}

/* The names with the longest common prefix with `name`, in order. */
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
