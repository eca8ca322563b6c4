/* exp and sigmoid by a GPU's own instructions: a few of them where pd_math.h, which has the C target's bits, takes some
 * twenty. Programs in bf16 have them in their loops (they define PD_FAST, which pd_math.h asks for), for their errors are far
 * below what bf16 leaves, 2^-9. Results below the smallest normal number become 0; infinities give the limits, NaN gives NaN. */
#ifndef PD_FAST_H
#define PD_FAST_H

#include <math.h>

#include <cuda_runtime.h>

/* 2^x within 2^-22 of it (PTX ISA: ex2.approx.ftz). */
inline __host__ __device__ float pd_exp2_fast(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
#else /* tests/cuda/host */
  float y = exp2f(x);
  y = y < 0x1p-126f ? 0.0f : y;
#endif
  return y;
}

/* 1 / x within 2^-22 of it, for x of at least 1 (PTX ISA: rcp.approx.ftz). */
inline __host__ __device__ float pd_reciprocal_fast(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
#else
  float y = 1.0f / x;
  y = y < 0x1p-126f ? 0.0f : y;
#endif
  return y;
}

/* Within 2^-17 of it, for |x| <= 8 within 2^-20: x log2(e) is rounded. */
inline __host__ __device__ float pd_exp_fast(float x) { return pd_exp2_fast(0x1.715476p+0f * x); }
inline __host__ __device__ float pd_sigmoid_fast(float x) { return pd_reciprocal_fast(1.0f + pd_exp_fast(-x)); }

#endif
