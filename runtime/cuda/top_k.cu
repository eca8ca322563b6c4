/* The largest elements of rows. A warp has a row, and looks for each of them through the row: for the first element behind
 * the one before. */
#include "pd_elements.h"

enum { THREADS = 256, WARPS = THREADS / 32 };

struct Element {
  float value;
  int32_t at; /* -1: none */
};

/* NaN before all numbers; of equal ones the lower index. */
static __device__ bool comes_first(const Element &a, const Element &b) {
  if (a.at < 0 || b.at < 0) return a.at >= 0 && b.at < 0;
  if (a.value > b.value) return true;
  if (a.value < b.value) return false;
  const bool a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
  return a_is_nan != b_is_nan ? a_is_nan : a.at < b.at;
}

static __device__ Element first_of_warp(Element x) {
  for (int step = 16; step > 0; step /= 2) {
    const Element other = {__shfl_xor_sync(~0u, x.value, step), __shfl_xor_sync(~0u, x.at, step)};
    if (comes_first(other, x)) x = other;
  }
  return x;
}

static __global__ void __launch_bounds__(THREADS)
    largest(const float *__restrict__ x, int64_t rows, int64_t n, int64_t k, float *__restrict__ values,
            int32_t *__restrict__ indices) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.x / 32;
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (row >= rows) return;
  Element last = {0, -1};
  for (int64_t i = 0; i < k; i++) {
    Element next = {0, -1};
    for (int64_t j = lane; j < n; j += 32) {
      const Element own = {x[row * n + j], static_cast<int32_t>(j)};
      if ((last.at < 0 || comes_first(last, own)) && comes_first(own, next)) next = own;
    }
    last = first_of_warp(next);
    if (lane == 0) {
      values[row * k + i] = last.value;
      indices[row * k + i] = last.at;
    }
  }
}

void pd_top_k(const float *x, int64_t rows, int64_t n, int64_t k, float *values, int32_t *indices) {
  const dim3 grid(static_cast<unsigned>((rows + WARPS - 1) / WARPS));
  PD_LAUNCH(largest, grid, THREADS, 0, pd_stream, x, rows, n, k, values, indices);
}

/* The sum of the two choices of a group that come first. */
static __device__ float sum_of_two(const float *scores, const float *bias, int32_t first, int32_t size) {
  Element one = {0, -1}, two = {0, -1};
  for (int32_t i = first; i < first + size; i++) {
    const Element x = {scores[i] + bias[i], i};
    if (comes_first(x, one)) {
      two = one;
      one = x;
    } else if (comes_first(x, two)) {
      two = x;
    }
  }
  return one.value + two.value;
}

/* A warp has a row. All lanes know the best groups. */
static __global__ void __launch_bounds__(THREADS)
    biased(const float *__restrict__ scores, const float *__restrict__ bias, int64_t rows, int32_t n, int32_t k,
           int32_t groups, int32_t kept, float *__restrict__ values, int32_t *__restrict__ indices) {
  __shared__ float sums[WARPS][PD_MOST_GROUPS];
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int64_t row = static_cast<int64_t>(blockIdx.x) * WARPS + warp;
  const int32_t size = n / groups;
  if (row >= rows) return;
  const float *x = scores + row * n;
  uint64_t best = kept < groups ? 0 : ~uint64_t{0};
  for (int32_t g = lane; g < groups && kept < groups; g += 32) sums[warp][g] = sum_of_two(x, bias, g * size, size);
  __syncwarp();
  for (int32_t g = 0; g < groups && kept < groups; g++) {
    int32_t before = 0;
    for (int32_t other = 0; other < groups; other++)
      before += comes_first({sums[warp][other], other}, {sums[warp][g], g});
    if (before < kept) best |= uint64_t{1} << g;
  }
  Element last = {0, -1};
  for (int32_t i = 0; i < k; i++) {
    Element next = {0, -1};
    for (int32_t j = lane; j < n; j += 32) {
      const Element own = {x[j] + bias[j], j};
      if (best >> (j / size) & 1 && (last.at < 0 || comes_first(last, own)) && comes_first(own, next)) next = own;
    }
    last = first_of_warp(next);
    if (lane == 0) {
      values[row * k + i] = x[last.at];
      indices[row * k + i] = last.at;
    }
  }
}

void pd_biased_top_k(const float *scores, const float *bias, int64_t rows, int64_t n, int64_t k, int64_t groups,
                     int64_t kept, float *values, int32_t *indices) {
  const dim3 grid(static_cast<unsigned>((rows + WARPS - 1) / WARPS));
  PD_LAUNCH(biased, grid, THREADS, 0, pd_stream, scores, bias, rows, static_cast<int32_t>(n),
            static_cast<int32_t>(k), static_cast<int32_t>(groups), static_cast<int32_t>(kept), values, indices);
}

static __global__ void __launch_bounds__(THREADS)
    back(const int32_t *__restrict__ indices, const float *__restrict__ dy, int64_t rows, int64_t n, int64_t k,
         float *__restrict__ dx) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x, row = i / n;
  if (row >= rows) return;
  float sum = 0;
  for (int64_t j = 0; j < k; j++)
    if (indices[row * k + j] == i % n) sum = dy[row * k + j];
  dx[i] = sum;
}

void pd_top_k_gradient(const int32_t *indices, const float *dy, int64_t rows, int64_t n, int64_t k, float *dx) {
  const dim3 grid(static_cast<unsigned>((rows * n + THREADS - 1) / THREADS));
  PD_LAUNCH(back, grid, THREADS, 0, pd_stream, indices, dy, rows, n, k, dx);
}
