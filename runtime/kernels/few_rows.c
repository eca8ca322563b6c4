/* Products of few rows with a matrix, as in text generation, bound by one read of the matrix. Threads share its
 * columns (of length k) or rows (of length n), whichever are contiguous; each element of c is the same sum, of 16
 * lanes or in order of k, for any number of rows and threads. */
#define PD_KERNELS
#include "kernels/few_rows.h"
#include "kernels/pd_bf16.h"
#include "kernels/pd_vector.h"

enum {
  COLUMNS = 4, /* of c at a time */
  STRIP = 512, /* of c's columns, whose sums stay in the first-level cache */
  DEPTH = 4    /* rows of b at a time */
};

/* Functions of this file are compiled for each type of operands. */
#define INLINE static inline __attribute__((always_inline))

INLINE float number(pd_in x, int64_t i) {
  return x.type == PD_BF16 ? pd_from_bf16(((const pd_bf16 *)x.at)[i]) : ((const float *)x.at)[i];
}

/* Sixteen of them from i on. */
INLINE vector numbers(pd_in x, int64_t i) {
  if (x.type == PD_F32) return *(const unaligned *)((const float *)x.at + i);
  vector v;
  for (int l = 0; l < PD_LANES; l++) v[l] = pd_from_bf16(((const pd_bf16 *)x.at)[i + l]);
  return v;
}

/* c[row][0..n) = a[row] . b's columns, n at most COLUMNS, each `b_column` elements from the next. */
INLINE void dots(pd_in a, int64_t a_at, pd_in b, int64_t b_at, int64_t b_column, int64_t k, int n, float *sum) {
  vector lanes[COLUMNS] = {{0}};
  int64_t p = 0;
  for (; p + PD_LANES <= k; p += PD_LANES) {
    vector x = numbers(a, a_at + p);
    for (int j = 0; j < n; j++) {
      vector y = numbers(b, b_at + j * b_column + p);
#if defined __AVX512F__
      lanes[j] = (vector)_mm512_fmadd_ps((__m512)x, (__m512)y, (__m512)lanes[j]);
#else
      for (int l = 0; l < PD_LANES; l++) lanes[j][l] = fmaf(x[l], y[l], lanes[j][l]);
#endif
    }
  }
  for (int j = 0; j < n; j++) {
    float lane[PD_LANES];
    for (int l = 0; l < PD_LANES; l++) lane[l] = lanes[j][l];
    for (int l = 0; p + l < k; l++)
      lane[l] = fmaf(number(a, a_at + p + l), number(b, b_at + j * b_column + p + l), lane[l]);
    sum[j] = pd_lanes_sum(lane);
  }
}

INLINE void by_columns(const struct pd_matmul_shape *s, pd_in a, pd_in b, pd_in bias, pd_out c) {
#pragma omp parallel for schedule(static)
  for (int64_t j = 0; j < s->n; j += COLUMNS)
    for (int64_t row = 0; row < s->m; row++) {
      int64_t n = s->n - j < COLUMNS ? s->n - j : COLUMNS;
      float sum[COLUMNS];
      if (n == COLUMNS)
        dots(a, row * s->a_row, b, j * s->b_column, s->b_column, s->k, COLUMNS, sum);
      else
        dots(a, row * s->a_row, b, j * s->b_column, s->b_column, s->k, (int)n, sum);
      for (int64_t i = 0; bias.at && i < n; i++) sum[i] += number(bias, j + i);
      pd_write(c, row * s->c_row + j, sum, n);
    }
}

/* The products of one row of a with a strip of b's rows, added to c in order of k. */
INLINE void add_strip(const struct pd_matmul_shape *s, pd_in a, int64_t a_at, pd_in b, int64_t b_at, int64_t n,
                      float *c) {
  int64_t p = 0;
  for (; p + DEPTH <= s->k; p += DEPTH) {
    float x[DEPTH];
    for (int d = 0; d < DEPTH; d++) x[d] = number(a, a_at + p + d);
    for (int64_t j = 0; j < n; j++) {
      float sum = c[j];
      for (int d = 0; d < DEPTH; d++) sum = fmaf(x[d], number(b, b_at + (p + d) * s->b_row + j), sum);
      c[j] = sum;
    }
  }
  for (; p < s->k; p++)
    for (int64_t j = 0; j < n; j++) c[j] = fmaf(number(a, a_at + p), number(b, b_at + p * s->b_row + j), c[j]);
}

INLINE void by_rows(const struct pd_matmul_shape *s, pd_in a, pd_in b, pd_in bias, pd_out c) {
#pragma omp parallel for schedule(static)
  for (int64_t j = 0; j < s->n; j += STRIP) {
    int64_t n = s->n - j < STRIP ? s->n - j : STRIP;
    for (int64_t row = 0; row < s->m; row++) {
      float sum[STRIP];
      for (int64_t i = 0; i < n; i++) sum[i] = 0;
      add_strip(s, a, row * s->a_row, b, j, n, sum);
      for (int64_t i = 0; bias.at && i < n; i++) sum[i] += number(bias, j + i);
      pd_write(c, row * s->c_row + j, sum, n);
    }
  }
}

INLINE void multiply(const struct pd_matmul_shape *s, pd_in a, pd_in b, pd_in bias, pd_out c) {
  if (s->b_row == 1)
    by_columns(s, a, b, bias, c);
  else
    by_rows(s, a, b, bias, c);
}

void pd_few_rows(const struct pd_matmul_shape *s, pd_in a, pd_in b, pd_in bias, pd_out c) {
  if (a.type == PD_F32 && b.type == PD_F32)
    multiply(s, (pd_in){a.at, PD_F32}, (pd_in){b.at, PD_F32}, bias, c);
  else if (a.type == PD_BF16 && b.type == PD_BF16)
    multiply(s, (pd_in){a.at, PD_BF16}, (pd_in){b.at, PD_BF16}, bias, c);
  else
    multiply(s, a, b, bias, c);
}
