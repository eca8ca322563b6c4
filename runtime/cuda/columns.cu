/* Convolutions without cuDNN support, as matrix products: a position's column has its kernel's inputs, [group][in
 * / groups][kernel 0][kernel 1], so that weights and their gradients are operands in the files' layout. Processes
 * as many samples at a time as fit in the columns' memory. */
#include "convolution.h"

enum { THREADS = 256 };

Columns pd_columns_new(const struct pd_convolution_shape &s) {
  int64_t samples = pd_column_samples(&s), rest = s.batch % samples;
  Columns c = {};
  for (int adds = 0; adds < 2; adds++) {
    c.product[0][adds] = pd_matmul_new(pd_column_product(&s, samples, adds));
    if (rest) c.product[1][adds] = pd_matmul_new(pd_column_product(&s, rest, adds));
  }
  return c;
}

/* ---- columns ------------------------------------------------------------------------------------ */

/* blockIdx.x: a position of the samples at hand; threads go over its column. */
static __global__ void __launch_bounds__(THREADS)
    gather_columns(Geometry g, pd_in x, int64_t first, pd_out columns) {
  int at = blockIdx.x % (g.out_height * g.out_width), sample = blockIdx.x / (g.out_height * g.out_width);
  int row = at / g.out_width * g.stride[0] - g.padding[0], column = at % g.out_width * g.stride[1] - g.padding[1];
  int taps = g.kernel[0] * g.kernel[1], n = g.in * taps;
  int64_t image = (first + sample) * g.height * g.width * g.in;
  for (int e = threadIdx.x; e < n; e += THREADS) {
    int c = e % g.in, k = e / g.in; /* neighbours read neighbouring channels */
    int i = row + k / g.kernel[1] * g.dilation[0], j = column + k % g.kernel[1] * g.dilation[1];
    bool inside = i >= 0 && i < g.height && j >= 0 && j < g.width;
    float value = inside ? pd_element(x, image + static_cast<int64_t>(i * g.width + j) * g.in + c) : 0.0f;
    pd_set_element(columns, static_cast<int64_t>(blockIdx.x) * n + c * taps + k, value);
  }
}

/* The position along an axis whose kernel has its tap k at i, or -1. */
static __device__ int position_of(const Geometry &g, int axis, int i, int k) {
  int from = i + g.padding[axis] - k * g.dilation[axis], n = axis ? g.out_width : g.out_height;
  return from >= 0 && from % g.stride[axis] == 0 && from / g.stride[axis] < n ? from / g.stride[axis] : -1;
}

/* blockIdx.x: a pixel of the samples at hand; its channels gather what columns hold of them, taps in order. */
static __global__ void __launch_bounds__(THREADS)
    sum_columns(Geometry g, const float *__restrict__ columns, int64_t first, pd_out dx) {
  int at = blockIdx.x % (g.height * g.width), sample = blockIdx.x / (g.height * g.width);
  int row = at / g.width, column = at % g.width, taps = g.kernel[0] * g.kernel[1], n = g.in * taps;
  int64_t pixel = first * g.height * g.width + blockIdx.x;
  for (int c = threadIdx.x; c < g.in; c += THREADS) {
    float sum = 0;
    for (int k = 0; k < taps; k++) {
      int i = position_of(g, 0, row, k / g.kernel[1]), j = position_of(g, 1, column, k % g.kernel[1]);
      if (i >= 0 && j >= 0)
        sum += columns[(static_cast<int64_t>(sample) * g.out_height * g.out_width + i * g.out_width + j) * n +
                       c * taps + k];
    }
    pd_set_element(dx, pixel * g.in + c, sum);
  }
}

/* ---- calls -------------------------------------------------------------------------------------- */

static void fill_columns(const Geometry &g, pd_in x, int64_t first, int64_t samples, pd_out columns) {
  dim3 grid(static_cast<unsigned>(samples * g.out_height * g.out_width));
  PD_LAUNCH(gather_columns, grid, THREADS, 0, pd_stream, g, x, first, columns);
}

/* f(first sample, samples, the product, scratch behind the columns) for all samples. */
template <typename F>
static void for_samples(const struct pd_convolution_shape &s, const Columns &c, bool adds, char *scratch, F f) {
  int64_t samples = pd_column_samples(&s);
  char *behind = scratch + pd_scratch_part(samples * pd_column_bytes(&s));
  for (int64_t first = 0; first < s.batch; first += samples) {
    bool whole = first + samples <= s.batch;
    f(first, whole ? samples : s.batch - first, c.product[!whole][adds || first > 0], behind);
  }
}

void pd_columns_forward(const struct pd_convolution_shape &s, const Columns &c, pd_in x, pd_in w, pd_out y,
                        char *scratch) {
  Geometry g = pd_geometry(s);
  pd_out columns = pd_out_at(scratch, w.type);
  for_samples(s, c, false, scratch, [&](int64_t first, int64_t n, struct pd_matmul *product, char *behind) {
    int64_t from = first * g.out_height * g.out_width * g.out;
    fill_columns(g, x, first, n, columns);
    pd_matmul(product, pd_written(columns), w, nullptr, pd_moved(y, from), behind);
  });
}

void pd_columns_backward(const struct pd_convolution_shape &s, const Columns &c, pd_in dy, pd_in w, pd_out dx,
                         char *scratch) {
  Geometry g = pd_geometry(s);
  pd_out columns = pd_out_at(scratch, PD_F32);
  for_samples(s, c, false, scratch, [&](int64_t first, int64_t n, struct pd_matmul *product, char *behind) {
    dim3 grid(static_cast<unsigned>(n * g.height * g.width));
    pd_matmul(product, pd_moved(dy, first * g.out_height * g.out_width * g.out), w, nullptr, columns, behind);
    PD_LAUNCH(sum_columns, grid, THREADS, 0, pd_stream, g, reinterpret_cast<const float *>(scratch), first, dx);
  });
}

void pd_columns_weights(const struct pd_convolution_shape &s, const Columns &c, pd_in x, pd_in dy, pd_out dw,
                        char *scratch) {
  Geometry g = pd_geometry(s);
  pd_out columns = pd_out_at(scratch, dy.type);
  for_samples(s, c, s.accumulate, scratch, [&](int64_t first, int64_t n, struct pd_matmul *product, char *behind) {
    fill_columns(g, x, first, n, columns);
    pd_matmul(product, pd_moved(dy, first * g.out_height * g.out_width * g.out), pd_written(columns), nullptr, dw,
              behind);
  });
}
