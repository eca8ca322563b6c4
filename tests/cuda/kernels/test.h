/* Shared by the tests of runtime/cuda's kernels, which run on tests/cuda/host without the other parts of the
 * runtime. */
#ifndef CUDA_KERNELS_TEST_H
#define CUDA_KERNELS_TEST_H

#include "alone.h"

#include <math.h>
#include <string.h>

static int failures;

[[maybe_unused]] static float rounded(float x) { return __bfloat162float(__float2bfloat16(x)); }

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
