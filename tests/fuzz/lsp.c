/* A language server's session: a message a line. */
#define _GNU_SOURCE
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lsp/lsp.h"

static void write_all(int fd, const void *at, size_t n) {
  if (n && write(fd, at, n) != (ssize_t)n) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static FILE *out;
  static int in = -1;
  if (!out) {
    out = fopen("/dev/null", "w");
    in = memfd_create("session", 0);
  }
  if (ftruncate(in, 0) || lseek(in, 0, SEEK_SET)) abort();
  for (size_t from = 0, end; from < size; from = end + 1) {
    const uint8_t *newline = memchr(data + from, '\n', size - from);
    char head[64];
    end = newline ? (size_t)(newline - data) : size;
    write_all(in, head, (size_t)snprintf(head, sizeof head, "Content-Length: %zu\r\n\r\n", end - from));
    write_all(in, data + from, end - from);
  }
  lseek(in, 0, SEEK_SET);
  lsp_serve(in, out);
  return 0;
}
