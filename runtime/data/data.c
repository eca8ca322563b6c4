/* Memory-mapped files of one source of samples. Token files (text, llm.c shards, arrays of one axis) without names
 * are divided into windows (windows.c). All other files have one sample per row, record or line: each input has its
 * own files, read consecutively. */
#include "data/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BYTES = 256 }; /* a byte's values */
enum format { IMAGES, TEXT, NUMBERS, SHARD, TOKENS, NPY, NPZ, IDX, CIFAR, TABLE };

static int count_file_inputs(const struct pd_files *d) {
  int n = 0;
  for (int i = 0; i < d->n_inputs; i++) n += pd_has_files(d, i);
  return n;
}

/* ---- files ----------------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end) {
  size_t n = strlen(text), m = strlen(end);
  return n >= m && !strcmp(text + n - m, end);
}

static bool takes_images(const struct pd_files *d) {
  for (int i = 0; i < d->n_inputs; i++)
    if (pd_has_files(d, i) && pd_is_image(&d->inputs[i])) return true;
  return false;
}

/* The folder's names stand for its content where ranks compare their files. */
static bool list_part(const struct pd_files *d, struct part *p, const char *path, char *why) {
  if (!takes_images(d))
    return pd_refuse(why,
                     "'%s' is a folder, but no input of the model has the shape [3, height, width] or [1, height, "
                     "width], as images need",
                     path);
  const struct pd_images *images = p->images = pd_list_images(path, why);
  if (images) pd_note_content(path, images->list, images->bytes);
  return images != NULL;
}

static bool map_part(const struct pd_files *d, struct part *p, const char *path, char *why) {
  struct stat st;
  p->array.path = path;
  if (!stat(path, &st) && S_ISDIR(st.st_mode)) return list_part(d, p, path, why);
  p->array.map = pd_map_file(path, &p->array.size, why);
  if (!p->array.map || !takes_images(d)) return p->array.map != NULL;
  if (pd_is_tar(&p->array)) return (p->images = pd_list_tar(&p->array, why)) != NULL;
  return !pd_is_image_zip(&p->array) || (p->images = pd_list_zip(&p->array, why)) != NULL;
}

static bool is_typed(const struct pd_files *d) { return d->how.token_bytes; }

static bool takes_numbers(const struct pd_files *d) {
  for (int i = 0; i < d->n_inputs; i++)
    if (pd_has_files(d, i) && !d->inputs[i].token) return true;
  return false;
}

/* Tables are texts of models that read sequences. */
static bool takes_tables(const struct pd_files *d) {
  for (int i = 0; i < d->n_inputs; i++)
    if (pd_has_files(d, i) && d->inputs[i].token && d->inputs[i].elements > 1) return false;
  return true;
}

/* Detection of a file's format by its mark or name, and the data set. The first matching row wins. */
static const struct sign {
  const char *suffix;                       /* NULL: any name */
  bool (*marked)(const struct pd_array *a); /* NULL: any bytes */
  bool (*suits)(const struct pd_files *d);  /* NULL: any does */
  enum format format;
} signs[] = {{".npy", pd_is_npy, NULL, NPY},      {".npz", NULL, NULL, NPZ},
             {".csv", NULL, takes_tables, TABLE}, {".tsv", NULL, takes_tables, TABLE},
             {"ubyte", NULL, NULL, IDX},          {".idx", NULL, NULL, IDX},
             {".ids", NULL, NULL, NUMBERS},       {NULL, pd_is_shard, NULL, SHARD},
             {".bin", NULL, is_typed, TOKENS},    {".bin", NULL, takes_numbers, CIFAR},
             {".bin", NULL, NULL, SHARD},         {"", NULL, NULL, TEXT}};

static enum format format_of(const struct pd_files *d, const struct part *p) {
  if (p->images) return IMAGES;
  const struct sign *s = signs;
  for (;; s++) {
    const bool fits = (s->suffix && ends_with(p->array.path, s->suffix)) || (s->marked && s->marked(&p->array));
    if (fits && (!s->suits || s->suits(d))) return s->format;
  }
}

/* --token-type gives the type of a file without a header. */
static bool is_known(const struct pd_files *d, const struct part *p, char *why) {
  enum format format = format_of(d, p);
  bool typed = format == IMAGES || format == TOKENS || (format == TEXT && d->how.token_bytes == 1);
  return typed || (format == NPZ && pd_is_zip(&p->array)) || pd_refuse_foreign(&p->array, why);
}

static bool bytes_suit(const struct pd_files *d, const struct part *p, const struct pd_input *in, char *why) {
  return in->classes <= BYTES || d->how.token_bytes == 1 ||
         pd_refuse(
             why,
             "'%s' is text, whose tokens are the %d byte values, but '%s' has %lld classes. help: give token "
             "numbers as .npy, .ids or llm.c's .bin, or train on bytes with --token-type u8",
             p->array.path, BYTES, in->name, (long long)in->classes);
}

/* A text with one sample per line: bytes including the newline, or numbers. */
static bool open_lines(const struct pd_files *d, struct part *p, const struct pd_input *in, bool numbers,
                       char *why) {
  int64_t least = numbers || d->how.pad > '\n' ? d->how.pad : '\n';
  if (!numbers && !bytes_suit(d, p, in, why)) return false;
  if (in->classes <= least)
    return pd_refuse(why, "'%s': '%s' has %lld classes, but lines also need the %s %lld", p->array.path, in->name,
                     (long long)in->classes, least == d->how.pad ? "token of --pad," : "newline,",
                     (long long)least);
  pd_parse_bytes(&p->array);
  p->lines = (struct pd_lines){.n = pd_count_lines(&p->array), .numbers = numbers};
  p->lines.marks = pd_allocate(sizeof *p->lines.marks * (size_t)(p->lines.n / PD_MARK + 1));
  return pd_mark_lines(&p->array, in, &p->lines, why);
}

/* Divides an array's tokens into rows of this input's length. */
static bool cut_rows(struct pd_array *a, const struct pd_input *in, char *why) {
  if (a->rows % in->elements)
    return pd_refuse(why, "'%s' holds %lld tokens, which is not a multiple of the %lld tokens of a sample of '%s'",
                     a->path, (long long)a->rows, (long long)in->elements, in->name);
  a->rows /= in->elements;
  a->row = in->elements;
  a->stride *= in->elements;
  a->rank = in->rank;
  memcpy(a->dim, in->dim, sizeof a->dim);
  return true;
}

/* Unpacks into this rank's memory, after a check of the size that the file claims. */
static bool unpack_member(struct pd_array *a, const struct pd_zip_entry *e, char *why) {
  enum { NOTED = 1 << 30 };
  static const char way_out[] = "help: numpy.savez writes arrays that are read without unpacking";
  double gib = (double)e->size / (1 << 30), room = (double)pd_memory_room() / (1 << 30);
  if (gib > room)
    return pd_refuse(
        why, "'%s': '%.*s' unpacks to %.1f GiB in every rank's memory, but this rank has %.1f GiB left. %s",
        a->path, e->name_length, e->name, gib, room, way_out);
  if (e->size > NOTED)
    pd_note("'%s': '%.*s' takes %.1f GiB in every rank's memory. %s", a->path, e->name_length, e->name, gib,
            way_out);
  return pd_npz_unpack(a, e, pd_allocate(e->size + 1), why);
}

/* The archive's array with the input's name, or the only array if the model has one input. */
static bool open_member(const struct pd_files *d, struct part *p, const struct pd_input *in, char *why) {
  struct pd_array *a = &p->array;
  struct pd_zip_entry e;
  if (!pd_npz_find(a, in->name, d->named || count_file_inputs(d) == 1, &e, why) || !pd_npz_open(a, &e, why))
    return false;
  if (e.method == PD_ZIP_DEFLATED && !unpack_member(a, &e, why)) return false;
  return pd_parse_npy(a, why);
}

/* True for a run of tokens, as tokenizing scripts write it. */
static bool is_run(const struct pd_array *a) { return !a->rank && !pd_is_float(a->type); }

/* ---- formats --------------------------------------------------------------------------------- */

/* Files without names are all in one of these groups. */
enum group { RUNS, RECORDS, ARCHIVES, ARRAYS, N_GROUPS };

typedef bool open_file(const struct pd_files *d, struct part *p, const struct pd_input *in, char *why);

static bool open_npy(const struct pd_files *d, struct part *p, const struct pd_input *in, char *why) {
  (void)d, (void)in;
  return pd_parse_npy(&p->array, why);
}

static bool open_idx(const struct pd_files *d, struct part *p, const struct pd_input *in, char *why) {
  (void)d, (void)in;
  return pd_parse_idx(&p->array, why);
}

static bool open_cifar(const struct pd_files *d, struct part *p, const struct pd_input *in, char *why) {
  (void)d;
  return pd_parse_cifar(&p->array, in->token, why);
}

/* Labels are an array in memory; images are read file by file, in the input's shape. */
static bool open_images(const struct pd_files *d, struct part *p, const struct pd_input *in, char *why) {
  struct pd_array *a = &p->array;
  const struct pd_images *m = p->images;
  (void)d;
  a->rows = m->n;
  if (!in->token) {
    a->row = in->elements;
    a->rank = in->rank;
    memcpy(a->dim, in->dim, sizeof a->dim);
    return (pd_is_image(in) && (in->dim[0] == 1 || in->dim[0] == 3)) ||
           pd_refuse(why,
                     "'%s' is a folder of images, but '%s' does not have the shape [3, height, width] or [1, "
                     "height, width]",
                     a->path, in->name);
  }
  if (!m->n_labels && m->members)
    return pd_refuse(why, "'%s' has no .cls files, which '%s' needs", a->path, in->name);
  if (!m->n_labels)
    return pd_refuse(why,
                     "'%s' has no folder for each class, which '%s' needs. help: move the images of each class "
                     "into a folder of '%s'",
                     a->path, in->name, a->path);
  if (m->n_labels > in->classes)
    return pd_refuse(why, "'%s' has %d classes, but '%s' has %lld", a->path, m->n_labels, in->name,
                     (long long)in->classes);
  if (m->n_classes && m->n_classes < in->classes)
    pd_note("'%s' has %d class%s, but '%s' has %lld", a->path, m->n_classes, m->n_classes == 1 ? "" : "es",
            in->name, (long long)in->classes);
  a->type = PD_TYPE_I32;
  a->map = (const char *)m->labels;
  a->size = sizeof *m->labels * (size_t)m->n;
  a->stride = sizeof *m->labels;
  a->row = 1;
  return true;
}

static bool open_shard(const struct pd_files *d, struct part *p, const struct pd_input *in, char *why) {
  (void)d, (void)in;
  return pd_parse_shard(&p->array, why);
}

static bool open_tokens(const struct pd_files *d, struct part *p, const struct pd_input *in, char *why) {
  (void)in;
  return pd_parse_tokens(&p->array, d->how.token_bytes, why);
}

static bool open_bytes(const struct pd_files *d, struct part *p, const struct pd_input *in, char *why) {
  (void)d, (void)in, (void)why;
  pd_parse_bytes(&p->array);
  return true;
}

static bool open_text(const struct pd_files *d, struct part *p, const struct pd_input *in, char *why) {
  return open_lines(d, p, in, false, why);
}

static bool open_numbers(const struct pd_files *d, struct part *p, const struct pd_input *in, char *why) {
  return open_lines(d, p, in, true, why);
}

/* Use of a file of a format. tokens: not for inputs of numbers. */
static const struct {
  enum group group;
  bool tokens;
  bool cut;        /* a run of tokens, divided into rows */
  open_file *open; /* as samples of an input */
  open_file *run;  /* as a part of a run of tokens, for windows; NULL: not a run */
} formats[] = {[IMAGES] = {RECORDS, .open = open_images},
               [NPY] = {ARRAYS, .open = open_npy, .run = open_npy},
               [NPZ] = {ARCHIVES, .open = open_member},
               [IDX] = {ARRAYS, .open = open_idx},
               [CIFAR] = {RECORDS, .open = open_cifar},
               [TABLE] = {RECORDS, .open = pd_open_table},
               [TEXT] = {RUNS, .tokens = true, .open = open_text, .run = open_bytes},
               [NUMBERS] = {ARRAYS, .tokens = true, .open = open_numbers},
               [SHARD] = {RUNS, .tokens = true, .cut = true, .open = open_shard, .run = open_shard},
               [TOKENS] = {RUNS, .tokens = true, .cut = true, .open = open_tokens, .run = open_tokens}};

/* Opens a mapped file as samples of this input. */
static bool open_part(const struct pd_files *d, struct part *p, const struct pd_input *in, char *why) {
  const enum format format = format_of(d, p);
  if (formats[format].tokens && !in->token)
    return pd_refuse(why, "'%s' holds tokens, but '%s' takes numbers", p->array.path, in->name);
  bool ok = formats[format].open(d, p, in, why);
  if (formats[format].tokens) return ok && (!formats[format].cut || cut_rows(&p->array, in, why));
  if (in->origin == PD_IMAGE && p->array.type == PD_TYPE_U8) p->array.pixels = true;
  if (ok && in->token && in->elements > 1 && is_run(&p->array)) return cut_rows(&p->array, in, why);
  return ok && pd_array_fits(&p->array, in, why);
}

/* ---- windows --------------------------------------------------------------------------------- */

/* Lines of JSON are documents, chats or numbers of tokens only for a tokenizer. */
static void warn_of_lines(const struct pd_files *d) {
  for (const struct part *p = d->columns->parts; d->context && p < d->columns->parts + d->columns->n; p++)
    if (format_of(d, p) == TEXT && pd_is_lines_name(p->array.path) && d->how.token_bytes != 1) {
      pd_warn(
          "the tokens of '%s' are the bytes of its lines of JSON. help: --tokenizer bytes or --tokenizer DIR reads "
          "documents, chats and numbers of tokens; --token-type u8 takes the bytes",
          p->array.path);
      return;
    }
}

/* Checks that each input can have these files' tokens. */
static bool runs_fit(const struct pd_files *d, char *why) {
  const struct column *c = d->columns;
  for (int i = 0; i < d->n_inputs; i++) {
    const struct pd_input *in = &d->inputs[i];
    if (!pd_has_files(d, i)) continue;
    if (!in->token)
      return pd_refuse(
          why,
          "'%s' holds tokens, but '%s' takes numbers. help: give one .npy array or idx file for each of the %d "
          "inputs and targets",
          c->parts[0].array.path, in->name, count_file_inputs(d));
    for (int j = 0; j < c->n; j++)
      if (format_of(d, &c->parts[j]) == TEXT && !bytes_suit(d, &c->parts[j], in, why)) return false;
  }
  return true;
}

static bool open_windows(struct pd_files *d, char *why) {
  struct column *c = d->columns;
  for (struct part *p = c->parts; p < c->parts + c->n; p++)
    if (!formats[format_of(d, p)].run(d, p, NULL, why)) return false;
  return runs_fit(d, why) && pd_windows_open(d, why);
}

/* ---- columns --------------------------------------------------------------------------------- */

static void add_part(struct column *c, const struct part *p) {
  c->parts = realloc(c->parts, sizeof *c->parts * (size_t)(c->n + 1));
  if (!c->parts) pd_fail("out of memory for the names of data files");
  c->parts[c->n++] = *p;
}

/* Opens all columns' files, which must have equal numbers of samples. */
static bool open_columns(struct pd_files *d, char *why) {
  const struct column *first = NULL;
  for (int i = 0; i < d->n_inputs; i++) {
    struct column *c = &d->columns[i];
    int64_t samples = 0;
    if (!pd_has_files(d, i)) continue;
    if (!c->n)
      return pd_refuse(why, "there is no file for '%s'. help: give %s=PATH", d->inputs[i].name, d->inputs[i].name);
    for (struct part *p = c->parts; p < c->parts + c->n; p++) {
      if (!open_part(d, p, &d->inputs[i], why) || !pd_same_columns(c->parts, p, d->inputs[i].name, why))
        return false;
      p->first = samples;
      samples += p->lines.n ? p->lines.n : p->array.rows;
    }
    if (!first) first = c;
    if (c != first && samples != d->samples && !strcmp(c->parts[0].array.path, first->parts[0].array.path))
      return pd_refuse(why, "'%s' holds %lld samples of '%s', but %lld of '%s'", c->parts[0].array.path,
                       (long long)samples, d->inputs[i].name, (long long)d->samples,
                       d->inputs[first - d->columns].name);
    if (c != first && samples != d->samples)
      return pd_refuse(why, "'%s'%s hold%s %lld samples, but '%s'%s %lld", c->parts[0].array.path,
                       c->n > 1 ? " and the other files" : "", c->n > 1 ? "" : "s", (long long)samples,
                       first->parts[0].array.path, first->n > 1 ? " and the other files hold" : " holds",
                       (long long)d->samples);
    d->samples = samples;
  }
  return d->samples > 0 || pd_refuse(why, "'%s' holds no samples", first->parts[0].array.path);
}

/* Notes the arrays of an archive that no input reads. */
static void note_unused(const struct pd_files *d, const struct part *archive) {
  enum { MOST = 64 };
  struct pd_zip_entry all[MOST];
  char why[PD_WHY];
  int n = pd_npz_arrays(&archive->array, all, MOST, why);
  for (int e = 0; e < n && e < MOST; e++) {
    bool used = false;
    for (int i = 0; i < d->n_inputs; i++)
      used |= pd_has_files(d, i) && strlen(d->inputs[i].name) == (size_t)all[e].name_length &&
              !memcmp(d->inputs[i].name, all[e].name, (size_t)all[e].name_length);
    if (!used && (n > 1 || count_file_inputs(d) > 1))
      pd_note("'%s': the array '%.*s' is ignored: no input or target has this name", archive->array.path,
              all[e].name_length, all[e].name);
  }
}

/* True if integer arrays of one axis are a run of tokens for windows: the model reads sequences. Arrays for all
 * inputs, some of which are not sequences, are separate instead. */
static bool reads_runs(const struct pd_files *d, const struct column *files) {
  int sequences = 0;
  for (int i = 0; i < d->n_inputs; i++)
    sequences += pd_has_files(d, i) && d->inputs[i].token && d->inputs[i].elements > 1;
  for (const struct part *p = files->parts; p < files->parts + files->n; p++) {
    struct pd_array a = p->array;
    char why[PD_WHY];
    if (format_of(d, p) != NPY || !pd_parse_npy(&a, why) || !is_run(&a)) return false;
  }
  bool each = files->n > 1 && files->n == count_file_inputs(d);
  if (each && sequences == files->n)
    pd_note("the arrays have one axis and are read as one run of tokens. help: for one array per input, name the "
            "inputs, as in %s=PATH",
            d->inputs[0].name);
  return sequences && (!each || sequences == files->n);
}

/* Opens files without names: token files, CIFAR-10 files, archives, or an array or a text of numbers per input. */
static bool open_in_order(struct pd_files *d, char **paths, int n, char *why) {
  bool found[N_GROUPS] = {false};
  int wanted = count_file_inputs(d);
  struct column all = {0};
  for (int i = 0; i < n; i++) {
    struct part p = {0};
    if (!map_part(d, &p, paths[i], why) || !is_known(d, &p, why)) return false;
    enum format format = format_of(d, &p);
    found[formats[format].group] = true;
    if (format == NPZ) note_unused(d, &p);
    add_part(&all, &p);
  }
  if (found[RUNS] + found[RECORDS] + found[ARCHIVES] + found[ARRAYS] > 1)
    return pd_refuse(why,
                     "'%s' and the other files have several formats. help: name each file's input, as in %s=PATH",
                     paths[0], d->inputs[0].name);
  if (found[RUNS] || reads_runs(d, &all)) {
    d->columns[0] = all;
    return open_windows(d, why);
  }
  if (found[ARRAYS] && n != wanted)
    return pd_refuse(
        why,
        "the model has %d inputs and targets and needs one .npy array or idx file for each, in this order, but "
        "%d %s given",
        wanted, n, n == 1 ? "is" : "are");
  for (int i = 0, at = 0; i < d->n_inputs; i++) {
    if (!pd_has_files(d, i)) continue;
    bool each = found[RECORDS] || found[ARCHIVES]; /* every file has data of every input */
    for (int j = each ? 0 : at; j < (each ? n : at + 1); j++) add_part(&d->columns[i], &all.parts[j]);
    at++;
  }
  free(all.parts);
  return open_columns(d, why);
}

/* ---- names ----------------------------------------------------------------------------------- */

/* The input of NAME=PATH, or -1; *path: PATH. */
static int named_input(const struct pd_files *d, const char *argument, const char **path) {
  const char *sign = strchr(argument, '=');
  for (int i = 0; sign && i < d->n_inputs; i++) {
    const char *name = d->inputs[i].name;
    if (strlen(name) == (size_t)(sign - argument) && !strncmp(name, argument, strlen(name))) {
      *path = sign + 1;
      return i;
    }
  }
  return -1;
}

static bool open_by_name(struct pd_files *d, char **arguments, int n, char *why) {
  for (int i = 0; i < n; i++) {
    const char *path;
    struct part p = {0};
    int input = named_input(d, arguments[i], &path);
    if (input < 0)
      return pd_refuse(
          why,
          "'%s' names no input or target of the model, but other files do. help: name the input of every file",
          arguments[i]);
    if (pd_is_random(&d->inputs[input]))
      return pd_refuse(why, "'%s': '%s' takes no file: it is random", arguments[i], d->inputs[input].name);
    if (!pd_has_files(d, input))
      return pd_refuse(why, "'%s': '%s' takes no file: the model computes it from '%s'", arguments[i],
                       d->inputs[input].name, d->inputs[d->inputs[input].from].name);
    if (!map_part(d, &p, path, why) || !is_known(d, &p, why)) return false;
    add_part(&d->columns[input], &p);
  }
  return open_columns(d, why);
}

/* True if the argument looks like NAME=PATH with an unknown name. */
static bool misnamed(const struct pd_files *d, const char *argument, char *why) {
  const char *sign = strchr(argument, '=');
  if (!sign || !access(argument, F_OK)) return false;
  pd_refuse(
      why,
      "cannot read '%s': there is no such file, and no input or target has the name '%.*s' (the first is '%s')",
      argument, (int)(sign - argument), argument, d->inputs[0].name);
  return true;
}

const char *pd_input_path(const struct pd_input *inputs, int n, const char *argument) {
  const char *path = argument;
  named_input(&(struct pd_files){.inputs = inputs, .n_inputs = n}, argument, &path);
  return path;
}

/* ---- opening --------------------------------------------------------------------------------- */

static bool same_classes(const struct pd_files *d, char *why) {
  const struct pd_images *first = pd_files_folder(d);
  for (const struct column *c = d->columns; first && c < d->columns + d->n_inputs; c++)
    for (int i = 0; i < c->n; i++) {
      const struct part *p = &c->parts[i];
      if (!p->images != !c->parts->images)
        return pd_refuse(why,
                         "'%s' is%s a folder of images, unlike '%s'. help: give one kind of data for an input",
                         p->array.path, p->images ? "" : " not", c->parts->array.path);
      if (p->images && !pd_same_classes(first, p->images, why)) return false;
    }
  return true;
}

size_t pd_files_bytes(const struct pd_files *d) {
  size_t bytes = 0;
  for (const struct column *c = d->columns; c < d->columns + d->n_inputs; c++)
    for (int i = 0; i < c->n; i++) bytes += c->parts[i].array.size;
  return bytes;
}

static bool has_format(const struct pd_files *d, enum format format) {
  for (const struct column *c = d->columns; c < d->columns + d->n_inputs; c++)
    for (int i = 0; i < c->n; i++)
      if (format_of(d, &c->parts[i]) == format) return true;
  return false;
}

static bool has_lines(const struct pd_files *d) {
  for (const struct column *c = d->columns; c < d->columns + d->n_inputs; c++)
    for (int i = 0; i < c->n; i++)
      if (c->parts[i].lines.marks) return true;
  return false;
}

/* The valid tokens of an input with its own files; the tokens of a window are for all inputs. */
static struct pd_token_range range_of(const struct pd_files *d, int input) {
  return (struct pd_token_range){d->inputs[input].classes, pd_ignored(d->inputs, d->n_inputs, input)};
}

static bool scan_column(const struct column *c, struct pd_token_range range, char *why) {
  for (const struct part *p = c->parts; p < c->parts + c->n; p++) {
    if (p->lines.numbers) continue; /* checked during marking */
    int64_t values = p->array.type == PD_TYPE_U8 ? 1 << 8 : p->array.type == PD_TYPE_U16 ? 1 << 16 : INT64_MAX;
    if (values > range.classes && !pd_read_tokens(&p->array, 0, p->array.rows, range, NULL, why)) return false;
  }
  return true;
}

static bool scan_tokens(const struct pd_files *d, char *why) {
  int64_t least = INT64_MAX; /* each token of windows can be in each input */
  for (int i = 0; i < d->n_inputs; i++) {
    const struct pd_input *in = &d->inputs[i];
    if (!in->token || !pd_has_files(d, i)) continue;
    if (in->classes < least) least = in->classes;
    if (!d->context && !scan_column(&d->columns[i], range_of(d, i), why)) return false;
  }
  return !d->context || scan_column(d->columns, (struct pd_token_range){least, 0}, why);
}

struct pd_files *pd_files_open(char **paths, int n, const struct pd_input *inputs, int n_inputs,
                               const struct pd_reading *how, char *why) {
  struct pd_files *d = pd_allocate(sizeof *d);
  *d = (struct pd_files){.inputs = inputs, .n_inputs = n_inputs, .how = *how};
  d->columns = pd_allocate(sizeof *d->columns * (size_t)n_inputs);
  if (!n_inputs) {
    pd_refuse(why, "'%s' cannot be used: the model has no inputs and no targets", paths[0]);
    return NULL;
  }
  if (!count_file_inputs(d)) {
    pd_refuse(why, "'%s' cannot be used: all inputs of the model are computed", paths[0]);
    return NULL;
  }
  const char *path;
  for (int i = 0; i < n; i++) d->named |= named_input(d, paths[i], &path) >= 0;
  for (int i = 0; i < n && !d->named; i++)
    if (misnamed(d, paths[i], why)) return NULL;
  if (!(d->named ? open_by_name(d, paths, n, why) : open_in_order(d, paths, n, why)) || !same_classes(d, why))
    return NULL;
  if (how->token_bytes && !has_format(d, TOKENS) && (how->token_bytes > 1 || !has_format(d, TEXT)))
    pd_warn("--token-type has no effect on '%s': no data file is a .bin without a header", paths[0]);
  if (how->pad && !has_lines(d) && !d->apart)
    pd_warn("--pad has no effect on '%s': no data file is read line by line", paths[0]);
  if ((how->document_end || how->joined) && !d->context)
    pd_warn("--documents has no effect on '%s': its samples are not windows", paths[0]);
  warn_of_lines(d);
  if (how->scan && pd_files_bytes(d) <= (size_t)1 << 30 && !scan_tokens(d, why)) return NULL;
  return d;
}

/* ---- reading --------------------------------------------------------------------------------- */

int64_t pd_files_samples(const struct pd_files *d) { return d->samples; }

static bool read_sample(const struct pd_files *d, int input, int64_t sample, void *to, char *why) {
  const struct pd_input *in = &d->inputs[input];
  const struct column *c = &d->columns[input];
  if (d->context) return pd_windows_read(d, input, sample, to, why);
  const struct part *p = pd_file_of(c, sample);
  sample -= p->first;
  if (p->lines.n) return pd_read_line(&p->array, &p->lines, sample, in, d->how.pad, to, why);
  if (in->token) return pd_read_tokens(&p->array, sample, 1, range_of(d, input), to, why);
  pd_read_numbers(&p->array, sample, 1, to);
  return true;
}

void pd_files_scatter(const struct pd_files *d) {
  for (const struct column *c = d->columns; c < d->columns + d->n_inputs; c++)
    for (const struct part *p = c->parts; p < c->parts + c->n; p++)
      if (!p->images) pd_scatter_pages(p->array.map, p->array.size);
}

void pd_files_expect(const struct pd_files *d, int input, int64_t sample) {
  int64_t first, n = 1;
  const struct part *p;
  if (d->context)
    p = pd_windows_place(d, sample, &first, &n);
  else {
    p = pd_file_of(&d->columns[input], sample);
    first = sample - p->first;
  }
  if (!p->images && !p->lines.n)
    pd_expect_pages(p->array.map + p->array.first + first * p->array.stride, (size_t)(n * p->array.stride));
}

void pd_files_read(const struct pd_files *d, int input, int64_t sample, void *to) {
  char why[PD_WHY];
  if (!read_sample(d, input, sample, to, why)) pd_fail("%s", why);
}

bool pd_files_same_columns(const struct pd_files *a, const struct pd_files *b, char *why) {
  for (int i = 0; i < a->n_inputs; i++)
    if (a->columns[i].n && b->columns[i].n &&
        !pd_same_columns(a->columns[i].parts, b->columns[i].parts, a->inputs[i].name, why))
      return false;
  return true;
}

/* ---- image files ----------------------------------------------------------------------------- */

const struct pd_images *pd_files_images(const struct pd_files *d, int input) {
  const struct column *c = &d->columns[input];
  return c->n && !d->inputs[input].token ? c->parts->images : NULL;
}

const struct pd_images *pd_files_folder(const struct pd_files *d) {
  for (const struct column *c = d->columns; c < d->columns + d->n_inputs; c++)
    for (int i = 0; i < c->n; i++)
      if (c->parts[i].images) return c->parts[i].images;
  return NULL;
}

bool pd_files_renumber(struct pd_files *d, const char **names, int n, const char *path, char *why) {
  for (int i = 0; i < d->n_inputs; i++)
    for (struct part *p = d->columns[i].parts; d->inputs[i].token && p < d->columns[i].parts + d->columns[i].n;
         p++)
      if (p->images && !pd_renumber_classes(p->images, names, n, path, why)) return false;
  return true;
}

bool pd_files_image(const struct pd_files *d, int input, int64_t sample, const struct pd_view *v,
                    struct pd_image_room *room, float *to, char *why) {
  const struct column *c = &d->columns[input];
  const struct part *p = pd_file_of(c, sample);
  return pd_read_image(p->images, sample - p->first, &d->inputs[input], v, room, to, why);
}

bool pd_files_path(const struct pd_files *d, int64_t sample, char *to, size_t room) {
  int i = 0;
  while (i < d->n_inputs && !pd_files_images(d, i)) i++;
  if (i == d->n_inputs) return false;
  const struct part *p = pd_file_of(&d->columns[i], sample);
  const struct pd_images *m = p->images;
  snprintf(to, room, "%s/%s", m->path, m->list + m->at[sample - p->first]);
  return true;
}
