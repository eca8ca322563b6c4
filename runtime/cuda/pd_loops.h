/* Building blocks of emitted loops on a GPU: adjacent elements of a row, and sums and maxima over threads in an
 * order that depends only on the block's shape. A block is X threads along the columns by Y rows. */
#ifndef PD_LOOPS_H
#define PD_LOOPS_H

#include <type_traits>
#include <utility>

#include "kernels/pd_math.h"
#include "pd_elements.h"

/* ---- elements side by side --------------------------------------------------------------------- */

/* N elements of a row as they are computed with: floats, also of those stored in bf16, or tokens. */
template <int N, typename T = float> struct pd_vector {
  T at[N];
  __device__ T &operator[](int i) { return at[i]; }
  __device__ const T &operator[](int i) const { return at[i]; }
};

/* How a pointer's elements are stored, and computed with. */
template <typename Pointer>
using pd_stored = std::remove_cv_t<std::remove_reference_t<decltype(std::declval<Pointer>()[0])>>;
template <typename T> using pd_computed = std::conditional_t<std::is_same_v<T, int32_t>, int32_t, float>;

template <typename T> inline __device__ pd_computed<T> pd_widen(T x) {
  if constexpr (std::is_same_v<T, pd_bf16>)
    return __bfloat162float(x);
  else
    return x;
}

template <typename T> inline __device__ T pd_narrow(pd_computed<T> x) {
  if constexpr (std::is_same_v<T, pd_bf16>)
    return __float2bfloat16_rn(x);
  else
    return x;
}

/* As memory in bf16 holds it. */
inline __device__ float pd_rounded(float x) { return pd_widen(pd_narrow<pd_bf16>(x)); }

/* As memory is read and written: 16 bytes at a time, or all N elements where they are fewer. */
template <int N, typename T> struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) pd_packed { T at[N]; };

/* x[at] .. x[at + N - 1], where `at` is a multiple of N. Two bf16 of a word take an instruction each: an element
 * of its own would be moved down before it is moved up. */
template <int N, typename Pointer> inline __device__ auto pd_load(Pointer x, int64_t at) {
  typedef pd_stored<Pointer> T;
  const pd_packed<N, T> from = *(const pd_packed<N, T> *)(x + at);
  pd_vector<N, pd_computed<T>> to;
  if constexpr (std::is_same_v<T, pd_bf16> && N % 2 == 0) {
    uint32_t word[N / 2];
    memcpy(word, from.at, sizeof word);
#pragma unroll
    for (int i = 0; i < N; i++) to[i] = pd_float(i % 2 ? word[i / 2] & 0xffff0000u : word[i / 2] << 16);
  } else {
#pragma unroll
    for (int i = 0; i < N; i++) to[i] = pd_widen(from.at[i]);
  }
  return to;
}

template <int N, typename Pointer, typename C>
inline __device__ void pd_store(Pointer x, int64_t at, const pd_vector<N, C> &from) {
  typedef pd_stored<Pointer> T;
  pd_packed<N, T> to;
#pragma unroll
  for (int i = 0; i < N; i++) to.at[i] = pd_narrow<T>(from[i]);
  *(pd_packed<N, T> *)(x + at) = to;
}

/* ---- a row's sum and maximum ------------------------------------------------------------------- */

/* pd_max as one instruction (PTX ISA: max.NaN), for maxima over a row: of zeros of two signs it gives the positive
 * one, whichever comes first. */
inline __host__ __device__ float pd_larger(float a, float b) {
#ifdef __CUDA_ARCH__
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
#else /* tests/cuda/host */
  return a == b && a == 0.0f ? a + b : pd_max(a, b);
#endif
}

struct pd_adds {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct pd_takes_larger {
  __device__ float operator()(float a, float b) const { return pd_larger(a, b); }
};

/* Over the X threads of a row, for each of them. Lanes of a warp are combined by halves, then the warps in order;
 * a row of several warps is the block's only one. */
template <int X, typename Combine> inline __device__ float pd_row_reduce(float x, Combine combine) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = combine(x, __shfl_xor_sync(0xffffffffu, x, step));
  if constexpr (X > 32) {
    __shared__ float warp[X / 32];
    if (threadIdx.x % 32 == 0) warp[threadIdx.x / 32] = x;
    __syncthreads();
    x = warp[0];
#pragma unroll
    for (int i = 1; i < X / 32; i++) x = combine(x, warp[i]);
    __syncthreads(); /* all have read before the next ones are written */
  }
  return x;
}

template <int X> inline __device__ float pd_row_sum(float x) { return pd_row_reduce<X>(x, pd_adds()); }
template <int X> inline __device__ float pd_row_max(float x) { return pd_row_reduce<X>(x, pd_takes_larger()); }

/* ---- sums over rows ---------------------------------------------------------------------------- */

/* Adds the Y rows' sums of a block by halves; the result is the first row's. Y is a power of two. */
template <int X, int Y> inline __device__ void pd_add_rows(float &sum) {
  __shared__ float row[Y][X];
  row[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  for (unsigned half = Y / 2; half > 0; half /= 2) {
    if (threadIdx.y < half) row[threadIdx.y][threadIdx.x] += row[threadIdx.y + half][threadIdx.x];
    __syncthreads();
  }
  sum = row[0][threadIdx.x];
  __syncthreads();
}

template <int X, int Y, int N> inline __device__ void pd_add_rows(pd_vector<N> &sum) {
#pragma unroll
  for (int i = 0; i < N; i++) pd_add_rows<X, Y>(sum[i]);
}

template <int X, int Y, typename T, int M> inline __device__ void pd_add_rows(T (&sum)[M]) {
#pragma unroll
  for (int i = 0; i < M; i++) pd_add_rows<X, Y>(sum[i]);
}

/* The sum of `tiles` partial sums that stand `stride` apart, the first at `at`: every 32nd of them in order, then
 * these sums by halves. A block makes 32 such sums, those `there`, by 32 threads each; the first has the
 * result. */
template <typename Pointer>
inline __device__ float pd_add_tiles(Pointer partial, int tiles, int64_t stride, int64_t at, bool there) {
  float sum = 0.0f;
  for (int t = threadIdx.y; there && t < tiles; t += 32) sum += partial[at + t * stride];
  pd_add_rows<32, 32>(sum);
  return sum;
}

#endif
