/* Texts with one sample per line. Bytes: the newline is the last token, optional in the last line. Numbers: tokens
 * are decimal numbers, separated by blanks; a line may be empty. */
#include "data/data.h"

#include <string.h>

/* Another process may write to a mapped file, so results of one pass may be wrong in the next. Each pass therefore
 * stays within the map for any contents: `at` and results are at most `end`. */

static const char *line_end(const char *at, const char *end) { /* newline of the line, or end of the file */
  const char *newline = memchr(at, '\n', (size_t)(end - at));
  return newline ? newline : end;
}

static const char *next_line(const char *at, const char *end) { /* `end` after the last line */
  at = line_end(at, end);
  return at < end ? at + 1 : end;
}

int64_t pd_count_lines(const struct pd_array *text) {
  const char *end = text->map + text->size;
  int64_t n = 0;
  for (const char *at = text->map; at < end; at = next_line(at, end)) n++;
  return n;
}

/* A line of a text, with its number for messages; at most in->elements tokens. */
struct line {
  const struct pd_array *text;
  const struct pd_input *in;
  int64_t number; /* from 0 */
  const char *at, *end;
};

static bool refuse_lost(const struct pd_array *text, int64_t line, char *why) {
  return pd_refuse(why, "'%s' was changed while it was in use: line %lld is gone", text->path,
                   (long long)line + 1);
}

static bool refuse_length(const struct line *l, char *why) {
  return pd_refuse(why, "'%s': line %lld, at offset %lld, has more tokens than the %lld of a sample of '%s'",
                   l->text->path, (long long)l->number + 1, (long long)(l->at - l->text->map),
                   (long long)l->in->elements, l->in->name);
}

static bool refuse_token(const struct line *l, const char *at, int64_t token, char *why) {
  return pd_refuse(why, "'%s': line %lld: token %lld at offset %lld is outside the model's %lld classes",
                   l->text->path, (long long)l->number + 1, (long long)token, (long long)(at - l->text->map),
                   (long long)l->in->classes);
}

/* Stores tokens in `to`, unless NULL, and their number in *n. */
static bool take_bytes(const struct line *l, int32_t *to, int64_t *n, char *why) {
  *n = l->end - l->at + 1;
  if (*n > l->in->elements) return refuse_length(l, why);
  for (int64_t i = 0; to && i < *n; i++) {
    int32_t token = i + 1 < *n ? (unsigned char)l->at[i] : '\n';
    if (token >= l->in->classes) return refuse_token(l, l->at + i, token, why);
    to[i] = token;
  }
  return true;
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

static bool take_numbers(const struct line *l, int32_t *to, int64_t *n, char *why) {
  *n = 0;
  for (const char *at = l->at;;) {
    while (at < l->end && is_blank(*at)) at++;
    if (at == l->end) return true;
    const char *start = at;
    int64_t token = 0;
    for (unsigned digit; at < l->end && (digit = (unsigned char)*at - (unsigned)'0') <= 9; at++)
      if (token <= INT32_MAX) token = 10 * token + digit;
    if (at < l->end && !is_blank(*at))
      return pd_refuse(why, "'%s': line %lld: the token at offset %lld is not a whole number", l->text->path,
                       (long long)l->number + 1, (long long)(start - l->text->map));
    if (token >= l->in->classes) return refuse_token(l, start, token, why);
    if (*n == l->in->elements) return refuse_length(l, why);
    if (to) to[*n] = (int32_t)token;
    ++*n;
  }
}

static bool take(const struct line *l, bool numbers, int32_t *to, int64_t *n, char *why) {
  return numbers ? take_numbers(l, to, n, why) : take_bytes(l, to, n, why);
}

bool pd_mark_lines(const struct pd_array *text, const struct pd_input *in, struct pd_lines *lines, char *why) {
  const char *end = text->map + text->size;
  struct line l = {.text = text, .in = in, .at = text->map};
  for (; l.number < lines->n; l.number++) {
    int64_t n;
    if (l.at == end) return refuse_lost(text, l.number, why);
    if (l.number % PD_MARK == 0) lines->marks[l.number / PD_MARK] = l.at - text->map;
    l.end = line_end(l.at, end);
    if (!take(&l, lines->numbers, NULL, &n, why)) return false;
    l.at = next_line(l.end, end);
  }
  return true;
}

bool pd_read_line(const struct pd_array *text, const struct pd_lines *lines, int64_t line,
                  const struct pd_input *in, int64_t pad, int32_t *to, char *why) {
  const char *end = text->map + text->size, *at = text->map + lines->marks[line / PD_MARK];
  for (int64_t i = line % PD_MARK; i; i--) at = next_line(at, end);
  if (at == end) return refuse_lost(text, line, why);
  struct line l = {text, in, line, at, line_end(at, end)};
  int64_t n;
  if (!take(&l, lines->numbers, to, &n, why)) return false;
  while (n < in->elements) to[n++] = (int32_t)pad;
  return true;
}
