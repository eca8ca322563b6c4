/* SentencePiece's maps of characters (precompiled_charsmap), as Hugging Face applies them: a grapheme cluster of less than
 * six bytes that begins with a text of the map is replaced as a whole, by the shortest such text. */
#include "unicode.h"
#include "unigram.h"

#include <stdlib.h>
#include <string.h>

#include "unicode_clusters.h"

#define IS_IN(table, point) pd_is_in(table, sizeof table / sizeof *table, point)

/* ---- file format ----------------------------------------------------------------------------- */

static int sextet(char c) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const char *at = c ? strchr(digits, c) : NULL;
  return at ? (int)(at - digits) : -1;
}

static unsigned char *from_base64(const char *text, size_t *bytes) {
  const size_t n = strcspn(text, "=");
  unsigned char *to = pd_grown(NULL, n + 1);
  uint32_t held = 0;
  *bytes = 0;
  for (size_t i = 0; i < n; i++) {
    const int six = sextet(text[i]);
    if (six < 0) {
      free(to);
      return NULL;
    }
    held = held << 6 | (uint32_t)six;
    if (i % 4) to[(*bytes)++] = (unsigned char)(held >> (6 - 2 * (i % 4)));
  }
  return to;
}

/* No replacement lengthens a text without bounds. */
static bool has_short_texts(const unsigned char *blob, size_t bytes) {
  enum { MOST = 255 };
  size_t run = 0;
  for (size_t i = 0; i < bytes; i++) {
    run = blob[i] ? run + 1 : 0;
    if (run > MOST) return false;
  }
  return true;
}

bool pd_charsmap_parse(struct pd_charsmap *m, const char *base64) {
  size_t n;
  uint32_t size = 0;
  unsigned char *all = from_base64(base64, &n);
  if (all && n >= 4) memcpy(&size, all, 4);
  const bool good =
      all && size >= 4 && size % 4 == 0 && size <= n - 4 && has_short_texts(all + 4 + size, n - 4 - size);
  if (good) {
    m->units = size / 4;
    m->unit = pd_grown(NULL, size);
    memcpy(m->unit, all + 4, size);
    m->bytes = n - 4 - size;
    m->blob = pd_grown(NULL, m->bytes + 1);
    memcpy(m->blob, all + 4 + size, m->bytes);
    m->blob[m->bytes] = 0;
  }
  free(all);
  return good;
}

/* ---- double array ---------------------------------------------------------------------------- */

static size_t offset_of(uint32_t unit) { return (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6); }

/* The replacement of the shortest text of the map that this one begins with; NULL: none. */
static const char *find(const struct pd_charsmap *m, const char *text, size_t bytes) {
  size_t node = offset_of(m->unit[0]);
  for (size_t i = 0; i < bytes && text[i]; i++) {
    const unsigned char byte = (unsigned char)text[i];
    node ^= byte;
    if (node >= m->units || (m->unit[node] & (1u << 31 | 0xFF)) != byte) return NULL;
    const bool leaf = m->unit[node] >> 8 & 1;
    node ^= offset_of(m->unit[node]);
    if (node >= m->units) return NULL;
    const size_t value = m->unit[node] & ((1u << 31) - 1);
    if (leaf) return value < m->bytes ? m->blob + value : NULL;
  }
  return NULL;
}

/* ---- grapheme clusters ----------------------------------------------------------------------- */

/* Bytes of the cluster at the start of a text, by the rules of Unicode (annex 29) that make clusters of less than six
 * bytes: a carriage return with a newline, marks behind a character, and prepended marks. */
static size_t cluster(const char *text, size_t n) {
  struct pd_character c = pd_character_at(text, n), next;
  size_t at = (size_t)c.bytes;
  if (c.point == '\r' && at < n && text[at] == '\n') return at + 1;
  if (c.point <= 0 || IS_IN(controls, c.point)) return at;
  for (bool prepended = IS_IN(prepends, c.point); at < n; at += (size_t)next.bytes) {
    next = pd_character_at(text + at, n - at);
    const bool joins = IS_IN(joining, next.point);
    if (next.point <= 0 || (!joins && (!prepended || IS_IN(controls, next.point)))) break;
    prepended = !joins && IS_IN(prepends, next.point);
  }
  return at;
}

/* ---- texts ----------------------------------------------------------------------------------- */

char *pd_charsmap_normalized(const struct pd_charsmap *m, const char *text, size_t *bytes) {
  enum { SHORT = 6 };
  struct pd_growing to = {0};
  pd_growing_add(&to, "", 0);
  for (size_t at = 0, n; at < *bytes; at += n) {
    n = cluster(text + at, *bytes - at);
    const char *whole = n < SHORT ? find(m, text + at, n) : NULL;
    if (whole) pd_growing_add(&to, whole, strlen(whole));
    for (size_t i = 0, k; i < n && !whole; i += k) {
      k = (size_t)pd_character_at(text + at + i, n - i).bytes;
      const char *one = find(m, text + at + i, k);
      pd_growing_add(&to, one ? one : text + at + i, one ? strlen(one) : k);
    }
  }
  *bytes = to.n;
  return to.at;
}
