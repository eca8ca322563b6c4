/* Input: a weights file. Reads its header and every element of its tensors. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "entries.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct pd_safetensors s;
  char why[PD_WHY] = "";
  if (!pd_safetensors_parse(data, size, &s, why)) {
    if (!*why) abort();
    return 0;
  }
  read_entries(&s, data, size);
  return 0;
}
