/* Bytes a second that the GPU's memory moves, read and written, when bytes are copied within it: the best of ten.
 *   bandwidth BYTES */
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

static bool good(cudaError_t status) {
  if (status != cudaSuccess) fprintf(stderr, "bandwidth: %s\n", cudaGetErrorString(status));
  return status == cudaSuccess;
}

int main(int argc, char **argv) {
  const size_t bytes = argc > 1 ? (size_t)atoll(argv[1]) : (size_t)1 << 30;
  void *from, *to;
  cudaStream_t stream;
  cudaEvent_t start, end;
  if (!good(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)) || !good(cudaMalloc(&from, bytes)) ||
      !good(cudaMalloc(&to, bytes)) || !good(cudaMemsetAsync(from, 1, bytes, stream)) ||
      !good(cudaEventCreate(&start)) || !good(cudaEventCreate(&end)))
    return 1;
  float best = 1e30f;
  for (int i = 0; i < 10; i++) {
    float milliseconds;
    if (!good(cudaEventRecord(start, stream)) ||
        !good(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream)) ||
        !good(cudaEventRecord(end, stream)) || !good(cudaEventSynchronize(end)) ||
        !good(cudaEventElapsedTime(&milliseconds, start, end)))
      return 1;
    best = milliseconds < best ? milliseconds : best;
  }
  printf("%.6g\n", 2e3 * (double)bytes / best);
  return !good(cudaFree(from)) || !good(cudaFree(to)) || !good(cudaEventDestroy(start)) ||
         !good(cudaEventDestroy(end)) || !good(cudaStreamDestroy(stream));
}
