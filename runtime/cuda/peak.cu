/* The rate that "mfu" compares with: the library's product of square matrices in the run's precision, of growing
 * sizes, because only large products fill large GPUs. */
#include "run/run.h"
#include "pd_elements.h"

enum { SMALLEST = 128, LARGEST = 8192, RUNS = 8, THREADS = 256 };

/* Numbers without a pattern, in [-1, 1): a device that multiplies zeros takes less power and so runs faster. */
template <typename T> static __global__ void __launch_bounds__(THREADS) scatter(int64_t n, T *to) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
  uint32_t mixed = static_cast<uint32_t>(i) * 2654435761u;
  mixed = (mixed ^ mixed >> 15) * 2246822519u;
  if (i < n) to[i] = pd_from_float<T>(static_cast<float>(mixed >> 8) * 0x1p-23f - 1);
}

/* Operations a second at n; 0 where the device has no room for it. */
template <typename T> static double rate_at(int64_t n) {
  struct pd_matmul_shape shape = {};
  shape.batch = 1;
  shape.m = shape.n = shape.k = shape.a_row = shape.b_row = shape.c_row = n;
  shape.a_column = shape.b_column = 1;
  struct pd_matmul *product = pd_matmul_new(shape);
  size_t square = sizeof(T) * static_cast<size_t>(n * n), bytes = 3 * square + pd_matmul_scratch(product);
  char *at;
  if (cudaMalloc(reinterpret_cast<void **>(&at), bytes) != cudaSuccess) {
    cudaGetLastError(); /* forgets it */
    return 0;
  }
  T *a = reinterpret_cast<T *>(at), *b = a + n * n, *c = b + n * n;
  unsigned blocks = static_cast<unsigned>((2 * n * n + THREADS - 1) / THREADS);
  PD_LAUNCH(scatter<T>, blocks, THREADS, 0, pd_stream, 2 * n * n, a);
  pd_matmul(product, a, b, nullptr, c, at + 3 * square); /* chooses an algorithm, loads kernels */
  pd_device_wait("the device to measure its peak");
  double start = pd_seconds();
  for (int i = 0; i < RUNS; i++) pd_matmul(product, a, b, nullptr, c, at + 3 * square);
  pd_device_wait("the device to measure its peak");
  double seconds = (pd_seconds() - start) / static_cast<double>(RUNS);
  pd_cuda_check(cudaFree(at), "give back device memory");
  return 2.0 * static_cast<double>(n * n * n) / seconds;
}

/* Products are of bfloat16 numbers where weights are. */
static bool rounds(void) {
  const struct pd_stage *s = pd.stage;
  bool any = s->has_masters;
  for (int i = 0; i < s->n_parameters; i++) any |= s->parameters[i].bf16;
  return any;
}

double pd_measure_peak(void) {
  const double enough = 0.5e-3; /* seconds: a larger product would not be faster */
  double best = 0;
  for (int64_t n = SMALLEST; n <= LARGEST; n *= 2) {
    double rate = rounds() ? rate_at<pd_bf16>(n) : rate_at<float>(n);
    if (rate > best) best = rate;
    if (!(rate > 0) || 2.0 * static_cast<double>(n * n * n) / rate > enough) break;
  }
  return best;
}
