#include "split.h"

#include "unicode.h"

#include <stdbool.h>
#include <string.h>

/* ---- parts of words -------------------------------------------------------------------------- */

static enum pd_class class_at(const char *text, size_t n, size_t at) {
  return at < n ? pd_class_of(pd_character_at(text + at, n - at).point) : PD_NEITHER;
}

/* The end of the run of a class from `at`, of at most `most` characters. */
static size_t run_end(const char *text, size_t n, size_t at, enum pd_class class, int most) {
  for (int i = 0; at < n && i < most; i++) {
    struct pd_character c = pd_character_at(text + at, n - at);
    if (pd_class_of(c.point) != class) break;
    at += (size_t)c.bytes;
  }
  return at;
}
enum { ANY_NUMBER = 1 << 30 };

/* 's|'t|'re|'ve|'m|'ll|'d at the text's start: its bytes, or 0. Ignores case; the long s counts as s. */
static size_t contraction(const char *text, size_t n, bool any_case) {
  static const char *const ends[] = {"s", "t", "re", "ve", "m", "ll", "d"};
  if (n < 2 || text[0] != '\'') return 0;
  if (any_case && n >= 3 && !memcmp(text + 1, "\xC5\xBF", 2)) return 3;
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    size_t m = strlen(ends[i]), k = 0;
    if (m + 1 > n) continue;
    while (k < m && (text[k + 1] == ends[i][k] || (any_case && text[k + 1] == ends[i][k] - 32))) k++;
    if (k == m) return m + 1;
  }
  return 0;
}

/* \s+(?!\S)|\s+ : spaces, but the last one before something else, if there are several. */
static size_t spaces(const char *text, size_t n) {
  size_t at = 0, last = 0;
  while (at < n) {
    struct pd_character c = pd_character_at(text + at, n - at);
    if (pd_class_of(c.point) != PD_SPACE) break;
    last = at;
    at += (size_t)c.bytes;
  }
  return at < n && last > 0 ? last : at;
}

static bool is_newline(char c) { return c == '\n' || c == '\r'; }

/* \s*[\r\n]+ : spaces up to the last newline among them, or 0. */
static size_t spaces_to_newline(const char *text, size_t n) {
  size_t end = run_end(text, n, 0, PD_SPACE, ANY_NUMBER);
  while (end > 0 && !is_newline(text[end - 1])) end--;
  return end;
}

/* ---- regular expressions --------------------------------------------------------------------- */

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static size_t gpt2_word(const struct pd_splitter *s, const char *text, size_t n) {
  (void)s;
  size_t end = contraction(text, n, false), first = text[0] == ' ';
  if (end) return end;
  enum pd_class class = class_at(text, n, first);
  if (first < n && class != PD_SPACE) return run_end(text, n, first, class, ANY_NUMBER);
  return spaces(text, n);
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,most}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|
 * \s+(?!\S)|\s+ */
static size_t cl100k_word(const struct pd_splitter *s, const char *text, size_t n) {
  size_t end = contraction(text, n, true), space = text[0] == ' ';
  if (end) return end;
  struct pd_character c = pd_character_at(text, n);
  enum pd_class class = pd_class_of(c.point);
  size_t first = class == PD_LETTER || class == PD_NUMBER || is_newline(text[0]) ? 0 : (size_t)c.bytes;
  end = run_end(text, n, first, PD_LETTER, ANY_NUMBER);
  if (end > first) return end;
  if (class == PD_NUMBER) return run_end(text, n, 0, PD_NUMBER, s->most_digits);
  end = run_end(text, n, space, PD_NEITHER, ANY_NUMBER);
  if (end > space) {
    while (end < n && is_newline(text[end])) end++;
    return end;
  }
  end = spaces_to_newline(text, n);
  return end ? end : spaces(text, n);
}

static size_t digits_word(const struct pd_splitter *s, const char *text, size_t n) {
  size_t end = run_end(text, n, 0, PD_NUMBER, s->most_digits);
  if (end) return end;
  while (end < n && class_at(text, n, end) != PD_NUMBER) end += (size_t)pd_character_at(text + end, n - end).bytes;
  return end;
}

const struct pd_splitter pd_gpt2_splitter = {gpt2_word, 0};
const struct pd_splitter pd_digits_splitter = {digits_word, ANY_NUMBER}, pd_digit_splitter = {digits_word, 1};

#define CL100K(numbers)                                                                                   \
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" numbers "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" \
  "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct {
  const char *expression;
  struct pd_splitter splitter;
} known[] = {
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", {gpt2_word, 0}},
    {CL100K("\\p{N}{1,3}"), {cl100k_word, 3}}, /* Llama 3 */
    {CL100K("\\p{N}"), {cl100k_word, 1}},      /* Qwen 2 */
    {CL100K("\\p{N}+"), {cl100k_word, ANY_NUMBER}},
};

const struct pd_splitter *pd_splitter_of(const char *expression) {
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!strcmp(known[i].expression, expression)) return &known[i].splitter;
  return NULL;
}
