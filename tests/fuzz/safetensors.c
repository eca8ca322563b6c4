/* Input: a weights file. Reads its header and every element of its tensors. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "shared/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct pd_safetensors s;
  char why[PD_WHY] = "";
  if (!pd_safetensors_parse(data, size, &s, why)) {
    if (!*why) abort();
    return 0;
  }
  float sum = 0;
  for (int t = 0; t < s.n; t++) {
    const struct pd_entry *e = pd_safetensors_find(&s, s.at[t].name);
    if (!e) abort();
    for (int64_t i = 0; e->dtype != PD_DTYPE_OTHER && i < e->elements; i++) sum += pd_entry_float(e, i);
  }
  static volatile float kept; /* prevents removal of the reads */
  kept = sum;
  (void)kept;
  pd_safetensors_free(&s);
  return 0;
}
