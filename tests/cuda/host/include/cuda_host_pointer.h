/* Pointers of kernels' parameters that know how many elements they have. Every access is checked against that,
 * reads also against the poison of memory that nobody wrote. x + i is a cursor, which may move outside but not be
 * read there; (const float4 *)(x + i) is a plain pointer to one float4, checked with its alignment. */
#ifndef CUDA_HOST_POINTER_H
#define CUDA_HOST_POINTER_H

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

/* What fresh memory holds: NaN as float, bfloat16 and double, out of any range as an index. */
#define CUDA_HOST_POISON 0x7fd17fd17fd17fd1u

/* End the program with a message that names the kernel, its block and its thread. */
[[noreturn, gnu::cold]] void cuda_host_out_of_bounds(int64_t index, int64_t elements, size_t size, bool reads);
[[noreturn, gnu::cold]] void cuda_host_misaligned(int64_t index, size_t size, size_t bytes);
[[noreturn, gnu::cold]] void cuda_host_read_of_poison(int64_t index, int64_t elements);
/* A parameter of a launch: elements at `p` must be device memory or pinned, aligned, and nothing else's if
 * written. */
void cuda_host_check_parameter(const void *p, size_t bytes, size_t alignment, bool writes);

template <class T> bool cuda_host_is_poison(const T &x) {
  if constexpr (sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8) {
    uint64_t poison = CUDA_HOST_POISON;
    return memcmp(&x, &poison, sizeof x) == 0;
  } else {
    return false;
  }
}

template <class T> class cuda_host_cursor {
public:
  cuda_host_cursor(T *begin, int64_t elements, int64_t at) : begin(begin), elements(elements), at(at) {}
  /* A cursor to read through from one to write through. */
  template <class U>
  requires std::is_same_v<T, const U> cuda_host_cursor(cuda_host_cursor<U> c)
      : begin(c.begin), elements(c.elements), at(c.at) {}

  T &operator[](int64_t i) const { return *check<T>(at + i); }
  T &operator*() const { return *check<T>(at); }
  T *operator->() const { return check<T>(at); }
  cuda_host_cursor operator+(int64_t i) const { return {begin, elements, at + i}; }
  cuda_host_cursor operator-(int64_t i) const { return {begin, elements, at - i}; }
  int64_t operator-(cuda_host_cursor c) const { return begin + at - (c.begin + c.at); }
  cuda_host_cursor &operator+=(int64_t i) { return at += i, *this; }
  cuda_host_cursor &operator-=(int64_t i) { return at -= i, *this; }
  cuda_host_cursor &operator++() { return at++, *this; }
  cuda_host_cursor operator++(int) { return {begin, elements, at++}; }
  bool operator==(cuda_host_cursor c) const { return begin + at == c.begin + c.at; }
  bool operator<(cuda_host_cursor c) const { return begin + at < c.begin + c.at; }
  bool operator==(std::nullptr_t) const { return !begin; }
  explicit operator bool() const { return begin; }
  template <class U> explicit operator U *() const { return check<U>(at); }

private:
  template <class> friend class cuda_host_cursor;
  T *begin;
  int64_t elements, at;

  /* One U at element i. */
  template <class U> U *check(int64_t i) const {
    constexpr int64_t n = sizeof(U) > sizeof(T) ? sizeof(U) / sizeof(T) : 1;
    if (__builtin_expect(i < 0 || i > elements - n, 0))
      cuda_host_out_of_bounds(i, elements, sizeof(U), std::is_const_v<U>);
    if (sizeof(U) > sizeof(T) && (uintptr_t)(begin + i) % alignof(U) != 0)
      cuda_host_misaligned(i, sizeof(T), sizeof(U));
    if constexpr (std::is_const_v<T>)
      for (int64_t j = 0; j < n; j++)
        if (__builtin_expect(cuda_host_is_poison(begin[i + j]), 0)) cuda_host_read_of_poison(i + j, elements);
    return (U *)(begin + i);
  }
};

template <class T, int64_t N> class cuda_host_pointer {
public:
  cuda_host_pointer() : begin(nullptr) {}
  cuda_host_pointer(std::nullptr_t) : begin(nullptr) {}
  cuda_host_pointer(T *p) : begin(p) {
    if (p) cuda_host_check_parameter(p, N * sizeof(T), alignof(T), !std::is_const_v<T>);
  }

  T &operator[](int64_t i) const {
    if (__builtin_expect((uint64_t)i >= (uint64_t)N || !begin, 0))
      cuda_host_out_of_bounds(i, begin ? N : 0, sizeof(T), std::is_const_v<T>);
    if constexpr (std::is_const_v<T>)
      if (__builtin_expect(cuda_host_is_poison(begin[i]), 0)) cuda_host_read_of_poison(i, N);
    return begin[i];
  }
  T &operator*() const { return (*this)[0]; }
  T *operator->() const { return &(*this)[0]; }
  cuda_host_cursor<T> operator+(int64_t i) const { return {begin, begin ? N : 0, i}; }
  cuda_host_cursor<T> operator-(int64_t i) const { return *this + -i; }
  operator cuda_host_cursor<T>() const { return *this + 0; }
  operator cuda_host_cursor<const T>() const requires(!std::is_const_v<T>) { return *this + 0; }
  bool operator==(std::nullptr_t) const { return !begin; }
  explicit operator bool() const { return begin; }
  template <class U> explicit operator U *() const { return (U *)(*this + 0); }

private:
  T *begin;
};

#endif
