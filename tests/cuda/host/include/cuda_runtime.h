/* Stands in for the toolkit's header of this name: kernels run on the CPU, as ../README.md describes. */
#ifndef CUDA_HOST_RUNTIME_H
#define CUDA_HOST_RUNTIME_H

#include <memory>
#include <tuple>
#include <utility>

#include "cuda_host_kernel.h"
#include "cuda_host_pointer.h"
#include "cuda_runtime_api.h"

struct cuda_host_kernel_launch {
  const char *name; /* as written at the launch */
  const void *kernel;
  dim3 grid, block;
  size_t shared;
  int launch_bounds; /* 0: none */
  std::shared_ptr<const void> arguments;
  void (*thread)(const void *arguments); /* one thread of the kernel, threadIdx and the others set */
};

/* Between the two the launch's arguments become the kernel's parameters, which are checked on the way. */
void cuda_host_begin_launch(const char *name, cudaStream_t stream);
void cuda_host_end_launch(cuda_host_kernel_launch launch, cudaStream_t stream);
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

template <class R, class... P, class... A>
void cuda_host_launch(const char *name, dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                      R (*kernel)(P...), A &&...arguments) {
  static_assert(sizeof...(P) == sizeof...(A), "the launch has as many arguments as the kernel parameters");
  struct Call {
    void (*kernel)(P...);
    std::tuple<P...> parameters;
  };
  cuda_host_begin_launch(name, stream);
  auto call = std::make_shared<const Call>(Call{(void (*)(P...))kernel, {static_cast<P>(arguments)...}});
  std::apply([](const auto &...x) { (cuda_host_check_argument(x), ...); }, call->parameters);
  auto thread = [](const void *at) {
    const Call *c = (const Call *)at;
    std::apply(c->kernel, c->parameters);
  };
  int bounds = cuda_host_bounds_of(kernel);
  cuda_host_end_launch({name, (const void *)kernel, grid, block, shared, bounds, call, thread}, stream);
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
