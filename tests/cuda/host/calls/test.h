/* Shared by the tests of runtime/cuda's library calls: arrays of either type on the device, whose elements the
 * host knows, and comparison with references computed in double. */
#ifndef CALLS_TEST_H
#define CALLS_TEST_H

#include "alone.h"
#include "pd_elements.h"
#include "scratch.h"

inline int64_t random_below(int64_t n) { return random_bits() % n; }
inline pd_type random_type() { return random_below(2) ? PD_BF16 : PD_F32; }

inline float as_stored(pd_type type, float x) {
  return type == PD_F32 ? x : __bfloat162float(__float2bfloat16_rn(x));
}
/* Half a unit in the last place, relative. */
inline double rounding(pd_type type) { return type == PD_F32 ? 0x1p-24 : 0x1p-8; }

/* n elements at an address `skip` elements behind a 256-byte boundary, so that few may be read at once. */
struct Array {
  pd_type type;
  int64_t skip;
  std::vector<float> host; /* what was uploaded */
  char *memory = nullptr, *at;

  Array(pd_type type, std::vector<float> values, int64_t skip = 0) : type(type), skip(skip), host(values) {
    size_t n = host.size(), size = (size_t)pd_size(type);
    std::vector<float> floats(n);
    std::vector<pd_bf16> halves(n);
    for (size_t i = 0; i < n; i++) {
      host[i] = as_stored(type, host[i]);
      floats[i] = host[i];
      halves[i] = __float2bfloat16_rn(host[i]);
    }
    const void *from = type == PD_F32 ? (const void *)floats.data() : (const void *)halves.data();
    pd_cuda_check(cudaMalloc((void **)&memory, (n + (size_t)skip) * size), "cudaMalloc");
    at = memory + (size_t)skip * size;
    pd_cuda_check(cudaMemcpyAsync(at, from, n * size, cudaMemcpyHostToDevice, pd_stream), "upload");
  }
  Array(const Array &) = delete;
  ~Array() {
    pd_cuda_check(cudaStreamSynchronize(pd_stream), "wait");
    pd_cuda_check(cudaFree(memory), "cudaFree");
  }

  pd_in in() const {
    if (type == PD_F32) return (const float *)at;
    return (const pd_bf16 *)at;
  }
  pd_out out() const {
    if (type == PD_F32) return (float *)at;
    return (pd_bf16 *)at;
  }
  std::vector<float> fetch() const {
    size_t n = host.size(), size = (size_t)pd_size(type);
    std::vector<float> floats(n);
    std::vector<pd_bf16> halves(n);
    void *to = type == PD_F32 ? (void *)floats.data() : (void *)halves.data();
    pd_cuda_check(cudaMemcpyAsync(to, at, n * size, cudaMemcpyDeviceToHost, pd_stream), "fetch");
    pd_cuda_check(cudaStreamSynchronize(pd_stream), "wait");
    for (size_t i = 0; type == PD_BF16 && i < n; i++) floats[i] = __bfloat162float(halves[i]);
    return floats;
  }
};

/* What stands where results will: a result that is not written shows. */
inline std::vector<float> filled(int64_t n, float value) { return std::vector<float>((size_t)n, value); }

/* Exactly the bytes that the compiler would plan, aligned like a section of the arena. */
struct Scratch {
  char *memory;
  explicit Scratch(int64_t bytes) {
    pd_cuda_check(cudaMalloc((void **)&memory, (size_t)bytes + 64), "cudaMalloc");
  }
  Scratch(const Scratch &) = delete;
  ~Scratch() {
    pd_cuda_check(cudaStreamSynchronize(pd_stream), "wait");
    pd_cuda_check(cudaFree(memory), "cudaFree");
  }
  void *at() const { return memory + 64; }
};

/* Int32 in device memory. */
struct Integers {
  int32_t *at = nullptr;
  explicit Integers(const std::vector<int32_t> &x) {
    pd_cuda_check(cudaMalloc((void **)&at, x.size() * sizeof(int32_t)), "cudaMalloc");
    pd_cuda_check(cudaMemcpyAsync(at, x.data(), x.size() * sizeof(int32_t), cudaMemcpyHostToDevice, pd_stream),
                  "upload");
  }
  Integers(const Integers &) = delete;
  std::vector<int32_t> fetch(size_t n) const {
    std::vector<int32_t> x(n);
    pd_cuda_check(cudaMemcpyAsync(x.data(), at, n * sizeof(int32_t), cudaMemcpyDeviceToHost, pd_stream),
                  "download");
    pd_cuda_check(cudaStreamSynchronize(pd_stream), "wait");
    return x;
  }
  ~Integers() {
    pd_cuda_check(cudaStreamSynchronize(pd_stream), "wait");
    pd_cuda_check(cudaFree(at), "cudaFree");
  }
};

/* Elements of got differ from those of want by no more than allowed, none is NaN. */
inline void compare(const char *what, const std::vector<float> &got, const std::vector<double> &want,
                    const std::vector<double> &allowed) {
  for (size_t i = 0; i < want.size(); i++)
    if (!(fabs(got[i] - want[i]) <= allowed[i]))
      pd_fail("%s: element %zu is %.9g, not %.9g +- %.3g", what, i, got[i], want[i], allowed[i]);
}

#endif
