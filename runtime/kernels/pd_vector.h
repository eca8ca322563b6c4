/* A vector of PD_LANES floats, for kernels whose speed is that of their register tiles. */
#ifndef PD_VECTOR_H
#define PD_VECTOR_H

#include "kernels/pd_lanes.h"

#if defined __AVX512F__ || defined __FMA__
#include <immintrin.h>
#endif

typedef float vector __attribute__((vector_size(64)));
typedef float unaligned __attribute__((vector_size(64), aligned(4)));

/* c += a b for vectors b and c, each lane with one rounding. A macro, since passing such vectors to
 * functions depends on the ABI's vector width. */
#if defined __AVX512F__
#define MULTIPLY_ADD(c, a, b) ((c) = (vector)_mm512_fmadd_ps(_mm512_set1_ps(a), (__m512)(b), (__m512)(c)))
#elif defined __FMA__
#define LOW_HALF(x) ((__m256)__builtin_shufflevector((x), (x), 0, 1, 2, 3, 4, 5, 6, 7))
#define HIGH_HALF(x) ((__m256)__builtin_shufflevector((x), (x), 8, 9, 10, 11, 12, 13, 14, 15))
#define MULTIPLY_ADD(c, a, b)                                                                               \
  do {                                                                                                      \
    __m256 every = _mm256_set1_ps(a), low = _mm256_fmadd_ps(every, LOW_HALF(b), LOW_HALF(c));               \
    __m256 high = _mm256_fmadd_ps(every, HIGH_HALF(b), HIGH_HALF(c));                                       \
    (c) = (vector)__builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); \
  } while (0)
#else
#define MULTIPLY_ADD(c, a, b)                                                                \
  do                                                                                         \
    for (int lane = 0; lane < PD_LANES; lane++) (c)[lane] = fmaf((a), (b)[lane], (c)[lane]); \
  while (0)
#endif

/* The number of vectors of sums and operands that fit in registers: tiles have different shapes for 32 and for 8.
 * Bits and scratch memory must not depend on it, because pdc, which plans scratch memory, is compiled for any
 * processor. Tests set it. */
#ifndef PD_VECTORS
#if defined __AVX512F__
#define PD_VECTORS 32
#else
#define PD_VECTORS 8
#endif
#endif

/* sum[rows][vectors] += a[rows][k] b[k][vectors], each element's products in order of k. */
static inline __attribute__((always_inline)) void multiply_tile(vector *sum, int rows, int vectors, const float *a,
                                                                int64_t a_row, int64_t a_k, const float *b,
                                                                int64_t b_k, int64_t k) {
  for (int64_t p = 0; p < k; p++) {
    vector row[4];
    for (int v = 0; v < vectors; v++) row[v] = *(const vector *)(b + p * b_k + v * PD_LANES);
    for (int r = 0; r < rows; r++)
      for (int v = 0; v < vectors; v++) MULTIPLY_ADD(sum[r * vectors + v], a[r * a_row + p * a_k], row[v]);
  }
}

/* Makes `call` with `name`, the constant that equals `rows`, 1 to `most`, at most 12: a tile's loops over rows unroll. */
/* clang-format off */
#define CALL_OF_ROWS(i, name, most, call) case i: { const int name = i < (most) ? i : (most); call; } break;
#define CALL_BY_ROWS(name, rows, most, call)                                                              \
  switch (rows) {                                                                                         \
    CALL_OF_ROWS(1, name, most, call) CALL_OF_ROWS(2, name, most, call) CALL_OF_ROWS(3, name, most, call)  \
    CALL_OF_ROWS(4, name, most, call) CALL_OF_ROWS(5, name, most, call) CALL_OF_ROWS(6, name, most, call)  \
    CALL_OF_ROWS(7, name, most, call) CALL_OF_ROWS(8, name, most, call) CALL_OF_ROWS(9, name, most, call)  \
    CALL_OF_ROWS(10, name, most, call) CALL_OF_ROWS(11, name, most, call) CALL_OF_ROWS(12, name, most, call) \
  }
/* clang-format on */

/* Two adjacent bf16 numbers along k are one word. If the processor multiplies words, operands are packed as words,
 * which are passed as floats but never used in arithmetic. c += a[0] b[0] + a[1] b[1] for each lane's word b. */
#if defined __AVX512BF16__
#define PD_PAIRS 1
#define ADD_PAIRS(c, a, b) \
  ((c) = (vector)_mm512_dpbf16_ps((__m512)(c), (__m512bh)_mm512_set1_ps(a), (__m512bh)(b)))
#else
#define PD_PAIRS 0
#define ADD_PAIRS(c, a, b) ((void)(c), (void)(a), (void)(b))
#endif

/* multiply_tile() of words: k of them. */
static inline __attribute__((always_inline)) void multiply_pairs(vector *sum, int rows, int vectors,
                                                                 const float *a, int64_t a_row, int64_t a_k,
                                                                 const float *b, int64_t b_k, int64_t k) {
  for (int64_t p = 0; p < k; p++) {
    vector row[4];
    for (int v = 0; v < vectors; v++) row[v] = *(const vector *)(b + p * b_k + v * PD_LANES);
    for (int r = 0; r < rows; r++)
      for (int v = 0; v < vectors; v++) ADD_PAIRS(sum[r * vectors + v], a[r * a_row + p * a_k], row[v]);
  }
}

/* Load the first n of PD_LANES floats, with zeros after them; store the first n only. Macros, as above. */
#if defined __AVX512F__
#define LOAD_PART(x, from, n) ((x) = (vector)_mm512_maskz_loadu_ps((__mmask16)((1u << (n)) - 1), (from)))
#define STORE_PART(to, x, n) _mm512_mask_storeu_ps((to), (__mmask16)((1u << (n)) - 1), (__m512)(x))
#else
#define LOAD_PART(x, from, n) ((x) = (vector){0}, memcpy(&(x), (from), (size_t)(n) * sizeof(float)))
#define STORE_PART(to, x, n) memcpy((to), &(x), (size_t)(n) * sizeof(float))
#endif

/* x[i][j] becomes x[j][i]. */
static inline __attribute__((always_inline)) void transpose(vector x[PD_LANES]) {
#define EXCHANGE(step, first, second)                           \
  for (int i = 0; i < PD_LANES; i++)                            \
    if (!(i & step)) {                                          \
      vector low = x[i], high = x[i + step];                    \
      x[i] = __builtin_shufflevector(low, high, first);         \
      x[i + step] = __builtin_shufflevector(low, high, second); \
    }
#define LIST(...) __VA_ARGS__
  EXCHANGE(8, LIST(0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),
           LIST(8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31))
  EXCHANGE(4, LIST(0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27),
           LIST(4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31))
  EXCHANGE(2, LIST(0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29),
           LIST(2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31))
  EXCHANGE(1, LIST(0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30),
           LIST(1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31))
#undef LIST
#undef EXCHANGE
}

#endif
