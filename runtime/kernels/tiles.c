/* Matrix products on processors without AVX-512, where the library's bits depend on the number of threads: in
 * register tiles, as Goto and van de Geijn describe ("Anatomy of High-Performance Matrix Multiplication", 2008).
 * Some rows of b are packed in panels as wide as a tile, which all threads read; of a, some rows at a time, by the
 * thread that multiplies them. Blocks of k are added up in their order, each summed from zero in order of k, so
 * that an element of c is the same for any number of threads, and for any m and n. */
#define PD_KERNELS
#include "kernels/tiles.h"
#include "kernels/pd_vector.h"

enum {
  ROWS = 6,             /* of a tile, which is one vector wide */
  DEPTH = 384,          /* at most, of a block of k: a panel of b stays in the first-level cache */
  BLOCK = 16 * ROWS,    /* rows of a that are packed at once, for the second-level cache */
  WIDTH = 1024,         /* columns of b that are packed at once */
  STRIP = 16 * PD_LANES /* columns per thread with a block of rows */
};

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

/* Equal blocks of k, but for the last. */
static int64_t block_depth(int64_t k) {
  int64_t blocks = (k + DEPTH - 1) / DEPTH;
  return blocks <= 1 ? k : round_up((k + blocks - 1) / blocks, PD_LANES);
}

size_t pd_tiled_scratch(const struct pd_tiled *t) {
  return (size_t)(round_up(smaller(t->n, WIDTH), PD_LANES) * block_depth(t->k)) * sizeof(float);
}

/* to[k][column] = b[k][column], 16 columns or as many as there are and zeros. */
static void pack_columns(float *to, const float *b, int64_t b_row, int64_t b_column, int64_t columns, int64_t k) {
  int64_t p = 0;
  if (columns == PD_LANES && b_column == 1) {
    for (; p < k; p++) *(vector *)(to + p * PD_LANES) = *(const unaligned *)(b + p * b_row);
    return;
  }
  for (; columns == PD_LANES && b_row == 1 && p + PD_LANES <= k; p += PD_LANES) {
    vector x[PD_LANES];
    for (int j = 0; j < PD_LANES; j++) x[j] = *(const unaligned *)(b + j * b_column + p);
    transpose(x);
    for (int j = 0; j < PD_LANES; j++) *(vector *)(to + (p + j) * PD_LANES) = x[j];
  }
  for (; p < k; p++)
    for (int64_t j = 0; j < PD_LANES; j++) to[p * PD_LANES + j] = j < columns ? b[p * b_row + j * b_column] : 0.0f;
}

/* to[tile][k][row of the tile] = a[row][k]; behind the last rows whatever was there. */
static void pack_rows(float *to, const float *a, int64_t a_row, int64_t a_column, int64_t rows, int64_t k) {
  for (int64_t first = 0; first < rows; first += ROWS, to += ROWS * k) {
    const float *from = a + first * a_row;
    int64_t n = smaller(rows - first, ROWS);
    if (a_row == 1 && n == ROWS)
      for (int64_t p = 0; p < k; p++) memcpy(to + p * ROWS, from + p * a_column, ROWS * sizeof *to);
    else
      for (int64_t r = 0; r < n; r++)
        for (int64_t p = 0; p < k; p++) to[p * ROWS + r] = from[r * a_row + p * a_column];
  }
}

struct block { /* of k, and of columns that are packed at once */
  const struct pd_tiled *t;
  const float *a, *packed, *bias; /* bias: for the last block of k */
  float *c;
  int64_t first, columns, depth;
  bool add;
};

/* One tile's sums, stored or added. */
static inline __attribute__((always_inline)) void tile(const struct block *k, int rows, float *c, int64_t columns,
                                                       const float *a, const float *b, const float *bias) {
  vector sum[ROWS] = {{0}}, last = {0};
  for (int r = 0; r < rows; r++) __builtin_prefetch(c + r * k->t->c_row, 1);
  multiply_tile(sum, rows, 1, a, 1, ROWS, b, PD_LANES, k->depth);
  if (columns == PD_LANES) {
    if (bias) last = *(const unaligned *)bias;
    for (int r = 0; r < rows; r++) {
      unaligned *to = (unaligned *)(c + r * k->t->c_row);
      if (k->add) sum[r] += *to;
      *to = bias ? sum[r] + last : sum[r];
    }
    return;
  }
  for (int r = 0; r < rows; r++) {
    float *to = c + r * k->t->c_row;
    for (int64_t j = 0; j < columns; j++) {
      float x = k->add ? sum[r][j] + to[j] : sum[r][j];
      to[j] = bias ? x + bias[j] : x;
    }
  }
}

static void tile_of_rows(const struct block *k, int64_t rows, float *c, int64_t columns, const float *a,
                         const float *b, const float *bias) {
  switch (rows) {
  case 1: tile(k, 1, c, columns, a, b, bias); break;
  case 2: tile(k, 2, c, columns, a, b, bias); break;
  case 3: tile(k, 3, c, columns, a, b, bias); break;
  case 4: tile(k, 4, c, columns, a, b, bias); break;
  case 5: tile(k, 5, c, columns, a, b, bias); break;
  default: tile(k, ROWS, c, columns, a, b, bias);
  }
}

/* Rows that are packed in `a`, from `row` on, times a strip of columns of the block. */
static void multiply_strip(const struct block *k, int64_t row, int64_t rows, const float *a, int64_t strip) {
  int64_t end = smaller(strip + STRIP, k->columns);
  for (int64_t j = strip; j < end; j += PD_LANES)
    for (int64_t r = 0; r < rows; r += ROWS)
      tile_of_rows(k, smaller(rows - r, ROWS), k->c + (row + r) * k->t->c_row + k->first + j,
                   smaller(k->columns - j, PD_LANES), a + r * k->depth, k->packed + j * k->depth,
                   k->bias ? k->bias + k->first + j : NULL);
}

static void multiply_block(const struct block *k) {
  const struct pd_tiled *t = k->t;
  int64_t strips = (k->columns + STRIP - 1) / STRIP, blocks = (t->m + BLOCK - 1) / BLOCK;
#pragma omp parallel
  {
    _Alignas(64) float a[BLOCK * DEPTH];
    int64_t packed = -1;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < blocks * strips; i++) {
      int64_t row = i / strips * BLOCK, rows = smaller(t->m - row, BLOCK);
      if (row != packed) pack_rows(a, k->a + row * t->a_row, t->a_row, t->a_column, rows, k->depth);
      packed = row;
      multiply_strip(k, row, rows, a, i % strips * STRIP);
    }
  }
}

void pd_tiled_multiply(const struct pd_tiled *t, const float *a, const float *b, const float *bias, float *c,
                       void *scratch) {
  int64_t depth = block_depth(t->k);
  float *packed = scratch;
  for (int64_t first = 0; first < t->n; first += WIDTH)
    for (int64_t p = 0; p < t->k; p += depth) {
      struct block k = {.t = t,
                        .a = a + p * t->a_column,
                        .packed = packed,
                        .bias = p + depth >= t->k ? bias : NULL,
                        .c = c,
                        .first = first,
                        .columns = smaller(t->n - first, WIDTH),
                        .depth = smaller(t->k - p, depth),
                        .add = t->add || p > 0};
      const float *from = b + p * t->b_row + first * t->b_column;
#pragma omp parallel for schedule(static)
      for (int64_t j = 0; j < k.columns; j += PD_LANES)
        pack_columns(packed + j * k.depth, from + j * t->b_column, t->b_row, t->b_column,
                     smaller(k.columns - j, PD_LANES), k.depth);
      multiply_block(&k);
    }
}
