/* Products of rows with the matrices of their experts, in register tiles as in tiles.c. A call first lists its rows by
 * expert, in their order. One thread then has one expert and a strip of its matrix's rows, and computes the transposed
 * product: each number of the matrix is multiplied by vectors of rows, which are packed, in floats, some at a time. So a row is read where it is and its product is written where it belongs, and experts with few rows cost one read of
 * their matrix. A sum runs over blocks of `in`, or of an expert's rows, each in order, so that bits do not depend on the
 * number of threads, on other rows, or on the processor. */
#define PD_KERNELS
#include <omp.h>

#include "kernels/pd_words.h"
#include "pd_kernels.h"

#if PD_VECTORS == 32
enum { ROWS = 12, VECTORS = 2 }; /* of a tile */
#else
enum { ROWS = 6, VECTORS = 1 };
#endif
enum {
  PANEL = VECTORS * PD_LANES,
  WIDEST_PANEL = 32,      /* of all builds */
  DEPTH = 160,            /* of a block of `in`, at most: a panel and a tile stay in the first-level cache */
  CHUNK = 128,            /* rows at a time: a block of them stays in the second-level cache */
  GROUP = 48,             /* rows of a matrix that are packed at once; a multiple of every tile's */
  STRIP = 384,            /* rows of a matrix per thread; a multiple of GROUP */
  DEPTH_OF_WEIGHTS = 256, /* of a block of an expert's rows */
  STRIP_OF_WEIGHTS = 512, /* columns of a matrix's gradient per thread */
  LINE = DEPTH + 16       /* of a copy: lines a power of two apart would share sets of the cache */
};

typedef struct pd_experts Experts;

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

/* ---- scratch memory: the list of rows, then each thread's ------------------------------------------------- */

/* Lists of rows: of each expert, and of those without one. */
static int64_t lists(const Experts *e) { return e->count + (e->drops ? 1 : 0); }
static int64_t list_floats(const Experts *e) { return round_up(e->rows * e->chosen + 2 * (lists(e) + 1), 16); }

static int64_t chunk_rows(const Experts *e) { return smaller(CHUNK, round_up(e->rows * e->chosen, WIDEST_PANEL)); }
/* Equal blocks of `in`, but for the last. */
static int64_t block_depth(const Experts *e) {
  const int64_t blocks = (e->in + DEPTH - 1) / DEPTH;
  return smaller(e->in, round_up((e->in + blocks - 1) / blocks, PD_LANES));
}
static int64_t packed_floats(const Experts *e) { return chunk_rows(e) * block_depth(e); }
static int64_t thread_floats(const Experts *e) {
  return packed_floats(e) + chunk_rows(e) * round_up(smaller(e->out, STRIP), PD_LANES);
}
static int64_t weights_floats(const Experts *e) {
  return smaller(STRIP_OF_WEIGHTS, round_up(e->in, WIDEST_PANEL)) * smaller(DEPTH_OF_WEIGHTS, e->rows * e->chosen);
}

size_t pd_expert_linear_scratch(const Experts *e, int threads) {
  return (size_t)(list_floats(e) + threads * thread_floats(e)) * sizeof(float);
}
size_t pd_expert_linear_weights_scratch(const Experts *e, int threads) {
  return (size_t)(list_floats(e) + threads * weights_floats(e)) * sizeof(float);
}

/* ---- rows by expert ------------------------------------------------------------------------------------- */

/* Rows start[i] to start[i + 1] of `row` are those of expert i, or of none; row * chosen + index is a number of a row. */
struct list {
  int32_t *start, *row;
};

static int32_t expert_of(const Experts *e, const int32_t *experts, int64_t i) {
  return experts[i / e->chosen * e->experts_row + i % e->chosen * e->experts_chosen];
}

static struct list list_rows(const Experts *e, const int32_t *experts, void *scratch) {
  const int64_t rows = e->rows * e->chosen, n = lists(e);
  struct list l = {.start = scratch};
  int32_t *next = l.start + n + 1;
  l.row = next + n + 1;
  memset(next, 0, (size_t)(n + 1) * sizeof *next);
  for (int64_t i = 0; i < rows; i++) next[expert_of(e, experts, i) + 1]++;
  for (int64_t i = 0; i < n; i++) next[i + 1] += next[i];
  memcpy(l.start, next, (size_t)(n + 1) * sizeof *next);
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

/* to[panel][k][PANEL] = the transpose of block `k` of rows, with zeros behind the last row. */
static void pack_rows(const Experts *e, float *to, pd_in x, const int32_t *row, int64_t n, int64_t k,
                      int64_t depth) {
  for (int64_t first = 0; first < n; first += PD_LANES) {
    float *panel = to + first / PANEL * PANEL * depth + first % PANEL;
    float line[PD_LANES][DEPTH];
    const int64_t lines = smaller(PD_LANES, n - first);
    for (int64_t i = 0; i < lines; i++)
      read_line(line[i], x, x_at(e, row[first + i]) + k * e->x_column, e->x_column, depth);
    transpose_rows(false, panel, PANEL, (pd_in){line, PD_F32}, DEPTH, lines, depth);
  }
  if (VECTORS > 1 && (n - 1) % PANEL < PD_LANES) { /* the last panel's second vector */
    float *panel = to + (n - 1) / PANEL * PANEL * depth + PD_LANES;
    transpose_rows(false, panel, PANEL, (pd_in){to, PD_F32}, 0, 0, depth);
  }
}

/* ---- tiles ---------------------------------------------------------------------------------------------- */

/* c[rows][vectors] = a b, or c + a b. */
INLINE void tile(int rows, int vectors, float *c, int64_t c_row, const float *a, int64_t a_row, int64_t a_k,
                 const float *b, int64_t k, bool add) {
  vector sum[ROWS * VECTORS] = {{0}};
  for (int r = 0; add && r < rows; r++)
    for (int v = 0; v < vectors; v++) sum[r * vectors + v] = *(const unaligned *)(c + r * c_row + v * PD_LANES);
  multiply_tile(sum, rows, vectors, a, a_row, a_k, b, PANEL, k);
  for (int r = 0; r < rows; r++)
    for (int v = 0; v < vectors; v++) *(unaligned *)(c + r * c_row + v * PD_LANES) = sum[r * vectors + v];
}

/* tile() for a number of rows known at run time. */
INLINE void tile_of_rows(int64_t rows, int vectors, float *c, int64_t c_row, const float *a, int64_t a_row,
                         int64_t a_k, const float *b, int64_t k, bool add) {
  CALL_BY_ROWS(n, rows, ROWS, tile(n, vectors, c, c_row, a, a_row, a_k, b, k, add))
}

/* ---- rows times matrices ---------------------------------------------------------------------------------- */

/* A block of an expert's matrix: `rows` rows of it, from one that is `at` on. */
struct block {
  pd_in weight;
  int64_t at, rows, depth;
  bool add; /* to the sums of earlier blocks of `in` */
};

/* Asks for a part of rows that are packed next, while others are multiplied. */
static void fetch_rows(const Experts *e, const struct block *b, int64_t row, int64_t rows) {
  enum { LINE_BYTES = 64 };
  const int64_t bytes = pd_bytes_of(b->weight.type), end = smaller(row + rows, b->rows);
  const char *at = (const char *)b->weight.at + b->at * bytes;
  for (; row < end; row++)
    for (int64_t i = 0; i < b->depth * bytes; i += LINE_BYTES)
      __builtin_prefetch(at + row * e->weight_out * bytes + i, 0, 2);
}

/* to[tile][row][LINE] = rows of a matrix, or to[tile][k][ROWS] of one whose columns are contiguous. */
static void pack_matrix(const Experts *e, const struct block *b, int64_t first, int64_t n, float *to) {
  for (int64_t r = 0; r < n && e->weight_out != 1; r++)
    read_line(to + r * LINE, b->weight, b->at + (first + r) * e->weight_out, e->weight_in, b->depth);
  for (int64_t k = 0; k < b->depth && e->weight_out == 1; k++)
    for (int64_t r = 0; r < n; r += ROWS) {
      float *line = to + r * LINE + k * ROWS;
      const int64_t at = b->at + k * e->weight_in + first + r;
      if (n - r >= ROWS)
        pd_read(line, b->weight, at, ROWS);
      else
        pd_read(line, b->weight, at, n - r);
    }
}

/* sum[row of the matrix][row] += or = the products with n packed rows. */
static void multiply_block(const Experts *e, const struct block *b, const float *packed, int64_t n, float *sum,
                           int64_t sum_row) {
  const bool by_column = e->weight_out == 1;
  for (int64_t group = 0; group < b->rows; group += GROUP) {
    _Alignas(64) float a[GROUP * LINE];
    const int64_t rows = smaller(b->rows - group, GROUP), panels = (n + PANEL - 1) / PANEL;
    pack_matrix(e, b, group, rows, a);
    for (int64_t j = 0; j < n; j += PANEL) {
      if (!by_column) fetch_rows(e, b, group + GROUP + j / PANEL * GROUP / panels, (GROUP + panels - 1) / panels);
      for (int64_t r = 0; r < rows; r += ROWS) {
        float *c = sum + (group + r) * sum_row + j;
        const float *of = a + r * LINE, *panel = packed + j * b->depth;
        const int64_t m = smaller(rows - r, ROWS);
        const bool both = n - j > PD_LANES;
        if (by_column && both)
          tile_of_rows(m, VECTORS, c, sum_row, of, 1, ROWS, panel, b->depth, b->add);
        else if (by_column)
          tile_of_rows(m, 1, c, sum_row, of, 1, ROWS, panel, b->depth, b->add);
        else if (both)
          tile_of_rows(m, VECTORS, c, sum_row, of, LINE, 1, panel, b->depth, b->add);
        else
          tile_of_rows(m, 1, c, sum_row, of, LINE, 1, panel, b->depth, b->add);
      }
    }
  }
}

/* y[row][first ..] = the transpose of sum[matrix_rows][n]. */
static void write_rows(const Experts *e, const float *sum, int64_t sum_row, const int32_t *row, int64_t n,
                       int64_t first, int64_t matrix_rows, pd_out y) {
  for (int64_t i = 0; i < matrix_rows; i += PD_LANES)
    for (int64_t r = 0; r < n; r += PD_LANES) {
      _Alignas(64) float block[PD_LANES][PD_LANES];
      const int64_t columns = smaller(matrix_rows - i, PD_LANES), rows = smaller(n - r, PD_LANES);
      transpose_rows(false, block[0], PD_LANES, (pd_in){sum + i * sum_row + r, PD_F32}, sum_row, columns, rows);
      for (int64_t j = 0; j < rows; j++) {
        const int64_t to = y_at(e, row[r + j]) + first + i;
        if (columns == PD_LANES)
          pd_write(y, to, block[j], PD_LANES);
        else
          pd_write(y, to, block[j], columns);
      }
    }
}

static void write_zeros(const Experts *e, const struct list *l, pd_out y) {
  enum { PART = 256 };
  const float zeros[PART] = {0};
#pragma omp parallel for schedule(static)
  for (int64_t r = l->start[e->count]; r < l->start[e->count + 1]; r++)
    for (int64_t i = 0; i < e->out; i += PART)
      pd_write(y, y_at(e, l->row[r]) + i, zeros, smaller(PART, e->out - i));
}

void pd_expert_linear(const Experts *e, pd_in x, pd_in weight, const int32_t *experts, pd_out y, void *scratch) {
  const struct list l = list_rows(e, experts, scratch);
  const int64_t strips = (e->out + STRIP - 1) / STRIP, sum_row = chunk_rows(e);
  float *own = (float *)scratch + list_floats(e);
#pragma omp parallel for schedule(dynamic, 1)
  for (int64_t i = 0; i < e->count * strips; i++) {
    const int64_t expert = i / strips, first = i % strips * STRIP, matrix_rows = smaller(STRIP, e->out - first);
    const int64_t at = expert * e->weight_expert + first * e->weight_out;
    float *packed = own + omp_get_thread_num() * thread_floats(e), *sum = packed + packed_floats(e);
    for (int64_t r = l.start[expert]; r < l.start[expert + 1]; r += CHUNK) {
      const int64_t n = smaller(l.start[expert + 1] - r, CHUNK);
      for (int64_t k = 0; k < e->in; k += block_depth(e)) {
        const struct block b = {.weight = weight,
                                .at = at + k * e->weight_in,
                                .rows = matrix_rows,
                                .depth = smaller(e->in - k, block_depth(e)),
                                .add = k > 0};
        pack_rows(e, packed, x, l.row + r, n, k, b.depth);
        multiply_block(e, &b, packed, n, sum, sum_row);
      }
      write_rows(e, sum, sum_row, l.row + r, n, first, matrix_rows, y);
    }
  }
  if (e->drops) write_zeros(e, &l, y);
}

/* ---- gradients of matrices -------------------------------------------------------------------------------- */

/* to[panel][rows][PANEL] = columns `first` to first + n of x's rows, with zeros behind the last column. */
static void pack_columns(const Experts *e, float *to, pd_in x, const int32_t *row, int64_t rows, int64_t first,
                         int64_t n) {
  for (int64_t r = 0; r < rows; r++) {
    const int64_t at = x_at(e, row[r]) + first * e->x_column;
    for (int64_t j = 0; j < n; j += PANEL) {
      float *line = to + j * rows + r * PANEL;
      const int64_t columns = smaller(n - j, PANEL);
      if (columns == PANEL)
        read_line(line, x, at + j * e->x_column, e->x_column, PANEL);
      else
        read_line(line, x, at + j * e->x_column, e->x_column, columns);
      for (int64_t i = columns; i < PANEL; i++) line[i] = 0.0f;
    }
  }
}

/* dw[rows of the tile][columns] += or = the products of a block of an expert's rows. */
static void add_weights(int64_t rows, float *dw, int64_t dw_row, const float *a, const float *packed,
                        int64_t depth, int64_t columns, bool add) {
  for (int64_t j = 0; j < columns; j += PANEL) {
    float *to = dw + j;
    if (columns - j >= PANEL) {
      tile_of_rows(rows, VECTORS, to, dw_row, a, 1, ROWS, packed + j * depth, depth, add);
      continue;
    }
    float part[ROWS * PANEL] = {0};
    const size_t bytes = (size_t)(columns - j) * sizeof *to;
    for (int64_t r = 0; add && r < rows; r++) memcpy(part + r * PANEL, to + r * dw_row, bytes);
    tile_of_rows(rows, VECTORS, part, PANEL, a, 1, ROWS, packed + j * depth, depth, add);
    for (int64_t r = 0; r < rows; r++) memcpy(to + r * dw_row, part + r * PANEL, bytes);
  }
}

/* A strip of one expert's gradient, from its n rows. */
static void weights_of(const Experts *e, pd_in x, pd_in dy, const int32_t *row, int64_t n, int64_t first,
                       int64_t columns, float *packed, float *dw, bool overwrite) {
  for (int64_t i = 0; n == 0 && overwrite && i < e->out; i++)
    memset(dw + i * e->in + first, 0, (size_t)columns * sizeof *dw);
  for (int64_t block = 0; block < n; block += DEPTH_OF_WEIGHTS) {
    const int64_t depth = smaller(n - block, DEPTH_OF_WEIGHTS);
    pack_columns(e, packed, x, row + block, depth, first, columns);
    for (int64_t i = 0; i < e->out; i += ROWS) {
      _Alignas(64) float a[DEPTH_OF_WEIGHTS * ROWS];
      const int64_t rows = smaller(e->out - i, ROWS);
      for (int64_t r = 0; r < depth; r++) {
        const int64_t at = y_at(e, row[block + r]) + i * e->y_column;
        if (rows == ROWS)
          read_line(a + r * ROWS, dy, at, e->y_column, ROWS);
        else
          read_line(a + r * ROWS, dy, at, e->y_column, rows);
      }
      add_weights(rows, dw + i * e->in + first, e->in, a, packed, depth, columns, !overwrite || block > 0);
    }
  }
}

void pd_expert_linear_weights(const Experts *e, pd_in x, pd_in dy, const int32_t *experts, float *dw, bool first,
                              void *scratch) {
  const struct list l = list_rows(e, experts, scratch);
  const int64_t strips = (e->in + STRIP_OF_WEIGHTS - 1) / STRIP_OF_WEIGHTS;
  float *packed = (float *)scratch + list_floats(e);
#pragma omp parallel for schedule(dynamic, 1)
  for (int64_t i = 0; i < e->count * strips; i++) {
    const int64_t expert = i / strips, column = i % strips * STRIP_OF_WEIGHTS;
    weights_of(e, x, dy, l.row + l.start[expert], l.start[expert + 1] - l.start[expert], column,
               smaller(STRIP_OF_WEIGHTS, e->in - column), packed + omp_get_thread_num() * weights_floats(e),
               dw + expert * e->out * e->in, first);
  }
}

/* ---- capacity --------------------------------------------------------------------------------------------- */

void pd_within_capacity(const int32_t *experts, int64_t samples, int64_t rows, int64_t count, int64_t room,
                        int32_t *kept) {
  enum { BLOCK = 1024 }; /* experts at a time */
#pragma omp parallel for schedule(static)
  for (int64_t s = 0; s < samples; s++)
    for (int64_t first = 0; first < count; first += BLOCK) {
      int64_t taken[BLOCK] = {0};
      for (int64_t i = s * rows; i < (s + 1) * rows; i++) {
        const int64_t expert = experts[i] - first;
        if (expert >= 0 && expert < BLOCK) kept[i] = taken[expert]++ < room ? experts[i] : (int32_t)count;
      }
    }
}

/* ---- sums over experts ------------------------------------------------------------------------------------ */

void pd_expert_sum(pd_in y, const float *weights, int64_t rows, int64_t chosen, int64_t width, pd_out sum) {
  enum { PART = 256 };
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < rows; r++)
    for (int64_t first = 0; first < width; first += PART) {
      const int64_t n = smaller(width - first, PART);
      float total[PART] = {0}, x[PART];
      for (int64_t j = 0; j < chosen; j++) {
        pd_read(x, y, (r * chosen + j) * width + first, n);
        for (int64_t i = 0; i < n; i++) total[i] += weights[r * chosen + j] * x[i];
      }
      pd_write(sum, r * width + first, total, n);
    }
}
