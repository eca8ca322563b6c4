/* `pdc data --show`: a data file in figures, and some of its samples as texts. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/data.h"
#include "shared/read_file.h"
#include "tokenize/internal.h"

enum { SHOWN = 3, BINS = 8, BAR = 40, SHOWN_TOKENS = 300 };

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
      bins[(filled - 1) * BINS / s->length]++;
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

static void print_lengths(const Samples *s, const int64_t *bins, FILE *out) {
  int64_t most = 1;
  for (int i = 0; i < BINS; i++)
    most = bins[i] > most ? bins[i] : most;
  fprintf(out, "positions filled   rows\n");
  for (int i = 0; i < BINS; i++) {
    const int64_t from = (i * s->length + BINS - 1) / BINS + 1, to = ((i + 1) * s->length + BINS - 1) / BINS;
    if (from > to)
      continue;
    fprintf(out, "%7lld to %-7lld %6s%s", (long long)from, (long long)to, with_commas(bins[i]),
            bins[i] ? " " : "");
    for (int64_t k = 0; k < (bins[i] * BAR + most - 1) / most; k++)
      fputc('#', out);
    fputc('\n', out);
  }
}

/* ---- texts --------------------------------------------------------------------------------------- */

static void print_text(const char *text, size_t n, FILE *out) {
  for (size_t i = 0, control; i < n; i += control ? control : 1) {
    control = pd_control_bytes(text + i, n - i);
    if (text[i] == '\n')
      fputs("\n  ", out);
    else if (!control)
      fputc(text[i], out);
    for (size_t k = 0; k < control && text[i] != '\n'; k++)
      fprintf(out, "\\x%02x", (unsigned char)text[i + k]);
  }
}

/* Tokens with loss stand between [[ and ]]: token i has one if it is the target of position i - 1. */
static void print_tokens(const Samples *s, const struct pd_tokenizer *t, const int32_t *tokens,
                         const int32_t *next, int64_t n, FILE *out) {
  struct pd_decoding d = {0};
  const char *text;
  bool inside = false;
  fputs("  ", out);
  for (int64_t i = 0; i < n; i++) {
    const bool counts = s->targets && i > 0 && next[i - 1] >= 0;
    const char *name = pd_tokenizer_added(t, tokens[i]);
    if (counts != inside)
      fputs(counts ? "[[" : "]]", out);
    inside = counts;
    if (name)
      print_text(name, strlen(name), out);
    else {
      const size_t bytes = pd_tokenizer_decode(t, &d, tokens[i], &text);
      print_text(text, bytes, out);
    }
  }
  const size_t left = pd_tokenizer_decode_end(&d, &text);
  print_text(text, left, out);
  fputs(inside ? "]]" : "", out);
}

static bool print_samples(const Samples *s, const struct pd_tokenizer *t, FILE *out, char *why) {
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
    if (s->targets)
      fprintf(out, "row %lld:\n", (long long)r);
    print_tokens(s, t, tokens, next, shown, out);
    fprintf(out, "%s\n", shown < filled || (!s->targets && s->rows > length) ? " ..." : "");
  }
  free(tokens);
  free(next);
  return good;
}

static bool show(Samples *s, const char *path, const struct pd_tokenizer *t, FILE *out, char *why) {
  int64_t bins[BINS] = {0};
  if (!s->rows)
    return pd_refuse(why, "'%s' is empty", path);
  if (!count(s, bins, why))
    return *why ? false : pd_refuse(why, "no memory for a row of %lld positions", (long long)s->length);
  const double positions = (double)s->rows * (double)s->length;
  if (s->targets)
    fprintf(out, "%s: %s row%s of %lld positions, tokens %lld to %lld\n%.1f %% with loss, %.1f %% padding\n",
            plain_path(path), with_commas(s->rows), s->rows == 1 ? "" : "s", (long long)s->length,
            (long long)s->least, (long long)s->most, 100.0 * (double)s->counted / positions,
            100.0 * (1.0 - (double)s->filled / positions));
  else
    fprintf(out, "%s: %s token%s, %lld to %lld\n", plain_path(path), with_commas(s->rows), s->rows == 1 ? "" : "s",
            (long long)s->least, (long long)s->most);
  if (s->targets)
    print_lengths(s, bins, out);
  if (s->most >= pd_tokenizer_size(t))
    return pd_refuse(why,
                     "'%s' has token %lld, and the tokenizer %lld tokens. help: name the one that wrote the file "
                     "with --tokenizer",
                     path, (long long)s->most, (long long)pd_tokenizer_size(t));
  return print_samples(s, t, out, why);
}

bool data_show(const char *path, const char *tokenizer, FILE *out) {
  char why[PD_WHY] = "";
  Samples s = {0};
  struct pd_array file = {.path = path};
  signals_watch(NULL);
  const char *map = map_watched(path, &file.size, why);
  file.map = map;
  struct pd_tokenizer *t = file.map ? tokenizer_of(tokenizer, why) : NULL;
  const bool good = t && open_samples(&s, &file, why) && show(&s, path, t, out, why);
  pd_tokenizer_close(t);
  free(s.unpacked[0]);
  free(s.unpacked[1]);
  unmap_watched(map);
  signals_restore();
  if (!good)
    error_at(NO_SPAN, "PD0661", "%s", why);
  return good;
}
