/* The order of samples: a permutation of [0, n) for each epoch, computed rather than stored. A Feistel
 * network permutes the smallest 4^h >= n; a result outside [0, n) is permuted again, which ends within
 * four rounds on average and keeps the map a permutation (Black and Rogaway, "Ciphers with Arbitrary
 * Finite Domains", 2002). */
#include "data/load.h"

/* A 64-bit mix: the finaliser of SplitMix64 (Steele, Lea, Flood, 2014). */
static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

uint64_t pd_seed_of(uint64_t seed, uint64_t sequence) { return mix(mix(seed) + sequence); }

static uint64_t permute(uint64_t x, int half, uint64_t key) {
  enum { ROUNDS = 8 };
  uint64_t mask = ((uint64_t)1 << half) - 1, left = x >> half, right = x & mask;
  for (uint64_t round = 0; round < ROUNDS; round++) {
    uint64_t next = left ^ (mix(key ^ mix(right << 8 | round)) & mask);
    left = right;
    right = next;
  }
  return left << half | right;
}

int64_t pd_sample(uint64_t seed, int64_t n, int64_t s) {
  uint64_t size = (uint64_t)n, epoch = (uint64_t)s / size, x = (uint64_t)s % size;
  uint64_t key = mix(mix(seed) ^ epoch);
  int half = 1;
  while (half < 31 && (uint64_t)1 << 2 * half < size) half++;
  do x = permute(x, half, key);
  while (x >= size);
  return (int64_t)x;
}
