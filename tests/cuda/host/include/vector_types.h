/* The toolkit's small vectors, with its alignments: what one load or store of 8 or 16 bytes moves. */
#ifndef CUDA_HOST_VECTOR_TYPES_H
#define CUDA_HOST_VECTOR_TYPES_H

/* Those that are loaded and stored whole have copy functions of their own: only then does clang check the
 * alignment of what they copy (-fsanitize=alignment). */
#define CUDA_HOST_VECTOR2(type, name, alignment)                                 \
  struct alignas(alignment) name {                                               \
    type x, y;                                                                   \
    name() = default;                                                            \
    constexpr name(type x, type y) : x(x), y(y) {}                               \
    constexpr name(const name &v) : x(v.x), y(v.y) {}                            \
    constexpr name &operator=(const name &v) { return x = v.x, y = v.y, *this; } \
  };
#define CUDA_HOST_VECTOR4(type, name, alignment)                                                   \
  struct alignas(alignment) name {                                                                 \
    type x, y, z, w;                                                                               \
    name() = default;                                                                              \
    constexpr name(type x, type y, type z, type w) : x(x), y(y), z(z), w(w) {}                     \
    constexpr name(const name &v) : x(v.x), y(v.y), z(v.z), w(v.w) {}                              \
    constexpr name &operator=(const name &v) { return x = v.x, y = v.y, z = v.z, w = v.w, *this; } \
  };
#define CUDA_HOST_VECTORS(type, name, align2, align4)                         \
  struct name##1 {                                                            \
    type x;                                                                   \
  };                                                                          \
  CUDA_HOST_VECTOR2(type, name##2, align2)                                    \
  struct name##3 {                                                            \
    type x, y, z;                                                             \
  };                                                                          \
  CUDA_HOST_VECTOR4(type, name##4, align4)                                    \
  inline name##1 make_##name##1(type x) { return {x}; }                       \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; }            \
  inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; } \
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
#undef CUDA_HOST_VECTOR2
#undef CUDA_HOST_VECTOR4

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};

#endif
