/* Input: an index of safetensors files. Every tensor in it must be in one of its files, whose names have no
 * folder. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/sources.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct pd_index x;
  char why[PD_WHY] = "";
  if (!pd_index_parse((const char *)data, size, &x, why)) {
    if (!*why) abort();
    return 0;
  }
  for (int i = 0; i < x.n; i++)
    if (!x.at[i].name || x.at[i].file < 0 || x.at[i].file >= x.n_files) abort();
  for (int i = 0; i < x.n_files; i++)
    if (!*x.files[i] || strchr(x.files[i], '/')) abort();
  pd_index_free(&x);
  return 0;
}
