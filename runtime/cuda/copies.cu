/* Two runs of the same work (--audit) in a device's memory. */
#include "run/run.h"
#include "pd_cuda.h"

enum { THREADS = 256, MOST_BLOCKS = 4096 };

static struct {
  int *differs; /* on the device */
  int *seen;    /* pinned */
} comparison;

char *pd_copy_room(size_t bytes) {
  comparison.differs = static_cast<int *>(pd_cuda_memory(sizeof *comparison.differs));
  comparison.seen = static_cast<int *>(pd_cuda_pinned(sizeof *comparison.seen));
  return static_cast<char *>(pd_cuda_memory(bytes ? bytes : 1));
}

void pd_copy_bytes(void *to, const void *from, size_t bytes) {
  pd_cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, pd_stream),
                "copy what --audit compares");
}

/* ---- kernels --------------------------------------------------------------------------------------- */

template <class Word> static __global__ void __launch_bounds__(THREADS) exchange(Word *a, Word *b, size_t n) {
  const size_t step = static_cast<size_t>(gridDim.x) * THREADS;
  for (size_t i = static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x; i < n; i += step) {
    const Word x = a[i];
    a[i] = b[i];
    b[i] = x;
  }
}

template <class Word>
static __global__ void __launch_bounds__(THREADS) compare(const Word *a, const Word *b, size_t n, int *to) {
  const size_t step = static_cast<size_t>(gridDim.x) * THREADS;
  for (size_t i = static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x; i < n; i += step)
    if (a[i] != b[i]) *to = 1; /* whoever finds it writes the same */
}

static bool in_words(const void *a, const void *b, size_t bytes) {
  return (reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b) | bytes) % sizeof(uint32_t) == 0;
}

static unsigned blocks(size_t n) {
  size_t all = (n + THREADS - 1) / THREADS;
  return static_cast<unsigned>(all < MOST_BLOCKS ? all : size_t{MOST_BLOCKS});
}

template <class Word> static void exchange_all(void *a, void *b, size_t bytes) {
  const size_t n = bytes / sizeof(Word);
  PD_LAUNCH(exchange<Word>, blocks(n), THREADS, 0, pd_stream, static_cast<Word *>(a), static_cast<Word *>(b), n);
}

template <class Word> static void compare_all(const void *a, const void *b, size_t bytes) {
  const size_t n = bytes / sizeof(Word);
  PD_LAUNCH(compare<Word>, blocks(n), THREADS, 0, pd_stream, static_cast<const Word *>(a),
            static_cast<const Word *>(b), n, comparison.differs);
}

/* ---- calls ----------------------------------------------------------------------------------------- */

void pd_exchange_bytes(void *a, void *b, size_t bytes) {
  if (bytes) (in_words(a, b, bytes) ? exchange_all<uint32_t> : exchange_all<uint8_t>)(a, b, bytes);
}

bool pd_same_bytes(const void *a, const void *b, size_t bytes) {
  if (!bytes) return true;
  pd_cuda_check(cudaMemsetAsync(comparison.differs, 0, sizeof *comparison.differs, pd_stream), "compare two runs");
  (in_words(a, b, bytes) ? compare_all<uint32_t> : compare_all<uint8_t>)(a, b, bytes);
  pd_cuda_check(cudaMemcpyAsync(comparison.seen, comparison.differs, sizeof *comparison.seen,
                                cudaMemcpyDeviceToHost, pd_stream),
                "compare two runs");
  pd_device_wait("the comparison of two runs");
  return !*comparison.seen;
}

void pd_read_bytes(void *to, const void *from, size_t bytes) {
  pd_cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, pd_stream), "read what two runs left");
  pd_device_wait("the results of two runs");
}
