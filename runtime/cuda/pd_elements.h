/* Elements of either type in kernels: computed with as float, read and written as they are stored, one at a time
 * or N side by side. */
#ifndef PD_ELEMENTS_H
#define PD_ELEMENTS_H

#include "pd_cuda.h"

inline __host__ __device__ float pd_to_float(float x) { return x; }
inline __host__ __device__ float pd_to_float(pd_bf16 x) { return __bfloat162float(x); }

template <typename T> inline __host__ __device__ T pd_from_float(float x);
template <> inline __host__ __device__ float pd_from_float<float>(float x) { return x; }
template <> inline __host__ __device__ pd_bf16 pd_from_float<pd_bf16>(float x) { return __float2bfloat16_rn(x); }

template <typename T, int N> struct alignas(N * sizeof(T)) pd_pack { T at[N]; };

template <int N, typename T> inline __device__ void pd_get(float (&to)[N], const T *from) {
  pd_pack<T, N> x = *reinterpret_cast<const pd_pack<T, N> *>(from);
#pragma unroll
  for (int i = 0; i < N; i++) to[i] = pd_to_float(x.at[i]);
}

template <int N, typename T> inline __device__ void pd_put(T *to, const float (&from)[N]) {
  pd_pack<T, N> x;
#pragma unroll
  for (int i = 0; i < N; i++) x.at[i] = pd_from_float<T>(from[i]);
  *reinterpret_cast<pd_pack<T, N> *>(to) = x;
}

/* Of an operand whose type only the call knows. */
template <typename Operand> inline __device__ float pd_element(const Operand &x, int64_t i) {
  return x.type == PD_F32 ? static_cast<const float *>(x.at)[i]
                          : pd_to_float(static_cast<const pd_bf16 *>(x.at)[i]);
}
inline __device__ void pd_set_element(const pd_out &x, int64_t i, float value) {
  if (x.type == PD_F32)
    static_cast<float *>(x.at)[i] = value;
  else
    static_cast<pd_bf16 *>(x.at)[i] = pd_from_float<pd_bf16>(value);
}

inline int64_t pd_size(pd_type type) { return type == PD_F32 ? 4 : 2; }
inline bool pd_aligned(const void *at, int64_t bytes) { return reinterpret_cast<uintptr_t>(at) % bytes == 0; }

/* Derived operands: some elements further, at an address, of written results. */
template <typename Operand> inline Operand pd_moved(Operand x, int64_t elements) {
  x.at = (char *)x.at + elements * pd_size(x.type);
  return x;
}
inline pd_out pd_out_at(void *at, pd_type type) {
  pd_out x = nullptr;
  x.at = at;
  x.type = type;
  return x;
}
inline pd_in pd_written(pd_out x) {
  pd_in in = nullptr;
  in.at = x.at;
  in.type = x.type;
  return in;
}

/* f(an element of that type): a template's arguments from an operand's type. */
template <typename F> void pd_by_type(pd_type type, F f) {
  if (type == PD_F32)
    f(float());
  else
    f(pd_bf16());
}

#endif
