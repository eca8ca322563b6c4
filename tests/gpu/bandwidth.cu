/* Bytes a second that the GPU's memory moves, read and written, when 1 GiB is copied within it: the best of ten. */
#include <cuda_runtime.h>
#include <stdio.h>

static bool good(cudaError_t status) {
  if (status != cudaSuccess) fprintf(stderr, "bandwidth: %s\n", cudaGetErrorString(status));
  return status == cudaSuccess;
}

int main(void) {
  const size_t bytes = (size_t)1 << 30;
  char *from, *to;
  cudaEvent_t start, end;
  if (!good(cudaMalloc(&from, bytes)) || !good(cudaMalloc(&to, bytes)) || !good(cudaMemset(from, 1, bytes)) ||
      !good(cudaEventCreate(&start)) || !good(cudaEventCreate(&end)))
    return 1;
  float best = 1e30f;
  for (int i = 0; i < 10; i++) {
    float milliseconds;
    if (!good(cudaEventRecord(start)) || !good(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice)) ||
        !good(cudaEventRecord(end)) || !good(cudaEventSynchronize(end)) ||
        !good(cudaEventElapsedTime(&milliseconds, start, end)))
      return 1;
    best = milliseconds < best ? milliseconds : best;
  }
  printf("%.6g\n", 2e3 * (double)bytes / best);
  return 0;
}
