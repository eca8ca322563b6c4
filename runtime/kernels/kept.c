/* Values that generating programs keep between steps. */
#define PD_KERNELS
#include "kernels/pd_bf16.h"
#include "pd_kernels.h"

#include <string.h>

static void copy(pd_in from, int64_t i, pd_out to, int64_t k, int64_t n) {
  enum { PART = 256 };
  float part[PART];
  if (from.type == to.type) {
    memcpy(pd_out_from(to, k).at, pd_in_from(from, i).at, (size_t)(n * pd_bytes_of(to.type)));
    return;
  }
  for (int64_t at = 0, some; at < n; at += some) {
    some = n - at < PART ? n - at : PART;
    pd_read(part, from, i + at, some);
    pd_write(to, k + at, part, some);
  }
}

void pd_keep(pd_in x, int64_t n, pd_out y) { copy(x, 0, y, 0, n); }

void pd_cached_rows(const struct pd_cached_rows *r, pd_in x, const int32_t *position, pd_out y) {
  for (int64_t b = 0; b < r->batch; b++)
    for (int64_t i = 0; i < r->outer; i++) {
      const int64_t row = b * r->outer + i;
      copy(x, row * r->inner, y, (row * r->context + position[b]) * r->inner, r->inner);
    }
}

void pd_take_state(int64_t elements, int64_t sequences, const int32_t *position, const int32_t *sequence,
                   const float *initial, const float *kept, float *state) {
  const size_t bytes = (size_t)elements * sizeof *state;
  if (*sequence >= sequences) return;
  if (*position)
    memcpy(state, kept + *sequence * elements, bytes);
  else if (initial)
    memcpy(state, initial, bytes);
  else
    memset(state, 0, bytes);
}

void pd_put_state(int64_t elements, int64_t sequences, const int32_t *sequence, const float *state, float *kept) {
  if (*sequence < sequences) memcpy(kept + *sequence * elements, state, (size_t)elements * sizeof *state);
}
