/* What the tests of runtime/cuda's kernels share: they run on tests/cuda_host, without the rest of the runtime. */
#ifndef CUDA_KERNELS_TEST_H
#define CUDA_KERNELS_TEST_H

#include "pd_cuda.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

static int failures;

cudaStream_t pd_stream;

void pd_fail(const char *format, ...) {
  va_list list;
  va_start(list, format);
  vprintf(format, list);
  va_end(list);
  puts("");
  exit(EXIT_FAILURE);
}

void pd_cuda_check(cudaError_t status, const char *what) {
  if (status != cudaSuccess) pd_fail("%s: %s", what, cudaGetErrorString(status));
}

static uint32_t random_state = 1;

/* Uniform in [-1, 1), the same on every run. */
static float random_float() {
  random_state = random_state * 1664525u + 1013904223u;
  return (float)(int32_t)random_state * 0x1p-31f;
}

static std::vector<float> random_floats(int64_t n) {
  std::vector<float> x((size_t)n);
  for (float &e : x) e = random_float();
  return x;
}

static float rounded(float x) { return __bfloat162float(__float2bfloat16(x)); }

/* An array on the device, of floats or bf16, behind `offset` elements, with bytes of 0xff (NaN) before and
 * behind. */
class Device {
 public:
  Device(int64_t n, bool bf16, int64_t offset = 0) : n(n), offset(offset), bf16(bf16) {
    pd_cuda_check(cudaMalloc(&memory, bytes()), "allocate");
    pd_cuda_check(cudaMemset(memory, 0xff, bytes()), "fill");
  }
  Device(const std::vector<float> &x, bool bf16, int64_t offset = 0) : Device((int64_t)x.size(), bf16, offset) {
    std::vector<pd_bf16> half(x.begin(), x.end());
    const void *from = bf16 ? (const void *)half.data() : x.data();
    pd_cuda_check(cudaMemcpy(at(0), from, (size_t)(n * element()), cudaMemcpyHostToDevice), "copy");
  }
  ~Device() { pd_cuda_check(cudaFree(memory), "free"); }
  Device(const Device &) = delete;

  pd_in in(int64_t i = 0) const { return bf16 ? pd_in((pd_bf16 *)at(i)) : pd_in((float *)at(i)); }
  pd_out out(int64_t i = 0) const { return bf16 ? pd_out((pd_bf16 *)at(i)) : pd_out((float *)at(i)); }
  void *at(int64_t i) const { return memory + (offset + i) * element(); }

  /* As floats; fails where the bytes around them are not what they were. */
  std::vector<float> fetch() const {
    std::vector<unsigned char> all(bytes());
    pd_cuda_check(cudaStreamSynchronize(pd_stream), "run");
    pd_cuda_check(cudaMemcpy(all.data(), memory, bytes(), cudaMemcpyDeviceToHost), "copy");
    size_t begin = (size_t)(offset * element()), end = begin + (size_t)(n * element());
    for (size_t i = 0; i < bytes(); i++)
      if ((i < begin || i >= end) && all[i] != 0xff)
        pd_fail("written outside an array, at byte %lld", (long long)i - (long long)begin);
    std::vector<float> x((size_t)n);
    for (size_t i = 0; i < (size_t)n; i++)
      if (bf16) {
        pd_bf16 half;
        memcpy(&half, &all[begin + 2 * i], 2);
        x[i] = __bfloat162float(half);
      } else {
        memcpy(&x[i], &all[begin + 4 * i], 4);
      }
    return x;
  }

 private:
  int64_t n, offset;
  bool bf16;
  char *memory;
  int64_t element() const { return bf16 ? 2 : 4; }
  size_t bytes() const { return (size_t)((offset + n) * element() + 64); }
};

#endif
