#include "shared/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t pd_checksum(const void *at, size_t n) { return XXH3_64bits(at, n); }
uint64_t pd_seeded_checksum(const void *at, size_t n, uint64_t seed) { return XXH3_64bits_withSeed(at, n, seed); }

struct pd_checksum *pd_checksum_start(void) {
  XXH3_state_t *state = XXH3_createState();
  if (state) XXH3_64bits_reset(state);
  return (struct pd_checksum *)state;
}

void pd_checksum_add(struct pd_checksum *c, const void *at, size_t n) {
  XXH3_64bits_update((XXH3_state_t *)c, at, n);
}

uint64_t pd_checksum_end(struct pd_checksum *c) {
  uint64_t sum = XXH3_64bits_digest((XXH3_state_t *)c);
  XXH3_freeState((XXH3_state_t *)c);
  return sum;
}

uint64_t pd_sampled_checksum(const void *at, size_t n) {
  if (n <= PD_SAMPLED) return pd_checksum(at, n);
  const char *bytes = at;
  size_t apart = (n - PD_SAMPLE) / (PD_SAMPLES - 1);
  uint64_t sum = n;
  for (size_t i = 0; i < PD_SAMPLES; i++) {
    size_t first = i + 1 < PD_SAMPLES ? i * apart : n - PD_SAMPLE;
    sum = pd_seeded_checksum(bytes + first, PD_SAMPLE, sum);
  }
  return sum;
}
