/* Stands in for the toolkit's header of this name: kernels run on the CPU, as ../README.md describes. */
#ifndef CUDA_HOST_RUNTIME_H
#define CUDA_HOST_RUNTIME_H

#include <type_traits>
#include <utility>

#include "cuda_host_kernel.h"
#include "cuda_host_pointer.h"
#include "cuda_runtime_api.h"

struct cuda_host_shape {
  dim3 grid, block;
  size_t shared;
};

/* A kernel's address, its parameters' number and sizes, its launch bounds (0: none), and one thread of it, to be
 * called with threadIdx and the others set. */
struct cuda_host_kernel {
  const void *address;
  size_t n;
  const size_t *sizes;
  int bounds;
  void (*thread)(const void *kernel, void *const *parameters);
};

/* Between the two the launch's arguments become the kernel's parameters, which are checked on the way, and which
 * the second copies. Programs launch hundreds of kernels: little may be compiled anew for each. */
void cuda_host_begin_launch(const char *name, cudaStream_t stream);
void cuda_host_end_launch(const char *name, const cuda_host_shape &shape, cudaStream_t stream,
                          const cuda_host_kernel &kernel, const void *const *parameters);
/* A plain pointer: NULL, or to device memory or pinned memory. */
void cuda_host_check_pointer(const void *p);

template <class P> inline void cuda_host_check_argument(const P &x) {
  if constexpr (std::is_pointer_v<P> && !std::is_function_v<std::remove_pointer_t<P>>)
    cuda_host_check_pointer((const void *)x);
}

template <class... P> constexpr int cuda_host_bounds_of(void (*)(P...)) { return 0; }
template <int N, class... P> constexpr int cuda_host_bounds_of(__attribute__((address_space(N))) void (*)(P...)) {
  return N;
}

template <class... P, size_t... I>
void cuda_host_thread_of(const void *kernel, void *const *parameters, std::index_sequence<I...>) {
  ((void (*)(P...))kernel)(*(const P *)parameters[I]...);
}
template <class... P> void cuda_host_thread(const void *kernel, void *const *parameters) {
  cuda_host_thread_of<P...>(kernel, parameters, std::index_sequence_for<P...>());
}

template <class R, class... P>
void cuda_host_launch(const char *name, const cuda_host_shape &shape, cudaStream_t stream, R (*kernel)(P...),
                      std::type_identity_t<P>... x) {
  static_assert(((std::is_trivially_copyable_v<P> && alignof(P) <= 16) && ...), "parameters are copied as bytes");
  static constexpr size_t sizes[] = {sizeof(P)..., 0};
  const void *const parameters[] = {&x..., nullptr};
  (cuda_host_check_argument(x), ...);
  cuda_host_end_launch(name, shape, stream,
                       {(const void *)kernel, sizeof...(P), sizes, cuda_host_bounds_of(kernel),
                        cuda_host_thread<P...>},
                       parameters);
}

template <class R, class... P>
cudaError_t cudaFuncSetAttribute(R (*kernel)(P...), cudaFuncAttribute attribute, int value) {
  return cuda_host_set_attribute((const void *)kernel, attribute, value);
}
template <class R, class... P> cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *a, R (*kernel)(P...)) {
  return cuda_host_get_attributes(a, (const void *)kernel, cuda_host_bounds_of(kernel));
}
template <class R, class... P>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, R (*kernel)(P...), int threads,
                                                          size_t dynamic_shared) {
  return cuda_host_occupancy(blocks, (const void *)kernel, threads, dynamic_shared);
}

#endif
