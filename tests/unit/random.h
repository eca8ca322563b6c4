/* Random numbers for test problems, equal in every run (xorshift; Marsaglia 2003). */
#ifndef PDC_TEST_RANDOM_H
#define PDC_TEST_RANDOM_H

#include <stdint.h>

static uint64_t state = 88172645463325252u;

static uint64_t below(uint64_t n) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (state >> 11) % n;
}

#endif
