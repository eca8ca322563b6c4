/* Packed operands of register tiles: floats, or with `pairs` words of two bf16 numbers that are adjacent along the
 * sum (pd_vector.h). A word is passed as a float but never used in arithmetic. */
#ifndef PD_KERNELS_WORDS_H
#define PD_KERNELS_WORDS_H

#include <stdbool.h>

#include "kernels/pd_bf16.h"
#include "kernels/pd_vector.h"

#define INLINE static inline __attribute__((always_inline))

/* The number of words for a number of values. */
static inline int64_t words(bool pairs, int64_t n) { return pairs ? (n + 1) / 2 : n; }

/* Sixteen words of a row, from word i on. */
INLINE vector read_words(enum pd_type type, bool pairs, const void *from, int64_t i) {
  vector x;
  if (pairs)
    memcpy(&x, (const pd_bf16 *)from + 2 * i, sizeof x);
  else
    pd_read((float *)&x, (pd_in){from, type}, i, PD_LANES);
  return x;
}

/* One word of a row of `size` numbers. */
static inline float read_word(pd_in from, bool pairs, int64_t i, int64_t size) {
  float x = 0;
  if (pairs)
    memcpy(&x, (const pd_bf16 *)from.at + 2 * i, 2 * i + 1 < size ? sizeof x : sizeof x / 2);
  else
    pd_read(&x, from, i, 1);
  return x;
}

INLINE void transpose_rows_of(enum pd_type type, bool pairs, float *to, int64_t to_row, const void *from,
                              int64_t row, int64_t n, int64_t size) {
  const int64_t depth = words(pairs, size), whole = pairs ? size / 2 : size;
  const pd_in rows = {from, type};
  int64_t i = 0;
  for (; n >= PD_LANES && i + PD_LANES <= whole; i += PD_LANES) {
    vector x[PD_LANES];
    for (int j = 0; j < PD_LANES; j++) x[j] = read_words(type, pairs, pd_in_from(rows, j * row).at, i);
    transpose(x);
    for (int j = 0; j < PD_LANES; j++) *(vector *)(to + (i + j) * to_row) = x[j];
  }
  for (; i < depth; i++)
    for (int64_t j = 0; j < PD_LANES; j++)
      to[i * to_row + j] = j < n ? read_word(pd_in_from(rows, j * row), pairs, i, size) : 0.0f;
}

/* to[words of size][PD_LANES], rows `to_row` words apart, = the transpose of from[n][size], whose rows are `row`
 * numbers apart; zeros from n on, which may be less than 1 or more than PD_LANES. Pairs want from in bf16. */
static inline void transpose_rows(bool pairs, float *to, int64_t to_row, pd_in from, int64_t row, int64_t n,
                                  int64_t size) {
  if (from.type == PD_F32)
    transpose_rows_of(PD_F32, false, to, to_row, from.at, row, n, size);
  else if (pairs)
    transpose_rows_of(PD_BF16, true, to, to_row, from.at, row, n, size);
  else
    transpose_rows_of(PD_BF16, false, to, to_row, from.at, row, n, size);
}

/* to[rows / 2][padded] = words of rows 2 i and 2 i + 1 of from[n][size], which is in bf16, zeros around. */
static inline void pack_row_pairs(float *to, int64_t rows, int64_t padded, pd_in from, int64_t row, int64_t n,
                                  int64_t size) {
  const pd_bf16 *x = from.at;
  memset(to, 0, (size_t)(rows / 2 * padded) * sizeof *to);
  for (int64_t i = 0; i < n; i += 2) {
    const pd_bf16 *low = x + i * row, *high = i + 1 < n ? low + row : NULL;
    uint32_t *at = (uint32_t *)to + i / 2 * padded;
    for (int64_t j = 0; j < size; j++) at[j] = low[j].bits;
    for (int64_t j = 0; high && j < size; j++) at[j] |= (uint32_t)high[j].bits << 16;
  }
}

#endif
