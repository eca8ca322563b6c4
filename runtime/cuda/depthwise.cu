/* Convolutions with separate kernels per channel (groups == in channels), which have too few products per byte for
 * matrix products. Neighbouring threads have neighbouring channels. The weight gradient is summed in parts of the
 * pixels, whose number follows from the shape, and the parts in order. */
#include "convolution.h"

enum { LANES = 32, ROWS = 8, THREADS = LANES * ROWS };

/* A pixel [sample, row, column] of images of so many rows and columns. */
struct Pixel {
  int64_t sample;
  int row, column;
};

static __device__ Pixel pixel_of(int64_t i, int height, int width) {
  int at = static_cast<int>(i % (height * width));
  return {i / (height * width), at / width, at % width};
}

/* blockIdx.x: ROWS results; blockIdx.y: LANES of their channels. */
static __global__ void __launch_bounds__(THREADS, 1)
    depthwise_forward(Geometry g, int64_t pixels, pd_in x, pd_in w, pd_in bias, pd_out y) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * ROWS + threadIdx.x / LANES;
  int o = static_cast<int>(blockIdx.y * LANES + threadIdx.x % LANES), taps = g.kernel[0] * g.kernel[1];
  if (i >= pixels || o >= g.out) return;
  Pixel at = pixel_of(i, g.out_height, g.out_width);
  float sum = bias.at ? pd_element(bias, o) : 0.0f;
  for (int k = 0; k < taps; k++) {
    int row = at.row * g.stride[0] - g.padding[0] + k / g.kernel[1] * g.dilation[0];
    int column = at.column * g.stride[1] - g.padding[1] + k % g.kernel[1] * g.dilation[1];
    if (row < 0 || row >= g.height || column < 0 || column >= g.width) continue;
    int64_t from = ((at.sample * g.height + row) * g.width + column) * g.in + o / g.own_out;
    sum = fmaf(pd_element(x, from), pd_element(w, o * taps + k), sum);
  }
  pd_set_element(y, i * g.out + o, sum);
}

static __global__ void __launch_bounds__(THREADS, 1)
    depthwise_backward(Geometry g, int64_t pixels, pd_in dy, pd_in w, pd_out dx) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * ROWS + threadIdx.x / LANES;
  int c = static_cast<int>(blockIdx.y * LANES + threadIdx.x % LANES), taps = g.kernel[0] * g.kernel[1];
  if (i >= pixels || c >= g.in) return;
  Pixel at = pixel_of(i, g.height, g.width);
  float sum = 0;
  for (int k = 0; k < taps; k++) {
    int down = at.row + g.padding[0] - k / g.kernel[1] * g.dilation[0], row = down / g.stride[0];
    int across = at.column + g.padding[1] - k % g.kernel[1] * g.dilation[1], column = across / g.stride[1];
    if (down < 0 || across < 0 || down % g.stride[0] || across % g.stride[1]) continue;
    if (row >= g.out_height || column >= g.out_width) continue;
    int64_t from = ((at.sample * g.out_height + row) * g.out_width + column) * g.out;
    for (int o = c * g.own_out; o < (c + 1) * g.own_out; o++)
      sum = fmaf(pd_element(dy, from + o), pd_element(w, o * taps + k), sum);
  }
  pd_set_element(dx, i * g.in + c, sum);
}

/* blockIdx.x: LANES channels o; blockIdx.y: a tap; blockIdx.z: a part of the pixels. partial: [part][out][tap]. */
static __global__ void __launch_bounds__(THREADS, 1)
    depthwise_weights(Geometry g, int64_t pixels, pd_in x, pd_in dy, float *__restrict__ partial) {
  __shared__ float sums[ROWS][LANES];
  int lane = threadIdx.x % LANES, row = threadIdx.x / LANES, o = static_cast<int>(blockIdx.x * LANES + lane);
  int k = blockIdx.y, taps = g.kernel[0] * g.kernel[1];
  int64_t begin = pixels * blockIdx.z / gridDim.z, end = pixels * (blockIdx.z + 1) / gridDim.z;
  float sum = 0;
  for (int64_t i = begin + row; o < g.out && i < end; i += ROWS) {
    Pixel at = pixel_of(i, g.out_height, g.out_width);
    int r = at.row * g.stride[0] - g.padding[0] + k / g.kernel[1] * g.dilation[0];
    int c = at.column * g.stride[1] - g.padding[1] + k % g.kernel[1] * g.dilation[1];
    if (r < 0 || r >= g.height || c < 0 || c >= g.width) continue;
    int64_t from = ((at.sample * g.height + r) * g.width + c) * g.in + o / g.own_out;
    sum = fmaf(pd_element(x, from), pd_element(dy, i * g.out + o), sum);
  }
  sums[row][lane] = sum;
  __syncthreads();
  if (row > 0 || o >= g.out) return;
  for (int r = 1; r < ROWS; r++) sum += sums[r][lane];
  partial[(static_cast<int64_t>(blockIdx.z) * g.out + o) * taps + k] = sum;
}

static __global__ void __launch_bounds__(THREADS)
    add_parts(const float *__restrict__ partial, int parts, int n, bool accumulate, pd_out dw) {
  int i = static_cast<int>(blockIdx.x * THREADS + threadIdx.x);
  if (i >= n) return;
  float sum = partial[i];
  for (int p = 1; p < parts; p++) sum += partial[static_cast<int64_t>(p) * n + i];
  pd_set_element(dw, i, accumulate ? pd_element(dw, i) + sum : sum);
}

/* ---- calls -------------------------------------------------------------------------------------- */

static dim3 grid_of(int64_t pixels, int channels) {
  return dim3(static_cast<unsigned>((pixels + ROWS - 1) / ROWS),
              pd_grid_all((channels + LANES - 1) / LANES, "a depthwise convolution of so many channels"));
}

void pd_depthwise_forward(const struct pd_convolution_shape &s, pd_in x, pd_in w, pd_in bias, pd_out y) {
  Geometry g = pd_geometry(s);
  int64_t pixels = s.batch * g.out_height * g.out_width;
  PD_LAUNCH(depthwise_forward, grid_of(pixels, g.out), THREADS, 0, pd_stream, g, pixels, x, w, bias, y);
}

void pd_depthwise_backward(const struct pd_convolution_shape &s, pd_in dy, pd_in w, pd_out dx) {
  Geometry g = pd_geometry(s);
  int64_t pixels = s.batch * g.height * g.width;
  PD_LAUNCH(depthwise_backward, grid_of(pixels, g.in), THREADS, 0, pd_stream, g, pixels, dy, w, dx);
}

void pd_depthwise_weights(const struct pd_convolution_shape &s, pd_in x, pd_in dy, pd_out dw, char *scratch) {
  Geometry g = pd_geometry(s);
  int taps = g.kernel[0] * g.kernel[1], parts = static_cast<int>(pd_depthwise_parts(&s)), n = g.out * taps;
  dim3 grid(static_cast<unsigned>((g.out + LANES - 1) / LANES),
            pd_grid_all(taps, "a depthwise convolution of kernels so large"), static_cast<unsigned>(parts));
  float *partial = reinterpret_cast<float *>(scratch);
  PD_LAUNCH(depthwise_weights, grid, THREADS, 0, pd_stream, g, s.batch * g.out_height * g.out_width, x, dy,
            partial);
  PD_LAUNCH(add_parts, dim3(static_cast<unsigned>((n + THREADS - 1) / THREADS)), THREADS, 0, pd_stream, partial,
            parts, n, s.accumulate, dw);
}
