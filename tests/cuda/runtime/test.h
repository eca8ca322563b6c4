/* A rank of one, with a device and an arena, around what is tested. */
#ifndef TEST_H
#define TEST_H

#include "run/run.h"
#include "pd_cuda.h"

#include <cstdlib>
#include <cstring>
#include <vector>

#define CHECK(what)                                                       \
  do {                                                                    \
    if (!(what)) pd_fail("%s:%d: not so: %s", __FILE__, __LINE__, #what); \
  } while (0)

static inline void start_rank(struct pd_stage *stage) {
  static const int replicas[] = {1};
  char why[PD_WHY] = "";
  stage->n_stages = stage->chunks = 1;
  stage->replicas = replicas;
  pd.stage = stage;
  pd.ranks = 1;
  pd.training = true;
  pd_options.timeout = 100;
  if (!pd_device_start(why)) pd_fail("%s", why);
}

static inline void put(size_t at, const void *from, size_t bytes) {
  float *to = pd_fill(pd.arena + at, (int64_t)(bytes / 4), false);
  memcpy(to, from, bytes);
  pd_filled(pd.arena + at, (int64_t)(bytes / 4), false);
}

static inline std::vector<float> fetch(size_t at, int64_t n, bool bf16 = false) {
  const float *x = pd_view(pd.arena + at, n, bf16);
  return std::vector<float>(x, x + n);
}

/* Of bfloat16, to nearest even, from the format's definition: the two neighbours and which is closer. */
static inline float nearest_bf16(float x) {
  uint32_t bits;
  float low, high;
  memcpy(&bits, &x, 4);
  uint32_t below = bits & 0xffff0000, above = below + 0x10000;
  memcpy(&low, &below, 4);
  memcpy(&high, &above, 4);
  double to_low = (double)x - (double)low, to_high = (double)high - (double)x;
  if (bits >> 31) to_low = -to_low, to_high = -to_high;
  if (to_low == to_high) return below >> 16 & 1 ? high : low;
  return to_low < to_high ? low : high;
}

/* In (-2, 2), of all sizes down to 2^-20. */
static inline float number(uint64_t i) {
  uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
  float part = (float)(x >> 40) * 0x1p-23f - 1;
  return part * (1.0f / (float)(1 << (x & 15)));
}

#endif
