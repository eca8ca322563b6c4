/* Products of rows with the matrices of their experts, in register tiles as in tiles.c. A call first lists its rows by
 * expert, in their order. One thread then has one expert and a strip of columns: it packs the strip of the expert's
 * matrix once, in floats, and multiplies the expert's rows by it, some at a time, which it packs too. So a row is read
 * where it is and its product is written where it belongs, and experts with few rows cost one read of their matrix.
 * A sum runs over blocks of `in`, or of an expert's rows, each in order, so that bits do not depend on the number of
 * threads, on other rows, or on the processor. */
#define PD_KERNELS
#include <omp.h>

#include "kernels/pd_words.h"
#include "pd_runtime.h"

#if PD_VECTORS == 32
enum { ROWS = 12, VECTORS = 2 }; /* of a tile */
#else
enum { ROWS = 6, VECTORS = 1 };
#endif
enum {
  PANEL = VECTORS * PD_LANES,
  DEPTH = 512,          /* of a block of a sum: a tile's rows stay in the first-level cache */
  CHUNK = 96,           /* rows whose sums are in memory between blocks; of tiles of every size */
  WIDEST = 128,         /* columns of a strip of the result */
  NARROWEST = 32,       /* ... where `in` is long */
  STRIP_FLOATS = 1 << 18, /* of the matrix, for the second-level cache */
  STRIP_OF_WEIGHTS = 256, /* columns of a strip of weights' gradients */
  PAD = 16              /* rows a power of two apart would share sets of the cache */
};

typedef struct pd_experts Experts;

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

/* ---- scratch memory: the list of rows, then a strip for each thread ------------------------------------ */

static int64_t list_floats(const Experts *e) { return round_up(e->rows * e->chosen + 2 * (e->count + 1), 16); }

/* Columns of a strip, a multiple of the widest panel. */
static int64_t strip_columns(const Experts *e) {
  const int64_t fit = STRIP_FLOATS / e->in / NARROWEST * NARROWEST, most = fit < WIDEST ? fit : WIDEST;
  const int64_t columns = round_up(e->out, NARROWEST);
  return smaller(most > NARROWEST ? most : NARROWEST, columns);
}
static int64_t strip_floats(const Experts *e) { return strip_columns(e) * e->in; }
static int64_t weights_columns(const Experts *e) { return smaller(STRIP_OF_WEIGHTS, round_up(e->in, NARROWEST)); }
static int64_t weights_floats(const Experts *e) { return weights_columns(e) * DEPTH; }

size_t pd_expert_linear_scratch(const Experts *e, int threads) {
  return (size_t)(list_floats(e) + threads * strip_floats(e)) * sizeof(float);
}
size_t pd_expert_linear_weights_scratch(const Experts *e, int threads) {
  return (size_t)(list_floats(e) + threads * weights_floats(e)) * sizeof(float);
}

/* ---- rows by expert ------------------------------------------------------------------------------------- */

/* Rows start[i] to start[i + 1] of `row` are those of expert i; row * chosen + index is a number of a row. */
struct list {
  int32_t *start, *row;
};

static int32_t expert_of(const Experts *e, const int32_t *experts, int64_t i) {
  return experts[i / e->chosen * e->experts_row + i % e->chosen * e->experts_chosen];
}

static struct list list_rows(const Experts *e, const int32_t *experts, void *scratch) {
  const int64_t rows = e->rows * e->chosen;
  struct list l = {.start = scratch};
  int32_t *next = l.start + e->count + 1;
  l.row = next + e->count + 1;
  memset(next, 0, (size_t)(e->count + 1) * sizeof *next);
  for (int64_t i = 0; i < rows; i++) next[expert_of(e, experts, i) + 1]++;
  for (int64_t i = 0; i < e->count; i++) next[i + 1] += next[i];
  memcpy(l.start, next, (size_t)(e->count + 1) * sizeof *next);
  for (int64_t i = 0; i < rows; i++) l.row[next[expert_of(e, experts, i)]++] = (int32_t)i;
  return l;
}

static int64_t x_at(const Experts *e, int32_t row) {
  return row / e->chosen * e->x_row + row % e->chosen * e->x_chosen;
}
static int64_t y_at(const Experts *e, int32_t row) {
  return row / e->chosen * e->y_row + row % e->chosen * e->y_chosen;
}

/* ---- packing, in floats ----------------------------------------------------------------------------- */

/* n numbers from one that is `at` on, `step` apart. */
static inline void read_line(float *to, pd_in from, int64_t at, int64_t step, int64_t n) {
  if (step == 1) {
    pd_read(to, from, at, n);
    return;
  }
  for (int64_t i = 0; i < n; i++) pd_read(to + i, from, at + i * step, 1);
}

/* to[k][PANEL] = 16 columns of a matrix from one that is `at` on, zeros for columns from n on. */
static void pack_columns(float *to, pd_in from, int64_t at, int64_t k_step, int64_t column_step, int64_t n, int64_t k) {
  if (k_step == 1 || n < 1) {
    transpose_rows(false, to, PANEL, pd_in_from(from, at), column_step, n, k);
    return;
  }
  for (int64_t p = 0; p < k; p++) {
    float *row = to + p * PANEL;
    read_line(row, from, at + p * k_step, column_step, smaller(n, PD_LANES));
    for (int64_t j = n; j < PD_LANES; j++) row[j] = 0.0f;
  }
}

/* to[panel][k][PANEL] = columns `first` to first + n of the transpose of an expert's matrix. */
static void pack_matrix(const Experts *e, float *to, pd_in weight, int64_t expert, int64_t first, int64_t n) {
  for (int64_t j = 0; j < n; j += PANEL, to += e->in * PANEL)
    for (int v = 0; v < VECTORS; v++) {
      const int64_t column = first + j + v * PD_LANES;
      pack_columns(to + v * PD_LANES, weight, expert * e->weight_expert + column * e->weight_out, e->weight_in,
                   e->weight_out, n - j - v * PD_LANES, e->in);
    }
}

/* ---- tiles ---------------------------------------------------------------------------------------------- */

/* c[rows][PANEL] = a b, or c + a b. */
INLINE void tile(int rows, float *c, int64_t c_row, const float *a, int64_t a_row, int64_t a_k, const float *b, int64_t k,
                 bool add) {
  vector sum[ROWS * VECTORS] = {{0}};
  for (int r = 0; add && r < rows; r++)
    for (int v = 0; v < VECTORS; v++) sum[r * VECTORS + v] = *(const unaligned *)(c + r * c_row + v * PD_LANES);
  multiply_tile(sum, rows, VECTORS, a, a_row, a_k, b, PANEL, k);
  for (int r = 0; r < rows; r++)
    for (int v = 0; v < VECTORS; v++) *(unaligned *)(c + r * c_row + v * PD_LANES) = sum[r * VECTORS + v];
}

/* tile() for a number of rows known at run time. */
INLINE void tile_of_rows(int64_t rows, float *c, int64_t c_row, const float *a, int64_t a_row, int64_t a_k,
                         const float *b, int64_t k, bool add) {
#define ROWS_ARE(n) \
  case n: tile(n < ROWS ? n : ROWS, c, c_row, a, a_row, a_k, b, k, add); break;
  switch (rows) {
    ROWS_ARE(1)
    ROWS_ARE(2)
    ROWS_ARE(3)
    ROWS_ARE(4)
    ROWS_ARE(5)
    ROWS_ARE(6)
    ROWS_ARE(7)
    ROWS_ARE(8)
    ROWS_ARE(9)
    ROWS_ARE(10)
    ROWS_ARE(11)
    ROWS_ARE(12)
  }
#undef ROWS_ARE
}

/* ---- rows times matrices ---------------------------------------------------------------------------------- */

/* Sums of a tile of rows over one block of `in`, for all panels of a strip. */
static void add_block(const Experts *e, const int32_t *row, int64_t rows, pd_in x, int64_t k, int64_t depth,
                      const float *packed, int64_t columns, float *sum) {
  _Alignas(64) float a[ROWS * (DEPTH + PAD)];
  for (int64_t r = 0; r < rows; r++)
    read_line(a + r * (DEPTH + PAD), x, x_at(e, row[r]) + k * e->x_column, e->x_column, depth);
  for (int64_t j = 0; j < columns; j += PANEL)
    tile_of_rows(rows, sum + j, WIDEST, a, DEPTH + PAD, 1, packed + (j * e->in + k * PANEL), depth, k > 0);
}

static void multiply_rows(const Experts *e, const int32_t *row, int64_t n, pd_in x, const float *packed, int64_t first,
                          int64_t columns, pd_out y) {
  for (int64_t chunk = 0; chunk < n; chunk += CHUNK) {
    _Alignas(64) float sum[CHUNK * WIDEST];
    const int64_t rows = smaller(n - chunk, CHUNK);
    for (int64_t k = 0; k < e->in; k += DEPTH)
      for (int64_t r = 0; r < rows; r += ROWS)
        add_block(e, row + chunk + r, smaller(rows - r, ROWS), x, k, smaller(e->in - k, DEPTH), packed, columns,
                  sum + r * WIDEST);
    for (int64_t r = 0; r < rows; r++)
      pd_write(y, y_at(e, row[chunk + r]) + first, sum + r * WIDEST, columns);
  }
}

void pd_expert_linear(const Experts *e, pd_in x, pd_in weight, const int32_t *experts, pd_out y, void *scratch) {
  const struct list l = list_rows(e, experts, scratch);
  const int64_t columns = strip_columns(e), strips = (e->out + columns - 1) / columns;
  float *packed = (float *)scratch + list_floats(e);
#pragma omp parallel for schedule(dynamic, 1)
  for (int64_t i = 0; i < e->count * strips; i++) {
    const int64_t expert = i / strips, first = i % strips * columns, own = smaller(columns, e->out - first);
    const int64_t n = l.start[expert + 1] - l.start[expert];
    float *strip = packed + omp_get_thread_num() * strip_floats(e);
    if (n == 0) continue;
    pack_matrix(e, strip, weight, expert, first, own);
    multiply_rows(e, l.row + l.start[expert], n, x, strip, first, own, y);
  }
}

/* ---- gradients of matrices -------------------------------------------------------------------------------- */

/* to[panel][rows][PANEL] = columns `first` to first + n of x's rows. */
static void pack_rows(const Experts *e, float *to, pd_in x, const int32_t *row, int64_t rows, int64_t first, int64_t n) {
  for (int64_t r = 0; r < rows; r++) {
    const int64_t at = x_at(e, row[r]) + first * e->x_column;
    for (int64_t j = 0; j < n; j += PANEL) {
      float *line = to + j * rows + r * PANEL;
      const int64_t columns = smaller(n - j, PANEL);
      read_line(line, x, at + j * e->x_column, e->x_column, columns);
      for (int64_t i = columns; i < PANEL; i++) line[i] = 0.0f;
    }
  }
}

/* dw[rows of the tile][columns] += or = the products of a block of an expert's rows. */
static void add_weights(int64_t rows, float *dw, int64_t dw_row, const float *a, const float *packed, int64_t depth,
                        int64_t columns, bool add) {
  for (int64_t j = 0; j < columns; j += PANEL) {
    float *to = dw + j;
    if (columns - j >= PANEL) {
      tile_of_rows(rows, to, dw_row, a, 1, ROWS, packed + j * depth, depth, add);
      continue;
    }
    float part[ROWS * PANEL] = {0};
    const size_t bytes = (size_t)(columns - j) * sizeof *to;
    for (int64_t r = 0; add && r < rows; r++) memcpy(part + r * PANEL, to + r * dw_row, bytes);
    tile_of_rows(rows, part, PANEL, a, 1, ROWS, packed + j * depth, depth, add);
    for (int64_t r = 0; r < rows; r++) memcpy(to + r * dw_row, part + r * PANEL, bytes);
  }
}

/* A strip of one expert's gradient, from its n rows. */
static void weights_of(const Experts *e, pd_in x, pd_in dy, const int32_t *row, int64_t n, int64_t first, int64_t columns,
                       float *packed, float *dw, bool overwrite) {
  for (int64_t i = 0; n == 0 && overwrite && i < e->out; i++)
    memset(dw + i * e->in + first, 0, (size_t)columns * sizeof *dw);
  for (int64_t block = 0; block < n; block += DEPTH) {
    const int64_t depth = smaller(n - block, DEPTH);
    pack_rows(e, packed, x, row + block, depth, first, columns);
    for (int64_t i = 0; i < e->out; i += ROWS) {
      _Alignas(64) float a[DEPTH * ROWS];
      const int64_t rows = smaller(e->out - i, ROWS);
      for (int64_t r = 0; r < depth; r++)
        read_line(a + r * ROWS, dy, y_at(e, row[block + r]) + i * e->y_column, e->y_column, rows);
      add_weights(rows, dw + i * e->in + first, e->in, a, packed, depth, columns, !overwrite || block > 0);
    }
  }
}

void pd_expert_linear_weights(const Experts *e, pd_in x, pd_in dy, const int32_t *experts, float *dw, bool first,
                              void *scratch) {
  const struct list l = list_rows(e, experts, scratch);
  const int64_t columns = weights_columns(e), strips = (e->in + columns - 1) / columns;
  float *packed = (float *)scratch + list_floats(e);
#pragma omp parallel for schedule(dynamic, 1)
  for (int64_t i = 0; i < e->count * strips; i++) {
    const int64_t expert = i / strips, column = i % strips * columns;
    weights_of(e, x, dy, l.row + l.start[expert], l.start[expert + 1] - l.start[expert], column,
               smaller(columns, e->in - column), packed + omp_get_thread_num() * weights_floats(e),
               dw + expert * e->out * e->in, first);
  }
}
