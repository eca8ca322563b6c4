/* Encoding: added tokens are matched first; the text between them is normalized, split into words, and merged. */
#include "normal.h"
#include "parts.h"
#include "unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The state of encoding: tokenizer, tokens found, marks, and place of a failure. */
struct encoding {
  const struct pd_tokenizer *t;
  struct pd_tokens tokens;
  struct pd_mark *mark; /* the first that is not set yet */
  int n_marks;
  const char *missing; /* the character without a token; NULL: none */
  size_t missing_bytes;
};

/* ---- normalizing ----------------------------------------------------------------------------- */

static char *copy_of(const char *text, size_t bytes) {
  char *to = pd_grown(NULL, bytes + 1);
  memcpy(to, text, bytes);
  to[bytes] = 0;
  return to;
}

static size_t spaces_before(const char *text, size_t from, size_t at) {
  for (size_t first; at > from; at = first) {
    for (first = at - 1; first > from && ((unsigned char)text[first] & 0xC0) == 0x80;) first--;
    struct pd_character c = pd_character_at(text + first, at - first);
    if (first + (size_t)c.bytes != at || pd_class_of(c.point) != PD_SPACE) break;
  }
  return at;
}

static size_t spaces_behind(const char *text, size_t bytes, size_t at) {
  while (at < bytes) {
    struct pd_character c = pd_character_at(text + at, bytes - at);
    if (pd_class_of(c.point) != PD_SPACE) break;
    at += (size_t)c.bytes;
  }
  return at;
}

/* Bytes of the place at the start of a text that is replaced; 0: none. */
static size_t place_bytes(const struct pd_replacement *r, const char *text, size_t bytes) {
  const size_t from = strlen(r->from);
  size_t n = 0;
  while (n + from <= bytes && !memcmp(text + n, r->from, from)) {
    n += from;
    if (!r->runs) break;
  }
  return r->runs && n == from ? 0 : n;
}

char *pd_replaced(const struct pd_replacement *r, const char *text, size_t *bytes) {
  struct pd_growing to = {0};
  size_t put = strlen(r->to), at = 0;
  if (!r->from && *bytes) pd_growing_add(&to, r->to, put);
  while (r->from && at < *bytes) {
    const size_t n = place_bytes(r, text + at, *bytes - at);
    pd_growing_add(&to, n ? r->to : text + at, n ? put : 1);
    at += n ? n : 1;
  }
  pd_growing_add(&to, text + at, *bytes - at);
  *bytes = to.n;
  pd_growing_add(&to, "", 1);
  return to.at;
}

/* The text without spaces at its ends. */
static char *stripped(const struct pd_replacement *r, const char *text, size_t *bytes) {
  const size_t first = r->strip_left ? spaces_behind(text, *bytes, 0) : 0;
  const size_t end = r->strip_right ? spaces_before(text, first, *bytes) : *bytes;
  *bytes = end - first;
  return copy_of(text + first, *bytes);
}

static char *step_of(const struct pd_replacement *r, const char *text, size_t *bytes) {
  if (r->to) return pd_replaced(r, text, bytes);
  return r->strip_left || r->strip_right ? stripped(r, text, bytes) : pd_composed(text, bytes);
}

char *pd_normalize(const struct pd_tokenizer *t, const char *text, size_t *bytes) {
  if (t->bert.on) return pd_bert_normalized(&t->bert, text, bytes);
  char *now = t->charsmap.unit ? pd_charsmap_normalized(&t->charsmap, text, bytes) : copy_of(text, *bytes);
  for (int i = 0; i < t->n_normalizer; i++) {
    char *next = step_of(&t->normalizer[i], now, bytes);
    free(now);
    now = next;
  }
  return now;
}

/* ---- words ----------------------------------------------------------------------------------- */

static bool merge_word(struct encoding *e, const char *word, size_t bytes) {
  const struct pd_tokenizer *t = e->t;
  const char *missing;
  if (t->wordpiece.continuing) {
    if (!pd_bert_is_blank(word, bytes)) pd_wordpiece_encode(&t->wordpiece, &t->bpe, word, bytes, &e->tokens);
    return true;
  }
  if (!t->byte_level) {
    if (t->unigram.score ? pd_unigram_encode(&t->unigram, &t->bpe, word, bytes, &e->tokens, &missing)
                         : pd_bpe_encode(&t->bpe, word, bytes, &e->tokens, &missing))
      return true;
    e->missing_bytes = (size_t)pd_character_at(missing, bytes - (size_t)(missing - word)).bytes;
    e->missing = strndup(missing, e->missing_bytes);
    return false;
  }
  struct pd_growing written = {0};
  for (size_t i = 0; i < bytes; i++) {
    char character[2];
    pd_growing_add(&written, character,
                   (size_t)pd_utf8_write(pd_byte_character((unsigned char)word[i]), character));
  }
  bool ok = pd_bpe_encode(&t->bpe, written.at, written.n, &e->tokens, &missing);
  if (!ok) {
    int32_t point = pd_character_at(missing, written.n - (size_t)(missing - written.at)).point;
    char byte = (char)pd_character_byte(point);
    e->missing_bytes = 1;
    e->missing = strndup(&byte, 1);
  }
  free(written.at);
  return ok;
}

/* Splits by splitter `step`, within the words of earlier splitters. */
static bool split_words(struct encoding *e, int step, const char *text, size_t bytes) {
  if (step == e->t->n_splitters) return merge_word(e, text, bytes);
  const struct pd_splitter *s = &e->t->splitter[step];
  for (size_t at = 0, n; at < bytes; at += n) {
    n = pd_split_word(s, text + at, bytes - at);
    if (!split_words(e, step + 1, text + at, n)) return false;
  }
  return true;
}

/* Metaspace: separators for spaces, and words that begin with one. */
static bool separate_run(struct encoding *e, const char *text, size_t bytes, bool begins) {
  const struct pd_tokenizer *t = e->t;
  struct pd_replacement space = {.from = " ", .to = t->separator};
  size_t m = strlen(t->separator), n = bytes;
  char *replaced = pd_replaced(&space, text, &n);
  struct pd_growing whole = {0};
  bool has = n >= m && !memcmp(replaced, t->separator, m);
  if (!has && (t->prepend == PD_ALWAYS || (t->prepend == PD_ONCE && begins)))
    pd_growing_add(&whole, t->separator, m);
  pd_growing_add(&whole, replaced, n);
  free(replaced);
  bool ok = true;
  for (size_t at = 0, end; at < whole.n && ok; at = end) {
    end = t->separates ? at + 1 : whole.n;
    while (end < whole.n && (end + m > whole.n || memcmp(whole.at + end, t->separator, m))) end++;
    ok = merge_word(e, whole.at + at, end - at);
  }
  free(whole.at);
  return ok;
}

static bool separate_words(struct encoding *e, const char *text, size_t bytes, bool begins) {
  if (!e->t->drops_spaces) return separate_run(e, text, bytes, begins);
  for (size_t at = 0, end; at < bytes; at = end) {
    at = spaces_behind(text, bytes, at);
    for (end = at; end < bytes && spaces_behind(text, bytes, end) == end;)
      end += (size_t)pd_character_at(text + end, bytes - end).bytes;
    if (end > at && !separate_run(e, text + at, end - at, begins && !at)) return false;
  }
  return true;
}

/* Encodes a normalized text between added tokens. begins: at the start of the whole text. */
static bool encode_part(struct encoding *e, const char *text, size_t bytes, bool begins) {
  const struct pd_tokenizer *t = e->t;
  if (!bytes) return true;
  if (t->separator) return separate_words(e, text, bytes, begins);
  if (!t->space_first || text[0] == ' ') return split_words(e, 0, text, bytes);
  struct pd_growing longer = {0};
  pd_growing_add(&longer, " ", 1);
  pd_growing_add(&longer, text, bytes);
  bool ok = split_words(e, 0, longer.at, longer.n);
  free(longer.at);
  return ok;
}

/* ---- added tokens ---------------------------------------------------------------------------- */

/* Encodes added tokens of one kind, and passes on the text between them. */
typedef bool encode_between(struct encoding *e, const char *text, size_t bytes, bool begins);

static bool encode_normalized(struct encoding *e, const char *text, size_t bytes, bool begins);

static void set_mark(struct encoding *e, int64_t ended, int64_t begun) {
  e->mark->ended = ended;
  e->mark->begun = begun;
  e->mark++;
  e->n_marks--;
}

/* Bytes of the normalized text that a token stands for. */
static size_t bytes_of(const struct pd_tokenizer *t, int32_t token) {
  const char *text = t->bpe.text[token] ? t->bpe.text[token] : pd_added_of(t, token)->content;
  size_t n = 0;
  if (!t->byte_level) return strlen(text);
  for (; *text; text++) n += ((unsigned char)*text & 0xC0) != 0x80; /* a character of its alphabet is a byte */
  return n;
}

/* Sets the next mark, inside text[0, bytes), whose tokens are those from `first` on. The tokens of the text before the
 * mark stand for the same number of bytes as those of the whole text up to the mark, also after normalizing. */
static bool mark_in_text(struct encoding *e, const char *text, size_t before, bool begins, int64_t first) {
  struct encoding alone = {.t = e->t};
  size_t bytes = 0, sum = 0;
  const bool ok = encode_normalized(&alone, text, before, begins);
  for (int64_t i = 0; i < alone.tokens.n && ok; i++) bytes += bytes_of(e->t, alone.tokens.at[i]);
  int64_t ended = first, begun = first;
  for (int64_t i = first; i < e->tokens.n && sum < bytes && ok; i++) {
    sum += bytes_of(e->t, e->tokens.at[i]);
    begun++;
    ended += sum <= bytes;
  }
  free(alone.tokens.at);
  if (ok)
    set_mark(e, ended, begun);
  else {
    e->missing = alone.missing;
    e->missing_bytes = alone.missing_bytes;
  }
  return ok;
}

/* Sets marks up to `at`, where tokens end. */
static void set_marks(struct encoding *e, size_t at) {
  while (e->n_marks && e->mark->at <= at) set_mark(e, e->tokens.n, e->tokens.n);
}

/* Encodes text[from, to) between added tokens; raw: also sets its marks. */
static bool encode_part_of(struct encoding *e, encode_between *between, const char *text, size_t from, size_t to,
                           bool begins, bool raw) {
  const int64_t first = e->tokens.n;
  if (raw) set_marks(e, from);
  if (to > from && !between(e, text + from, to - from, begins && !from)) return false;
  while (raw && e->n_marks && e->mark->at < to)
    if (!mark_in_text(e, text + from, e->mark->at - from, begins && !from, first)) return false;
  if (raw) set_marks(e, to);
  return true;
}

static bool find_added(struct encoding *e, const char *text, size_t bytes, bool begins, bool normalized,
                       encode_between *between) {
  size_t first = 0; /* the text before it is done */
  for (size_t at = 0; at < bytes;) {
    const struct pd_added *a = pd_added_at(e->t, text + at, bytes - at, normalized);
    if (!a) {
      at++;
      continue;
    }
    size_t start = a->left ? spaces_before(text, first, at) : at;
    at += strlen(normalized ? a->normalized : a->content);
    if (!encode_part_of(e, between, text, first, start, begins, !normalized)) return false;
    pd_tokens_add(&e->tokens, a->id);
    first = at = a->right ? spaces_behind(text, bytes, at) : at;
    while (!normalized && e->n_marks && e->mark->at < at) set_mark(e, e->tokens.n - 1, e->tokens.n);
  }
  return encode_part_of(e, between, text, first, bytes, begins, !normalized);
}

static bool encode_normalized(struct encoding *e, const char *text, size_t bytes, bool begins) {
  size_t n = bytes;
  char *normalized = pd_normalize(e->t, text, &n);
  bool ok = find_added(e, normalized, n, begins, true, encode_part);
  free(normalized);
  return ok;
}

int64_t pd_tokenizer_encode(const struct pd_tokenizer *t, const char *text, size_t bytes, int32_t **tokens,
                            char *why) {
  return pd_tokenizer_encode_marked(t, text, bytes, NULL, 0, tokens, why);
}

int64_t pd_tokenizer_encode_marked(const struct pd_tokenizer *t, const char *text, size_t bytes,
                                   struct pd_mark *marks, int n, int32_t **tokens, char *why) {
  struct encoding e = {.t = t, .mark = marks, .n_marks = n};
  if (n && (t->wordpiece.continuing || t->unigram.score)) {
    pd_refuse(why, "chats need a tokenizer whose tokens keep all of a text: WordPiece and Unigram drop spaces");
    return -1;
  }
  pd_tokens_add(&e.tokens, 0); /* so that there is something to free */
  e.tokens.n = 0;
  bool ok = true;
  if (t->bytes)
    for (size_t i = 0; i < bytes; i++) pd_tokens_add(&e.tokens, (unsigned char)text[i]);
  else
    ok = find_added(&e, text, bytes, true, false, encode_normalized);
  for (int i = 0; i < n && t->bytes; i++) marks[i].ended = marks[i].begun = (int64_t)marks[i].at;
  if (ok) {
    *tokens = e.tokens.at;
    return e.tokens.n;
  }
  char shown[16] = "";
  for (size_t i = 0; i < e.missing_bytes && i < 4; i++)
    snprintf(shown + 3 * i, sizeof shown - 3 * i, " %02x", (unsigned char)e.missing[i]);
  pd_refuse(why, "the vocabulary has no token for the character '%.4s' (bytes%s)", e.missing, shown);
  free((char *)e.missing);
  free(e.tokens.at);
  *tokens = NULL;
  return -1;
}

/* ---- parts of a text ---------------------------------------------------------------------------- */

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static bool is_printed(char c) { return c > ' ' && c < 127; }

bool pd_ends_words_at_newlines(const struct pd_tokenizer *t) {
  bool ends = !t->separator && !t->space_first;
  for (int i = 0; i < t->n_normalizer; i++)
    ends &= t->normalizer[i].from || !t->normalizer[i].to; /* none is put in front */
  for (int i = 0; i < t->n_normalizer; i++) ends &= !t->normalizer[i].from || !strchr(t->normalizer[i].from, '\n');
  for (int i = 0; i < t->n_added; i++) ends &= !strchr(t->added[i].content, '\n');
  return ends && pd_splits_at_newlines(t->splitter, t->n_splitters);
}

bool pd_tokenizer_parts(const struct pd_tokenizer *t, const char *text, size_t bytes, size_t at) {
  return at >= 2 && at < bytes && text[at - 1] == '\n' && is_printed(text[at - 2]) && is_letter(text[at]) &&
         (t->bytes || t->newlines_end_words);
}
