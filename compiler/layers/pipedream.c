/* PipeDream's graph format. A line per layer,
 * ID -- NAME -- forward_compute_time=MS, backward_compute_time=MS, activation_size=BYTES, parameter_size=BYTES
 * optionally with " -- stage_id=N" at the end. Then a line per edge, which starts with a tab:  ID -- ID */
#define _GNU_SOURCE /* memmem */
#include <stdlib.h>
#include <string.h>

#include "layers/internal.h"

typedef struct Line {
  const char *at, *end; /* without the line end */
  int file, number;
} Line;

typedef struct Edge {
  Name from, to;
  Span where_from, where_to;
} Edge;
typedef Vec(Edge) Edges;

static Span span_of(const Line *l, const char *from, const char *to) {
  int first = (int)(from - l->at) + 1, last = (int)(to - l->at) + 1;
  return (Span){l->file, l->number, first, l->number, last > first ? last : first + 1};
}

static const char *find(const char *from, const char *to, const char *what) {
  return from < to ? memmem(from, (size_t)(to - from), what, strlen(what)) : NULL;
}

/* ---- figures ------------------------------------------------------------------------------------- */

/* Reads a number that ends before `end`; false after a diagnostic. */
static bool read_number(const Line *l, const char *at, const char *end, const char *key, double *out) {
  while (at < end && *at == ' ')
    at++;
  while (end > at && end[-1] == ' ')
    end--;
  char *text = format("%.*s", (int)(end - at), at), *rest;
  *out = strtod(text, &rest);
  if (rest == text || *rest) {
    error_at(span_of(l, at, end), "PD0521", "'%s' is not a number", key);
    return false;
  }
  return figure_is_possible(*out, span_of(l, at, end), format("'%s'", key));
}

/* "[6291456.0; 131072.0]": the outputs of a layer; their sum. */
static bool read_list(const Line *l, const char *at, const char *end, const char *key, double *out) {
  if (end[-1] != ']') {
    error_at(span_of(l, at, end), "PD0521", "the list of '%s' is not closed", key);
    return false;
  }
  *out = 0;
  for (const char *from = at + 1; from < end;) {
    const char *to = find(from, end - 1, ";");
    to = to ? to : end - 1;
    double x;
    if (!read_number(l, from, to, key, &x))
      return false;
    *out += x;
    from = to + 1;
  }
  return figure_is_possible(*out, span_of(l, at, end), format("the sum of '%s'", key));
}

/* Reads the figure `key` in [at, end); false after a diagnostic. */
static bool read_figure(const Line *l, const char *at, const char *end, const char *key, double *out) {
  const char *from = find(at, end, format("%s=", key));
  if (!from) {
    error_at(span_of(l, at, end), "PD0522", "'%s' is missing", key);
    return false;
  }
  from += strlen(key) + 1;
  const char *to = find(from, end, ", ");
  to = to ? to : end;
  bool list = from < to && *from == '[';
  return list ? read_list(l, from, to, key, out) : read_number(l, from, to, key, out);
}

/* ---- lines --------------------------------------------------------------------------------------- */

/* "Conv2d(3, 64)": the text before the parenthesis. */
static Name kind_of(const char *at, const char *end) {
  const char *parenthesis = find(at, end, "(");
  return intern_n(at, (size_t)((parenthesis ? parenthesis : end) - at));
}

static bool read_layer(const Line *l, LayerGraph *g, LayerNames *names) {
  static const char mark[] = " -- ", figures[] = "forward_compute_time";
  const char *name_end = find(l->at, l->end, mark), *name = name_end ? name_end + strlen(mark) : NULL;
  const char *kind_end = name ? find(name, l->end, format("%s%s=", mark, figures)) : NULL;
  if (!kind_end && name) /* the figure is missing: reported below */
    kind_end = find(name, l->end, mark);
  if (!kind_end || name_end == l->at) {
    Diagnostic *d =
        error_at(span_of(l, l->at, l->end), "PD0521", "this line is not in the format of PipeDream's profiles");
    help(d, "write a layer as 'ID -- NAME -- forward_compute_time=MS, ...', an edge as a tab and 'ID -- ID'");
    return false;
  }
  const char *at = kind_end + strlen(mark), *end = find(at, l->end, mark);
  end = end ? end : l->end;
  double forward, backward, output, parameters;
  if (!read_figure(l, at, end, figures, &forward) ||
      !read_figure(l, at, end, "backward_compute_time", &backward) ||
      !read_figure(l, at, end, "activation_size", &output) ||
      !read_figure(l, at, end, "parameter_size", &parameters))
    return false;
  double *seconds = alloc(2 * sizeof *seconds);
  seconds[0] = forward / 1e3;
  seconds[1] = backward / 1e3;
  Layer layer = {.name = intern_n(l->at, (size_t)(name_end - l->at)),
                 .kind = kind_of(name, kind_end),
                 .forward = &seconds[0],
                 .backward = &seconds[1],
                 .output = (int64_t)(output + 0.5),
                 .parameters = (int64_t)(parameters + 0.5),
                 .cut = true,
                 .where = span_of(l, l->at, name_end)};
  return layer_add(g, names, &layer);
}

static bool read_edge(const Line *l, Edges *edges) {
  const char *from = l->at + 1, *from_end = find(from, l->end, " -- ");
  const char *to = from_end ? from_end + 4 : NULL;
  if (!to || from == from_end || to == l->end || find(to, l->end, " -- ")) {
    Diagnostic *d =
        error_at(span_of(l, l->at, l->end), "PD0521", "this edge is not in the format of PipeDream's profiles");
    help(d, "write an edge as a tab and 'ID -- ID'");
    return false;
  }
  push(edges, ((Edge){intern_n(from, (size_t)(from_end - from)), intern_n(to, (size_t)(l->end - to)),
                      span_of(l, from, from_end), span_of(l, to, l->end)}));
  return true;
}

static bool read_lines(const LayerFile *in, LayerGraph *g, LayerNames *names, Edges *edges) {
  enum { MOST_ERRORS = 10 };
  int errors = error_count();
  Line l = {.file = in->file, .number = 1};
  for (const char *at = in->text; *at && error_count() < errors + MOST_ERRORS; l.number++) {
    size_t n = strcspn(at, "\n");
    l.at = at;
    l.end = at + n;
    while (l.end > l.at && (l.end[-1] == '\r' || l.end[-1] == ' '))
      l.end--;
    bool blank = l.at + strspn(l.at, "\t ") >= l.end;
    bool good = blank || (*at == '\t' ? read_edge(&l, edges) : read_layer(&l, g, names));
    if (!good && g->layers.n == MOST_LAYERS)
      return false;
    at += n + (at[n] == '\n');
  }
  return error_count() == errors;
}

/* ---- the graph ------------------------------------------------------------------------------------ */

static bool add_edges(LayerGraph *g, const LayerNames *names, const Edges *edges) {
  int errors = error_count();
  for (int i = 0; i < edges->n; i++) {
    const Edge *e = &edges->at[i];
    int from = layer_named(g, names, e->from), to = layer_named(g, names, e->to);
    if (from < 0 || to < 0)
      error_at(from < 0 ? e->where_from : e->where_to, "PD0525", "unknown layer '%s'", from < 0 ? e->from : e->to);
    else
      layer_reads(&g->layers.at[to], from);
  }
  return error_count() == errors;
}

static bool begins(Name kind, const char *with) { return !strncmp(kind, with, strlen(with)); }

/* Removes layers that PipeDream's planner ignores: inputs, which every stage reads itself, and unread parts of
 * results. */
static void leave_out(LayerGraph *g) {
  int n = g->layers.n, kept = 0;
  bool *read = alloc((size_t)n * sizeof *read);
  int *place = alloc((size_t)n * sizeof *place);
  for (int i = 0; i < n; i++)
    for (int k = 0; k < g->layers.at[i].inputs.n; k++)
      read[g->layers.at[i].inputs.at[k]] = true;
  for (int i = 0; i < n; i++) {
    const Layer *l = &g->layers.at[i];
    bool out = (begins(l->kind, "Input") && !l->inputs.n) || (begins(l->kind, "__getitem__") && !read[i]);
    place[i] = out ? -1 : kept++;
  }
  for (int i = 0; i < n; i++) {
    if (place[i] < 0)
      continue;
    Layer l = g->layers.at[i];
    Ints inputs = l.inputs;
    l.inputs.n = 0;
    for (int k = 0; k < inputs.n; k++)
      if (place[inputs.at[k]] >= 0)
        l.inputs.at[l.inputs.n++] = place[inputs.at[k]];
    g->layers.at[place[i]] = l;
  }
  g->layers.n = kept;
}

bool pipedream_parse(const LayerFile *in, LayerGraph *out) {
  LayerNames names = {0};
  Edges edges = {0};
  push(&out->devices, NULL);
  if (!read_lines(in, out, &names, &edges) || !add_edges(out, &names, &edges))
    return false;
  leave_out(out);
  return true;
}
