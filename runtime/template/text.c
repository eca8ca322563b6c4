/* Texts by characters, as Python's str. */
#define _GNU_SOURCE /* memmem */
#include "internal.h"

#include <string.h>

size_t pd_character_bytes(const char *text, size_t n) {
  const unsigned char c = (unsigned char)*text;
  const size_t bytes = c < 0xC2 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : c < 0xF5 ? 4 : 1;
  if (bytes > n) return 1;
  for (size_t i = 1; i < bytes; i++)
    if (((unsigned char)text[i] & 0xC0) != 0x80) return 1;
  return bytes;
}

bool pd_is_blank(const char *text, size_t bytes) {
  static const char *const blanks[] = {"\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\xA8",
                                       "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80"};
  const unsigned char c = (unsigned char)*text;
  if (bytes == 1) return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
  if (bytes == 3 && !memcmp(text, "\xE2\x80", 2) && (unsigned char)text[2] <= 0x8A)
    return true; /* U+2000 to U+200A */
  for (size_t i = 0; i < sizeof blanks / sizeof *blanks; i++)
    if (strlen(blanks[i]) == bytes && !memcmp(text, blanks[i], bytes)) return true;
  return false;
}

int64_t pd_characters(struct pd_text t) {
  int64_t n = 0;
  for (size_t at = 0; at < t.n; at += pd_character_bytes(t.at + at, t.n - at)) n++;
  return n;
}

struct pd_text pd_characters_of(struct pd_text t, int64_t begin, int64_t end) {
  size_t at = 0, from = t.n, to = t.n;
  for (int64_t i = 0; at <= t.n; i++) {
    if (i == begin) from = at;
    if (i == end) to = at;
    if (at == t.n || i == end) break;
    at += pd_character_bytes(t.at + at, t.n - at);
  }
  return to > from ? (struct pd_text){t.at + from, to - from} : (struct pd_text){"", 0};
}

static size_t last_bytes(struct pd_text t) {
  for (size_t n = 4; n > 1; n--)
    if (n <= t.n && pd_character_bytes(t.at + t.n - n, n) == n) return n;
  return 1;
}

int64_t pd_find(struct pd_text t, struct pd_text part, size_t from) {
  if (part.n > t.n || from > t.n - part.n) return -1;
  if (!part.n) return (int64_t)from;
  const char *at = memmem(t.at + from, t.n - from, part.at, part.n);
  return at ? at - t.at : -1;
}

static bool is_stripped(const char *at, size_t bytes, const struct pd_text *set) {
  return set ? pd_find(*set, (struct pd_text){at, bytes}, 0) >= 0 : pd_is_blank(at, bytes);
}

struct pd_text pd_strip(struct pd_text t, enum pd_strip_side side, const struct pd_text *set) {
  while (t.n && (side & PD_LEFT)) {
    const size_t bytes = pd_character_bytes(t.at, t.n);
    if (!is_stripped(t.at, bytes, set)) break;
    t.at += bytes;
    t.n -= bytes;
  }
  while (t.n && (side & PD_RIGHT)) {
    const size_t bytes = last_bytes(t);
    if (!is_stripped(t.at + t.n - bytes, bytes, set)) break;
    t.n -= bytes;
  }
  return t;
}

bool pd_begins(struct pd_text t, struct pd_text part) {
  return t.n >= part.n && (!part.n || !memcmp(t.at, part.at, part.n));
}

bool pd_ends(struct pd_text t, struct pd_text part) {
  return t.n >= part.n && (!part.n || !memcmp(t.at + t.n - part.n, part.at, part.n));
}

void pd_write_character(struct pd_writer *w, int32_t c) {
  char bytes[4];
  size_t n = 1;
  if (c < 0x80)
    bytes[0] = (char)c;
  else if (c < 0x800)
    n = 2, bytes[0] = (char)(0xC0 | c >> 6), bytes[1] = (char)(0x80 | (c & 63));
  else if (c < 0x10000)
    n = 3, bytes[0] = (char)(0xE0 | c >> 12), bytes[1] = (char)(0x80 | (c >> 6 & 63)),
    bytes[2] = (char)(0x80 | (c & 63));
  else
    n = 4, bytes[0] = (char)(0xF0 | c >> 18), bytes[1] = (char)(0x80 | (c >> 12 & 63)),
    bytes[2] = (char)(0x80 | (c >> 6 & 63)), bytes[3] = (char)(0x80 | (c & 63));
  pd_write(w, bytes, n);
}
