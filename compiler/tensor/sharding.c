/* An assignment as text: the layout of each parameter, and the group's collectives. Parameter lines can be edited
 * and read back to pin layouts. */
#include "tensor/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ops/rules.h"

/* Marks that memory is short (Division.spread). Parameters never have this layout. */
static const char by_positions_line[] = "activations: positions";

static const char *layout_text(Layout l) {
  if (l.kind != LAYOUT_SPLIT)
    return "whole";
  return l.blocks == 1 ? format("axis %d", l.axis) : format("axis %d of %lld blocks", l.axis, (long long)l.blocks);
}

static Shape whole_shape(const Graph *g, const Param *p) {
  Shape s = p->shape;
  if (p->layout.kind == LAYOUT_SPLIT)
    s.dim[p->layout.axis] = s.dim[p->layout.axis] * g->shards - p->surplus;
  return s;
}

static void print_meetings(const Graph *g, bool forward, FILE *out) {
  int n = 0;
  for (int i = 0; i < g->nodes.n; i++)
    n += g->nodes.at[i].op->collective > 0 && (g->nodes.at[i].serves < 0) == forward;
  fprintf(out, "\n# %s: %d collective%s; shapes are a sample's, or a weight's\n", forward ? "forward" : "backward",
          n, n == 1 ? "" : "s");
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *x = &g->nodes.at[i];
    if (!x->op->collective || (x->serves < 0) != forward)
      continue;
    const char *where = g->scopes.at[x->scope].path;
    fprintf(out, "#   %-14s %-14s %s\n", x->op->name, shape_text(out_shape(g, i, 0)), *where ? where : g->name);
  }
}

void sharding_print(const Graph *g, FILE *out) {
  if (!g->shards) {
    fprintf(out, "# %s: no layer is shared\n", g->name);
    return;
  }
  fprintf(out, "# %s, with %d ranks that share its layers. '--sharding FILE' takes lines of parameters back.\n",
          g->name, g->shards);
  if (g->spread)
    fprintf(out, "%s\n", by_positions_line);
  for (int i = 0; i < g->params.n; i++) {
    const Param *p = &g->params.at[i];
    Shape whole = whole_shape(g, p);
    fprintf(out, "%s: %s  # of %s\n", p->name, layout_text(p->layout), shape_text(&whole));
  }
  print_meetings(g, true, out);
  print_meetings(g, false, out);
}

/* ---- reading --------------------------------------------------------------------------------------- */

static const Param *find_param(const Graph *g, const char *name, Span where) {
  const char **names = alloc((size_t)(g->params.n + 1) * sizeof *names);
  for (int i = 0; i < g->params.n; i++) {
    names[i] = g->params.at[i].name;
    if (!strcmp(names[i], name))
      return &g->params.at[i];
  }
  Diagnostic *d = error_at(where, "PD0515", "'%s' has no parameter '%s'", g->name, name);
  const char *near = nearest(name, names, g->params.n);
  if (near)
    help(d, "did you mean '%s'?", near);
  return NULL;
}

/* "whole", "axis 1", "axis 1 of 3 blocks" */
static bool read_layout(const char *text, Layout *out) {
  int axis, end = 0;
  long long blocks = 1;
  *out = (Layout){.kind = LAYOUT_WHOLE};
  if (!strcmp(text, "whole"))
    return true;
  if (sscanf(text, "axis %d%n", &axis, &end) != 1)
    return false;
  if (text[end] && (sscanf(text, "axis %d of %lld blocks%n", &axis, &blocks, &end) != 2 || text[end]))
    return false;
  *out = (Layout){LAYOUT_SPLIT, axis, blocks};
  return true;
}

/* Checks that ranks get equal parts of the axis, and that the pass tries its blocks. */
static bool check_layout(const Division *d, const Param *p, Layout l, Span where) {
  if (l.kind == LAYOUT_WHOLE)
    return true;
  if (l.axis < 0 || l.axis >= p->shape.rank || l.blocks < 1 || layout_id(d, l) < 0) {
    error_at(where, "PD0515", "'%s' of shape %s cannot have the layout %s", p->name, shape_text(&p->shape),
             layout_text(l));
    return false;
  }
  if (layout_fits(d, p->value, (LayoutId)layout_id(d, l)))
    return true;
  error_at(where, "PD0515", "%s of '%s', of shape %s, is not divisible into %d equal parts", layout_text(l),
           p->name, shape_text(&p->shape), d->ranks);
  return false;
}

/* Trims spaces at both ends. */
static char *trimmed(const char *from, const char *to) {
  while (from < to && strchr(" \t\r", *from))
    from++;
  while (to > from && strchr(" \t\r", to[-1]))
    to--;
  return format("%.*s", (int)(to - from), from);
}

static bool read_line(Division *d, const char *from, const char *to, Span where) {
  const char *comment = memchr(from, '#', (size_t)(to - from));
  to = comment ? comment : to;
  const char *colon = memchr(from, ':', (size_t)(to - from));
  Layout layout;
  if (!*trimmed(from, to))
    return true;
  if (!strcmp(trimmed(from, to), by_positions_line))
    return d->spread = true;
  if (!colon || !read_layout(trimmed(colon + 1, to), &layout)) {
    help(error_at(where, "PD0515", "this line is not a parameter and its layout"),
         "write 'NAME: whole', 'NAME: axis 1' or 'NAME: axis 1 of 3 blocks'");
    return false;
  }
  const Param *p = find_param(d->g, trimmed(from, colon), where);
  if (!p || !check_layout(d, p, layout, where))
    return false;
  d->pinned[p->value] = (LayoutId)layout_id(d, layout);
  return true;
}

bool sharding_read(Division *d, const char *path) {
  size_t length;
  const char *text = read_file(path, &length);
  if (!text) {
    error_at(NO_SPAN, "PD0515", "cannot read '%s': %s", path, read_failure(errno));
    return false;
  }
  int file = source_add(path, text), line = 1;
  bool good = true;
  for (const char *at = text, *end; *at; at = *end ? end + 1 : end, line++) {
    end = at + strcspn(at, "\n");
    good &= read_line(d, at, end, (Span){file, line, 1, line, (int)(end - at) + 1});
  }
  return good;
}
