/* Whole-tensor update rules (optimizers/tensors.h) on the host: threads share the elements of passes; sums have
 * the order of optimizers/pd_scratch.h. With -ffp-contract=off the bits depend only on the inputs. */
#include "update/update.h"

#include <string.h>

/* Halves first. */
static double sum_of_lanes(double *lane) {
  for (int half = PD_SUM_LANES / 2; half; half /= 2)
    for (int j = 0; j < half; j++) lane[j] += lane[j + half];
  return lane[0];
}

/* The sum of n elements from `first` of one row. The loop has a private copy of the work, which its stores cannot
 * change. */
#define ADD_UP(f, work, row, first, n, sum)                                                      \
  do {                                                                                           \
    const __typeof__(work) own = work;                                                           \
    double lane[PD_SUM_LANES] = {0};                                                             \
    for (int64_t at = 0; at < (n); at += PD_SUM_LANES) {                                         \
      int64_t lanes = (n)-at < PD_SUM_LANES ? (n)-at : PD_SUM_LANES, from = (first) + at;        \
      _Pragma("omp simd") for (int64_t j = 0; j < lanes; j++) lane[j] += f(&own, row, from + j); \
    }                                                                                            \
    sum = sum_of_lanes(lane);                                                                    \
  } while (0)

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

#define PD_MAP(f, work, rows, columns)                                                        \
  do {                                                                                        \
    const int64_t tiles = pd_tiles_of_sum(columns);                                           \
    _Pragma("omp parallel for schedule(static)") for (int64_t k = 0; k < (rows)*tiles; k++) { \
      const __typeof__(work) own = work;                                                      \
      int64_t row = k / tiles, from = row * (columns) + k % tiles * PD_SUM_TILE;              \
      int64_t end = least(from + PD_SUM_TILE, (row + 1) * (columns));                         \
      _Pragma("omp simd") for (int64_t i = from; i < end; i++) f(&own, row, i);               \
    }                                                                                         \
  } while (0)

#define PD_ROW_SUMS(f, work, rows, columns, to)                                             \
  do {                                                                                      \
    _Pragma("omp parallel for schedule(static)") for (int64_t row = 0; row < (rows); row++) \
        ADD_UP(f, work, row, row *(columns), columns, (to)[row]);                           \
  } while (0)

static double part(double *const *parts, int64_t row, int64_t i) {
  (void)row;
  return (*parts)[i];
}

#define PD_SUM(f, work, n, parts, to)                                                           \
  do {                                                                                          \
    const int64_t tiles = pd_tiles_of_sum(n);                                                   \
    _Pragma("omp parallel for schedule(static)") for (int64_t k = 0; k < tiles; k++)            \
        ADD_UP(f, work, 0, k *PD_SUM_TILE, least((n)-k *PD_SUM_TILE, PD_SUM_TILE), (parts)[k]); \
    ADD_UP(part, parts, 0, 0, tiles, *(to));                                                    \
  } while (0)

/* Adds rows within a band in order, then bands in order. */
#define PD_COLUMN_SUMS(f, work, matrices, rows, columns, parts, to)                               \
  do {                                                                                            \
    const int64_t bands = pd_bands_of_sum(rows);                                                  \
    _Pragma("omp parallel for schedule(static)") for (int64_t k = 0; k < (matrices)*bands; k++) { \
      const __typeof__(work) own = work;                                                          \
      const int64_t matrix = k / bands, first = k % bands * PD_SUM_BAND, n = (columns);           \
      double *sum = (parts) + k * (columns);                                                      \
      memset(sum, 0, (size_t)(columns) * sizeof *sum);                                            \
      for (int64_t r = first; r < least(first + PD_SUM_BAND, rows); r++) {                        \
        int64_t row = matrix * (rows) + r;                                                        \
        _Pragma("omp simd") for (int64_t j = 0; j < n; j++) sum[j] += f(&own, row, row * n + j);  \
      }                                                                                           \
    }                                                                                             \
    for (int64_t matrix = 0; matrix < (matrices); matrix++)                                       \
      for (int64_t j = 0; j < (columns); j++) {                                                   \
        double sum = 0;                                                                           \
        for (int64_t k = 0; k < bands; k++) sum += (parts)[(matrix * bands + k) * (columns) + j]; \
        (to)[matrix * (columns) + j] = sum;                                                       \
      }                                                                                           \
  } while (0)

#include "optimizers/tensors.h"

#define RULE(rule, optimizer, moments) \
  const struct pd_optimizer pd_##rule = {.name = #rule, .tensor = rule##_tensor, .start = rule##_start};
PD_TENSOR_RULES(RULE)
