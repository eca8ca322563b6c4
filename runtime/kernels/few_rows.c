/* Products of few rows with a matrix, as in generating text: what they cost is reading the matrix, once. The
 * matrix's columns (of length k) or its rows (of length n) are contiguous, whichever they are, and dealt to
 * threads; each element of c is the same sum, of 16 lanes or in order of k, for any number of rows and threads. */
#include "kernels/few_rows.h"
#include "kernels/pd_vector.h"

enum {
  COLUMNS = 4, /* of c at a time */
  STRIP = 512, /* of c's columns, whose sums stay in the first-level cache */
  DEPTH = 4    /* rows of b at a time */
};

/* c[row][0..n) = a[row] . b's columns, n at most COLUMNS, each `b_column` elements from the next. */
static inline __attribute__((always_inline)) void dots(const float *a, const float *b, int64_t b_column, int64_t k,
                                                       int n, float *sum) {
  vector lanes[COLUMNS] = {{0}};
  int64_t p = 0;
  for (; p + PD_LANES <= k; p += PD_LANES) {
    vector x = *(const unaligned *)(a + p);
    for (int j = 0; j < n; j++) {
      vector y = *(const unaligned *)(b + j * b_column + p);
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
    for (int l = 0; p + l < k; l++) lane[l] = fmaf(a[p + l], b[j * b_column + p + l], lane[l]);
    sum[j] = pd_lanes_sum(lane);
  }
}

static void by_columns(const struct pd_matmul_shape *s, const float *a, const float *b, const float *bias,
                       float *c) {
#pragma omp parallel for schedule(static)
  for (int64_t j = 0; j < s->n; j += COLUMNS)
    for (int64_t row = 0; row < s->m; row++) {
      int64_t n = s->n - j < COLUMNS ? s->n - j : COLUMNS;
      float sum[COLUMNS];
      if (n == COLUMNS)
        dots(a + row * s->a_row, b + j * s->b_column, s->b_column, s->k, COLUMNS, sum);
      else
        dots(a + row * s->a_row, b + j * s->b_column, s->b_column, s->k, (int)n, sum);
      for (int64_t i = 0; i < n; i++) c[row * s->c_row + j + i] = bias ? sum[i] + bias[j + i] : sum[i];
    }
}

/* The products of one row of a with a strip of b's rows, added to c in order of k. */
static void add_strip(const struct pd_matmul_shape *s, const float *a, const float *b, int64_t n, float *c) {
  int64_t p = 0;
  for (; p + DEPTH <= s->k; p += DEPTH)
    for (int64_t j = 0; j < n; j++) {
      float sum = c[j];
      for (int d = 0; d < DEPTH; d++) sum = fmaf(a[p + d], b[(p + d) * s->b_row + j], sum);
      c[j] = sum;
    }
  for (; p < s->k; p++)
    for (int64_t j = 0; j < n; j++) c[j] = fmaf(a[p], b[p * s->b_row + j], c[j]);
}

static void by_rows(const struct pd_matmul_shape *s, const float *a, const float *b, const float *bias, float *c) {
#pragma omp parallel for schedule(static)
  for (int64_t j = 0; j < s->n; j += STRIP) {
    int64_t n = s->n - j < STRIP ? s->n - j : STRIP;
    for (int64_t row = 0; row < s->m; row++) {
      float *to = c + row * s->c_row + j;
      for (int64_t i = 0; i < n; i++) to[i] = 0;
      add_strip(s, a + row * s->a_row, b + j, n, to);
      for (int64_t i = 0; bias && i < n; i++) to[i] += bias[j + i];
    }
  }
}

void pd_few_rows(const struct pd_matmul_shape *s, const float *a, const float *b, const float *bias, float *c) {
  (s->b_row == 1 ? by_columns : by_rows)(s, a, b, bias, c);
}
