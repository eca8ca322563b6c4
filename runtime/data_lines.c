/* Texts of one sample a line, which their newline ends; the last may lack it. */
#include "data.h"

#include <string.h>

static const char *line_end(const char *at, const char *end) { /* its newline, or the file's end */
  const char *newline = memchr(at, '\n', (size_t)(end - at));
  return newline ? newline : end;
}

int64_t pd_count_lines(const struct pd_array *text) {
  const char *end = text->map + text->size;
  int64_t n = 0;
  for (const char *at = text->map; at < end; at = line_end(at, end) + 1) n++;
  return n;
}

bool pd_mark_lines(const struct pd_array *text, int64_t most, struct pd_lines *lines, char *why) {
  const char *end = text->map + text->size, *at = text->map;
  for (int64_t i = 0; i < lines->n; i++) {
    if (i % PD_MARK == 0) lines->marks[i / PD_MARK] = at - text->map;
    const char *newline = line_end(at, end);
    if (newline - at >= most)
      return pd_refuse(why, "'%s': line %lld, at offset %lld, has %lld bytes with its newline; %lld are taken",
                       text->path, (long long)i + 1, (long long)(at - text->map), (long long)(newline - at) + 1,
                       (long long)most);
    at = newline + 1;
  }
  return true;
}

bool pd_read_line(const struct pd_array *text, const struct pd_lines *lines, int64_t line, bool shifted,
                  int64_t pad, int64_t classes, int64_t n, int32_t *to, char *why) {
  const char *end = text->map + text->size, *at = text->map + lines->marks[line / PD_MARK];
  for (int64_t i = line % PD_MARK; i; i--) at = line_end(at, end) + 1;
  const char *newline = line_end(at, end);
  int64_t j = 0;
  if (shifted && n > 0) to[j++] = '\n';
  for (; at < newline && j < n; at++) {
    to[j] = (unsigned char)*at;
    if (to[j++] >= classes)
      return pd_refuse(why, "'%s': token %d at offset %lld is outside the model's %lld classes", text->path,
                       (unsigned char)*at, (long long)(at - text->map), (long long)classes);
  }
  if (j < n) to[j++] = '\n';
  while (j < n) to[j++] = (int32_t)pad;
  return true;
}
