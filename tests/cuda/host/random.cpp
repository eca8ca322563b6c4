/* All choices come from one generator (SplitMix64: Steele, Lea, Flood, OOPSLA 2014), so that a seed and a rank
 * repeat a run. */
#include "host.h"

#include <cstdlib>

static uint64_t state;

static uint64_t mix() {
  uint64_t z = state += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

uint64_t cuda_host_seed() {
  static const uint64_t seed = [] {
    const char *text = getenv("CUDA_HOST_SEED");
    uint64_t given = text ? strtoull(text, nullptr, 10) : 1;
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (!rank) rank = getenv("PMI_RANK");
    if (given == 0) return given;
    state = given << 16 | (rank ? strtoull(rank, nullptr, 10) : 0);
    return mix() | 1;
  }();
  return seed;
}

uint64_t cuda_host_random() { return cuda_host_seed() ? mix() : 0; }

static uint64_t common_divisor(uint64_t a, uint64_t b) {
  while (b) {
    uint64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/* The circle is visited whole when the steps' size and n have no divisor in common. */
cuda_host_order cuda_host_shuffled(uint64_t n) {
  if (n < 2 || !cuda_host_seed()) return {n, 1, 0};
  uint64_t step;
  do step = 1 + cuda_host_random_below(n - 1);
  while (common_divisor(step, n) != 1);
  return {n, step, cuda_host_random_below(n)};
}
