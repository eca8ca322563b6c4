/* Stubs of the runtime for tests of single files of runtime/cuda; random numbers. */
#ifndef ALONE_H
#define ALONE_H

#include "pd_cuda.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <vector>

cudaStream_t pd_stream;

void pd_fail(const char *format, ...) {
  va_list list;
  va_start(list, format);
  vprintf(format, list);
  va_end(list);
  puts("");
  exit(EXIT_FAILURE);
}

extern "C" void pd_note(const char *, ...) {}

void pd_cuda_check(cudaError_t status, const char *what) {
  if (status != cudaSuccess) pd_fail("%s: %s", what, cudaGetErrorString(status));
}

/* Memory and events are given back at the end. */
struct Held {
  std::vector<void *> memory;
  std::vector<cudaEvent_t> events;
  ~Held() {
    for (void *at : memory) cudaFree(at);
    for (cudaEvent_t event : events) cudaEventDestroy(event);
  }
};
inline Held &held() {
  static Held all;
  return all;
}
void *pd_cuda_memory(size_t bytes) {
  void *at;
  pd_cuda_check(cudaMalloc(&at, bytes), "get memory");
  held().memory.push_back(at);
  return at;
}
cudaEvent_t pd_cuda_event(void) {
  cudaEvent_t event;
  pd_cuda_check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "make an event");
  held().events.push_back(event);
  return event;
}
void pd_cuda_await(cudaEvent_t event, const char *what) { pd_cuda_check(cudaEventSynchronize(event), what); }

static uint32_t random_state = 1;

inline uint32_t random_bits() {
  random_state = random_state * 1664525u + 1013904223u;
  return random_state >> 8;
}

/* Uniform in [-1, 1), the same on every run. */
inline float random_float() { return (float)(int32_t)random_bits() * 0x1p-23f - 1.0f; }

inline std::vector<float> random_floats(int64_t n) {
  std::vector<float> x((size_t)n);
  for (float &e : x) e = random_float();
  return x;
}

#endif
