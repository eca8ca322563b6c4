/* Texts open in an editor, and places in them. */
#include <stdlib.h>
#include <string.h>

#include "lsp/internal.h"

static char *copy(const char *text) {
  char *kept = strdup(text);
  ensure(kept);
  return kept;
}

static int hex(char c) {
  const char *digits = "0123456789abcdef", *at = c ? strchr(digits, c >= 'A' && c <= 'F' ? c + 32 : c) : NULL;
  return at ? (int)(at - digits) : -1;
}

/* "/a b" of "file:///a%20b"; any other URI is used unchanged, without files beside it. */
static char *path_of_uri(const char *uri) {
  static const char scheme[] = "file://";
  if (strncmp(uri, scheme, sizeof scheme - 1))
    return copy(uri);
  char *path = copy(uri + sizeof scheme - 1), *to = path;
  for (const char *from = path; *from; from++) {
    int high = from[0] == '%' ? hex(from[1]) : -1, low = high >= 0 ? hex(from[2]) : -1;
    bool coded = low >= 0 && (high || low);
    *to++ = coded ? (char)(16 * high + low) : *from;
    from += coded ? 2 : 0;
  }
  *to = 0;
  return path;
}

char *uri_of_path(const char *path) {
  Text t = {0};
  text_add(&t, "file://");
  for (; *path; path++) {
    unsigned char c = (unsigned char)*path;
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("/-_.~", c);
    text_add(&t, plain ? "%c" : "%%%02X", c);
  }
  return t.at;
}

Document *document_find(const Documents *all, const char *uri) {
  for (int i = 0; i < all->n; i++)
    if (!strcmp(all->at[i].uri, uri))
      return &all->at[i];
  return NULL;
}

Document *document_of_path(const Documents *all, const char *path) {
  for (int i = 0; i < all->n; i++)
    if (!strcmp(all->at[i].path, path))
      return &all->at[i];
  return NULL;
}

Document *document_open(Documents *all, const char *uri, const char *text) {
  Document *d = document_find(all, uri);
  if (d) {
    free(d->text);
  } else {
    if (all->n == all->room) {
      all->room = 2 * all->room + 4;
      all->at = realloc(all->at, (size_t)all->room * sizeof *all->at);
      ensure(all->at);
    }
    d = &all->at[all->n++];
    *d = (Document){.uri = copy(uri), .path = path_of_uri(uri)};
  }
  d->text = copy(text);
  return d;
}

void document_close(Documents *all, Document *d) {
  free(d->uri);
  free(d->path);
  free(d->text);
  *d = all->at[--all->n];
}

/* ---- places -------------------------------------------------------------------------------------- */

static const char *line_start(const char *text, int line) {
  const char *known = source_line_start(text, line);
  if (known)
    return known;
  for (; line > 1 && *text; line--) {
    text += strcspn(text, "\n");
    text += *text == '\n';
  }
  return text;
}

/* The length in bytes of a UTF-8 character, and in UTF-16 units. An invalid byte counts as one of each. */
static int character(const char *at, int *units) {
  unsigned char c = (unsigned char)*at;
  int bytes = c < 0xc0 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
  for (int i = 1; i < bytes; i++)
    if (((unsigned char)at[i] & 0xc0) != 0x80)
      bytes = 1;
  *units = bytes == 4 ? 2 : 1;
  return bytes;
}

static int whole(const cJSON *object, const char *key) {
  const cJSON *n = cJSON_GetObjectItemCaseSensitive(object, key);
  return cJSON_IsNumber(n) && n->valuedouble >= 0 && n->valuedouble < 1e9 ? n->valueint : 0;
}

Position position_read(const char *text, const cJSON *position) {
  int line = whole(position, "line") + 1, units, wanted = whole(position, "character");
  const char *from = line_start(text, line), *at = from;
  while (wanted > 0 && *at && *at != '\n') {
    at += character(at, &units);
    wanted -= units;
  }
  return (Position){line, (int)(at - from) + 1};
}

cJSON *position_json(const char *text, int line, int column) {
  const char *from = line_start(text, line), *at = from;
  int count = 0, units;
  while (at - from < column - 1 && *at && *at != '\n') {
    at += character(at, &units);
    count += units;
  }
  cJSON *position = cJSON_CreateObject();
  cJSON_AddNumberToObject(position, "line", line > 0 ? line - 1 : 0);
  cJSON_AddNumberToObject(position, "character", count);
  return position;
}

cJSON *range_json(const char *text, Span span) {
  cJSON *range = cJSON_CreateObject();
  cJSON_AddItemToObject(range, "start", position_json(text, span.line, span.column));
  cJSON_AddItemToObject(range, "end", position_json(text, span.end_line, span.end_column));
  return range;
}
