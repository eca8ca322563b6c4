/* `pdc data --show`: figures of a file of tokens, and some of its samples as texts. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/data.h"
#include "shared/read_file.h"
#include "tokenize/internal.h"

enum { SHOWN = 3, SHOWN_TOKENS = 300 };

/* Rows of tokens and of targets; without targets, one run of tokens. */
typedef struct Samples {
  struct pd_array tokens, next;
  bool targets;
  void *unpacked[2]; /* malloc'd */
  int64_t rows, length;
  int64_t filled, counted, longest; /* positions of all rows without padding, with loss; of the longest row */
  int64_t least, most;              /* tokens */
} Samples;

/* ---- reading ------------------------------------------------------------------------------------- */

static bool open_array(Samples *s, const struct pd_array *archive, const char *name, int i, char *why) {
  struct pd_array *a = i ? &s->next : &s->tokens;
  struct pd_zip_entry e;
  *a = *archive;
  if (!pd_npz_find(a, name, false, &e, why) || !pd_npz_open(a, &e, why))
    return false;
  if (e.method == PD_ZIP_DEFLATED) {
    s->unpacked[i] = malloc(e.size + 1);
    if (!s->unpacked[i])
      return pd_refuse(why, "'%s': no memory for the %" PRIu64 " bytes of '%s'", a->path, e.size, name);
    if (!pd_npz_unpack(a, &e, s->unpacked[i], why))
      return false;
  }
  if (!pd_parse_npy(a, why))
    return false;
  return (a->rank == 1 && !pd_is_float(a->type)) ||
         pd_refuse(why, "'%s': '%s' is not rows of tokens", a->path, name);
}

static bool open_samples(Samples *s, struct pd_array *file, char *why) {
  const size_t n = strlen(file->path);
  if (n < 4 || strcmp(file->path + n - 4, ".npz")) {
    s->tokens = *file;
    s->length = 1;
    if (!pd_is_shard(file))
      return pd_refuse(why, "'%s' is neither a .npz archive nor a file of tokens in llm.c's format", file->path);
    return pd_parse_shard(&s->tokens, why) && (s->rows = s->tokens.rows, true);
  }
  struct pd_zip_entry e;
  if (pd_npz_find(file, "label", false, &e, why))
    return pd_refuse(why, "'%s' has texts with labels, which --show does not show: it needs the array 'next'",
                     file->path);
  *why = 0;
  s->targets = true;
  if (!open_array(s, file, "tokens", 0, why) || !open_array(s, file, "next", 1, why))
    return false;
  s->rows = s->tokens.rows;
  s->length = s->tokens.row;
  return (s->next.rows == s->rows && s->next.row == s->length) ||
         pd_refuse(why, "'%s': 'tokens' and 'next' have different shapes", file->path);
}

/* Row r: its tokens, and its targets, where -1 has no loss. */
static bool read_row(const Samples *s, int64_t r, int32_t *tokens, int32_t *next, char *why) {
  const struct pd_token_range range = {INT32_MAX, -100};
  if (!pd_read_tokens(&s->tokens, r, 1, range, tokens, why))
    return false;
  if (!s->targets)
    return true;
  return pd_read_tokens(&s->next, r, 1, range, next, why);
}

/* Positions before the padding: the last token, repeated without loss. */
static int64_t filled_of(const Samples *s, const int32_t *tokens, const int32_t *next) {
  int64_t n = s->length;
  while (n > 1 && s->targets && next[n - 1] < 0 && next[n - 2] < 0 && tokens[n - 2] == tokens[n - 1])
    n--;
  const bool counts = n > 1 && s->targets && next[n - 2] >= 0; /* token n - 1 is a target */
  return n < s->length && tokens[n - 1] == tokens[s->length - 1] && !counts ? n - 1 : n;
}

/* ---- figures ------------------------------------------------------------------------------------- */

static bool count(Samples *s, int64_t *bins, char *why) {
  int32_t *tokens = malloc(sizeof *tokens * (size_t)s->length), *next = malloc(sizeof *next * (size_t)s->length);
  bool good = tokens && next;
  s->least = INT32_MAX;
  for (int64_t r = 0; r < s->rows && (good = good && read_row(s, r, tokens, next, why)); r++) {
    const int64_t filled = filled_of(s, tokens, next);
    s->filled += filled;
    s->longest = filled > s->longest ? filled : s->longest;
    if (filled > 0)
      bins[(filled - 1) * DATA_BINS / s->length]++;
    for (int64_t i = 0; i < s->length; i++) {
      s->counted += s->targets && next[i] >= 0;
      s->least = tokens[i] < s->least ? tokens[i] : s->least;
      s->most = tokens[i] > s->most ? tokens[i] : s->most;
    }
  }
  free(tokens);
  free(next);
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
static void decode_tokens(const Samples *s, const struct pd_tokenizer *t, const int32_t *tokens,
                          const int32_t *next, int64_t n, DataSample *to) {
  struct pd_decoding d = {0};
  const char *text;
  bool counts = false;
  for (int64_t i = 0; i < n; i++) {
    const char *name = pd_tokenizer_added(t, tokens[i]);
    counts = s->targets && i > 0 && next[i - 1] >= 0;
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

static bool view_samples(const Samples *s, const struct pd_tokenizer *t, DataView *v, char *why) {
  const int64_t length = s->targets ? s->length : s->rows < SHOWN_TOKENS ? s->rows : SHOWN_TOKENS;
  const int64_t rows = s->targets ? s->rows : 1;
  int32_t *tokens = malloc(sizeof *tokens * (size_t)length), *next = malloc(sizeof *next * (size_t)length);
  bool good = tokens && next;
  for (int64_t i = 0; i < SHOWN && i < rows && good; i++) {
    const int64_t r = rows <= SHOWN ? i : i * (rows - 1) / (SHOWN - 1);
    for (int64_t k = 0; k < (s->targets ? 1 : length) && good; k++)
      good = read_row(s, r + k, tokens + k, next, why);
    if (!good)
      break;
    const int64_t filled = s->targets ? filled_of(s, tokens, next) : length;
    const int64_t shown = filled < SHOWN_TOKENS ? filled : SHOWN_TOKENS;
    DataSample sample = {.row = r, .cut = shown < filled || (!s->targets && s->rows > length)};
    decode_tokens(s, t, tokens, next, shown, &sample);
    push(&v->samples, sample);
  }
  free(tokens);
  free(next);
  return good;
}

static bool view(Samples *s, const char *path, const struct pd_tokenizer *t, DataView *v, char *why) {
  if (!s->rows)
    return pd_refuse(why, "'%s' is empty", path);
  if (!count(s, v->bins, why))
    return *why ? false : pd_refuse(why, "no memory for a row of %lld positions", (long long)s->length);
  const double positions = (double)s->rows * (double)s->length;
  v->kind = s->targets ? DATA_ROWS : DATA_TOKENS;
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
  return view_samples(s, t, v, why);
}

static bool view_tokens(DataView *v, const char *path, const char *tokenizer, char *why) {
  Samples s = {0};
  struct pd_array file = {.path = path};
  signals_watch(NULL);
  const char *map = map_watched(path, &file.size, why);
  file.map = map;
  struct pd_tokenizer *t = file.map ? tokenizer_of(tokenizer, why) : NULL;
  const bool good = t && open_samples(&s, &file, why) && view(&s, path, t, v, why);
  pd_tokenizer_close(t);
  free(s.unpacked[0]);
  free(s.unpacked[1]);
  unmap_watched(map);
  signals_restore();
  return good;
}

bool data_view(DataView *v, const char *path, const char *tokenizer) {
  char why[PD_WHY] = "";
  *v = (DataView){.path = path};
  const bool good = is_of_images(path) ? view_images(v, path, why) : view_tokens(v, path, tokenizer, why);
  if (!good)
    error_at(NO_SPAN, "PD0661", "%s", why);
  return good;
}
