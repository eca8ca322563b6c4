/* Input: config.json of a Hugging Face folder. After a zero byte follow lines of tensors, each a name and up to
 * eight sizes. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "import/internal.h"

enum { MOST_TENSORS = 1000 };

static Tensor read_tensor(char *line) {
  Tensor t = {.name = line};
  char *at = strchr(line, ' ');
  while (at && t.rank < 8) {
    *at = 0;
    long long size = strtoll(at + 1, &at, 10);
    t.dim[t.rank++] = size > 0 ? size : 0;
    at = *at == ' ' ? at : NULL;
  }
  return t;
}

static Tensors read_tensors(const uint8_t *data, size_t size) {
  Tensors all = {0};
  char *text = format("%.*s", (int)size, (const char *)data), *rest = NULL;
  for (char *line = strtok_r(text, "\n", &rest); line && all.n < MOST_TENSORS; line = strtok_r(NULL, "\n", &rest))
    push(&all, read_tensor(line));
  tensors_sort(&all);
  return all;
}

static int run(const uint8_t *data, size_t size) {
  const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
  const size_t config = zero ? (size_t)(zero - data) : size;
  Tensors tensors = {0};
  if (zero) tensors = read_tensors(zero + 1, size - config - 1);
  char *text = import_config(fuzz_file(data, config), "<pdc import fuzz>", tensors, &(Import){0});
  if (!text && !error_count()) abort();
  diagnostics_flush();
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { return fuzz_afresh(run, data, size); }
