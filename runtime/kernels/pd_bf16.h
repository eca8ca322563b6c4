/* bfloat16 on processors: 16-bit numbers in memory, floats in computation. */
#ifndef PD_KERNELS_BF16_H
#define PD_KERNELS_BF16_H

#include <string.h>

#include "pd_operand.h"

static inline float pd_from_bf16(pd_bf16 x) {
  uint32_t bits = (uint32_t)x.bits << 16;
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

/* Rounds to nearest even; a NaN stays a NaN. Bit-identical on every processor, unlike conversion instructions,
 * which flush numbers below 2^-126 to zero. */
static inline pd_bf16 pd_to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, nan = bits >> 16 | 0x40;
  return (pd_bf16){(uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded)};
}

/* The value rounded to bf16. */
static inline float pd_rounded(float x) { return pd_from_bf16(pd_to_bf16(x)); }

static inline int64_t pd_bytes_of(enum pd_type type) { return type == PD_BF16 ? 2 : 4; }

/* An operand from element i. */
static inline pd_in pd_in_from(pd_in x, int64_t i) {
  return (pd_in){(const char *)x.at + i * pd_bytes_of(x.type), x.type};
}
static inline pd_out pd_out_from(pd_out x, int64_t i) {
  return (pd_out){(char *)x.at + i * pd_bytes_of(x.type), x.type};
}

/* A result as an operand for reading. */
static inline pd_in pd_made(pd_out x) { return (pd_in){x.at, x.type}; }

/* n elements from element i. */
static inline void pd_read(float *restrict to, pd_in from, int64_t i, int64_t n) {
  if (from.type == PD_F32) {
    memcpy(to, (const float *)from.at + i, (size_t)n * sizeof *to);
    return;
  }
  const pd_bf16 *x = (const pd_bf16 *)from.at + i;
  for (int64_t j = 0; j < n; j++) to[j] = pd_from_bf16(x[j]);
}

static inline void pd_write(pd_out to, int64_t i, const float *restrict from, int64_t n) {
  if (to.type == PD_F32) {
    memcpy((float *)to.at + i, from, (size_t)n * sizeof *from);
    return;
  }
  pd_bf16 *x = (pd_bf16 *)to.at + i;
  for (int64_t j = 0; j < n; j++) x[j] = pd_to_bf16(from[j]);
}

#endif
