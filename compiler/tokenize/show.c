/* `pdc data --show`: figures of a file of tokens, and some of its samples as texts. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/data.h"
#include "shared/read_file.h"
#include "tokenize/internal.h"

enum { SHOWN = 3, SHOWN_TOKENS = 300 };

enum { OF_TOKENS, OF_NEXT, OF_TYPES, OF_LABEL, N_ARRAYS };
static const char *const names[N_ARRAYS] = {"tokens", "next", "token_types", "label"};

/* Rows of tokens with targets, or with a label; or a run of tokens, with rows of one. */
typedef struct Samples {
  struct pd_array array[N_ARRAYS]; /* map NULL: the file does not have it */
  void *unpacked[N_ARRAYS];        /* malloc'd */
  int32_t *row[N_ARRAYS];          /* malloc'd: the row that was read last */
  bool targets, labels;
  int32_t pad; /* of rows with labels; -1: unknown */
  int64_t rows, length;
  int64_t filled, counted; /* positions of all rows without padding, with loss */
  int64_t least, most;     /* tokens */
} Samples;

/* ---- reading ------------------------------------------------------------------------------------- */

bool open_npz_array(struct pd_array *a, const char *name, void **unpacked, char *why) {
  struct pd_zip_entry e;
  if (!pd_npz_find(a, name, false, &e, why) || !pd_npz_open(a, &e, why))
    return false;
  if (e.method == PD_ZIP_DEFLATED) {
    *unpacked = malloc(e.size + 1);
    if (!*unpacked)
      return pd_refuse(why, "'%s': no memory for the %" PRIu64 " bytes of '%s'", a->path, e.size, name);
    if (!pd_npz_unpack(a, &e, *unpacked, why))
      return false;
  }
  return pd_parse_npy(a, why);
}

/* Opens an array of whole numbers of the archive. */
static bool open_array(Samples *s, const struct pd_array *archive, int i, char *why) {
  struct pd_array *a = &s->array[i];
  *a = *archive;
  if (!open_npz_array(a, names[i], &s->unpacked[i], why))
    return false;
  if (i == OF_LABEL)
    return (a->row == 1 && !pd_is_float(a->type)) ||
           pd_refuse(why, "'%s': 'label' is not one whole number a row", a->path);
  return (a->rank == 1 && !pd_is_float(a->type)) ||
         pd_refuse(why, "'%s': '%s' is not rows of %s", a->path, names[i], i == OF_TYPES ? "types" : "tokens");
}

static bool has_array(const struct pd_array *archive, int i) {
  char why[PD_WHY];
  struct pd_zip_entry e;
  return pd_npz_find(archive, names[i], false, &e, why);
}

static bool open_samples(Samples *s, const struct pd_array *file, char *why) {
  const size_t n = strlen(file->path);
  struct pd_array *tokens = &s->array[OF_TOKENS];
  if (n < 4 || strcmp(file->path + n - 4, ".npz")) {
    *tokens = *file;
    s->length = 1;
    if (pd_is_npy(file))
      return pd_parse_npy(tokens, why) && (s->rows = tokens->rows, true);
    if (!pd_is_shard(file))
      return pd_refuse(why, "'%s' is neither a .npz archive nor a file of tokens in llm.c's format", file->path);
    return pd_parse_shard(tokens, why) && (s->rows = tokens->rows, true);
  }
  s->labels = has_array(file, OF_LABEL) && !has_array(file, OF_NEXT);
  s->targets = !s->labels;
  if (!open_array(s, file, OF_TOKENS, why) || !open_array(s, file, s->labels ? OF_LABEL : OF_NEXT, why) ||
      (s->labels && has_array(file, OF_TYPES) && !open_array(s, file, OF_TYPES, why)))
    return false;
  s->rows = tokens->rows;
  s->length = tokens->row;
  for (int i = OF_NEXT; i < N_ARRAYS; i++)
    if (s->array[i].map && (s->array[i].rows != s->rows || (i != OF_LABEL && s->array[i].row != s->length)))
      return pd_refuse(why, "'%s': 'tokens' and '%s' have different shapes", file->path, names[i]);
  return true;
}

/* Reads row r of all arrays. Targets without loss are -100. */
static bool read_row(Samples *s, int64_t r, char *why) {
  for (int i = 0; i < N_ARRAYS; i++) {
    const struct pd_array *a = &s->array[i];
    for (int64_t k = 0; a->map && k < a->row; k++) {
      const int64_t number = pd_whole_number(a, r, k);
      if ((number < 0 && !(i == OF_NEXT && number == -100)) || number > INT32_MAX)
        return pd_refuse(why, "'%s': row %lld of '%s' has the number %lld, which is %s", a->path, (long long)r,
                         names[i], (long long)number,
                         i == OF_NEXT ? "neither a token nor -100" : "not in the range from 0 to 2147483647");
      s->row[i][k] = (int32_t)number;
    }
  }
  return true;
}

/* The token behind the texts of rows with labels, if the tokenizer names none: the one that ends a row twice. */
static bool find_pad(Samples *s, char *why) {
  for (int64_t r = 0; r < s->rows && s->pad < 0 && s->length > 1; r++) {
    if (!read_row(s, r, why))
      return false;
    const int32_t *end = s->row[OF_TOKENS] + s->length;
    s->pad = end[-1] == end[-2] ? end[-1] : -1;
  }
  return true;
}

/* Positions of the row before its padding: with targets the last token, repeated without loss. */
static int64_t filled_of(const Samples *s) {
  const int32_t *tokens = s->row[OF_TOKENS], *next = s->row[OF_NEXT];
  int64_t n = s->length;
  if (s->labels) {
    while (n > 0 && tokens[n - 1] == s->pad)
      n--;
    return n;
  }
  while (n > 1 && s->targets && next[n - 1] < 0 && next[n - 2] < 0 && tokens[n - 2] == tokens[n - 1])
    n--;
  const bool counts = n > 1 && s->targets && next[n - 2] >= 0; /* token n - 1 is a target */
  return n < s->length && tokens[n - 1] == tokens[s->length - 1] && !counts ? n - 1 : n;
}

/* ---- figures ------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b) {
  const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  return (x > y) - (x < y);
}

/* Counts the rows of each label, and sorts `labels`, which has one for each row. */
static void count_labels(int32_t *labels, int64_t n, DataView *v) {
  qsort(labels, (size_t)n, sizeof *labels, by_value);
  for (int64_t i = 0; i < n; i++) {
    if (!i || labels[i] != labels[i - 1])
      push(&v->classes, (DataClass){.name = format("%d", (int)labels[i])});
    v->classes.at[v->classes.n - 1].samples++;
  }
}

static bool count(Samples *s, DataView *v, char *why) {
  int32_t *labels = s->labels ? malloc(sizeof *labels * (size_t)s->rows) : NULL;
  bool good = labels || !s->labels || pd_refuse(why, "no memory for the labels of '%s'", v->path);
  s->least = INT32_MAX;
  for (int64_t r = 0; r < s->rows && (good = good && read_row(s, r, why)); r++) {
    const int64_t filled = filled_of(s);
    const int32_t *tokens = s->row[OF_TOKENS];
    s->filled += filled;
    if (filled > 0)
      v->bins[(filled - 1) * DATA_BINS / s->length]++;
    if (labels)
      labels[r] = *s->row[OF_LABEL];
    for (int64_t i = 0; i < s->length; i++) {
      s->counted += s->targets && s->row[OF_NEXT][i] >= 0;
      s->least = tokens[i] < s->least ? tokens[i] : s->least;
      s->most = tokens[i] > s->most ? tokens[i] : s->most;
    }
  }
  if (good && labels)
    count_labels(labels, s->rows, v);
  free(labels);
  return good;
}

/* ---- texts --------------------------------------------------------------------------------------- */

/* Adds text to the last part of a sample, or to a new one if that differs in its loss. */
static void add_text(DataSample *sample, const char *text, size_t n, bool loss) {
  DataRun *last = sample->runs.n ? &sample->runs.at[sample->runs.n - 1] : NULL;
  if (!n)
    return;
  if (last && last->loss == loss)
    last->text = format("%s%.*s", last->text, (int)n, text);
  else
    push(&sample->runs, (DataRun){format("%.*s", (int)n, text), loss});
}

/* Token i has a loss if it is the target of position i - 1. */
void decode_tokens(const struct pd_tokenizer *t, const int32_t *tokens, const int32_t *next, int64_t n,
                   DataSample *to) {
  struct pd_decoding d = {0};
  const char *text;
  bool counts = false;
  for (int64_t i = 0; i < n; i++) {
    const char *name = pd_tokenizer_added(t, tokens[i]);
    counts = next && i > 0 && next[i - 1] >= 0;
    if (name)
      add_text(to, name, strlen(name), counts);
    else {
      const size_t bytes = pd_tokenizer_decode(t, &d, tokens[i], &text);
      add_text(to, text, bytes, counts);
    }
  }
  const size_t left = pd_tokenizer_decode_end(&d, &text);
  add_text(to, text, left, counts);
}

/* The first position of type 1; -1: none. */
static int64_t second_of(const Samples *s) {
  for (int64_t i = 0; s->array[OF_TYPES].map && i < s->length; i++)
    if (s->row[OF_TYPES][i] == 1)
      return i;
  return -1;
}

/* The start of a run of tokens. */
static bool view_run(Samples *s, const struct pd_tokenizer *t, DataView *v, char *why) {
  int32_t tokens[SHOWN_TOKENS];
  const int64_t shown = s->rows < SHOWN_TOKENS ? s->rows : SHOWN_TOKENS;
  DataSample sample = {.second = -1, .cut = s->rows > shown};
  for (int64_t i = 0; i < shown; i++) {
    if (!read_row(s, i, why))
      return false;
    tokens[i] = *s->row[OF_TOKENS];
  }
  decode_tokens(t, tokens, NULL, shown, &sample);
  push(&v->samples, sample);
  return true;
}

static bool view_rows(Samples *s, const struct pd_tokenizer *t, DataView *v, char *why) {
  for (int64_t i = 0; i < SHOWN && i < s->rows; i++) {
    const int64_t r = s->rows <= SHOWN ? i : i * (s->rows - 1) / (SHOWN - 1);
    if (!read_row(s, r, why))
      return false;
    const int64_t filled = filled_of(s), shown = filled < SHOWN_TOKENS ? filled : SHOWN_TOKENS;
    DataSample sample = {.row = r, .cut = shown < filled, .second = second_of(s)};
    if (s->labels)
      sample.label = *s->row[OF_LABEL];
    decode_tokens(t, s->row[OF_TOKENS], s->targets ? s->row[OF_NEXT] : NULL, shown, &sample);
    push(&v->samples, sample);
  }
  return true;
}

static bool allocate_row(Samples *s, char *why) {
  for (int i = 0; i < N_ARRAYS; i++) {
    const int64_t n = s->array[i].map ? s->array[i].row : 0;
    s->row[i] = n ? malloc(sizeof(int32_t) * (size_t)n) : NULL;
    if (n && !s->row[i])
      return pd_refuse(why, "no memory for a row of %lld positions", (long long)n);
  }
  return true;
}

static bool view(Samples *s, const char *path, const struct pd_tokenizer *t, DataView *v, char *why) {
  if (!s->rows || !s->length)
    return pd_refuse(why, "'%s' is empty", path);
  if (!allocate_row(s, why) || (s->labels && !find_pad(s, why)) || !count(s, v, why))
    return false;
  const double positions = (double)s->rows * (double)s->length;
  v->kind = s->targets ? DATA_ROWS : s->labels ? DATA_LABELS : DATA_TOKENS;
  v->rows = s->rows;
  v->length = s->length;
  v->least = s->least;
  v->most = s->most;
  v->loss = (double)s->counted / positions;
  v->padding = 1.0 - (double)s->filled / positions;
  if (s->most >= pd_tokenizer_size(t))
    return pd_refuse(why,
                     "'%s' has token %lld, and the tokenizer %lld tokens. help: name the one that wrote the file "
                     "with --tokenizer",
                     path, (long long)s->most, (long long)pd_tokenizer_size(t));
  return (v->kind == DATA_TOKENS ? view_run : view_rows)(s, t, v, why);
}

static void close_samples(Samples *s) {
  for (int i = 0; i < N_ARRAYS; i++) {
    free(s->unpacked[i]);
    free(s->row[i]);
  }
}

static bool view_samples(DataView *v, const struct pd_array *file, const struct pd_tokenizer *t,
                         const char *tokenizer, const Graph *model, char *why) {
  Samples s = {.pad = -1};
  bool good = open_samples(&s, file, why);
  if (good && s.labels)
    good = label_padding(tokenizer, t, &s.pad, why);
  good = good && view(&s, file->path, t, v, why) &&
         (!model || (v->kind == DATA_TOKENS ? windows_fit(v, &s.array[OF_TOKENS], model, why)
                                            : archive_fits(v, file, model, why)));
  close_samples(&s);
  return good;
}

/* As a training reads it: bytes are tokens. */
static bool text_fits(DataView *v, const struct pd_array *file, const char *tokenizer, const Graph *model,
                      char *why) {
  struct pd_array bytes = *file;
  const bool packed = pd_packing_of(file->map, file->size);
  if (tokenizer || packed)
    return pd_refuse(
        why,
        "'%s' is a %stext. help: write its tokens to a file by 'pdc tokenize', and show that with the "
        "model",
        file->path, packed ? "compressed " : "");
  pd_parse_bytes(&bytes);
  return windows_fit(v, &bytes, model, why);
}

typedef enum Content { SAMPLES, ARRAY, ARCHIVE, TABLE, TEXT } Content;

static Content content_of(const struct pd_array *file) {
  static const char *const archives[] = {".npz", NULL}, *const tables[] = {".csv", ".tsv", NULL},
                           *const tokens[] = {".bin", NULL};
  struct pd_array a = *file;
  char why[PD_WHY];
  if (pd_ends_with_any(file->path, archives))
    return !pd_is_zip(file) || has_array(file, OF_TOKENS) ? SAMPLES : ARCHIVE;
  if (pd_is_npy(file))
    return pd_parse_npy(&a, why) && !a.rank && !pd_is_float(a.type) ? SAMPLES : ARRAY;
  if (is_array_name(file->path))
    return ARRAY;
  if (pd_ends_with_any(file->path, tables))
    return TABLE;
  return pd_is_shard(file) || pd_ends_with_any(file->path, tokens) ? SAMPLES : TEXT;
}

static bool view_content(DataView *v, struct pd_array *file, const struct pd_tokenizer *t, const char *tokenizer,
                         const Graph *model, char *why) {
  Content content = content_of(file);
  if (content == TABLE && model && !takes_tables(model))
    content = TEXT; /* its bytes are tokens */
  switch (content) {
  case SAMPLES: return view_samples(v, file, t, tokenizer, model, why);
  case ARRAY: return parse_array(file, why) && view_array(v, file, why);
  case ARCHIVE: return view_archive(v, file, why) && (!model || archive_fits(v, file, model, why));
  case TABLE: return view_table(v, file, why) && (!model || table_fits(v, file, model, why));
  default: return view_text(v, file->path, t, why) && (!model || text_fits(v, file, tokenizer, model, why));
  }
}

static bool view_file(DataView *v, const char *path, const char *tokenizer, const Graph *model, char *why) {
  struct pd_array file = {.path = path};
  signals_watch(NULL);
  const char *map = map_watched(path, &file.size, why);
  file.map = map;
  struct pd_tokenizer *t = map ? tokenizer_of(tokenizer, why) : NULL;
  const bool good = t && view_content(v, &file, t, tokenizer, model, why);
  pd_tokenizer_close(t);
  unmap_watched(map);
  signals_restore();
  return good;
}

bool data_view(DataView *v, const char *path, const char *tokenizer, const Graph *model) {
  char why[PD_WHY] = "";
  *v = (DataView){.path = path};
  const bool good = is_of_images(path) ? view_images(v, path, why) && (!model || images_fit(v, model, why))
                                       : view_file(v, path, tokenizer, model, why);
  if (!good)
    error_at(NO_SPAN, "PD0661", "%s", why);
  return good;
}
