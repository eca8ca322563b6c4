/* Programs that are right: their results are the same for every seed. */
#include "check.h"

static void __global__ __launch_bounds__(128) add(PD_READS(float, 1000) x, PD_READS(float, 1000) y,
                                                  PD_WRITES(float, 1000) sum, int n) {
  int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n)
    sum[i] = x[i] + y[i];
}

static void pointwise(cudaStream_t s) {
  float *x = device_floats(1000, s), *y = device_floats(1000, s), *sum;
  cudaMalloc(&sum, 1000 * sizeof *sum);
  PD_LAUNCH(add, 8, 128, 0, s, x, y, sum, 1000);
  std::vector<float> out = fetch(sum, 1000, s);
  for (int i = 0; i < 1000; i++)
    expect(out[(size_t)i] == 2 * value(i), "a sum");
  cudaFree(x);
  cudaFree(y);
  cudaFree(sum);
}

/* Row sums: shuffles within warps, static shared memory between them. */
template <int THREADS>
__global__ void __launch_bounds__(THREADS) row_sums(const float *x, float *sums, int columns) {
  __shared__ float parts[THREADS / 32];
  float sum = 0;
  for (int c = (int)threadIdx.x; c < columns; c += THREADS)
    sum += x[blockIdx.x * (unsigned)columns + (unsigned)c];
  for (int d = 16; d > 0; d /= 2)
    sum += __shfl_down_sync(0xffffffffu, sum, (unsigned)d);
  if (threadIdx.x % 32 == 0)
    parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    sum = 0;
    for (int i = 0; i < THREADS / 32; i++)
      sum += parts[i];
    sums[blockIdx.x] = sum;
  }
}

static void sums(cudaStream_t s) {
  float *x = device_floats(64 * 100, s), *out;
  cudaMalloc(&out, 64 * sizeof *out);
  PD_LAUNCH(row_sums<256>, 64, 256, 0, s, x, out, 100);
  std::vector<float> got = fetch(out, 64, s);
  for (int r = 0; r < 64; r++) {
    double sum = 0;
    for (int c = 0; c < 100; c++)
      sum += value(r * 100 + c);
    expect(fabs(got[(size_t)r] - sum) < 1e-4, "a row's sum");
  }
  cudaFree(x);
  cudaFree(out);
}

int main() {
  cudaStream_t s;
  cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
  pointwise(s);
  sums(s);
  cudaStreamDestroy(s);
}
