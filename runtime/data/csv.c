/* Tables of numbers as text: .csv with commas or semicolons, .tsv with tabs. */
#include "data/data.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A cursor in a mapped file, which another process may change: `at` never passes `end`. */
struct cursor {
  const char *at, *end;
  char between;
};

struct field {
  const char *at;
  size_t n;
  bool last; /* of its row */
};

/* The field at the cursor, without quotes around it. The cursor moves behind the field, at the end of a row behind the
 * newline. False: a quote has no end. */
static bool next_field(struct cursor *c, struct field *f) {
  bool quoted = c->at < c->end && *c->at == '"';
  f->at = c->at += quoted;
  while (c->at < c->end && (quoted ? *c->at != '"' : *c->at != c->between && *c->at != '\n')) c->at++;
  f->n = (size_t)(c->at - f->at);
  if (quoted && c->at == c->end) return false;
  c->at += quoted;
  if (!quoted && f->n && f->at[f->n - 1] == '\r') f->n--;
  if (quoted && c->at < c->end && *c->at == '\r') c->at++;
  f->last = c->at >= c->end || *c->at == '\n';
  if (!f->last && *c->at != c->between) return false;
  if (c->at < c->end) c->at++;
  return true;
}

static bool skip_blank_row(struct cursor *c) {
  const char *at = c->at + (c->at < c->end && *c->at == '\r');
  if (at < c->end && *at != '\n') return false;
  c->at = at < c->end ? at + 1 : at;
  return true;
}

static bool is_blank(char c) { return c == ' ' || c == '\t'; }

/* The field without blanks at its ends. */
static struct pd_csv_name trimmed(const struct field *f) {
  struct pd_csv_name t = {f->at, f->n};
  for (; t.n && is_blank(*t.at); t.n--) t.at++;
  while (t.n && is_blank(t.at[t.n - 1])) t.n--;
  return t;
}

/* Copies a field as a text. False: it is longer than numbers are, or has a zero byte. */
static bool copy_field(const struct field *f, char *to, size_t room) {
  const struct pd_csv_name t = trimmed(f);
  if (t.n >= room || memchr(t.at, 0, t.n)) return false;
  memcpy(to, t.at, t.n);
  to[t.n] = 0;
  return true;
}

enum { NUMBER = 64 }; /* most characters */

static bool number_of(const struct field *f, double *to) {
  char text[NUMBER], *end;
  if (!copy_field(f, text, sizeof text) || !*text || strpbrk(text, "xXpP"))
    return false; /* no hexadecimal numbers */
  *to = strtod(text, &end);
  return !*end;
}

static bool token_of(const struct field *f, int32_t *to) {
  char text[NUMBER], *end;
  if (!copy_field(f, text, sizeof text) || !*text) return false;
  errno = 0;
  const long long n = strtoll(text, &end, 10);
  *to = (int32_t)n;
  return !*end && !errno && n >= INT32_MIN && n <= INT32_MAX;
}

static struct cursor start_of(const struct pd_array *a, const struct pd_csv *csv, size_t at) {
  return (struct cursor){a->map + at, a->map + a->size, csv->between};
}

static bool refuse_row(const struct pd_array *a, int64_t line, char *why) {
  return pd_refuse(why, "'%s': line %lld: a quoted field has no end, or text behind it", a->path, (long long)line);
}

/* The character between the fields of the first row. */
static char between_of(const struct pd_array *a, size_t first) {
  const size_t n = strlen(a->path);
  const char *at = a->map + first, *newline = memchr(at, '\n', a->size - first);
  const size_t row = newline ? (size_t)(newline - at) : a->size - first;
  if (n > 4 && !strcmp(a->path + n - 4, ".tsv")) return '\t';
  return memchr(at, ';', row) && !memchr(at, ',', row) ? ';' : ',';
}

/* Sets columns and named, by the first row. */
static bool read_names(const struct pd_array *a, struct pd_csv *csv, char *why) {
  struct cursor c = start_of(a, csv, csv->first);
  struct field f;
  double number;
  do {
    if (!next_field(&c, &f)) return refuse_row(a, 1, why);
    csv->named |= !number_of(&f, &number);
    csv->columns++;
  } while (!f.last);
  return true;
}

bool pd_parse_csv(const struct pd_array *a, struct pd_csv *csv, char *why) {
  const bool marked = a->size >= 3 && !memcmp(a->map, "\xef\xbb\xbf", 3);
  *csv = (struct pd_csv){.first = marked ? 3 : 0};
  csv->between = between_of(a, csv->first);
  if (!read_names(a, csv, why)) return false;
  struct cursor c = start_of(a, csv, csv->first);
  for (int64_t line = 1; c.at < c.end; line++) {
    struct field f = {.last = false};
    int64_t n = 0;
    if (skip_blank_row(&c)) continue;
    for (; !f.last; n++) {
      if (!next_field(&c, &f)) return refuse_row(a, line, why);
      if (memchr(f.at, 0, f.n))
        return pd_refuse(why, "'%s': line %lld, column %lld: the field has a zero byte, as binary files do",
                         a->path, (long long)line, (long long)n + 1);
    }
    if (n != csv->columns)
      return pd_refuse(why, "'%s': line %lld has %lld fields, but the first line has %lld", a->path,
                       (long long)line, (long long)n, (long long)csv->columns);
    csv->rows++;
  }
  csv->rows -= csv->named;
  return csv->rows > 0 || pd_refuse(why, "'%s' has no rows of numbers", a->path);
}

bool pd_csv_names(const struct pd_array *a, const struct pd_csv *csv, struct pd_csv_name *to, char *why) {
  struct cursor c = start_of(a, csv, csv->first);
  struct field f = {.last = false};
  int64_t i = 0;
  for (; !f.last && i < csv->columns; i++) {
    if (!next_field(&c, &f)) return refuse_row(a, 1, why);
    to[i] = trimmed(&f);
  }
  return i == csv->columns || pd_refuse(why, "'%s' was changed while it was read", a->path);
}

/* Reads the wanted fields of a row. column: in ascending order. */
static bool read_row(const struct pd_array *a, struct cursor *c, int64_t line, const int64_t *column, int64_t n,
                     bool tokens, void *to, char *why) {
  struct field f = {.last = false};
  int64_t taken = 0;
  for (int64_t i = 0; !f.last; i++) {
    double number = 0;
    if (!next_field(c, &f)) return refuse_row(a, line, why);
    if (taken == n || column[taken] != i) continue;
    const bool good = tokens ? token_of(&f, (int32_t *)to + taken) : number_of(&f, &number);
    const bool finite = isfinite((float)number);
    if (!good || !finite)
      return pd_refuse(why, "'%s': line %lld, column %lld: '%.*s' is not a %s", a->path, (long long)line,
                       (long long)i + 1, f.n < 40 ? (int)f.n : 40, f.at,
                       tokens ? "whole number"
                       : good ? "finite number of 32 bits"
                              : "number");
    if (!tokens) ((float *)to)[taken] = (float)number;
    taken++;
  }
  return taken == n || pd_refuse(why, "'%s' was changed while it was read", a->path);
}

bool pd_read_csv(const struct pd_array *a, const struct pd_csv *csv, const int64_t *column, int64_t n, bool tokens,
                 void *to, char *why) {
  struct cursor c = start_of(a, csv, csv->first);
  struct field name = {.last = !csv->named};
  int64_t row = 0;
  while (!name.last)
    if (!next_field(&c, &name)) return refuse_row(a, 1, why);
  for (int64_t line = 1 + csv->named; row < csv->rows; line++) {
    if (c.at == c.end) return pd_refuse(why, "'%s' was changed while it was read", a->path);
    if (skip_blank_row(&c)) continue;
    if (!read_row(a, &c, line, column, n, tokens, (int32_t *)to + row * n, why)) return false;
    row++;
  }
  return true;
}
