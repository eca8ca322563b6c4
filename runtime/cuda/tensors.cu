/* Whole-tensor update rules (optimizers/tensors.h) on a device: a pass is one kernel, a sum two. Sums have the
 * order of optimizers/pd_scratch.h and are bit-identical to the host's. */
#include "update/update.h"
#include "pd_cuda.h"

enum { THREADS = PD_SUM_LANES };

/* ---- kernels --------------------------------------------------------------------------------- */

template <class Pass, class Work>
static __global__ void __launch_bounds__(THREADS) map(Work work, int64_t n, int64_t columns) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
  if (i < n) Pass()(&work, i / columns, i);
}

/* The sum over a block's threads, halves first; for thread 0. */
static __device__ double sum_of_block(double x) {
  __shared__ double lane[THREADS];
  lane[threadIdx.x] = x;
  for (int half = THREADS / 2; half; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half) lane[threadIdx.x] += lane[threadIdx.x + half];
  }
  return lane[0];
}

/* Block k adds up elements [k length, (k + 1) length), which are row k's, or row 0's tile k. */
template <class Pass, class Work>
static __global__ void __launch_bounds__(THREADS)
    add_up(Work work, int64_t n, int64_t length, bool by_rows, double *to) {
  int64_t first = static_cast<int64_t>(blockIdx.x) * length, end = first + length < n ? first + length : n;
  double sum = 0;
#pragma unroll 1 /* passes may divide and take roots, which need registers */
  for (int64_t i = first + threadIdx.x; i < end; i += THREADS) sum += Pass()(&work, by_rows ? blockIdx.x : 0, i);
  sum = sum_of_block(sum);
  if (!threadIdx.x) to[blockIdx.x] = sum;
}

/* Block (k, c): band k of all matrices' bands, the columns from c THREADS on. */
template <class Pass, class Work>
static __global__ void __launch_bounds__(THREADS)
    add_bands(Work work, int64_t rows, int64_t columns, int64_t bands, double *parts) {
  int64_t band = blockIdx.x, matrix = band / bands, first = band % bands * PD_SUM_BAND;
  int64_t column = static_cast<int64_t>(blockIdx.y) * THREADS + threadIdx.x;
  if (column >= columns) return;
  double sum = 0;
  for (int64_t r = first; r < first + PD_SUM_BAND && r < rows; r++)
    sum += Pass()(&work, matrix * rows + r, (matrix * rows + r) * columns + column);
  parts[band * columns + column] = sum;
}

static __global__ void __launch_bounds__(THREADS)
    add_parts(const double *parts, int64_t bands, int64_t columns, int64_t n, double *to) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
  if (i >= n) return;
  double sum = 0;
  for (int64_t k = 0; k < bands; k++) sum += parts[(i / columns * bands + k) * columns + i % columns];
  to[i] = sum;
}

/* ---- passes ---------------------------------------------------------------------------------- */

static unsigned blocks(int64_t n, int64_t each) { return static_cast<unsigned>((n + each - 1) / each); }

template <class Pass, class Work> static void run_map(const Work &work, int64_t rows, int64_t columns) {
  auto kernel = map<Pass, Work>;
  PD_LAUNCH(kernel, blocks(rows * columns, THREADS), THREADS, 0, pd_stream, work, rows * columns, columns);
}

template <class Pass, class Work>
static void run_row_sums(const Work &work, int64_t rows, int64_t columns, double *to) {
  auto kernel = add_up<Pass, Work>;
  PD_LAUNCH(kernel, static_cast<unsigned>(rows), THREADS, 0, pd_stream, work, rows * columns, columns, true, to);
}

struct Parts {
  const double *at;
};
struct Part {
  __device__ double operator()(const Parts *x, int64_t, int64_t i) const { return x->at[i]; }
};

template <class Pass, class Work> static void run_sum(const Work &work, int64_t n, double *parts, double *to) {
  const int64_t tiles = pd_tiles_of_sum(n);
  auto kernel = add_up<Pass, Work>;
  auto last = add_up<Part, Parts>;
  PD_LAUNCH(kernel, static_cast<unsigned>(tiles), THREADS, 0, pd_stream, work, n, int64_t{PD_SUM_TILE}, false,
            parts);
  PD_LAUNCH(last, 1, THREADS, 0, pd_stream, Parts{parts}, tiles, tiles, false, to);
}

template <class Pass, class Work>
static void run_column_sums(const Work &work, int64_t matrices, int64_t rows, int64_t columns, double *parts,
                            double *to) {
  const int64_t bands = pd_bands_of_sum(rows);
  auto kernel = add_bands<Pass, Work>;
  dim3 grid(static_cast<unsigned>(matrices * bands),
            pd_grid_all((columns + THREADS - 1) / THREADS, "the update of a matrix of so many columns"));
  PD_LAUNCH(kernel, grid, THREADS, 0, pd_stream, work, rows, columns, bands, parts);
  PD_LAUNCH(add_parts, blocks(matrices * columns, THREADS), THREADS, 0, pd_stream, parts, bands, columns,
            matrices * columns, to);
}

/* A function as a type that kernels are templates of. */
template <auto F> struct Calls {
  template <class Work> __device__ auto operator()(const Work *x, int64_t row, int64_t i) const {
    return F(x, row, i);
  }
};

#define PD_MAP(f, work, rows, columns) run_map<Calls<f>>(work, rows, columns)
#define PD_ROW_SUMS(f, work, rows, columns, to) run_row_sums<Calls<f>>(work, rows, columns, to)
#define PD_SUM(f, work, n, parts, to) run_sum<Calls<f>>(work, n, parts, to)
#define PD_COLUMN_SUMS(f, work, matrices, rows, columns, parts, to) \
  run_column_sums<Calls<f>>(work, matrices, rows, columns, parts, to)
#include "optimizers/tensors.h"

#define RULE(rule, optimizer, moments)                                    \
  extern const struct pd_optimizer pd_##rule = {.name = #rule,            \
                                                .tensor = rule##_tensor,  \
                                                .start = rule##_start,    \
                                                .by_elements = pd_rule{}, \
                                                .constants = nullptr};
PD_TENSOR_RULES(RULE)
