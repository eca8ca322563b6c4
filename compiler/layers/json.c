/* Layer profiles in JSON, from users or scripts: docs/guide/planning.md. */
#include <string.h>

#include <cjson/cJSON.h>

#include "base/table.h"
#include "layers/internal.h"

typedef struct Reader {
  const LayerFile *in;
  Table places;            /* by address of a cJSON value: start of its text */
  Vec(const char *) lines; /* starts of lines */
  LayerGraph *g;
  LayerNames names;
  Vec(struct Reading) readings;
} Reader;

/* Inputs of a layer, until all names are known. */
struct Reading {
  const cJSON *inputs; /* NULL: the previous layer */
  Name prefix;         /* of the enclosing repetition: "h[3]."; else "" */
  int before;          /* previous layer in file order; -1: none */
  int enters;          /* the layer before the repetition; -1: none */
};

/* ---- places in the text -------------------------------------------------------------------------- */

static const char *skip_space(const char *p) {
  while (*p && (unsigned char)*p <= ' ')
    p++;
  return p;
}

/* Returns the end of the string at p. */
static const char *skip_string(const char *p) {
  for (p += *p == '"'; *p && *p != '"'; p++)
    p += *p == '\\' && p[1];
  return p + (*p == '"');
}

/* Records the start of each value within `at`, whose text starts at p. Returns the end of the value. */
static const char *find_places(Reader *r, const char *p, const cJSON *at) {
  p = skip_space(p);
  table_add(&r->places, &at, (void *)p);
  if (*p == '"')
    return skip_string(p);
  if (*p != '{' && *p != '[')
    return p + strcspn(p, ",]}\n\t\r ");
  bool object = *p == '{';
  p = skip_space(p + 1);
  for (const cJSON *m = at->child; m; m = m->next) {
    if (object)
      p = skip_space(skip_string(skip_space(p)));
    p = skip_space(find_places(r, p + (object && *p == ':'), m));
    p += *p == ',';
  }
  return p + (*p != 0);
}

static void find_lines(Reader *r) {
  const char *p = r->in->text;
  push(&r->lines, p);
  while ((p = strchr(p, '\n')))
    push(&r->lines, ++p);
}

/* The span of n bytes of text; for an object or list its first character. */
static Span span_at(const Reader *r, const char *at, size_t n) {
  int line = 0, end = r->lines.n;
  while (end - line > 1) {
    int middle = line + (end - line) / 2;
    if (r->lines.at[middle] <= at)
      line = middle;
    else
      end = middle;
  }
  Span s = {.file = r->in->file, .line = line + 1, .column = (int)(at - r->lines.at[line]) + 1};
  s.end_line = s.line;
  s.end_column = s.column + (*at == '{' || *at == '[' || !n ? 1 : (int)n);
  return s;
}

static Span span_of(const Reader *r, const cJSON *value) {
  const char *at = table_find(&r->places, &value);
  return span_at(r, at, *at == '"' ? (size_t)(skip_string(at) - at) : strcspn(at, ",]}\n\t\r "));
}

/* ---- members -------------------------------------------------------------------------------------- */

static const cJSON *member(const cJSON *object, const char *key) {
  return cJSON_GetObjectItemCaseSensitive(object, key);
}

static bool wrong(const Reader *r, const cJSON *value, const char *key, const char *must) {
  error_at(span_of(r, value), "PD0527", "'%s' must be %s", key, must);
  return false;
}

/* Reports unknown members; `keys` ends with NULL. */
static bool only(const Reader *r, const cJSON *object, const char *const *keys) {
  int n = 0;
  while (keys[n])
    n++;
  for (const cJSON *m = object->child; m; m = m->next) {
    int i = 0;
    while (i < n && strcmp(m->string, keys[i]))
      i++;
    if (i < n && member(object, keys[i]) == m)
      continue;
    Diagnostic *d =
        error_at(span_of(r, m), "PD0527", i < n ? "'%s' appears twice" : "'%s' is not a known member", m->string);
    const char *near = i < n ? NULL : nearest(m->string, keys, n);
    if (near)
      help(d, "did you mean '%s'?", near);
    return false;
  }
  return true;
}

static bool read_name(const Reader *r, const cJSON *object, const char **out) {
  const cJSON *m = member(object, "name");
  if (!m) {
    error_at(span_of(r, object), "PD0527", "'name' is missing");
    return false;
  }
  if (!cJSON_IsString(m) || !*m->valuestring)
    return wrong(r, m, "name", "a string that is not empty");
  *out = m->valuestring;
  return true;
}

static bool read_figure(const Reader *r, const cJSON *value, const char *key, double *out) {
  if (!cJSON_IsNumber(value))
    return wrong(r, value, key, "a number");
  *out = value->valuedouble;
  return figure_is_possible(*out, span_of(r, value), format("'%s'", key));
}

static const cJSON *figure(const Reader *r, const cJSON *layer, const char *key) {
  const cJSON *m = member(layer, key);
  if (!m)
    error_at(span_of(r, layer), "PD0522", "'%s' is missing", key);
  return m;
}

static bool read_bytes_of(const Reader *r, const cJSON *m, const char *key, int64_t *out) {
  double x;
  if (!read_figure(r, m, key, &x))
    return false;
  *out = (int64_t)(x + 0.5);
  return true;
}

static bool read_bytes(const Reader *r, const cJSON *layer, const char *key, int64_t *out) {
  const cJSON *m = figure(r, layer, key);
  return m && read_bytes_of(r, m, key, out);
}

/* An optional member. */
static bool may_read_bytes(const Reader *r, const cJSON *object, const char *key, int64_t *out) {
  const cJSON *m = member(object, key);
  return !m || read_bytes_of(r, m, key, out);
}

/* Repetitions of a layer or group; 0: no 'repeat'. */
static bool read_repeat(const Reader *r, const cJSON *object, int *out) {
  const cJSON *m = member(object, "repeat");
  *out = 0;
  if (!m)
    return true;
  double x = m->valuedouble;
  if (!cJSON_IsNumber(m) || !(x >= 1 && x <= MOST_LAYERS) || x != (int)x)
    return wrong(r, m, "repeat", format("a whole number from 1 to %d", MOST_LAYERS));
  *out = (int)x;
  return true;
}

/* ---- times by device ------------------------------------------------------------------------------ */

/* The first layer's times define the devices. */
static void name_devices(Reader *r, const cJSON *times) {
  if (!cJSON_IsObject(times))
    push(&r->g->devices, NULL);
  else
    for (const cJSON *m = times->child; m; m = m->next)
      push(&r->g->devices, intern(m->string));
}

static bool read_seconds(Reader *r, const cJSON *layer, const char *key, double **out) {
  const cJSON *m = figure(r, layer, key);
  if (!m)
    return false;
  if (!r->g->devices.n)
    name_devices(r, m);
  int n = r->g->devices.n;
  *out = alloc((size_t)(n ? n : 1) * sizeof **out);
  bool named = n != 1 || r->g->devices.at[0];
  if (!named)
    return read_figure(r, m, key, *out);
  if (!cJSON_IsObject(m) || !n)
    return wrong(r, m, key, "seconds by device, as of the first layer");
  for (int i = 0; i < n; i++) {
    const cJSON *x = member(m, r->g->devices.at[i]);
    if (!x) {
      error_at(span_of(r, m), "PD0522", "'%s' on device '%s' is missing", key, r->g->devices.at[i]);
      return false;
    }
    if (!read_figure(r, x, key, *out + i))
      return false;
  }
  const char **keys = alloc((size_t)(n + 1) * sizeof *keys);
  memcpy(keys, r->g->devices.at, (size_t)n * sizeof *keys);
  return only(r, m, keys);
}

/* ---- layers and groups ---------------------------------------------------------------------------- */

static bool read_list(Reader *r, const cJSON *list, Name prefix, int enters);

/* "recompute": { .. } of a layer. */
static bool read_recompute(Reader *r, const cJSON *layer, Recomputed *out) {
  static const char *const keys[] = {"seconds", "saved_bytes", "lasting_bytes", NULL};
  const cJSON *m = member(layer, "recompute");
  if (!m)
    return true;
  if (!cJSON_IsObject(m))
    return wrong(r, m, "recompute", "an object");
  return only(r, m, keys) && (!member(m, "seconds") || read_seconds(r, m, "seconds", &out->seconds)) &&
         may_read_bytes(r, m, "saved_bytes", &out->saved) && may_read_bytes(r, m, "lasting_bytes", &out->lasting);
}

static bool read_layer(Reader *r, const cJSON *at, Name prefix, const char *name, int enters) {
  static const char *const keys[] = {"name",   "kind", "forward", "backward",    "output_bytes", "parameter_bytes",
                                     "inputs", "cut",  "repeat",  "saved_bytes", "recompute",    NULL};
  const cJSON *kind = member(at, "kind"), *cut = member(at, "cut"), *inputs = member(at, "inputs");
  Layer l = {.name = internf("%s%s", prefix, name), .cut = !cut || cJSON_IsTrue(cut), .where = span_of(r, at)};
  if (!only(r, at, keys) || !read_seconds(r, at, "forward", &l.forward) ||
      !read_seconds(r, at, "backward", &l.backward) || !read_bytes(r, at, "output_bytes", &l.output) ||
      !read_bytes(r, at, "parameter_bytes", &l.parameters) || !may_read_bytes(r, at, "saved_bytes", &l.saved) ||
      !read_recompute(r, at, &l.again))
    return false;
  if (kind && !cJSON_IsString(kind))
    return wrong(r, kind, "kind", "a string");
  if (cut && !cJSON_IsBool(cut))
    return wrong(r, cut, "cut", "true or false");
  if (inputs && !cJSON_IsArray(inputs))
    return wrong(r, inputs, "inputs", "a list of names");
  l.kind = kind ? intern(kind->valuestring) : NULL;
  if (!layer_add(r->g, &r->names, &l))
    return false;
  push(&r->readings, ((struct Reading){inputs, prefix, r->g->layers.n - 2, enters}));
  return true;
}

/* A layer, or a group of layers, with its repetitions. */
static bool read_item(Reader *r, const cJSON *at, Name prefix, int enters) {
  static const char *const keys[] = {"name", "layers", "repeat", NULL};
  const char *name;
  int repeat;
  if (!cJSON_IsObject(at))
    return wrong(r, at, "layers", "a list of objects");
  if (!read_name(r, at, &name) || !read_repeat(r, at, &repeat))
    return false;
  const cJSON *group = member(at, "layers");
  if (group && !only(r, at, keys))
    return false;
  for (int k = 0; k < repeat + !repeat; k++) {
    const char *round = repeat ? format("%s[%d]", name, k) : name;
    bool good = group ? read_list(r, group, internf("%s%s.", prefix, round), r->g->layers.n - 1)
                      : read_layer(r, at, prefix, round, repeat ? r->g->layers.n - 1 : enters);
    if (!good)
      return false;
  }
  return true;
}

static bool read_list(Reader *r, const cJSON *list, Name prefix, int enters) {
  if (!cJSON_IsArray(list) || !list->child)
    return wrong(r, list, "layers", "a list of layers");
  for (const cJSON *m = list->child; m; m = m->next)
    if (!read_item(r, m, prefix, enters))
      return false;
  return true;
}

/* ---- inputs --------------------------------------------------------------------------------------- */

/* Resolves a name from a group: in its own repetition, then the enclosing ones, then the whole model. */
static int resolve(const Reader *r, const struct Reading *from, const char *name) {
  size_t n = strlen(from->prefix);
  for (;;) {
    int found = layer_named(r->g, &r->names, internf("%.*s%s", (int)n, from->prefix, name));
    if (found >= 0 || !n)
      return found;
    for (n--; n > 0 && from->prefix[n - 1] != '.';)
      n--;
  }
}

static bool resolve_inputs(Reader *r, int layer) {
  const struct Reading *from = &r->readings.at[layer];
  Layer *l = &r->g->layers.at[layer];
  if (!from->inputs && from->before >= 0)
    layer_reads(l, from->before);
  for (const cJSON *m = from->inputs ? from->inputs->child : NULL; m; m = m->next) {
    if (!cJSON_IsString(m))
      return wrong(r, m, "inputs", "a list of names");
    int input = resolve(r, from, m->valuestring);
    if (input < 0 && !strcmp(m->valuestring, "input"))
      input = from->enters;
    if (input < 0) {
      error_at(span_of(r, m), "PD0525", "unknown layer '%s'", m->valuestring);
      return false;
    }
    layer_reads(l, input);
  }
  return true;
}

/* ---- the file ------------------------------------------------------------------------------------- */

static void keep(void *p) { (void)p; }

/* A small number of copies of the parameters; optional. */
static bool read_copies(const Reader *r, const cJSON *root, const char *key, int most, int *out) {
  const cJSON *m = member(root, key);
  if (!m)
    return true;
  if (!cJSON_IsNumber(m) || !(m->valuedouble >= 0 && m->valuedouble <= most) ||
      m->valuedouble != (int)m->valuedouble)
    return wrong(r, m, key, format("a whole number from 0 to %d", most));
  *out = (int)m->valuedouble;
  return true;
}

/* Python's json writes NaN and Infinity, which are not JSON. */
static bool no_json(const Reader *r, const char *at) {
  const char *number = at + (*at == '-');
  Span where = span_at(r, at, 1);
  if (!strncmp(number, "NaN", 3))
    error_at(where, "PD0523", "a number is NaN");
  else if (!strncmp(number, "Infinity", 8))
    error_at(where, "PD0523", "a number is infinite");
  else
    error_at(where, "PD0602", "invalid JSON from this place on");
  return false;
}

bool json_parse(const LayerFile *in, LayerGraph *out) {
  static const char *const keys[] = {"name", "layers", "gradients", "moments", NULL};
  enum { MOST_MOMENTS = 8 };
  cJSON_InitHooks(&(cJSON_Hooks){.malloc_fn = alloc, .free_fn = keep});
  const char *end = in->text, *name = NULL;
  cJSON *root = cJSON_ParseWithLengthOpts(in->text, in->length + 1, &end, true);
  Reader r = {.in = in, .g = out, .places.key_bytes = sizeof root};
  find_lines(&r);
  if (!root)
    return no_json(&r, end);
  find_places(&r, in->text, root);
  const cJSON *layers = member(root, "layers");
  if (!layers) {
    Diagnostic *d =
        error_at((Span){.file = in->file}, "PD0520", "this is not a layer profile: 'layers' is missing");
    if (member(root, "signature"))
      help(d, "a profile written by 'pdc profile' needs its model: add the .pdm file");
    return false;
  }
  if (!only(&r, root, keys) || (member(root, "name") && !read_name(&r, root, &name)) ||
      !read_copies(&r, root, "gradients", 1, &out->gradients) ||
      !read_copies(&r, root, "moments", MOST_MOMENTS, &out->moments) || !read_list(&r, layers, intern(""), -1))
    return false;
  if (name)
    out->name = intern(name);
  for (int i = 0; i < out->layers.n; i++)
    if (!resolve_inputs(&r, i))
      return false;
  return true;
}
