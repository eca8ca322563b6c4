/* What kernels use: their indices, barriers, warp operations, shared memory and a few functions of CUDA's own. */
#ifndef CUDA_HOST_KERNEL_H
#define CUDA_HOST_KERNEL_H

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "vector_types.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n) alignas(n)
#define __grid_constant__
#define __constant__
/* The blocks of a kernel run one after another, so that its shared variables can be static ones; they are poisoned
 * before each block. */
#define __shared__ static __attribute__((section("cuda_host_shared")))
/* Part of the kernel's type, where cuda_host_launch finds it: an address space of its result, void. */
#define __launch_bounds__(threads, ...) __attribute__((address_space(threads)))

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

#define CUDA_HOST_CONVERGENT __attribute__((convergent, noinline))

CUDA_HOST_CONVERGENT void __syncthreads();
CUDA_HOST_CONVERGENT int __syncthreads_count(int predicate);
inline int __syncthreads_and(int predicate) { return !__syncthreads_count(!predicate); }
inline int __syncthreads_or(int predicate) { return __syncthreads_count(predicate) != 0; }

/* The block's dynamic shared memory: 16-byte aligned, a page that nobody may touch right behind it. */
void *cuda_host_dynamic_shared();

/* A step that the lanes of `mask` take together: each waits until all of them have called with the same mask and
 * step; then `step` runs once, with every lane's `mine` (NULL: not in the mask), and all go on. Whatever lanes do
 * together is written so: the functions below, and models of tensor-core instructions. */
CUDA_HOST_CONVERGENT void cuda_host_warp(const char *name, unsigned mask, void *mine,
                                         void (*step)(void *const *lanes));
/* Lane `source` is read by a lane; it must be in the mask. */
[[noreturn]] void cuda_host_lane_missing(const char *name, int lane, int source);

inline void __syncwarp(unsigned mask = 0xffffffffu) {
  cuda_host_warp("__syncwarp", mask, &mask, [](void *const *) {});
}

template <class T> struct cuda_host_shuffle {
  T value;
  int source;
  static void step(void *const *lanes) {
    T from[32];
    for (int i = 0; i < 32; i++)
      if (lanes[i]) {
        int source = ((cuda_host_shuffle *)lanes[i])->source;
        if (!lanes[source]) cuda_host_lane_missing("shuffle", i, source);
        from[i] = ((cuda_host_shuffle *)lanes[source])->value;
      }
    for (int i = 0; i < 32; i++)
      if (lanes[i]) ((cuda_host_shuffle *)lanes[i])->value = from[i];
  }
};

int cuda_host_lane();

template <class T>
__forceinline__ T cuda_host_shuffle_from(const char *name, unsigned mask, T value, int source, bool inside) {
  static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 2));
  cuda_host_shuffle<T> mine = {value, inside ? source : cuda_host_lane()};
  cuda_host_warp(name, mask, &mine, cuda_host_shuffle<T>::step);
  return mine.value;
}

/* As in the toolkit: `width` splits the warp into parts; a lane that would read outside its part keeps its own. */
template <class T> __forceinline__ T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  int first = cuda_host_lane() & -width;
  return cuda_host_shuffle_from("__shfl_sync", mask, value, first + (source & (width - 1)), true);
}
template <class T> __forceinline__ T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  int lane = cuda_host_lane(), source = lane - (int)delta;
  return cuda_host_shuffle_from("__shfl_up_sync", mask, value, source, source >= (lane & -width));
}
template <class T> __forceinline__ T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  int lane = cuda_host_lane(), source = lane + (int)delta;
  return cuda_host_shuffle_from("__shfl_down_sync", mask, value, source, source < (lane & -width) + width);
}
template <class T> __forceinline__ T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
  int lane = cuda_host_lane(), source = lane ^ bits;
  return cuda_host_shuffle_from("__shfl_xor_sync", mask, value, source, source < (lane & -width) + width);
}

struct cuda_host_vote {
  bool mine;
  unsigned all;
  static void step(void *const *lanes) {
    unsigned all = 0;
    for (int i = 0; i < 32; i++)
      if (lanes[i] && ((cuda_host_vote *)lanes[i])->mine) all |= 1u << i;
    for (int i = 0; i < 32; i++)
      if (lanes[i]) ((cuda_host_vote *)lanes[i])->all = all;
  }
};

__forceinline__ unsigned __ballot_sync(unsigned mask, int predicate) {
  cuda_host_vote mine = {predicate != 0, 0};
  cuda_host_warp("__ballot_sync", mask, &mine, cuda_host_vote::step);
  return mine.all;
}
__forceinline__ int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
__forceinline__ int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }

/* The threads of a device run one at a time here, and their order is shuffled. */
inline void __threadfence() {}
inline void __threadfence_block() {}
inline int atomicAdd(int *at, int x) { return (*at += x) - x; }
inline unsigned atomicAdd(unsigned *at, unsigned x) { return (*at += x) - x; }
inline unsigned long long atomicAdd(unsigned long long *at, unsigned long long x) { return (*at += x) - x; }
float atomicAdd(float *, float) = delete; /* not the same bits in every run */
double atomicAdd(double *, double) = delete;

/* ---- CUDA's functions that C does not have ----------------------------------------------------- */

template <class To, class From> inline To cuda_host_bits(From x) {
  static_assert(sizeof(To) == sizeof x);
  To y;
  memcpy(&y, &x, sizeof y);
  return y;
}
inline unsigned __float_as_uint(float x) { return cuda_host_bits<unsigned>(x); }
inline int __float_as_int(float x) { return cuda_host_bits<int>(x); }
inline float __uint_as_float(unsigned x) { return cuda_host_bits<float>(x); }
inline float __int_as_float(int x) { return cuda_host_bits<float>(x); }
inline long long __double_as_longlong(double x) { return cuda_host_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return cuda_host_bits<double>(x); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __expf(float x) { return expf(x); }
inline float __exp2f(float x) { return exp2f(x); }
inline float __logf(float x) { return logf(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline float __saturatef(float x) { return x > 0.0f ? x < 1.0f ? x : 1.0f : 0.0f; }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __umulhi(unsigned x, unsigned y) { return (unsigned)((uint64_t)x * y >> 32); }
inline int min(int x, int y) { return x < y ? x : y; }
inline int max(int x, int y) { return x > y ? x : y; }
inline unsigned min(unsigned x, unsigned y) { return x < y ? x : y; }
inline unsigned max(unsigned x, unsigned y) { return x > y ? x : y; }
inline long min(long x, long y) { return x < y ? x : y; }
inline long max(long x, long y) { return x > y ? x : y; }
inline long long min(long long x, long long y) { return x < y ? x : y; }
inline long long max(long long x, long long y) { return x > y ? x : y; }
inline size_t min(size_t x, size_t y) { return x < y ? x : y; }
inline size_t max(size_t x, size_t y) { return x > y ? x : y; }
inline float min(float x, float y) { return fminf(x, y); }
inline float max(float x, float y) { return fmaxf(x, y); }

/* Loads and stores with a hint to the caches. */
template <class T> inline T __ldg(const T *p) { return *p; }
template <class T> inline T __ldcs(const T *p) { return *p; }
template <class T> inline T __ldcg(const T *p) { return *p; }
template <class T> inline void __stcs(T *p, T x) { *p = x; }
template <class T> inline void __stcg(T *p, T x) { *p = x; }

#endif
