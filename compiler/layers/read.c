/* Reads layer profiles: detects the format, and checks rules common to both. */
#define _GNU_SOURCE /* memmem */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "layers/internal.h"

/* ---- layers by name --------------------------------------------------------------------------- */

/* Interned names compare by address. */
static size_t name_slot(const LayerGraph *g, const LayerNames *names, Name name) {
  size_t i = (size_t)((uintptr_t)name >> 4) * 0x9e3779b97f4a7c15u >> 20 & (names->room - 1);
  while (names->slot[i] && g->layers.at[names->slot[i] - 1].name != name)
    i = (i + 1) & (names->room - 1);
  return i;
}

int layer_named(const LayerGraph *g, const LayerNames *names, Name name) {
  return names->room ? names->slot[name_slot(g, names, name)] - 1 : -1;
}

bool layer_add(LayerGraph *g, LayerNames *names, const Layer *layer) {
  if (!names->room) {
    names->room = 4 * MOST_LAYERS;
    names->slot = alloc(names->room * sizeof *names->slot);
  }
  int before = layer_named(g, names, layer->name);
  if (before >= 0) {
    Diagnostic *d = error_at(layer->where, "PD0524", "layer '%s' is defined twice", layer->name);
    note_at(d, g->layers.at[before].where, "the first one is here");
    return false;
  }
  if (g->layers.n == MOST_LAYERS) {
    Diagnostic *d = error_at(layer->where, "PD0528", "there are more than %d layers", MOST_LAYERS);
    help(d, "combine several layers of the model into one layer of the file");
    return false;
  }
  names->slot[name_slot(g, names, layer->name)] = g->layers.n + 1;
  push(&g->layers, *layer);
  return true;
}

void layer_reads(Layer *reader, int input) {
  for (int i = 0; i < reader->inputs.n; i++)
    if (reader->inputs.at[i] == input)
      return;
  push(&reader->inputs, input);
}

bool figure_is_possible(double x, Span where, const char *what) {
  const char *wrong = isnan(x) ? "is not a number" : isinf(x) ? "is infinite" : x < 0 ? "is negative" : NULL;
  if (!wrong && x > 0x1p53)
    wrong = "is more than 2^53";
  if (wrong)
    error_at(where, "PD0523", "%s %s", what, wrong);
  return !wrong;
}

/* ---- topological order ------------------------------------------------------------------------- */

/* Sorts layers topologically; among ready ones takes the most recently enabled, so that branches stay together.
 * Returns their number: less than all if there is a cycle. */
static int sort_layers(const LayerGraph *g, int *order) {
  int n = g->layers.n, done = 0;
  int *waits = alloc((size_t)n * sizeof *waits);
  Ints *readers = alloc((size_t)n * sizeof *readers), ready = {0};
  for (int i = 0; i < n; i++) {
    const Layer *l = &g->layers.at[i];
    waits[i] = l->inputs.n;
    for (int k = 0; k < l->inputs.n; k++)
      push(&readers[l->inputs.at[k]], i);
  }
  for (int i = n - 1; i >= 0; i--)
    if (!waits[i])
      push(&ready, i);
  while (ready.n) {
    int i = order[done++] = ready.at[--ready.n];
    for (int k = readers[i].n - 1; k >= 0; k--)
      if (--waits[readers[i].at[k]] == 0)
        push(&ready, readers[i].at[k]);
  }
  return done;
}

/* Reports a cycle: every unsorted layer waits for another unsorted one. */
static void report_cycle(const LayerGraph *g, const int *order, int sorted) {
  int n = g->layers.n;
  bool *done = alloc((size_t)n * sizeof *done), *seen = alloc((size_t)n * sizeof *seen);
  for (int i = 0; i < sorted; i++)
    done[order[i]] = true;
  int at = 0;
  while (done[at])
    at++;
  Ints path = {0};
  while (!seen[at]) {
    seen[at] = true;
    push(&path, at);
    const Ints *inputs = &g->layers.at[at].inputs;
    int k = 0;
    while (done[inputs->at[k]])
      k++;
    at = inputs->at[k];
  }
  int first = 0;
  while (path.at[first] != at)
    first++;
  Text t = {0};
  enum { SHOWN = 6 };
  for (int i = first; i < path.n && i < first + SHOWN; i++)
    text_add(&t, "'%s', which reads ", g->layers.at[path.at[i]].name);
  text_add(&t, path.n - first > SHOWN ? "..." : "'%s'", g->layers.at[at].name);
  error_at(g->layers.at[at].where, "PD0526", "these layers depend on each other in a cycle: %s", t.at);
}

/* Sorts layers topologically; false after a diagnostic. */
static bool order_layers(LayerGraph *g) {
  int n = g->layers.n;
  int *order = alloc((size_t)n * sizeof *order), *place = alloc((size_t)n * sizeof *place);
  int sorted = sort_layers(g, order);
  if (sorted < n) {
    report_cycle(g, order, sorted);
    return false;
  }
  Layer *from = alloc_copy(g->layers.at, (size_t)n * sizeof *from);
  for (int i = 0; i < n; i++)
    place[order[i]] = i;
  for (int i = 0; i < n; i++) {
    g->layers.at[i] = from[order[i]];
    Ints *inputs = &g->layers.at[i].inputs;
    for (int k = 0; k < inputs->n; k++)
      inputs->at[k] = place[inputs->at[k]];
  }
  return true;
}

/* ---- files -------------------------------------------------------------------------------------- */

static Name file_name(const char *path) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  const char *point = strchr(name, '.');
  return point && point > name ? intern_n(name, (size_t)(point - name)) : intern(name);
}

/* The start decides the format: a brace, or a line with PipeDream's marks. */
static bool parse(const LayerFile *in, LayerGraph *out) {
  const char *first = in->text + strspn(in->text, " \t\r\n");
  Span where = {.file = in->file};
  if (strlen(in->text) != in->length) {
    error_at(where, "PD0520", "the file contains a NUL byte and is not text");
    return false;
  }
  if (*first == '{')
    return json_parse(in, out);
  size_t line = strcspn(first, "\n");
  if (memmem(first, line, " -- ", 4))
    return pipedream_parse(in, out);
  Diagnostic *d = error_at(where, "PD0520", *first ? "this is not a layer profile" : "the file is empty");
  help(d, "a layer profile is PipeDream's graph.txt, or JSON as in docs/guide/planning.md");
  return false;
}

LayerGraph *layers_read(const char *path) {
  LayerFile in = {.path = path};
  in.text = read_file(path, &in.length);
  int cause = errno;
  if (in.text) {
    const size_t mark = skip_mark(in.text, in.length);
    in.text += mark;
    in.length -= mark;
  }
  in.file = source_add(path, in.text ? in.text : "");
  if (!in.text) {
    error_at((Span){.file = in.file}, "PD0601", "cannot read the file: %s", read_failure(cause));
    return NULL;
  }
  LayerGraph *g = alloc(sizeof *g);
  g->file = in.file;
  g->name = file_name(path);
  g->gradients = 1;
  g->moments = 2; /* Adam */
  if (!parse(&in, g))
    return NULL;
  if (!g->layers.n) {
    error_at((Span){.file = in.file}, "PD0520", "the file has no layers");
    return NULL;
  }
  return order_layers(g) ? g : NULL;
}
