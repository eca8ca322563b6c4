/* The toolkit's small vectors, with its alignments: what one load or store of 8 or 16 bytes moves. */
#ifndef CUDA_HOST_VECTOR_TYPES_H
#define CUDA_HOST_VECTOR_TYPES_H

#define CUDA_HOST_VECTORS(type, name, align2, align4)                             \
  struct name##1 { type x; };                                                     \
  struct alignas(align2) name##2 { type x, y; };                                  \
  struct name##3 { type x, y, z; };                                               \
  struct alignas(align4) name##4 { type x, y, z, w; };                            \
  inline name##1 make_##name##1(type x) { return {x}; }                           \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; }                \
  inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }     \
  inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

CUDA_HOST_VECTORS(signed char, char, 2, 4)
CUDA_HOST_VECTORS(unsigned char, uchar, 2, 4)
CUDA_HOST_VECTORS(short, short, 4, 8)
CUDA_HOST_VECTORS(unsigned short, ushort, 4, 8)
CUDA_HOST_VECTORS(int, int, 8, 16)
CUDA_HOST_VECTORS(unsigned, uint, 8, 16)
CUDA_HOST_VECTORS(long long, longlong, 16, 16)
CUDA_HOST_VECTORS(unsigned long long, ulonglong, 16, 16)
CUDA_HOST_VECTORS(float, float, 8, 16)
CUDA_HOST_VECTORS(double, double, 16, 16)
#undef CUDA_HOST_VECTORS

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};

#endif
