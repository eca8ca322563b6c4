/* Products of rows with the matrices of their experts. One block lists the rows by expert, in their order and without
 * atomics; counts stay on the device. Then a block has a tile of an expert's rows and of columns, or a tile of an expert's
 * gradient over all its rows. The grid has blocks for the most tiles that are possible; blocks beyond the last tile return. Sums are
 * in f32, in order, so that bits do not depend on the run. */
#include "pd_elements.h"
#include "scratch.h"

enum {
  THREADS = 256,
  TILE = PD_EXPERT_ROWS, /* rows, and columns */
  STEP = 16,             /* of a sum, in shared memory */
  EACH = 4,              /* rows and columns of a thread */
  ACROSS = TILE / EACH,
  LOADS = TILE * STEP / THREADS
};

typedef pd_experts Experts;

/* Rows start[i] to start[i + 1] of `row` are those of expert i, or of none, its tiles tile[i] to tile[i + 1]. */
struct List {
  int32_t *start, *tile, *share, *row;
};

static List list_in(const Experts &e, void *scratch) {
  const int64_t n = pd_cuda_expert_lists(&e);
  List l;
  l.start = reinterpret_cast<int32_t *>(pd_scratch_begin(scratch));
  l.tile = l.start + n + 1;
  l.share = l.tile + n + 1;
  l.row = l.share + PD_EXPERT_SHARES * n;
  return l;
}

/* ---- rows by expert ----------------------------------------------------------------------------- */

static __device__ int32_t expert_of(const Experts &e, const int32_t *experts, int64_t i) {
  return experts[i / e.chosen * e.experts_row + i % e.chosen * e.experts_chosen];
}

/* Each thread has a share of consecutive rows. */
static __global__ void __launch_bounds__(PD_EXPERT_SHARES)
    list_rows(Experts e, int64_t lists, const int32_t *__restrict__ experts, List l) {
  const int64_t thread = threadIdx.x, rows = e.rows * e.chosen;
  const int64_t begin = rows * thread / PD_EXPERT_SHARES, end = rows * (thread + 1) / PD_EXPERT_SHARES;
  for (int64_t i = 0; i < lists; i++) l.share[i * PD_EXPERT_SHARES + thread] = 0;
  for (int64_t i = begin; i < end; i++) l.share[expert_of(e, experts, i) * PD_EXPERT_SHARES + thread]++;
  __syncthreads();
  for (int64_t i = thread; i < lists; i += PD_EXPERT_SHARES) { /* rows of earlier threads, and of all */
    int32_t sum = 0;
    for (int j = 0; j < PD_EXPERT_SHARES; j++) {
      const int32_t own = l.share[i * PD_EXPERT_SHARES + j];
      l.share[i * PD_EXPERT_SHARES + j] = sum;
      sum += own;
    }
    l.start[i + 1] = sum;
  }
  __syncthreads();
  if (thread == 0) {
    l.start[0] = l.tile[0] = 0;
    for (int64_t i = 0; i < lists; i++) {
      l.tile[i + 1] = l.tile[i] + (l.start[i + 1] + TILE - 1) / TILE;
      l.start[i + 1] += l.start[i];
    }
  }
  __syncthreads();
  for (int64_t i = begin; i < end; i++) {
    const int32_t expert = expert_of(e, experts, i);
    l.row[l.start[expert] + l.share[expert * PD_EXPERT_SHARES + thread]++] = static_cast<int32_t>(i);
  }
}

static __device__ int64_t x_at(const Experts &e, int32_t row) {
  return row / e.chosen * e.x_row + row % e.chosen * e.x_chosen;
}
static __device__ int64_t y_at(const Experts &e, int32_t row) {
  return row / e.chosen * e.y_row + row % e.chosen * e.y_chosen;
}

/* ---- tiles -------------------------------------------------------------------------------------- */

/* One step of both operands, of zeros where there are none. */
struct Step {
  float a[STEP][TILE + 1], b[STEP][TILE + 1];
};

static __device__ void multiply(const Step &s, float (&sum)[EACH][EACH]) {
  const int first_row = static_cast<int>(threadIdx.x) / ACROSS,
            first_column = static_cast<int>(threadIdx.x) % ACROSS;
  for (int k = 0; k < STEP; k++)
    for (int i = 0; i < EACH; i++)
      for (int j = 0; j < EACH; j++)
        sum[i][j] = fmaf(s.a[k][first_row + i * ACROSS], s.b[k][first_column + j * ACROSS], sum[i][j]);
}

/* Element i of a thread's loads: a line of the tile and a place in the step. `lines_first`: neighbouring threads have
 * neighbouring lines. */
struct Load {
  int line, k;
};
static __device__ Load load_of(int i, bool lines_first) {
  const int at = static_cast<int>(threadIdx.x) + i * THREADS;
  if (lines_first) return {at % TILE, at / TILE};
  return {at / STEP, at % STEP};
}

/* The expert of a tile, or e.count for none; -1: i is beyond the last tile. */
static __device__ int64_t expert_of_tile(const Experts &e, const int32_t *tile, int32_t i) {
  int64_t first = 0, end = e.count + (e.drops ? 1 : 0); /* the last list whose tiles do not begin behind i */
  if (i >= tile[end]) return -1;
  while (end - first > 1) {
    const int64_t middle = (first + end) / 2;
    if (tile[middle] <= i)
      first = middle;
    else
      end = middle;
  }
  return first;
}

template <typename X, typename W, typename Y>
static __global__ void __launch_bounds__(THREADS)
    rows_times_matrices(Experts e, const X *__restrict__ x, const W *__restrict__ weight, List l,
                        Y *__restrict__ y) {
  __shared__ Step s;
  __shared__ int32_t row[TILE];
  const int64_t expert = expert_of_tile(e, l.tile, static_cast<int32_t>(blockIdx.x));
  if (expert < 0) return;
  const int32_t begin = l.start[expert] + (static_cast<int32_t>(blockIdx.x) - l.tile[expert]) * TILE;
  const int rows = min(TILE, l.start[expert + 1] - begin);
  const int64_t column = static_cast<int64_t>(blockIdx.y) * TILE;
  if (threadIdx.x < TILE) row[threadIdx.x] = static_cast<int>(threadIdx.x) < rows ? l.row[begin + threadIdx.x] : 0;
  __syncthreads();
  float sum[EACH][EACH] = {};
  const int64_t depth = expert < e.count ? e.in : 0;
  for (int64_t k = 0; k < depth; k += STEP) {
    for (int i = 0; i < LOADS; i++) {
      const Load a = load_of(i, false), b = load_of(i, e.weight_out == 1);
      s.a[a.k][a.line] =
          a.line < rows && k + a.k < e.in ? pd_to_float(x[x_at(e, row[a.line]) + (k + a.k) * e.x_column]) : 0;
      s.b[b.k][b.line] =
          column + b.line < e.out && k + b.k < e.in
              ? pd_to_float(
                    weight[expert * e.weight_expert + (column + b.line) * e.weight_out + (k + b.k) * e.weight_in])
              : 0;
    }
    __syncthreads();
    multiply(s, sum);
    __syncthreads();
  }
  const int first_row = static_cast<int>(threadIdx.x) / ACROSS,
            first_column = static_cast<int>(threadIdx.x) % ACROSS;
  for (int i = 0; i < EACH; i++)
    for (int j = 0; j < EACH; j++) {
      const int r = first_row + i * ACROSS;
      const int64_t c = column + first_column + j * ACROSS;
      if (r < rows && c < e.out) y[y_at(e, row[r]) + c * e.y_column] = pd_from_float<Y>(sum[i][j]);
    }
}

template <typename X, typename Y>
static __global__ void __launch_bounds__(THREADS)
    gradients_of_matrices(Experts e, const X *__restrict__ x, const Y *__restrict__ dy, List l,
                          float *__restrict__ dw, bool first) {
  __shared__ Step s;
  const int64_t expert = blockIdx.z, out = static_cast<int64_t>(blockIdx.x) * TILE,
                in = static_cast<int64_t>(blockIdx.y) * TILE;
  const int32_t end = l.start[expert + 1];
  float sum[EACH][EACH] = {};
  for (int32_t r = l.start[expert]; r < end; r += STEP) {
    for (int i = 0; i < LOADS; i++) {
      const Load a = load_of(i, true);
      const int32_t row = r + a.k < end ? l.row[r + a.k] : -1;
      s.a[a.k][a.line] =
          row >= 0 && out + a.line < e.out ? pd_to_float(dy[y_at(e, row) + (out + a.line) * e.y_column]) : 0;
      s.b[a.k][a.line] =
          row >= 0 && in + a.line < e.in ? pd_to_float(x[x_at(e, row) + (in + a.line) * e.x_column]) : 0;
    }
    __syncthreads();
    multiply(s, sum);
    __syncthreads();
  }
  const int first_row = static_cast<int>(threadIdx.x) / ACROSS,
            first_column = static_cast<int>(threadIdx.x) % ACROSS;
  for (int i = 0; i < EACH; i++)
    for (int j = 0; j < EACH; j++) {
      const int64_t o = out + first_row + i * ACROSS, c = in + first_column + j * ACROSS;
      if (o >= e.out || c >= e.in) continue;
      float *to = dw + (expert * e.out + o) * e.in + c;
      *to = first ? sum[i][j] : *to + sum[i][j];
    }
}

/* ---- calls -------------------------------------------------------------------------------------- */

static List listed(const Experts &e, const int32_t *experts, void *scratch) {
  const List l = list_in(e, scratch);
  PD_LAUNCH(list_rows, 1, PD_EXPERT_SHARES, 0, pd_stream, e, pd_cuda_expert_lists(&e), experts, l);
  return l;
}

void pd_expert_linear(const struct pd_experts *of, pd_in x, pd_in weight, const int32_t *experts, pd_out y,
                      void *scratch) {
  const Experts e = *of;
  const List l = listed(e, experts, scratch);
  const int64_t rows = e.rows * e.chosen, lists = pd_cuda_expert_lists(&e);
  const int64_t most = rows / TILE + (lists < rows ? lists : rows);
  const dim3 grid(static_cast<unsigned>(most), pd_grid_all((e.out + TILE - 1) / TILE, "an expert's matrix"));
  pd_by_type(x.type, [&](auto of_x) {
    pd_by_type(weight.type, [&](auto of_weight) {
      pd_by_type(y.type, [&](auto of_y) {
        using X = decltype(of_x);
        using W = decltype(of_weight);
        using Y = decltype(of_y);
        PD_LAUNCH((rows_times_matrices<X, W, Y>), grid, THREADS, 0, pd_stream, e, static_cast<const X *>(x.at),
                  static_cast<const W *>(weight.at), l, static_cast<Y *>(y.at));
      });
    });
  });
}

void pd_expert_linear_weights(const struct pd_experts *of, pd_in x, pd_in dy, const int32_t *experts, float *dw,
                              bool first, void *scratch) {
  const Experts e = *of;
  const List l = listed(e, experts, scratch);
  const dim3 grid(static_cast<unsigned>((e.out + TILE - 1) / TILE),
                  pd_grid_all((e.in + TILE - 1) / TILE, "an expert's matrix"),
                  pd_grid_all(e.count, "a layer's number of experts"));
  pd_by_type(x.type, [&](auto of_x) {
    pd_by_type(dy.type, [&](auto of_y) {
      using X = decltype(of_x);
      using Y = decltype(of_y);
      PD_LAUNCH((gradients_of_matrices<X, Y>), grid, THREADS, 0, pd_stream, e, static_cast<const X *>(x.at),
                static_cast<const Y *>(dy.at), l, dw, first);
    });
  });
}

/* A thread has an expert, and a block all rows of a sample. */
static __global__ void __launch_bounds__(THREADS)
    within_capacity(const int32_t *__restrict__ experts, int64_t rows, int64_t count, int64_t room,
                    int32_t *__restrict__ kept) {
  __shared__ int32_t some[THREADS];
  const int64_t expert = static_cast<int64_t>(blockIdx.y) * THREADS + threadIdx.x, at = blockIdx.x * rows;
  int64_t taken = 0;
  for (int64_t first = 0; first < rows; first += THREADS) {
    const int n = static_cast<int>(rows - first < THREADS ? rows - first : THREADS);
    if (static_cast<int>(threadIdx.x) < n) some[threadIdx.x] = experts[at + first + threadIdx.x];
    __syncthreads();
    for (int i = 0; i < n; i++)
      if (some[i] == expert) kept[at + first + i] = static_cast<int32_t>(taken++ < room ? expert : count);
    __syncthreads();
  }
}

void pd_within_capacity(const int32_t *experts, int64_t samples, int64_t rows, int64_t count, int64_t room,
                        int32_t *kept) {
  const dim3 grid(static_cast<unsigned>(samples),
                  pd_grid_all((count + THREADS - 1) / THREADS, "a layer's experts"));
  PD_LAUNCH(within_capacity, grid, THREADS, 0, pd_stream, experts, rows, count, room, kept);
}

template <typename Y, typename Sum>
static __global__ void __launch_bounds__(THREADS)
    sums_over_experts(const Y *__restrict__ y, const float *__restrict__ weights, int64_t rows, int64_t chosen,
                      int64_t width, Sum *__restrict__ sum) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x, row = i / width;
  if (row >= rows) return;
  float total = 0;
  for (int64_t j = row * chosen; j < (row + 1) * chosen; j++)
    total = fmaf(weights[j], pd_to_float(y[j * width + i % width]), total);
  sum[i] = pd_from_float<Sum>(total);
}

void pd_expert_sum(pd_in y, const float *weights, int64_t rows, int64_t chosen, int64_t width, pd_out sum) {
  const dim3 grid(static_cast<unsigned>((rows * width + THREADS - 1) / THREADS));
  pd_by_type(y.type, [&](auto of_y) {
    pd_by_type(sum.type, [&](auto of_sum) {
      using Y = decltype(of_y);
      using Sum = decltype(of_sum);
      PD_LAUNCH((sums_over_experts<Y, Sum>), grid, THREADS, 0, pd_stream, static_cast<const Y *>(y.at), weights,
                rows, chosen, width, static_cast<Sum *>(sum.at));
    });
  });
}
