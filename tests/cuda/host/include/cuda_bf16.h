/* bfloat16 as the toolkit has it: stored in 16 bits, converted to the nearest float with ties to even. There is no
 * arithmetic here: the toolkit's rounds after every operation, and kernels compute in float. */
#ifndef CUDA_HOST_BF16_H
#define CUDA_HOST_BF16_H

#include <cstdint>
#include <cstring>

#include "vector_types.h"

struct __nv_bfloat16_raw {
  unsigned short x;
};

struct alignas(2) __nv_bfloat16 {
  unsigned short bits;

  __nv_bfloat16() = default;
  __nv_bfloat16(__nv_bfloat16_raw raw) : bits(raw.x) {}
  __nv_bfloat16(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    bits = f != f ? 0x7fff : (unsigned short)((u + 0x7fff + (u >> 16 & 1)) >> 16);
  }
  __nv_bfloat16(double f) : __nv_bfloat16((float)f) {}
  __nv_bfloat16(int i) : __nv_bfloat16((float)i) {}
  operator float() const {
    uint32_t u = (uint32_t)bits << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
  }
  operator __nv_bfloat16_raw() const { return {bits}; }
};
typedef __nv_bfloat16 nv_bfloat16;

__nv_bfloat16 operator+(__nv_bfloat16, __nv_bfloat16) = delete;
__nv_bfloat16 operator-(__nv_bfloat16, __nv_bfloat16) = delete;
__nv_bfloat16 operator*(__nv_bfloat16, __nv_bfloat16) = delete;
__nv_bfloat16 operator/(__nv_bfloat16, __nv_bfloat16) = delete;

struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
  __nv_bfloat162() = default;
  __nv_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) : x(x), y(y) {}
};
typedef __nv_bfloat162 nv_bfloat162;

inline __nv_bfloat16 __float2bfloat16(float f) { return __nv_bfloat16(f); }
inline __nv_bfloat16 __float2bfloat16_rn(float f) { return __nv_bfloat16(f); }
inline float __bfloat162float(__nv_bfloat16 b) { return (float)b; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return __nv_bfloat16_raw{bits}; }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 b) { return b.bits; }

inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {__nv_bfloat16(x), __nv_bfloat16(y)}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 f) { return __floats2bfloat162_rn(f.x, f.y); }
inline __nv_bfloat162 __float2bfloat162_rn(float f) { return __floats2bfloat162_rn(f, f); }
inline float2 __bfloat1622float2(__nv_bfloat162 b) { return {(float)b.x, (float)b.y}; }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return {x, x}; }
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 b) { return b.x; }
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 b) { return b.y; }
inline float __low2float(__nv_bfloat162 b) { return (float)b.x; }
inline float __high2float(__nv_bfloat162 b) { return (float)b.y; }

#endif
