/* Inputs of random numbers. Philox, keyed by the seed and the input's name and counted by sample and element, makes
 * them, independent of the plan. */
#include "data/data.h"
#include "kernels/pd_math.h"
#include "shared/normal.h"

enum { NOISE = 0x6e6f6973 }; /* separates the counters from those of initial weights */

static void make_four(const struct pd_input *in, pd_random r, void *four) {
  float *numbers = four;
  int32_t *tokens = four;
  for (int i = 0; i < 4; i += 2)
    if (in->origin == PD_NORMAL_NOISE) pd_normal_pair(1, r.word[i], r.word[i + 1], numbers + i);
  for (int i = 0; i < 4; i++)
    if (in->origin == PD_UNIFORM_NOISE)
      numbers[i] = pd_uniform(r.word[i]);
    else if (in->origin == PD_RANDOM_INT)
      tokens[i] = (int32_t)((uint64_t)r.word[i] * (uint64_t)in->classes >> 32);
}

void pd_make_noise(const struct pd_input *in, uint64_t seed, int64_t sample, void *to) {
  const uint64_t key = pd_mix(seed, pd_hash_name(in->name));
  int32_t four[4], *at = to; /* elements have four bytes */
  for (int64_t i = 0; i < in->elements; i += 4) {
    make_four(in, pd_philox((uint32_t)(i / 4), NOISE, (uint32_t)sample, (uint32_t)(sample >> 32), key), four);
    for (int64_t k = i; k < in->elements && k < i + 4; k++) at[k] = four[k - i];
  }
}
