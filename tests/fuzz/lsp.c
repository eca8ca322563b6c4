/* The language server. Input: a session with a message per line, or a model for requests at many places. */
#define _GNU_SOURCE
#include "fuzz.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lsp/lsp.h"

static int in = -1;

static void write_all(const void *at, size_t n) {
  if (n && write(in, at, n) != (ssize_t)n) abort();
}

static void send(const void *at, size_t n) {
  char head[64];
  write_all(head, (size_t)snprintf(head, sizeof head, "Content-Length: %zu\r\n\r\n", n));
  write_all(at, n);
}

static void send_format(const char *pattern, ...) {
  va_list args;
  char *text;
  va_start(args, pattern);
  if (vasprintf(&text, pattern, args) < 0) abort();
  va_end(args);
  send(text, strlen(text));
  free(text);
}

static void send_lines(const uint8_t *data, size_t size) {
  for (size_t from = 0, end; from < size; from = end + 1) {
    const uint8_t *newline = memchr(data + from, '\n', size - from);
    end = newline ? (size_t)(newline - data) : size;
    send(data + from, end - from);
  }
}

/* Calls the features in turn, at regular byte offsets. */
static void send_model(const uint8_t *data, size_t size) {
  static const char *const features[] = {"hover", "definition", "completion", "rename", "hover", "completion"};
  char *text = calloc(1, size + 1);
  memcpy(text, data, size);
  cJSON *string = cJSON_CreateString(text);
  char *quoted = cJSON_PrintUnformatted(string);
  send_format("{\"id\":0,\"method\":\"initialize\"}");
  send_format(
      "{\"method\":\"textDocument/didOpen\",\"params\":{\"textDocument\":{\"uri\":\"file:///m.pdm\",\"text\":%s}}}",
      quoted);
  size_t step = size / 8 + 1;
  int line = 0, column = 0, n = data[0];
  for (size_t i = 0; i < size; i++) {
    if (i % step == step / 2)
      send_format(
          "{\"id\":1,\"method\":\"textDocument/%s\",\"params\":{\"textDocument\":{\"uri\":\"file:///m.pdm\"},"
          "\"position\":{\"line\":%d,\"character\":%d},\"newName\":\"other\"}}",
          features[n++ % 6], line, column);
    line += data[i] == '\n';
    column = data[i] == '\n' ? 0 : column + 1;
  }
  send_format(
      "{\"id\":2,\"method\":\"textDocument/formatting\",\"params\":{\"textDocument\":{\"uri\":\"file:///m.pdm\"}}}");
  cJSON_free(quoted);
  cJSON_Delete(string);
  free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static FILE *out;
  if (!out) {
    out = fopen("/dev/null", "w");
    in = memfd_create("session", 0);
  }
  if (ftruncate(in, 0) || lseek(in, 0, SEEK_SET)) abort();
  if (size && (data[0] == '{' || data[0] == '/'))
    send_lines(data, size);
  else if (size)
    send_model(data, size);
  lseek(in, 0, SEEK_SET);
  lsp_serve(in, out);
  return 0;
}
