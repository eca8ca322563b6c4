/* `pdc data --show FILE MODEL`: where each input of a model comes from, checked by the rules of the model's programs. */
#include <stdlib.h>
#include <string.h>

#include "data/data.h"
#include "tokenize/internal.h"

_Static_assert(ORIGIN_RANDOM_INT == (int)PD_RANDOM_INT, "origins of inputs are in the runtime's order");

static struct pd_input *inputs_of(const Graph *g) {
  struct pd_input *all = alloc((size_t)(g->inputs.n + 1) * sizeof *all);
  for (int i = 0; i < g->inputs.n; i++) {
    const Input *in = &g->inputs.at[i];
    const Value *v = &g->values.at[in->value];
    all[i] = (struct pd_input){.name = in->name,
                               .target = in->target,
                               .token = v->type == TYPE_TOKEN,
                               .classes = v->classes,
                               .rank = v->shape.rank,
                               .elements = shape_elements(&v->shape),
                               .origin = (enum pd_origin)in->origin,
                               .from = in->from,
                               .n_numbers = in->numbers.n,
                               .numbers = in->numbers.at};
    memcpy(all[i].dim, v->shape.dim, sizeof *all[i].dim * (size_t)v->shape.rank);
  }
  return all;
}

static const char *type_of(const struct pd_input *in) {
  return in->token ? format("token(%lld)", (long long)in->classes) : in->origin == PD_IMAGE ? "image" : "f32";
}

static void add_input(DataView *v, const Graph *g, const struct pd_input *in, const char *source) {
  const int i = v->inputs.n;
  const Shape *shape = &g->values.at[g->inputs.at[i].value].shape;
  push(&v->inputs, (DataInput){format("%s%s", in->name, shape_text(shape)), type_of(in), source});
}

static const char *source_of_derived(const struct pd_input *all, int i) {
  return pd_is_random(&all[i]) ? "random numbers" : format("computed from '%s'", all[all[i].from].name);
}

/* ---- arrays -------------------------------------------------------------------------------------- */

/* Checks the array of an input; *unpacked: to be freed. */
static bool array_fits(const struct pd_array *archive, const struct pd_input *in, int64_t ignored, int64_t *rows,
                       void **unpacked, char *why) {
  struct pd_array a = *archive;
  if (!open_npz_array(&a, in->name, unpacked, why) || !pd_array_fits(&a, in, why))
    return false;
  if (*rows >= 0 && a.rows != *rows)
    return pd_refuse(why, "'%s': '%s' has %lld rows, and another array %lld", a.path, in->name, (long long)a.rows,
                     (long long)*rows);
  *rows = a.rows;
  return !in->token || pd_read_tokens(&a, 0, a.rows, (struct pd_token_range){in->classes, ignored}, NULL, why);
}

/* The arrays that no input reads: "'documents', 'positions'"; NULL: none. */
static const char *unread_arrays(const struct pd_array *archive, const struct pd_input *all, int n) {
  enum { MOST = 64 };
  struct pd_zip_entry e[MOST];
  char why[PD_WHY];
  const char *list = NULL;
  const int arrays = pd_npz_arrays(archive, e, MOST, why);
  for (int i = 0; i < arrays && i < MOST; i++) {
    const char *name = format("%.*s", e[i].name_length, e[i].name);
    bool read = false;
    for (int k = 0; k < n; k++)
      read |= !pd_is_derived(&all[k]) && !strcmp(name, all[k].name);
    if (!read)
      list = format("%s%s'%s'", list ? list : "", list ? ", " : "", plain_path(name));
  }
  return list;
}

bool archive_fits(DataView *v, const struct pd_array *archive, const Graph *g, char *why) {
  const struct pd_input *all = inputs_of(g);
  int64_t rows = -1;
  bool good = true;
  v->model = g->name;
  for (int i = 0; i < g->inputs.n && good; i++) {
    const int64_t ignored = pd_ignored(all, g->inputs.n, i);
    void *unpacked = NULL;
    if (pd_is_derived(&all[i])) {
      add_input(v, g, &all[i], source_of_derived(all, i));
      continue;
    }
    good = array_fits(archive, &all[i], ignored, &rows, &unpacked, why);
    free(unpacked);
    add_input(v, g, &all[i],
              format("array '%s'%s", all[i].name,
                     ignored ? format(", %lld has no loss", (long long)ignored) : ""));
  }
  v->samples_of_epoch = rows;
  v->unread = good ? unread_arrays(archive, all, g->inputs.n) : NULL;
  return good;
}

/* ---- files of arrays ----------------------------------------------------------------------------- */

bool is_array_name(const char *path) {
  static const char *const names[] = {"ubyte", ".idx", NULL};
  return pd_ends_with_any(path, names);
}

bool parse_array(struct pd_array *a, char *why) {
  return pd_is_npy(a) ? pd_parse_npy(a, why) : pd_parse_idx(a, why);
}

static bool file_fits(const char *path, const struct pd_input *in, int64_t ignored, int64_t *rows, char *why) {
  struct pd_array a = {.path = path};
  const char *map = map_watched(path, &a.size, why);
  a.map = map;
  bool good = map && parse_array(&a, why) && pd_array_fits(&a, in, why);
  if (good && *rows >= 0 && a.rows != *rows)
    good = pd_refuse(why, "'%s' has %lld rows, and another file %lld", path, (long long)a.rows, (long long)*rows);
  good = good &&
         (!in->token || pd_read_tokens(&a, 0, a.rows, (struct pd_token_range){in->classes, ignored}, NULL, why));
  *rows = a.rows;
  unmap_watched(map);
  return good;
}

bool arrays_fit(DataView *views, int n, const Graph *g, int64_t *samples, char *why) {
  const struct pd_input *all = inputs_of(g);
  int64_t rows = -1;
  int k = 0;
  bool good = true;
  if (views->model) /* archives */
    return true;
  for (int i = 0; i < g->inputs.n; i++)
    k += !pd_is_derived(&all[i]);
  if (k != n)
    return pd_refuse(why,
                     "'%s' reads %d array%s, and %d %s given. help: give one for each input, in the model's order",
                     g->name, k, k == 1 ? "" : "s", n, n == 1 ? "is" : "are");
  k = 0;
  views->model = g->name;
  for (int i = 0; i < g->inputs.n && good; i++) {
    if (pd_is_derived(&all[i])) {
      add_input(views, g, &all[i], source_of_derived(all, i));
      continue;
    }
    good = file_fits(views[k].path, &all[i], pd_ignored(all, g->inputs.n, i), &rows, why);
    add_input(views, g, &all[i], format("'%s'", plain_path(views[k++].path)));
  }
  views->samples_of_epoch = *samples = rows;
  return good;
}

/* ---- tables -------------------------------------------------------------------------------------- */

bool takes_tables(const Graph *g) {
  const struct pd_input *all = inputs_of(g);
  for (int i = 0; i < g->inputs.n; i++)
    if (!pd_is_derived(&all[i]) && all[i].token && all[i].elements > 1)
      return false;
  return true;
}

/* The names of columns, or their numbers: "columns 'a, b'". */
static const char *columns_text(const struct pd_table *t, const int64_t *column, int64_t n) {
  const char *many = n == 1 ? "" : "s";
  char names[256];
  if (!t->names)
    return n == 1 ? format("column %lld", (long long)*column + 1)
                  : format("columns %lld to %lld", (long long)*column + 1, (long long)column[n - 1] + 1);
  pd_table_names(t, column, n, names, sizeof names);
  return format("column%s '%s'", many, plain_path(format("%s", names)));
}

/* Checks the numbers of columns for an input. */
static bool columns_fit(const struct pd_array *a, const struct pd_table *t, const struct pd_input *in,
                        int64_t ignored, const int64_t *column, char *why) {
  void *numbers = malloc(sizeof(float) * (size_t)(t->csv.rows * in->elements + 1));
  struct pd_array read = {.path = a->path, .map = numbers, .type = PD_TYPE_I32, .rows = t->csv.rows};
  read.size = sizeof(float) * (size_t)(t->csv.rows * in->elements);
  read.row = in->elements;
  read.stride = (int64_t)sizeof(float) * in->elements;
  bool good = numbers || pd_refuse(why, "no memory for the columns of '%s'", a->path);
  good = good && pd_read_csv(a, &t->csv, column, in->elements, in->token, numbers, why);
  good = good && (!in->token ||
                  pd_read_tokens(&read, 0, read.rows, (struct pd_token_range){in->classes, ignored}, NULL, why));
  free(numbers);
  return good;
}

static const char *unread_columns(const struct pd_table *t, const bool *read) {
  int64_t *column = alloc(sizeof *column * (size_t)(t->csv.columns + 1)), n = 0;
  char names[256];
  for (int64_t i = 0; i < t->csv.columns; i++)
    if (!read[i])
      column[n++] = i;
  if (!n || !t->names)
    return NULL;
  pd_table_names(t, column, n, names, sizeof names);
  return format("'%s'", plain_path(format("%s", names)));
}

static bool inputs_take_columns(DataView *v, const struct pd_array *a, const struct pd_table *t, const Graph *g,
                                char *why) {
  const struct pd_input *all = inputs_of(g);
  const struct pd_takers takers = {all, g->inputs.n, false};
  bool *read = alloc(sizeof *read * (size_t)(t->csv.columns + 1)), good = true;
  memset(read, 0, sizeof *read * (size_t)(t->csv.columns + 1));
  v->model = g->name;
  for (int i = 0; i < g->inputs.n && good; i++) {
    const int64_t ignored = pd_ignored(all, g->inputs.n, i), n = all[i].elements;
    if (pd_is_derived(&all[i])) {
      add_input(v, g, &all[i], source_of_derived(all, i));
      continue;
    }
    int64_t *column = alloc(sizeof *column * (size_t)n);
    good = pd_table_choose(&takers, i, a, t, column, why) && columns_fit(a, t, &all[i], ignored, column, why);
    for (int64_t k = 0; k < n && good; k++)
      read[column[k]] = true;
    if (good)
      add_input(v, g, &all[i], columns_text(t, column, n));
  }
  v->samples_of_epoch = t->csv.rows;
  v->unread = good ? unread_columns(t, read) : NULL;
  return good;
}

bool table_fits(DataView *v, const struct pd_array *a, const Graph *g, char *why) {
  struct pd_table t;
  if (!pd_table_open(a, &t, why))
    return false;
  const bool good = inputs_take_columns(v, a, &t, g, why);
  pd_table_close(&t);
  return good;
}

/* ---- windows ------------------------------------------------------------------------------------- */

/* Windows of the longest input, as runtime/data/windows.c cuts them. */
bool windows_fit(DataView *v, const struct pd_array *tokens, const Graph *g, char *why) {
  const struct pd_input *all = inputs_of(g);
  int64_t context = 0, least = INT64_MAX;
  bool ignores = true;
  v->model = g->name;
  for (int i = 0; i < g->inputs.n; i++) {
    const struct pd_input *in = &all[i];
    if (pd_is_derived(in)) {
      add_input(v, g, in, source_of_derived(all, i));
      continue;
    }
    if (!in->token || in->rank != 1)
      return pd_refuse(why, "'%s' holds tokens, but '%s' of '%s' takes no run of tokens", v->path, in->name,
                       g->name);
    context = in->elements > context ? in->elements : context;
    least = in->classes < least ? in->classes : least;
    ignores &= !in->target || pd_ignored(all, g->inputs.n, i) < 0;
    add_input(v, g, in,
              in->target ? format("the last %lld tokens of a window", (long long)in->elements)
                         : format("the first %lld tokens of a window", (long long)in->elements));
  }
  if (!context)
    return pd_refuse(why, "'%s' reads no file", g->name);
  if (!pd_read_tokens(tokens, 0, tokens->rows, (struct pd_token_range){least, 0}, NULL, why))
    return false;
  struct pd_documents d = {.context = context, .end = tokens->document_end - 1};
  v->context = context;
  v->run = tokens->rows;
  v->samples_of_epoch = tokens->rows > 0 ? (tokens->rows - 1) / context : 0;
  if (tokens->document_end && ignores) {
    if (!pd_find_documents(tokens, &d, why))
      return false;
    v->samples_of_epoch = d.n;
    v->documents = d.documents;
    v->padding = d.n ? 1.0 - (double)d.positions / ((double)d.n * (double)context) : 0;
    free(d.starts);
  }
  return true;
}

/* ---- images -------------------------------------------------------------------------------------- */

bool images_fit(DataView *v, const Graph *g, char *why) {
  const struct pd_input *all = inputs_of(g);
  bool images = false;
  v->model = g->name;
  v->samples_of_epoch = v->rows;
  for (int i = 0; i < g->inputs.n; i++) {
    const struct pd_input *in = &all[i];
    if (pd_is_derived(in)) {
      add_input(v, g, in, source_of_derived(all, i));
      continue;
    }
    if (!in->token && in->rank == 3 && (in->dim[0] == 1 || in->dim[0] == 3)) {
      images = true;
      add_input(v, g, in,
                format("%s images, resized and cut to %lld x %lld", in->dim[0] == 1 ? "grey" : "colour",
                       (long long)in->dim[1], (long long)in->dim[2]));
      continue;
    }
    if (!in->token || in->elements != 1)
      return pd_refuse(why, "'%s' holds images and classes, and '%s' of '%s' takes neither", v->path, in->name,
                       g->name);
    if (!v->classes.n)
      return pd_refuse(why, "'%s' has images without classes, and '%s' of '%s' takes one", v->path, in->name,
                       g->name);
    if (v->classes.n > in->classes)
      return pd_refuse(why, "'%s' has %d classes, and '%s' of '%s' takes %lld", v->path, v->classes.n, in->name,
                       g->name, (long long)in->classes);
    add_input(v, g, in, format("classes, %d of %lld", v->classes.n, (long long)in->classes));
  }
  return images || pd_refuse(why, "'%s' holds images, and '%s' has no input of images [1 or 3, height, width]",
                             v->path, g->name);
}
