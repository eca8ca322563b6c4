/* Elementary functions on float and counter-based random numbers, for emitted loops. Branch-free, so
 * that compilers vectorise loops over them; every fused multiply-add is written as fmaf, so that all
 * compilers, with or without vectors, give the same bits under -ffp-contract=off.
 * Largest errors, over all floats, in units in the last place of the correctly rounded result:
 *   exp 1.06   expm1 1.66   log 0.92   log1p 1.66   sigmoid 2.41   tanh 1.50   erf 1.22   rsqrt 1.50
 *   sin, cos 1.03 (arguments up to 2^30, NaN beyond)   erfc 9.15, below 1 4.52
 * sqrt is correctly rounded; rsqrt is 1 / sqrt in two roundings. Infinities give the limits, NaN gives
 * NaN, and results below the smallest normal number are rounded gradually.
 * The polynomials are minimax fits (reweighted least squares at 400 Chebyshev points). */
#ifndef PD_MATH_H
#define PD_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Emitted CUDA kernels call the same functions: what is computed element by element has the C target's bits, but for exp and
 * sigmoid where PD_FAST is defined. */
#ifdef PD_FAST
#include "cuda/pd_fast.h"
#endif
#ifdef __CUDACC__
#define PD_MATH inline __host__ __device__
#elif defined __cplusplus
#define PD_MATH inline
#else
#define PD_MATH static inline
#endif

PD_MATH uint32_t pd_bits(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}

PD_MATH float pd_float(uint32_t u) {
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}

/* NaN in either operand gives NaN. */
PD_MATH float pd_max(float a, float b) { return a > b || a != a ? a : b; }
PD_MATH float pd_min(float a, float b) { return a < b || a != a ? a : b; }

PD_MATH float pd_relu(float x) { return x > 0.0f || x != x ? x : 0.0f; }

PD_MATH float pd_abs(float x) { return fabsf(x); }
PD_MATH float pd_floor(float x) { return floorf(x); }
PD_MATH float pd_rint(float x) { return rintf(x); } /* halves to even */

PD_MATH float pd_sqrt(float x) { return sqrtf(x); }
PD_MATH float pd_rsqrt(float x) { return 1.0f / sqrtf(x); }

/* Adding 1.5 * 2^23 rounds a float of magnitude below 2^22 to an integer, left in the low bits. */
#define PD_ROUNDER 12582912.0f

/* exp(r) - 1 for |r| <= ln(2) / 2. */
PD_MATH float pd_expm1_core(float r) {
  float p = 0x1.6d9956p-10f;
  p = fmaf(p, r, 0x1.122838p-7f);
  p = fmaf(p, r, 0x1.555486p-5f);
  p = fmaf(p, r, 0x1.5554b0p-3f);
  p = fmaf(p, r, 0x1.000000p-1f);
  return fmaf(p * r, r, r);
}

/* x = n ln(2) + r, |r| <= ln(2) / 2; returns n + PD_ROUNDER. |x| below 2^21. */
PD_MATH float pd_exp_reduce(float x, float *r) {
  float shifted = fmaf(x, 0x1.715476p+0f, PD_ROUNDER), n = shifted - PD_ROUNDER;
  *r = fmaf(n, 0x1.05c610p-29f, fmaf(n, -0x1.62e430p-1f, x));
  return shifted;
}

#ifdef PD_FAST
PD_MATH float pd_exp(float x) { return pd_exp_fast(x); }
PD_MATH float pd_sigmoid(float x) { return pd_sigmoid_fast(x); }
#else
PD_MATH float pd_exp(float x) {
  float r, shifted, result;
  x = x > 90.0f ? 90.0f : x;
  x = x < -105.0f ? -105.0f : x;
  shifted = pd_exp_reduce(x, &r);
  /* 2^n in two factors, so that overflow and gradual underflow happen in the last product only. */
  int32_t n = (int32_t)(pd_bits(shifted) - pd_bits(PD_ROUNDER)), half = n >> 1;
  result = 1.0f + pd_expm1_core(r);
  result *= pd_float((uint32_t)(half + 127) << 23);
  return result * pd_float((uint32_t)(n - half + 127) << 23);
}

/* 1 / (1 + exp(-x)), for negative x as exp(x) / (1 + exp(x)), which does not overflow. */
PD_MATH float pd_sigmoid(float x) {
  float e = pd_exp(-fabsf(x));
  return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}
#endif

/* 2^n - 1 + 2^n (exp(r) - 1), of which half is computed, so that overflow happens in the last product only. */
PD_MATH float pd_expm1(float x) {
  float r, shifted, y = x > 89.0f ? 89.0f : x;
  y = y < -30.0f ? -30.0f : y;
  shifted = pd_exp_reduce(y, &r);
  float half = pd_float((pd_bits(shifted) - pd_bits(PD_ROUNDER) + 126u) << 23), core = pd_expm1_core(r);
  float result = shifted == PD_ROUNDER ? core : 2.0f * fmaf(half, core, half - 0.5f);
  return copysignf(result, x);
}

/* log(2^n (1 + f)) for 1 + f in [2/3, 4/3). */
PD_MATH float pd_log_core(float n, float f) {
  float p = -0x1.109f24p-3f;
  p = fmaf(p, f, 0x1.1ed906p-3f);
  p = fmaf(p, f, -0x1.eeb8ecp-4f);
  p = fmaf(p, f, 0x1.1ebca2p-3f);
  p = fmaf(p, f, -0x1.55cd0ep-3f);
  p = fmaf(p, f, 0x1.99d212p-3f);
  p = fmaf(p, f, -0x1.fffd6ap-3f);
  p = fmaf(p, f, 0x1.555502p-2f);
  p = fmaf(p, f, -0x1.000000p-1f);
  return fmaf(n, 0x1.62e430p-1f, f + fmaf(f * f, p, n * -0x1.05c610p-29f));
}

/* The exponent of x over 2/3, as the bits of a float: x = 2^e m with m in [2/3, 4/3). x normal. */
PD_MATH uint32_t pd_log_exponent(float x) { return (pd_bits(x) - 0x3f2aaaabu) & 0xff800000u; }

PD_MATH float pd_log(float x) {
  float scaled = x < 0x1p-126f ? x * 0x1p23f : x, exponent = x < 0x1p-126f ? -23.0f : 0.0f;
  uint32_t e = pd_log_exponent(scaled);
  float result = pd_log_core(exponent + (float)((int32_t)e >> 23), pd_float(pd_bits(scaled) - e) - 1.0f);
  result = x < INFINITY ? result : x; /* infinity and NaN are their own logarithms */
  result = x == 0.0f ? -INFINITY : result;
  return x < 0.0f ? NAN : result;
}

/* 1 + x = 2^e m as above; m - 1 is made of x itself, and so keeps what 1 + x loses. */
PD_MATH float pd_log1p(float x) {
  uint32_t e = pd_log_exponent(1.0f + x);
  float four = pd_float(pd_bits(4.0f) - e); /* 4 / 2^e, which is normal where 1 / 2^e is not */
  float f = pd_float(pd_bits(x) - e) + fmaf(0.25f, four, -1.0f);
  float result = pd_log_core((float)((int32_t)e >> 23), e ? f : x);
  result = x < INFINITY ? result : x;
  result = x == -1.0f ? -INFINITY : result;
  return copysignf(x < -1.0f ? NAN : result, x);
}

/* |x| < 0.55: x + x^3 P(x^2); else 1 - 2 / (exp(2 |x|) + 1), 1 from 9.5 on. */
PD_MATH float pd_tanh(float x) {
  float r, shifted, a = fabsf(x), z = x * x, p = -0x1.9bba4ep-8f, y = a > 9.5f ? 19.0f : a + a;
  p = fmaf(p, z, 0x1.595682p-6f);
  p = fmaf(p, z, -0x1.b92bbap-5f);
  p = fmaf(p, z, 0x1.110d3cp-3f);
  p = fmaf(p, z, -0x1.55554cp-2f);
  shifted = pd_exp_reduce(y, &r);
  float power = pd_float((pd_bits(shifted) - pd_bits(PD_ROUNDER) + 127u) << 23);
  float large = 1.0f - 2.0f / (fmaf(power, pd_expm1_core(r), power) + 1.0f);
  return copysignf(a < 0.55f ? fmaf(p * z, a, a) : large, x);
}

/* |x| < 1: x + x P(x^2); else 1 - exp(-Q(|x|)), 1 from 4 on. */
PD_MATH float pd_erf(float x) {
  float a = fabsf(x), z = x * x, p = 0x1.4ae4cap-14f, y = a > 4.0f ? 4.0f : a, q = -0x1.86de0cp-13f;
  p = fmaf(p, z, -0x1.a485e8p-11f);
  p = fmaf(p, z, 0x1.5419f4p-8f);
  p = fmaf(p, z, -0x1.b7fbb4p-6f);
  p = fmaf(p, z, 0x1.ce2d20p-4f);
  p = fmaf(p, z, -0x1.81273ep-2f);
  p = fmaf(p, z, 0x1.06eba8p-3f);
  q = fmaf(q, y, 0x1.825b4ap-9f);
  q = fmaf(q, y, -0x1.65cb9ep-6f);
  q = fmaf(q, y, 0x1.a65356p-4f);
  q = fmaf(q, y, 0x1.46bae8p-1f);
  q = fmaf(q, y, 0x1.2088ecp+0f);
  q = fmaf(q, y, 0x1.661a16p-12f);
  float r, shifted = pd_exp_reduce(-q, &r);
  float power = pd_float((pd_bits(shifted) - pd_bits(PD_ROUNDER) + 127u) << 23);
  float large = 1.0f - fmaf(power, pd_expm1_core(r), power);
  return a < 1.0f ? fmaf(x, p, x) : copysignf(large, x);
}

/* With z = |x| and t = 1 / (1 + 0.4 z) it is exp(-z^2) t (1 + u Q(u)), u = 1 - t, and the rest to 2 below 0. Unlike
 * 1 - erf(x) it keeps its digits where it is small, and z^2 has those that its rounding takes; 0 from 11 on. */
PD_MATH float pd_erfc(float x) {
  float a = fabsf(x), z = a > 11.0f ? 11.0f : a, z2 = z * z, rest = fmaf(z, z, -z2);
  float part = 0x1.99999ap-2f * z, t = 1.0f / (1.0f + part), u = part * t, q = 0x1.4d0d9cp-5f;
  q = fmaf(q, u, -0x1.7fe9c4p-3f);
  q = fmaf(q, u, 0x1.036fd8p-2f);
  q = fmaf(q, u, 0x1.853406p-5f);
  q = fmaf(q, u, -0x1.f69e38p-3f);
  q = fmaf(q, u, -0x1.e1bc4cp-2f);
  q = fmaf(q, u, 0x1.9bbf5ap+0f);
  q = fmaf(q, u, -0x1.d22a26p+0f);
  float e = pd_exp(-z2), tail = fmaf(q * u, t, t) * fmaf(-rest, e, e);
  return x < 0.0f ? 2.0f - tail : tail;
}

/* x = n pi/2 + r with |r| <= pi/4, in double; returns sin(r) or cos(r) with sign, as n + quadrant says. */
PD_MATH float pd_sin_quadrant(float x, uint32_t quadrant) {
  double shifted = fma((double)x, 0x1.45f306dc9c883p-1, 0x1.8p+52), n = shifted - 0x1.8p+52;
  double r = fma(n, -0x1.1a62633145c07p-54, fma(n, -0x1.921fb54442d18p+0, (double)x));
  uint64_t bits;
  memcpy(&bits, &shifted, sizeof bits);
  uint32_t k = (uint32_t)bits + quadrant;
  float s = (float)r, low = (float)(r - s), z = s * s;
  float sine = 0x1.6cd860p-19f, cosine = -0x1.242adap-22f;
  sine = fmaf(sine, z, -0x1.a00f9ep-13f);
  sine = fmaf(sine, z, 0x1.111108p-7f);
  sine = fmaf(sine, z, -0x1.555556p-3f);
  sine = s + fmaf(sine * z, s, low);
  cosine = fmaf(cosine, z, 0x1.a01120p-16f);
  cosine = fmaf(cosine, z, -0x1.6c16b8p-10f);
  cosine = fmaf(cosine, z, 0x1.555556p-5f);
  cosine = 1.0f + fmaf(z, -0.5f, fmaf(cosine * z, z, -s * low));
  float result = pd_float(pd_bits(k & 1 ? cosine : sine) ^ (k & 2) << 30);
  return fabsf(x) <= 0x1p30f ? result : NAN;
}

PD_MATH float pd_sin(float x) { return pd_sin_quadrant(x, 0); }
PD_MATH float pd_cos(float x) { return pd_sin_quadrant(x, 1); }

/* x^n by squaring. */
PD_MATH double pd_power(double x, int64_t n) {
  double y = 1;
  for (; n > 0; n /= 2, x *= x)
    if (n % 2) y *= x;
  return y;
}

/* The weight of a microbatch's statistic in its batch's sum for a buffer, when so many of the batch's microbatches
 * follow it, over all replicas. In an update W(t + 1) of a buffer is (1 - momentum)^microbatches W(t) + that sum,
 * whatever the rate and the norm are. */
PD_MATH float pd_share(float momentum, int64_t following) {
  return (float)((double)momentum * pd_power(1 - (double)momentum, following));
}

/* A bias after an update: a step of `rate` in the direction of the sum of its shares. */
PD_MATH float pd_balanced(float bias, float sum, float rate) {
  return bias + rate * (float)((sum > 0.0f) - (sum < 0.0f));
}

/* ---- random numbers ------------------------------------------------------------------------- */

/* Philox 4x32-10: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011). */
typedef struct pd_random {
  uint32_t word[4];
} pd_random;

PD_MATH pd_random pd_philox(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint64_t key) {
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
  for (int round = 0; round < 10; round++) {
    uint64_t a = (uint64_t)c0 * 0xD2511F53u, b = (uint64_t)c2 * 0xCD9E8D57u;
    c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
    c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)b;
    c3 = (uint32_t)a;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  pd_random r = {{c0, c1, c2, c3}};
  return r;
}

/* In [0, 1), a multiple of 2^-24. */
PD_MATH float pd_uniform(uint32_t word) { return (float)(int32_t)(word >> 8) * 0x1p-24f; }

/* A key from the run's seed and the hash of an instance's path: the finaliser of SplitMix64 (Steele,
 * Lea, Flood, OOPSLA 2014) over both. */
PD_MATH uint64_t pd_mix(uint64_t seed, uint64_t scope) {
  uint64_t z = seed + 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  z = (z ^ z >> 31) + scope;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

/* Zero with probability p, else x / (1 - p). sample: the sample's global index; i: the element's index
 * within its sample. Four elements side by side use the four words of a block, which a GPU's thread that has all of
 * them makes once. p 0 keeps all exactly. Always inlined: as a call it would keep its loop from being vectorised. */
PD_MATH __attribute__((always_inline)) float pd_dropout(float x, uint64_t key, int64_t sample, int64_t i,
                                                        float p) {
  int64_t block = i >> 2;
  uint32_t word = (uint32_t)i & 3;
  pd_random r =
      pd_philox((uint32_t)block, (uint32_t)(block >> 32), (uint32_t)sample, (uint32_t)(sample >> 32), key);
  uint32_t low = word & 1 ? r.word[1] : r.word[0], high = word & 1 ? r.word[3] : r.word[2];
  float kept = x * (1.0f / (1.0f - p));
  return pd_uniform(word & 2 ? high : low) >= p ? kept : 0.0f;
}

/* The words of an element of a sample, counted as in pd_dropout. */
PD_MATH __attribute__((always_inline)) pd_random pd_words_of(uint64_t key, int64_t sample, int64_t i) {
  return pd_philox((uint32_t)i, (uint32_t)(i >> 32), (uint32_t)sample, (uint32_t)(sample >> 32), key);
}

/* Uniform in [0, 1). */
PD_MATH __attribute__((always_inline)) float pd_rand(uint64_t key, int64_t sample, int64_t i) {
  return pd_uniform(pd_words_of(key, sample, i).word[0]);
}

/* Standard normal, by Box and Muller: of magnitude below 5.8. */
PD_MATH __attribute__((always_inline)) float pd_randn(uint64_t key, int64_t sample, int64_t i) {
  pd_random r = pd_words_of(key, sample, i);
  float radius = pd_sqrt(-2.0f * pd_log(1.0f - pd_uniform(r.word[0])));
  return radius * pd_cos(6.2831853f * pd_uniform(r.word[1]));
}

/* The number in a whole value of element i of a rank's part, where the rank has `part` elements of each run of `whole`:
 * the shard-th part. */
PD_MATH int64_t pd_whole_index(int64_t i, int64_t part, int64_t whole, int64_t shard) {
  return i / part * whole + shard * part + i % part;
}

#endif
