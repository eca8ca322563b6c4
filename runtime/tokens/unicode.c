#include "unicode.h"

#include "unicode_classes.h"

/* Unicode 16, table 3-7: well-formed UTF-8. */
int pd_utf8_length(const unsigned char *s, size_t n) {
  int bytes = s[0] < 0x80 ? 1 : s[0] < 0xC2 ? -1 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : s[0] < 0xF5 ? 4 : -1;
  unsigned low = s[0] == 0xE0 ? 0xA0 : s[0] == 0xF0 ? 0x90 : 0x80;
  unsigned high = s[0] == 0xED ? 0x9F : s[0] == 0xF4 ? 0x8F : 0xBF;
  for (int i = 1; i < bytes; i++, low = 0x80, high = 0xBF) {
    if ((size_t)i == n) return 0;
    if (s[i] < low || s[i] > high) return -i;
  }
  return bytes;
}

struct pd_character pd_character_at(const char *text, size_t n) {
  const unsigned char *s = (const unsigned char *)text;
  int bytes = pd_utf8_length(s, n);
  if (bytes == 1) return (struct pd_character){s[0], 1};
  if (bytes <= 0) return (struct pd_character){-1, 1};
  int32_t point = s[0] & (0x7F >> bytes);
  for (int i = 1; i < bytes; i++) point = point << 6 | (s[i] & 0x3F);
  return (struct pd_character){point, bytes};
}

int pd_utf8_write(int32_t point, char *to) {
  if (point < 0x80) {
    to[0] = (char)point;
    return 1;
  }
  int bytes = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
  for (int i = bytes - 1; i > 0; i--, point >>= 6) to[i] = (char)(0x80 | (point & 0x3F));
  to[0] = (char)(0xF0 << (4 - bytes) | point);
  return bytes;
}

bool pd_is_in(const struct pd_code_points *table, size_t n, int32_t point) {
  size_t first = 0, end = n;
  while (first < end) {
    size_t middle = (first + end) / 2;
    if (point > table[middle].last)
      first = middle + 1;
    else
      end = middle;
  }
  return first < n && point >= table[first].first;
}

/* ---- categories ------------------------------------------------------------------------------ */

size_t pd_runs_of_categories(const struct pd_run_of_category **runs) {
  *runs = categories;
  return sizeof categories / sizeof *categories;
}

static enum pd_category category_of(int32_t point) {
  size_t first = 0, end = sizeof categories / sizeof *categories;
  while (end - first > 1) {
    size_t middle = (first + end) / 2;
    if (point >= categories[middle].first)
      first = middle;
    else
      end = middle;
  }
  return categories[first].category;
}

bool pd_is_space(int32_t point) {
  if (point < 0x80) return point == ' ' || (point >= 9 && point <= 13);
  enum pd_category c = category_of(point);
  return point == 0x85 || c == PD_ZS || c == PD_ZL || c == PD_ZP;
}

enum pd_class pd_class_of(int32_t point) {
  if (point < 0) return PD_NEITHER;
  if (point < 0x80) {
    if ((point | 32) >= 'a' && (point | 32) <= 'z') return PD_LETTER;
    if (point >= '0' && point <= '9') return PD_NUMBER;
    return pd_is_space(point) ? PD_SPACE : PD_NEITHER;
  }
  enum pd_category c = category_of(point);
  if (c <= PD_LO) return PD_LETTER;
  if (c >= PD_ND && c <= PD_NO) return PD_NUMBER;
  return pd_is_space(point) ? PD_SPACE : PD_NEITHER;
}
