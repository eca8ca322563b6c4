/* Register tiles of attention and the packing of their operands (kernels/attention.c). */
#ifndef PD_ATTENTION_TILES_H
#define PD_ATTENTION_TILES_H

#include "kernels/pd_words.h"
#include "pd_kernels.h"

#if PD_VECTORS == 32
enum { ROWS = 8, VECTORS = 2 }; /* of the register tile */
#else
enum { ROWS = 6, VECTORS = 1 };
#endif
enum {
  COLUMNS = VECTORS * PD_LANES,
  UNIT = 32,         /* padding of keys and sizes, for every tile */
  BLOCK = 48,        /* query rows at a time */
  KEYS = 128,        /* keys at a time, forward */
  KEYS_BACKWARD = 96 /* like BLOCK a multiple of any ROWS, and of UNIT */
};

/* c[ROWS][COLUMNS] = (add: +=) a[ROWS][k] b[k][COLUMNS], of words k of them */
INLINE void tile(bool pairs, bool add, float *c, int64_t c_row, const float *a, int64_t a_row, int64_t a_k,
                 const float *b, int64_t b_k, int64_t k) {
  vector sum[ROWS * VECTORS] = {{0}};
  for (int r = 0; add && r < ROWS; r++)
    for (int v = 0; v < VECTORS; v++) sum[r * VECTORS + v] = *(vector *)(c + r * c_row + v * PD_LANES);
  if (pairs)
    multiply_pairs(sum, ROWS, VECTORS, a, a_row, a_k, b, b_k, k);
  else
    multiply_tile(sum, ROWS, VECTORS, a, a_row, a_k, b, b_k, k);
  for (int r = 0; r < ROWS; r++)
    for (int v = 0; v < VECTORS; v++) *(vector *)(c + r * c_row + v * PD_LANES) = sum[r * VECTORS + v];
}

#define DEFINE_TILE(name, pairs, add)                                                                   \
  static void name(float *c, int64_t c_row, const float *a, int64_t a_row, int64_t a_k, const float *b, \
                   int64_t b_k, int64_t k) {                                                            \
    tile(pairs, add, c, c_row, a, a_row, a_k, b, b_k, k);                                               \
  }
DEFINE_TILE(floats_set, false, false)
DEFINE_TILE(floats_add, false, true)
DEFINE_TILE(pairs_set, true, false)
DEFINE_TILE(pairs_add, true, true)

static inline int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* ---- packing ------------------------------------------------------------------------------------------- */

/* to[rows][padded] = from[n][size], zeros around; in words. */
INLINE void pack(bool pairs, float *to, int64_t rows, int64_t padded, pd_in from, int64_t row, int64_t n,
                 int64_t size) {
  const int64_t width = words(pairs, padded);
  for (int64_t i = 0; i < n; i++) {
    float *at = to + i * width;
    if (pairs) {
      memcpy(at, (const pd_bf16 *)from.at + i * row, (size_t)size * sizeof(pd_bf16));
      memset((pd_bf16 *)at + size, 0, (size_t)(padded - size) * sizeof(pd_bf16));
      continue;
    }
    pd_read(at, from, i * row, size);
    for (int64_t j = size; j < padded; j++) at[j] = 0.0f;
  }
  memset(to + n * width, 0, (size_t)((rows - n) * width) * sizeof *to);
}

/* to[keys / COLUMNS][words of size][COLUMNS] = the transpose of from[n][size], zeros for keys from n on. */
static inline void pack_transposed(bool pairs, float *to, int64_t keys, pd_in from, int64_t row, int64_t n,
                                   int64_t size) {
  for (int64_t key = 0; key < keys; key += PD_LANES)
    transpose_rows(pairs, to + key / COLUMNS * COLUMNS * words(pairs, size) + key % COLUMNS, COLUMNS,
                   pd_in_from(from, key * row), row, n - key, size);
}

/* Converts sixteen floats to eight words, possibly in place. */
static inline void make_words(float *to, const float *from) {
  pd_bf16 x[PD_LANES];
  for (int l = 0; l < PD_LANES; l++) x[l] = pd_to_bf16(from[l]);
  memcpy(to, x, sizeof x);
}

/* Sixteen words of two rows. */
static inline void make_row_words(float *to, const float *low, const float *high) {
  uint32_t x[PD_LANES];
  for (int l = 0; l < PD_LANES; l++) x[l] = pd_to_bf16(low[l]).bits | (uint32_t)pd_to_bf16(high[l]).bits << 16;
  memcpy(to, x, sizeof x);
}

#endif
