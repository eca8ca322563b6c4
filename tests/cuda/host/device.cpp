/* The devices, like H100s (NVIDIA H100 Tensor Core GPU Architecture, 2022, table 3), and what they can launch. */
#include "host.h"

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unordered_map>
#include <vector>

/* CUDA_HOST_MIG=1: a process sees one device, an instance of the first GPU. */
static int device_count() {
  if (getenv("CUDA_HOST_MIG")) return 1;
  static const int n = getenv("CUDA_HOST_DEVICES") ? atoi(getenv("CUDA_HOST_DEVICES")) : 8;
  return n;
}

const cudaDeviceProp &cuda_host_properties() {
  static const cudaDeviceProp properties = [] {
    cudaDeviceProp p = {};
    strcpy(p.name,
           getenv("CUDA_HOST_MIG") ? "CUDA on the host, like H100 MIG 1g.10gb" : "CUDA on the host, like H100");
    const char *memory = getenv("CUDA_HOST_MEMORY");
    p.totalGlobalMem = memory ? strtoull(memory, nullptr, 10) : 80ull << 30;
    p.sharedMemPerBlock = 48 << 10;
    p.sharedMemPerBlockOptin = 227 << 10;
    p.sharedMemPerMultiprocessor = 228 << 10;
    p.regsPerBlock = p.regsPerMultiprocessor = 65536;
    p.warpSize = 32;
    p.maxThreadsPerBlock = p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024;
    p.maxThreadsDim[2] = 64;
    p.maxGridSize[0] = INT_MAX;
    p.maxGridSize[1] = p.maxGridSize[2] = 65535;
    p.major = 9;
    p.minor = 0;
    p.multiProcessorCount = 132;
    p.maxThreadsPerMultiProcessor = 2048;
    p.maxBlocksPerMultiProcessor = 32;
    p.memoryBusWidth = 5120;
    p.l2CacheSize = 50 << 20;
    p.asyncEngineCount = 3;
    p.concurrentKernels = p.unifiedAddressing = 1;
    return p;
  }();
  return properties;
}

static int chosen;

cudaError_t cudaGetDeviceCount(int *n) {
  *n = device_count();
  return *n > 0 ? cudaSuccess : cuda_host_error(cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= device_count())
    return cuda_host_error(device_count() ? cudaErrorInvalidDevice : cudaErrorNoDevice);
  if (device != chosen && cuda_host_memory_in_use() > 0)
    cuda_host_die("cudaSetDevice(%d): a process keeps to one device here, and has memory on device %d", device,
                  chosen);
  chosen = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
  *device = chosen;
  return device_count() ? cudaSuccess : cuda_host_error(cudaErrorNoDevice);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device) {
  if (device < 0 || device >= device_count()) return cuda_host_error(cudaErrorInvalidDevice);
  *p = cuda_host_properties();
  p->pciBusID = 1 + device;
  snprintf(p->uuid.bytes, sizeof p->uuid.bytes, "cuda_host%d", device);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp p;
  cudaError_t e = cudaGetDeviceProperties(&p, device);
  if (e != cudaSuccess) return e;
  switch (attribute) {
  case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
  case cudaDevAttrMaxSharedMemoryPerBlock: *value = (int)p.sharedMemPerBlock; break;
  case cudaDevAttrWarpSize: *value = p.warpSize; break;
  case cudaDevAttrClockRate: *value = 1980000; break; /* kHz */
  case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
  case cudaDevAttrMemoryClockRate: *value = 2619000; break; /* kHz */
  case cudaDevAttrGlobalMemoryBusWidth: *value = p.memoryBusWidth; break;
  case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
  case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; break;
  case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
  case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
  case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = (int)p.sharedMemPerMultiprocessor; break;
  case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)p.sharedMemPerBlockOptin; break;
  default: return cuda_host_error(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

const char *cuda_host_sysfs() { return getenv("CUDA_HOST_SYSFS") ? getenv("CUDA_HOST_SYSFS") : "/nowhere"; }

cudaError_t cudaDeviceGetPCIBusId(char *id, int room, int device) {
  if (device < 0 || device >= device_count()) return cuda_host_error(cudaErrorInvalidDevice);
  snprintf(id, (size_t)room, "00000000:%02X:00.0", 1 + device);
  return cudaSuccess;
}

/* CUDA_HOST_PEERS=N: of groups of N devices each can access the others' memory (all can). */
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
  static const int group = getenv("CUDA_HOST_PEERS") ? atoi(getenv("CUDA_HOST_PEERS")) : INT_MAX;
  if (device < 0 || device >= device_count() || peer < 0 || peer >= device_count())
    return cuda_host_error(cudaErrorInvalidDevice);
  *can = device != peer && device / group == peer / group;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *id) {
  unsigned domain, bus, slot;
  bool read = sscanf(id, "%x:%x:%x", &domain, &bus, &slot) == 3 && bus >= 1;
  *device = read ? (int)bus - 1 : 0;
  return read && *device < device_count() ? cudaSuccess : cuda_host_error(cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) { return cudaDriverGetVersion(version); }

cudaError_t cudaDeviceReset() { return cudaDeviceSynchronize(); }

/* ---- kernels ------------------------------------------------------------------------------------- */

static std::unordered_map<const void *, size_t> shared_limits;

size_t cuda_host_shared_limit(const void *kernel) {
  auto found = shared_limits.find(kernel);
  return found == shared_limits.end() ? cuda_host_properties().sharedMemPerBlock : found->second;
}

cudaError_t cuda_host_set_attribute(const void *kernel, cudaFuncAttribute attribute, int value) {
  if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout)
    return value <= 100 ? cudaSuccess : cuda_host_error(cudaErrorInvalidValue);
  if (value < 0 || (size_t)value > cuda_host_properties().sharedMemPerBlockOptin)
    return cuda_host_error(cudaErrorInvalidValue);
  size_t &limit = shared_limits[kernel];
  limit = std::max((size_t)value, cuda_host_properties().sharedMemPerBlock);
  return cudaSuccess;
}

cudaError_t cuda_host_get_attributes(cudaFuncAttributes *a, const void *kernel, int launch_bounds) {
  *a = {};
  a->maxThreadsPerBlock = launch_bounds ? launch_bounds : cuda_host_properties().maxThreadsPerBlock;
  a->numRegs = 32;
  a->maxDynamicSharedSizeBytes = (int)cuda_host_shared_limit(kernel);
  return cudaSuccess;
}

/* By threads and dynamic shared memory; nothing is known of registers here. */
cudaError_t cuda_host_occupancy(int *blocks, const void *kernel, int threads, size_t dynamic_shared) {
  const cudaDeviceProp &p = cuda_host_properties();
  if (threads <= 0 || threads > p.maxThreadsPerBlock || dynamic_shared > cuda_host_shared_limit(kernel)) {
    *blocks = 0;
    return cudaSuccess;
  }
  int by_threads = p.maxThreadsPerMultiProcessor / ((threads + 31) / 32 * 32);
  int by_shared = (int)(p.sharedMemPerMultiprocessor / (dynamic_shared + 1024)); /* 1 KiB is the system's */
  *blocks = std::min({by_threads, by_shared, p.maxBlocksPerMultiProcessor});
  return cudaSuccess;
}

/* ---- launches ------------------------------------------------------------------------------------ */

struct Range {
  uintptr_t begin, end;
  bool writes;
};
static std::vector<Range> ranges; /* of the launch's checked parameters */
static bool launching;
static char launching_name[256];

void cuda_host_begin_launch(const char *name, cudaStream_t stream) {
  if (!stream) cuda_host_die("kernel '%s' is launched on the default stream (0): name a stream", name);
  snprintf(launching_name, sizeof launching_name, "launch of '%s'", name);
  launching = true;
  ranges.clear();
}

void cuda_host_check_parameter(const void *p, size_t bytes, size_t alignment, bool writes) {
  if (!launching) return;
  cuda_host_doing = launching_name; /* not before: the arguments' own expressions may do something else */
  cuda_host_must_be_device(p, bytes, writes ? "a buffer to write" : "a buffer to read");
  if ((uintptr_t)p % alignment != 0)
    cuda_host_die("a buffer at %p is misaligned: it must be at a multiple of %zu", p, alignment);
  ranges.push_back({(uintptr_t)p, (uintptr_t)p + bytes, writes});
}

void cuda_host_check_pointer(const void *p) {
  cuda_host_doing = launching_name;
  if (p &&
      !cuda_host_is_device(p, 1)) /* which may be an array's beginning: only what is touched must have memory */
    cuda_host_must_be_device(p, 1, "a pointer");
}

/* PD_READS and PD_WRITES say __restrict__: what one parameter writes no other may touch. */
static void check_overlaps() {
  for (const Range &a : ranges)
    for (const Range &b : ranges)
      if (a.writes && &a != &b && a.begin < b.end && b.begin < a.end)
        cuda_host_die("a buffer of %zu bytes that is written overlaps with another parameter's of %zu",
                      (size_t)(a.end - a.begin), (size_t)(b.end - b.begin));
}

static void check_shape(const cuda_host_shape &l, const cuda_host_kernel &kernel) {
  const cudaDeviceProp &p = cuda_host_properties();
  const unsigned block[3] = {l.block.x, l.block.y, l.block.z}, grid[3] = {l.grid.x, l.grid.y, l.grid.z};
  uint64_t threads = (uint64_t)l.block.x * l.block.y * l.block.z;
  for (int i = 0; i < 3; i++) {
    if (block[i] == 0 || block[i] > (unsigned)p.maxThreadsDim[i])
      cuda_host_die("a block of (%u, %u, %u) threads", l.block.x, l.block.y, l.block.z);
    if (grid[i] == 0 || grid[i] > (unsigned)p.maxGridSize[i])
      cuda_host_die("a grid of (%u, %u, %u) blocks", l.grid.x, l.grid.y, l.grid.z);
  }
  if (threads > (uint64_t)p.maxThreadsPerBlock)
    cuda_host_die("a block of %llu threads: %d is the most", (unsigned long long)threads, p.maxThreadsPerBlock);
  if (kernel.bounds && threads > (uint64_t)kernel.bounds)
    cuda_host_die("a block of %llu threads, beyond __launch_bounds__(%d)", (unsigned long long)threads,
                  kernel.bounds);
  if (l.shared > cuda_host_shared_limit(kernel.address))
    cuda_host_die("%zu bytes of dynamic shared memory: the kernel may have %zu (cudaFuncSetAttribute)", l.shared,
                  cuda_host_shared_limit(kernel.address));
}

cuda_host_kernel_launch::cuda_host_kernel_launch(const char *name, const cuda_host_shape &shape,
                                                 const cuda_host_kernel &kernel, const void *const *parameters)
    : name(name), shape(shape), kernel(kernel) {
  size_t slots = 0;
  for (size_t i = 0; i < kernel.n; i++) slots += (kernel.sizes[i] + sizeof(float4) - 1) / sizeof(float4);
  memory.resize(slots);
  float4 *at = memory.data();
  for (size_t i = 0; i < kernel.n; i++) {
    this->parameters.push_back(memcpy((void *)at, parameters[i], kernel.sizes[i]));
    at += (kernel.sizes[i] + sizeof(float4) - 1) / sizeof(float4);
  }
}

void cuda_host_end_launch(const char *name, const cuda_host_shape &shape, cudaStream_t stream,
                          const cuda_host_kernel &kernel, const void *const *parameters) {
  launching = false;
  cuda_host_doing = launching_name;
  check_overlaps();
  check_shape(shape, kernel);
  cuda_host_doing = nullptr;
  auto launch = std::make_shared<const cuda_host_kernel_launch>(name, shape, kernel, parameters);
  cuda_host_enqueue(stream, {name, [launch] { cuda_host_run_kernel(*launch); }});
}
