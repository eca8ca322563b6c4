#include "bert.h"

#include "normal.h"
#include "split.h"
#include "unicode.h"

#include <stdlib.h>
#include <string.h>

struct pd_lower {
  int32_t point, to[3]; /* 0: none */
};
#include "unicode_bert.h"

#define IS_IN(table, point) pd_is_in(table, sizeof table / sizeof *table, point)

/* ---- normalizer ------------------------------------------------------------------------------ */

/* Blocks of ideographs that BERT separates. */
static bool is_chinese(int32_t p) {
  static const struct pd_code_points blocks[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                                                 {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F},
                                                 {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};
  return IS_IN(blocks, p);
}

static const struct pd_lower *lower_of(int32_t point) {
  size_t first = 0, end = sizeof lower / sizeof *lower;
  while (first < end) {
    const size_t middle = (first + end) / 2;
    if (lower[middle].point == point) return &lower[middle];
    if (lower[middle].point < point)
      first = middle + 1;
    else
      end = middle;
  }
  return NULL;
}

typedef void change_character(struct pd_growing *to, int32_t point, const char *at, size_t bytes);

static void clean(struct pd_growing *to, int32_t point, const char *at, size_t bytes) {
  if (point == 0 || IS_IN(removed, point)) return;
  if (IS_IN(blanks, point))
    pd_growing_add(to, " ", 1);
  else
    pd_growing_add(to, at, bytes);
}

static void separate(struct pd_growing *to, int32_t point, const char *at, size_t bytes) {
  const bool chinese = is_chinese(point);
  pd_growing_add(to, " ", chinese);
  pd_growing_add(to, at, bytes);
  pd_growing_add(to, " ", chinese);
}

static void strip(struct pd_growing *to, int32_t point, const char *at, size_t bytes) {
  if (!IS_IN(accents, point)) pd_growing_add(to, at, bytes);
}

static void make_lower(struct pd_growing *to, int32_t point, const char *at, size_t bytes) {
  const struct pd_lower *l = lower_of(point);
  char written[4];
  if (!l) pd_growing_add(to, at, bytes);
  for (int i = 0; l && i < 3 && l->to[i]; i++)
    pd_growing_add(to, written, (size_t)pd_utf8_write(l->to[i], written));
}

/* Frees the text. */
static char *changed(char *text, size_t *bytes, change_character *change) {
  struct pd_growing to = {0};
  pd_growing_add(&to, "", 0);
  for (size_t at = 0; at < *bytes;) {
    const struct pd_character c = pd_character_at(text + at, *bytes - at);
    if (c.point < 0)
      pd_growing_add(&to, text + at, (size_t)c.bytes);
    else
      change(&to, c.point, text + at, (size_t)c.bytes);
    at += (size_t)c.bytes;
  }
  free(text);
  *bytes = to.n;
  return to.at;
}

char *pd_bert_normalized(const struct pd_bert *b, const char *text, size_t *bytes) {
  char *now = pd_grown(NULL, *bytes + 1);
  memcpy(now, text, *bytes);
  now[*bytes] = 0;
  if (b->clean) now = changed(now, bytes, clean);
  if (b->chinese) now = changed(now, bytes, separate);
  if (b->strip) {
    char *decomposed = pd_decomposed(now, bytes);
    free(now);
    now = changed(decomposed, bytes, strip);
  }
  return b->lower ? changed(now, bytes, make_lower) : now;
}

/* ---- words ----------------------------------------------------------------------------------- */

size_t pd_bert_word(const char *text, size_t n) {
  struct pd_character c = pd_character_at(text, n);
  const bool blank = IS_IN(dropped, c.point);
  size_t at = (size_t)c.bytes;
  if (IS_IN(marks, c.point)) return at;
  for (; at < n; at += (size_t)c.bytes) {
    c = pd_character_at(text + at, n - at);
    if (IS_IN(marks, c.point) || IS_IN(dropped, c.point) != blank) break;
  }
  return at;
}

bool pd_bert_is_blank(const char *word, size_t bytes) {
  return bytes && IS_IN(dropped, pd_character_at(word, bytes).point);
}

/* ---- WordPiece ------------------------------------------------------------------------------- */

/* The longest token at the start of the rest of a word, and its bytes there; -1: none. `piece` has room. */
static int32_t longest(const struct pd_bpe *v, char *piece, size_t prefix, const char *rest, size_t bytes,
                       size_t *taken) {
  memcpy(piece + prefix, rest, bytes);
  for (size_t n = bytes; n; n--) {
    if (n < bytes && ((unsigned char)rest[n] & 0xC0) == 0x80) continue;
    const int32_t token = pd_bpe_find(v, piece, prefix + n);
    *taken = n;
    if (token >= 0) return token;
  }
  return -1;
}

void pd_wordpiece_encode(const struct pd_wordpiece *w, const struct pd_bpe *vocabulary, const char *word,
                         size_t bytes, struct pd_tokens *to) {
  const int64_t first = to->n;
  const size_t prefix = strlen(w->continuing);
  int64_t characters = 0;
  for (size_t at = 0; at < bytes; characters++) at += (size_t)pd_character_at(word + at, bytes - at).bytes;
  bool known = characters <= w->most;
  char *piece = known ? pd_grown(NULL, prefix + bytes + 1) : NULL;
  if (known) memcpy(piece, w->continuing, prefix);
  for (size_t at = 0, taken; at < bytes && known; at += taken) {
    const int32_t token =
        longest(vocabulary, at ? piece : piece + prefix, at ? prefix : 0, word + at, bytes - at, &taken);
    known = token >= 0;
    if (known) pd_tokens_add(to, token);
  }
  free(piece);
  if (known) return;
  to->n = first;
  pd_tokens_add(to, vocabulary->unknown);
}
