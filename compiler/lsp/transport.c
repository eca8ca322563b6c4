/* The protocol's framing: headers, a blank line, then Content-Length bytes of JSON. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "lsp/internal.h"

enum { MOST_BYTES = 64 << 20, MOST_HEADER = 4096 };

static bool read_more(Transport *t) {
  if (t->ended)
    return false;
  if (t->room - t->n < 4096) {
    t->room = 2 * t->room + 8192;
    t->at = realloc(t->at, t->room);
    ensure(t->at);
  }
  ssize_t n;
  do
    n = read(t->in, t->at + t->n, t->room - t->n - 1);
  while (n < 0 && errno == EINTR);
  if (n <= 0)
    t->ended = true;
  else
    t->n += (size_t)n;
  return n > 0;
}

/* The value of Content-Length in the lines before `end`, or -1. */
static long content_length(const char *from, const char *end) {
  static const char key[] = "Content-Length:";
  for (const char *line = from; line < end; line = memchr(line, '\n', (size_t)(end - line)) + 1)
    if (end - line > (long)sizeof key && !strncasecmp(line, key, sizeof key - 1)) {
      long n = strtol(line + sizeof key - 1, NULL, 10);
      return n < 0 || n > MOST_BYTES ? -1 : n;
    }
  return -1;
}

/* The end of the headers that start at t->used; 0: incomplete. */
static size_t header_end(const Transport *t) {
  for (size_t i = t->used; i + 1 < t->n; i++)
    if (t->at[i] == '\n' &&
        (t->at[i + 1] == '\n' || (i + 2 < t->n && t->at[i + 1] == '\r' && t->at[i + 2] == '\n')))
      return i + (t->at[i + 1] == '\n' ? 2 : 3);
  return 0;
}

char *transport_read(Transport *t) {
  if (t->used)
    memmove(t->at, t->at + t->used, t->n - t->used);
  t->n -= t->used;
  t->used = 0;
  size_t body;
  while (!(body = header_end(t)))
    if (t->n > MOST_HEADER || !read_more(t))
      return NULL;
  long length = content_length(t->at, t->at + body);
  if (length < 0)
    return NULL;
  while (t->n < body + (size_t)length)
    if (!read_more(t))
      return NULL;
  t->used = body + (size_t)length;
  char *text = alloc((size_t)length + 1);
  return memcpy(text, t->at + body, (size_t)length);
}

bool transport_waiting(Transport *t) {
  if (t->used < t->n)
    return true;
  struct pollfd p = {.fd = t->in, .events = POLLIN};
  return !t->ended && poll(&p, 1, 0) > 0;
}

void transport_write(Transport *t, const cJSON *message) {
  char *text = cJSON_PrintUnformatted(message);
  ensure(text);
  make_utf8(text); /* messages quote files and requests, which may be invalid UTF-8 */
  fprintf(t->out, "Content-Length: %zu\r\n\r\n%s", strlen(text), text);
  fflush(t->out);
  cJSON_free(text);
}
