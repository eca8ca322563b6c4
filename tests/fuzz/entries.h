/* Reads what a parser of weights files found. */
#include <stdint.h>
#include <stdlib.h>

#include "shared/safetensors.h"

/* Every element of every tensor, all of which must lie in the input; frees s. */
static void read_entries(struct pd_safetensors *s, const uint8_t *data, size_t size) {
  static volatile float kept; /* prevents removal of the reads */
  float sum = 0;
  for (int t = 0; t < s->n; t++) {
    const struct pd_entry *e = pd_safetensors_find(s, s->at[t].name);
    if (!e || e->data < data || e->end > data + size) abort();
    for (int64_t i = 0; e->dtype != PD_DTYPE_OTHER && i < e->elements; i++) sum += pd_entry_float(e, i);
  }
  kept = sum;
  (void)kept;
  pd_safetensors_free(s);
}
