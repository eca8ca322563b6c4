/* Microseconds of the CUDA driver's calls that give memory to addresses, by the size of the piece of memory, alone and beside
 * copies from the host:
 *     nvcc -O2 -std=c++17 -o mapping tests/bench/mapping.cu -lcuda && ./mapping */
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cuda.h>
#include <cuda_runtime.h>

enum { CYCLES = 50 };
static const size_t COPIED = 64 << 20;

static void check(int status, const char *call) {
  if (!status) return;
  fprintf(stderr, "mapping: error %d at %s\n", status, call);
  exit(1);
}
#define CHECK(call) check(static_cast<int>(call), #call)

template <class F> static double us(F call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

struct Copies { /* from the host, in a stream of their own */
  void *from, *to;
  cudaStream_t stream;
};

static void print_cycle(size_t bytes, const CUmemAllocationProp &kind, const Copies *beside) {
  enum { CREATE, MAP, ACCESS, UNMAP, RELEASE, CALLS };
  const CUmemAccessDesc access = {kind.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  double sum[CALLS] = {};
  CUdeviceptr at;
  CHECK(cuMemAddressReserve(&at, bytes, 0, 0, 0));
  for (int i = 0; i < CYCLES; i++) {
    CUmemGenericAllocationHandle memory;
    for (int k = 0; beside && k < 4; k++)
      CHECK(cudaMemcpyAsync(beside->to, beside->from, COPIED, cudaMemcpyHostToDevice, beside->stream));
    sum[CREATE] += us([&] { CHECK(cuMemCreate(&memory, bytes, &kind, 0)); });
    sum[MAP] += us([&] { CHECK(cuMemMap(at, bytes, 0, memory, 0)); });
    sum[ACCESS] += us([&] { CHECK(cuMemSetAccess(at, bytes, &access, 1)); });
    CHECK(cuMemsetD8Async(at, 1, bytes, NULL));
    CHECK(cudaStreamSynchronize(NULL));
    sum[UNMAP] += us([&] { CHECK(cuMemUnmap(at, bytes)); });
    sum[RELEASE] += us([&] { CHECK(cuMemRelease(memory)); });
    CHECK(cudaDeviceSynchronize());
  }
  CHECK(cuMemAddressFree(at, bytes));
  printf("%4zu MiB%s:", bytes >> 20, beside ? " beside copies" : "");
  const char *const name[] = {"create", "map", "access", "unmap", "release"};
  for (int call = 0; call < CALLS; call++) printf(" %s %.1f", name[call], sum[call] / CYCLES);
  printf(" us\n");
}

int main() {
  CUmemAllocationProp kind = {};
  kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CHECK(cudaSetDevice(0));
  Copies copies;
  CHECK(cudaStreamCreateWithFlags(&copies.stream, cudaStreamNonBlocking));
  CHECK(cudaMallocHost(&copies.from, COPIED));
  CHECK(cudaMalloc(&copies.to, COPIED));
  for (const Copies *beside : {static_cast<const Copies *>(NULL), static_cast<const Copies *>(&copies)})
    for (size_t mib : {2, 16, 64, 128, 512}) print_cycle(mib << 20, kind, beside);
}
