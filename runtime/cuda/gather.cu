/* Embedding rows. The gradient adds up without atomics, in an order that follows from the shape alone: a block
 * owns every N-th class, N a power of two, and some columns; it looks through all indices, in rounds collects the
 * rows of its classes, orders them by class and deals them out evenly to its warps. Tokenizers number frequent
 * tokens first: dealt out like this, and not by ranges, they lie in different blocks. A run of equal classes that
 * lies within one warp's share is added to the class's row at once; the parts of a run that spans several are put
 * together by the warp in which it begins. Thus no class holds up the others, however frequent. */
#include "pd_elements.h"

enum { THREADS = 256, WARPS = THREADS / 32, STEP = 4 * THREADS, ROUND = 2 * STEP, BLOCKS = 4 * 132 };

/* ---- forward ------------------------------------------------------------------------------------ */

/* A warp copies a row, N elements a lane at a time. */
template <typename From, typename To, int N>
static __global__ void __launch_bounds__(THREADS)
    copy_rows(const From *__restrict__ table, const int32_t *__restrict__ index, int64_t rows, int64_t width,
              To *__restrict__ out, int64_t stride, int64_t own, int64_t first_row) {
  int64_t row = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.x / 32;
  if (row >= rows) return;
  int64_t from_row = index[row] - first_row;
  bool is_own = from_row >= 0 && from_row < own;
  const From *from = table + from_row * width;
  To *to = out + row * stride;
  for (int64_t i = threadIdx.x % 32 * N; i < width; i += 32 * N) {
    float x[N] = {};
    if (is_own) pd_get(x, from + i);
    pd_put(to + i, x);
  }
}

static bool packed(const void *x, pd_type type, int64_t width, int64_t stride) {
  return width % 4 == 0 && stride % 4 == 0 && pd_aligned(x, 4 * pd_size(type));
}

void pd_gather_part(pd_in table, const int32_t *index, int64_t rows, int64_t width, pd_out out, int64_t stride,
                    int64_t own, int64_t first_row) {
  bool by_four = packed(table.at, table.type, width, width) && packed(out.at, out.type, width, stride);
  dim3 grid(static_cast<unsigned>((rows + WARPS - 1) / WARPS));
  pd_by_type(table.type, [&](auto x) {
    pd_by_type(out.type, [&](auto y) {
      using From = decltype(x);
      using To = decltype(y);
      const From *from = static_cast<const From *>(table.at);
      To *to = static_cast<To *>(out.at);
      if (by_four)
        PD_LAUNCH((copy_rows<From, To, 4>), grid, THREADS, 0, pd_stream, from, index, rows, width, to, stride, own,
                  first_row);
      else
        PD_LAUNCH((copy_rows<From, To, 1>), grid, THREADS, 0, pd_stream, from, index, rows, width, to, stride, own,
                  first_row);
    });
  });
}

void pd_gather(pd_in table, const int32_t *index, int64_t rows, int64_t width, pd_out out, int64_t stride) {
  pd_gather_part(table, index, rows, width, out, stride, INT32_MAX, 0);
}

/* ---- backward ----------------------------------------------------------------------------------- */

/* The rows that a block has collected, with their classes as indices among the block's. */
struct Round {
  int row[ROUND], label[ROUND];
  int sorted_row[ROUND], sorted_label[ROUND];
  int before[WARPS]; /* matches of earlier warps in this step */
  float leading[WARPS][128];
};

/* Four columns of each lane, from `column` on, those that exist. */
struct Columns {
  int64_t first;
  int n;
};

static __device__ Columns columns_of(int64_t width) {
  int64_t first = static_cast<int64_t>(blockIdx.y) * 128 + threadIdx.x % 32 * 4, left = width - first;
  return {first, static_cast<int>(left < 0 ? 0 : left < 4 ? left : 4)};
}

/* Appends, in order, those of the next STEP indices whose classes belong to the rank (from first_row) and the
 * block; returns the new count. */
static __device__ int collect(Round &r, int n, const int32_t *index, int64_t begin, int64_t rows, int shift,
                              int64_t own_rows, int64_t first_row) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, label[4], own = 0;
  for (int i = 0; i < 4; i++) {
    int64_t row = begin + 4 * threadIdx.x + i;
    int32_t c = row < rows ? index[row] - static_cast<int32_t>(first_row) : -1;
    label[i] =
        c >= 0 && c < own_rows && (c & ((1 << shift) - 1)) == static_cast<int>(blockIdx.x) ? c >> shift : -1;
    own += label[i] >= 0;
  }
  int upto = own; /* matches of this lane and the ones before */
  for (int step = 1; step < 32; step *= 2) {
    int other = __shfl_up_sync(~0u, upto, step);
    if (lane >= step) upto += other;
  }
  if (lane == 31) r.before[warp] = upto;
  __syncthreads();
  int at = n + upto - own, all = n;
  for (int w = 0; w < WARPS; w++) {
    if (w < warp) at += r.before[w];
    all += r.before[w];
  }
  for (int i = 0; i < 4; i++)
    if (label[i] >= 0) {
      r.row[at] = static_cast<int>(begin) + 4 * static_cast<int>(threadIdx.x) + i;
      r.label[at++] = label[i];
    }
  __syncthreads();
  return all;
}

/* By class, the rows of one class in order. */
static __device__ void sort(Round &r, int n, int classes) {
  for (int i = threadIdx.x; i < n; i += THREADS) {
    int label = r.label[i], rank = classes == 1 ? i : 0;
    for (int j = 0; classes > 1 && j < n; j++) rank += r.label[j] < label || (r.label[j] == label && j < i);
    r.sorted_row[rank] = r.row[i];
    r.sorted_label[rank] = label;
  }
  __syncthreads();
}

/* PACKED: all columns of all lanes that have one exist, and rows begin where four elements may be read at once. */
template <bool PACKED, typename From>
static __device__ void load(float (&x)[4], const From *row, const Columns &c) {
  if (PACKED && c.n == 4)
    pd_get(x, row + c.first);
  else
    for (int i = 0; i < 4; i++) x[i] = i < c.n ? pd_to_float(row[c.first + i]) : 0.0f;
}

template <bool PACKED, typename To>
static __device__ void add_to_row(To *row, const Columns &c, const float (&sum)[4]) {
  float x[4];
  load<PACKED>(x, row, c);
  for (int i = 0; i < 4; i++) x[i] += sum[i];
  if (PACKED && c.n == 4)
    pd_put(row + c.first, x);
  else
    for (int i = 0; i < c.n; i++) row[c.first + i] = pd_from_float<To>(x[i]);
}

/* Adds the rows of sorted[begin .. end), which are of one class. */
template <bool PACKED, typename From>
static __device__ void sum_rows(const Round &r, int begin, int end, const From *gradient, int64_t stride,
                                const Columns &c, float (&sum)[4]) {
  for (int i = 0; i < 4; i++) sum[i] = 0;
#pragma unroll 4
  for (int p = begin; p < end; p++) {
    float x[4];
    load<PACKED>(x, gradient + r.sorted_row[p] * stride, c);
    for (int i = 0; i < 4; i++) sum[i] += x[i];
  }
}

static __device__ int run_end(const Round &r, int begin, int end) {
  int p = begin + 1;
  while (p < end && r.sorted_label[p] == r.sorted_label[begin]) p++;
  return p;
}

static __device__ int share_begin(int n, int warp) { return n * warp / WARPS; }

template <bool PACKED, typename From, typename To>
static __device__ void add_round(Round &r, int n, int classes, const From *gradient, int64_t stride, To *first_row,
                                 int64_t apart, int64_t width) {
  Columns c = columns_of(width);
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, p = share_begin(n, warp), end = share_begin(n, warp + 1);
  float sum[4];
  int open = -1; /* the class of the run that goes on in the next share */
  sort(r, n, classes);
  if (p < end && p > 0 && r.sorted_label[p] == r.sorted_label[p - 1]) {
    int stop = run_end(r, p, end);
    sum_rows<PACKED>(r, p, stop, gradient, stride, c, sum);
    for (int i = 0; i < 4; i++) r.leading[warp][4 * lane + i] = sum[i];
    p = stop;
  }
  while (p < end) {
    int stop = run_end(r, p, end), label = r.sorted_label[p];
    sum_rows<PACKED>(r, p, stop, gradient, stride, c, sum);
    p = stop;
    if (stop == end && end < n && r.sorted_label[end] == label)
      open = label;
    else
      add_to_row<PACKED>(first_row + label * apart, c, sum);
  }
  __syncthreads();
  if (open < 0) return;
  for (int w = warp + 1; w < WARPS; w++) {
    int begin = share_begin(n, w);
    if (begin == share_begin(n, w + 1)) continue;
    if (r.sorted_label[begin] != open) break;
    for (int i = 0; i < 4; i++) sum[i] += r.leading[w][4 * lane + i];
  }
  add_to_row<PACKED>(first_row + open * apart, c, sum);
}

template <bool PACKED, typename From, typename To>
static __global__ void __launch_bounds__(THREADS)
    add_rows(To *__restrict__ accumulator, const int32_t *__restrict__ index, const From *__restrict__ gradient,
             int64_t rows, int64_t width, int64_t stride, int64_t classes, int shift, int64_t first_row) {
  __shared__ Round r;
  int64_t first = blockIdx.x;
  int own = static_cast<int>((classes - first + (1 << shift) - 1) >> shift), n = 0;
  for (int64_t begin = 0; begin < rows; begin += STEP) {
    n = collect(r, n, index, begin, rows, shift, classes, first_row);
    if (n <= ROUND - STEP && begin + STEP < rows) continue;
    add_round<PACKED>(r, n, own, gradient, stride, accumulator + first * width, width << shift, width);
    __syncthreads();
    n = 0;
  }
}

/* log2 of the parts that classes are dealt out to: enough blocks to fill a GPU, but not many more than rows for
 * them, and a class for each. */
static int log_parts(int64_t rows, int64_t classes, int64_t panels) {
  int64_t n = (BLOCKS + panels - 1) / panels, useful = (rows + 15) / 16;
  int shift = 0;
  n = n < useful ? n : useful;
  while (int64_t{1} << shift < n && int64_t{2} << shift <= classes) shift++;
  return shift;
}

void pd_gather_gradient_part(pd_out accumulator, const int32_t *index, pd_in gradient, int64_t rows, int64_t width,
                             int64_t stride, int64_t classes, bool first, int64_t first_row) {
  bool by_four =
      packed(gradient.at, gradient.type, width, stride) && packed(accumulator.at, accumulator.type, width, width);
  int64_t panels = (width + 127) / 128;
  int shift = log_parts(rows, classes, panels);
  dim3 grid(1u << shift, pd_grid_all(panels, "a gradient of rows so wide"));
  size_t bytes = static_cast<size_t>(classes * width * pd_size(accumulator.type));
  if (first) pd_cuda_check(cudaMemsetAsync(accumulator.at, 0, bytes, pd_stream), "zero a gradient");
  pd_by_type(gradient.type, [&](auto x) {
    pd_by_type(accumulator.type, [&](auto y) {
      using From = decltype(x);
      using To = decltype(y);
      const From *from = static_cast<const From *>(gradient.at);
      To *to = static_cast<To *>(accumulator.at);
      if (by_four)
        PD_LAUNCH((add_rows<true, From, To>), grid, THREADS, 0, pd_stream, to, index, from, rows, width, stride,
                  classes, shift, first_row);
      else
        PD_LAUNCH((add_rows<false, From, To>), grid, THREADS, 0, pd_stream, to, index, from, rows, width, stride,
                  classes, shift, first_row);
    });
  });
}

void pd_gather_gradient(pd_out accumulator, const int32_t *index, pd_in gradient, int64_t rows, int64_t width,
                        int64_t stride, int64_t classes, bool first) {
  pd_gather_gradient_part(accumulator, index, gradient, rows, width, stride, classes, first, 0);
}
