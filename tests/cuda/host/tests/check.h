/* Shared by the tests of CUDA on the host. */
#ifndef CUDA_HOST_TESTS_CHECK_H
#define CUDA_HOST_TESTS_CHECK_H

#include <pd_cuda.h>

#include <vector>

inline void expect(bool good, const char *what) {
  if (!good) {
    printf("wrong: %s\n", what);
    exit(1);
  }
}

inline float value(int i) { return (float)(i % 97) - 48.0f; }

template <class T> T *device_room(int n) {
  T *at;
  expect(cudaMalloc(&at, (size_t)n * sizeof(T)) == cudaSuccess, "cudaMalloc");
  return at;
}

/* value(0), value(1), ... */
inline float *device_floats(int n, cudaStream_t s) {
  std::vector<float> x((size_t)n);
  for (int i = 0; i < n; i++) x[(size_t)i] = value(i);
  float *at = device_room<float>(n);
  cudaMemcpyAsync(at, x.data(), x.size() * sizeof(float), cudaMemcpyHostToDevice, s);
  return at;
}

template <class T> std::vector<T> fetch(const T *at, int n, cudaStream_t s) {
  std::vector<T> x((size_t)n);
  cudaMemcpyAsync(x.data(), at, x.size() * sizeof(T), cudaMemcpyDeviceToHost, s);
  return x;
}

#endif
