/* Selects pieces by patterns of layer names, and describes a selection by such patterns. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cut/names.h"
#include "ops/op.h"

/* "[3]", "[*]" or "[0..6]" at *pattern against one component of a path. */
static bool index_matches(const char *inside, size_t n, const char *component, size_t length) {
  if (n == 1 && *inside == '*')
    return length > 0 && strspn(component, "0123456789") >= length;
  const char *dots = strstr(inside, "..");
  if (!dots || dots >= inside + n)
    return n == length && !strncmp(inside, component, n);
  if (length == 0 || strspn(component, "0123456789") < length)
    return false;
  const long index = strtol(component, NULL, 10);
  return index >= strtol(inside, NULL, 10) && index < strtol(dots + 2, NULL, 10);
}

/* Whether the pattern is the whole path: "h[0..6].mlp" for "h.3.mlp". '*' stands for any part of one component. */
static bool matches(const char *pattern, const char *path) {
  for (; *pattern; path++) {
    if (*pattern == '[') {
      const size_t n = strcspn(pattern + 1, "]"), length = *path == '.' ? strcspn(path + 1, ".") : 0;
      if (*path != '.' || !index_matches(pattern + 1, n, path + 1, length))
        return false;
      path += length;
      pattern += n + 1 + (pattern[n + 1] == ']');
    } else if (*pattern == '*') {
      for (size_t n = strcspn(path, ".") + 1; n-- > 0;)
        if (matches(pattern + 1, path + n))
          return true;
      return false;
    } else if (*pattern++ != *path) {
      return false;
    }
  }
  return !*path;
}

/* The scope of the piece's first computation. */
static int scope_of_piece(const Graph *g, const Piece *p) {
  for (int i = p->first; i < p->end; i++)
    if (g->nodes.at[i].op->kind != OP_SOURCE && g->nodes.at[i].op->kind != OP_VIEW)
      return g->nodes.at[i].scope;
  return g->nodes.at[p->first].scope;
}

/* "=NAME": pieces of this name alone; "*": every piece; else the pieces that begin within an instance. */
static bool selects(const Graph *g, const Piece *p, const char *pattern) {
  if (*pattern == '=')
    return matches(pattern + 1, p->name);
  if (!strcmp(pattern, "*"))
    return true;
  for (int s = scope_of_piece(g, p); s >= 0; s = g->scopes.at[s].parent)
    if (g->scopes.at[s].path[0] && matches(pattern, g->scopes.at[s].path))
      return true;
  return false;
}

bool pieces_select(const Graph *g, const Pieces *p, const char *pattern, bool *selected) {
  bool any = false;
  for (int i = 0; i < p->n; i++)
    if (selects(g, &p->at[i], pattern)) {
      selected[i] = true;
      any = true;
    }
  return any;
}

static void tell_no_instance(const Graph *g, const char *pattern, Span where, const char *what) {
  Diagnostic *d = error_at(where, "PD0502", "%s: no layer instance '%s'", what, pattern);
  Vec(const char *) all = {0};
  for (int s = 0; s < g->scopes.n; s++)
    push(&all, g->scopes.at[s].path);
  const char *near = nearest(pattern, all.at, all.n);
  if (near)
    help(d, "did you mean '%s'?", near);
  else
    help(d, "use names of layers such as 'h[3]', 'h[0..6]' or 'h[*].mlp', separated by commas");
}

/* ---- patterns of users ---- */

/* The fault of an index, the text between '[' and ']' of length n; NULL: none. */
static const char *index_fault(const char *inside, size_t n) {
  static const char DIGITS[] = "0123456789";
  const size_t digits = strspn(inside, DIGITS);
  if ((n == 1 && *inside == '*') || (n > 0 && digits == n))
    return NULL;
  if (digits == 0 || digits + 2 >= n || strncmp(inside + digits, "..", 2) != 0 ||
      strspn(inside + digits + 2, DIGITS) != n - digits - 2)
    return "an index is a number, '*', or a range such as '0..6'";
  if (strtol(inside, NULL, 10) >= strtol(inside + digits + 2, NULL, 10))
    return "a range is empty: its end must be above its start, and is not part of it";
  return NULL;
}

/* The same of a whole pattern. */
static const char *pattern_fault(const char *pattern) {
  for (; *pattern; pattern++) {
    if (*pattern == ']')
      return "']' has no '['";
    if (*pattern != '[')
      continue;
    const size_t n = strcspn(pattern + 1, "[]");
    if (pattern[n + 1] != ']')
      return "'[' has no ']'";
    const char *fault = index_fault(pattern + 1, n);
    if (fault)
      return fault;
    pattern += n + 1;
  }
  return NULL;
}

/* The first instance of the ranges that the model does not have, with its index alone: "h[4]" of "h[0..99]"; NULL: it has
 * all. */
static const char *missing_of_range(const Graph *g, const Pieces *p, const char *pattern) {
  for (const char *open = strchr(pattern, '['); open; open = strchr(open + 1, '[')) {
    const char *dots = strstr(open, ".."), *close = strchr(open, ']');
    if (!dots || dots > close)
      continue;
    const long first = strtol(open + 1, NULL, 10), end = strtol(dots + 2, NULL, 10);
    for (long i = first; i < end; i++) {
      const char *one = format("%.*s[%ld%s", (int)(open - pattern), pattern, i, close);
      if (!pieces_select(g, p, one, alloc((size_t)p->n)))
        return one;
    }
  }
  return NULL;
}

bool pieces_selected(const Graph *g, const Pieces *p, const char *pattern, Span where, const char *what,
                     bool *selected) {
  const char *fault = pattern_fault(pattern);
  if (fault) {
    Diagnostic *d = error_at(where, "PD0502", "%s: '%s' is not a pattern of layers: %s", what, pattern, fault);
    help(d, "use names of layers such as 'h[3]', 'h[0..6]' or 'h[*].mlp', separated by commas");
    return false;
  }
  if (!pieces_select(g, p, pattern, selected)) {
    tell_no_instance(g, pattern, where, what);
    return false;
  }
  const char *missing = missing_of_range(g, p, pattern);
  if (missing) {
    Diagnostic *d = error_at(where, "PD0502", "%s: '%s' has no layer instance '%s'", what, pattern, missing);
    help(d, "end the range there, or use '[*]' for all");
    return false;
  }
  return true;
}

/* ---- descriptions --------------------------------------------------------------------------------------- */

/* "h.3" -> "h[3]": components that are numbers are indices. */
static Name with_brackets(const char *path) {
  Text t = {0};
  for (const char *at = path; *at;) {
    const size_t n = strcspn(at, ".");
    const bool index = at > path && n > 0 && strspn(at, "0123456789") == n;
    text_add(&t, index ? "[%.*s]" : at > path ? ".%.*s" : "%.*s", (int)n, at);
    at += n + (at[n] == '.');
  }
  return intern(t.at ? t.at : "");
}

/* Whether the pattern selects, of pieces [first, end), exactly [from, to). */
static bool selects_exactly(const Graph *g, const Pieces *p, const char *pattern, int first, int end, int from,
                            int to) {
  for (int i = first; i < end; i++)
    if (selects(g, &p->at[i], pattern) != (i >= from && i < to))
      return false;
  return true;
}

/* The outermost instance whose pieces in [first, end) start at `from` and are all selected; *to: behind them. NULL: no
 * instance. */
static Name describe_at(const Graph *g, const Pieces *p, const bool *selected, int first, int end, int from,
                        int *to) {
  Name found = NULL;
  for (int s = scope_of_piece(g, &p->at[from]); s >= 0; s = g->scopes.at[s].parent) {
    const Name path = g->scopes.at[s].path;
    int behind = from;
    while (behind < end && selected[behind] && path[0] && selects(g, &p->at[behind], path))
      behind++;
    if (behind > from && selects_exactly(g, p, path, first, end, from, behind))
      found = path, *to = behind;
  }
  return found;
}

/* A pattern with an index of its own: the text before the first index, the index, the text behind it. */
typedef struct Indexed {
  Name before, behind; /* behind NULL: no index */
  long index, end;
} Indexed;

static Indexed indexed(Name pattern) {
  const char *open = strchr(pattern, '['), *close = open ? strchr(open, ']') : NULL;
  if (!close)
    return (Indexed){.before = pattern};
  const long index = strtol(open + 1, NULL, 10);
  return (Indexed){intern_n(pattern, (size_t)(open - pattern)), intern(close + 1), index, index + 1};
}

typedef Vec(Indexed) IndexedPatterns;

/* Joins the pattern to the range that it continues; "h[0]" and "h[1]" become "h[0..2]". */
static void join(IndexedPatterns *all, Indexed x) {
  for (int i = 0; i < all->n; i++) {
    Indexed *y = &all->at[i];
    if (x.behind && y->before == x.before && y->behind == x.behind && y->end == x.index) {
      y->end = x.end;
      return;
    }
  }
  push(all, x);
}

Patterns pieces_describe(const Graph *g, const Pieces *p, const bool *selected, int first, int end) {
  IndexedPatterns all = {0};
  Patterns list = {0};
  for (int i = first, to; i < end; i = to) {
    to = i + 1;
    if (!selected[i])
      continue;
    const Name path = describe_at(g, p, selected, first, end, i, &to);
    join(&all, indexed(path ? with_brackets(path) : internf("=%s", with_brackets(p->at[i].name))));
  }
  for (int i = 0; i < all.n; i++) {
    const Indexed *x = &all.at[i];
    push(&list, !x->behind               ? x->before
                : x->end == x->index + 1 ? internf("%s[%ld]%s", x->before, x->index, x->behind)
                                         : internf("%s[%ld..%ld]%s", x->before, x->index, x->end, x->behind));
  }
  return list;
}
