/* Addresses that are reserved, and memory that is put there and taken away. A page without memory is one of a file of no
 * bytes: who touches it gets a signal, at any time. Memory that is taken away is poisoned, and what is put somewhere can be
 * touched once access is granted. */
#include "host.h"

#include <cuda.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <sys/mman.h>
#include <unistd.h>

enum { GUARD = 64 << 10 };

struct Range { /* reserved */
  size_t bytes;
};
struct Mapping {
  size_t bytes;
  CUmemGenericAllocationHandle memory;
  bool granted;
};

/* These outlive static objects: the check at the program's end looks at them. */
static auto &ranges = *new std::map<uintptr_t, Range>;
static auto &mappings = *new std::map<uintptr_t, Mapping>;
static auto &memories =
    *new std::map<CUmemGenericAllocationHandle, size_t>; /* bytes; a handle is its place in the file, and 1 */
static int file = -1, nothing = -1;
static size_t file_bytes;

static size_t granularity() {
  static const size_t bytes = getenv("CUDA_HOST_PAGE") ? (size_t)atol(getenv("CUDA_HOST_PAGE")) : (size_t)2 << 20;
  return bytes;
}

static int make_file(const char *name) {
  int fd = memfd_create(name, MFD_CLOEXEC);
  if (fd < 0) cuda_host_die("no memory for a file of device memory");
  return fd;
}

static void map_file(char *at, size_t bytes, int protection, int fd, size_t from) {
  if (mmap(at, bytes, protection, MAP_SHARED | MAP_FIXED, fd, (off_t)from) == MAP_FAILED)
    cuda_host_die("device memory cannot be mapped");
}

/* ---- addresses --------------------------------------------------------------------------------------- */

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *,
                                       CUmemAllocationGranularity_flags) {
  *bytes = granularity();
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *at, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
  if (!bytes || bytes % granularity()) return CUDA_ERROR_INVALID_VALUE;
  if (nothing < 0) nothing = make_file("cuda_host_nothing");
  const size_t room = bytes + GUARD + granularity();
  char *whole = (char *)mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (whole == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  char *first = (char *)(((uintptr_t)whole + granularity() - 1) / granularity() * granularity());
  if (first > whole) munmap(whole, (size_t)(first - whole));
  if (whole + room > first + bytes + GUARD)
    munmap(first + bytes + GUARD, (size_t)(whole + room - (first + bytes + GUARD)));
  map_file(first, bytes, cuda_host_page_protection(), nothing, 0);
  cuda_host_add_reserved(first, bytes);
  ranges[(uintptr_t)first] = {bytes};
  *at = (CUdeviceptr)first;
  return CUDA_SUCCESS;
}

static bool is_reserved(uintptr_t at, size_t bytes) {
  auto next = ranges.upper_bound(at);
  if (next == ranges.begin()) return false;
  auto &[first, range] = *std::prev(next);
  return at - first <= range.bytes && bytes <= range.bytes - (at - first);
}

CUresult cuMemAddressFree(CUdeviceptr at, size_t bytes) {
  auto found = ranges.find((uintptr_t)at);
  if (found == ranges.end() || found->second.bytes != bytes) return CUDA_ERROR_INVALID_VALUE;
  auto in = mappings.lower_bound((uintptr_t)at);
  if (in != mappings.end() && in->first < (uintptr_t)at + bytes)
    cuda_host_die("cuMemAddressFree of addresses at which there still is memory");
  ranges.erase(found);
  cuda_host_remove_reserved((char *)at);
  return CUDA_SUCCESS;
}

/* ---- memory ------------------------------------------------------------------------------------------- */

static char *window(CUmemGenericAllocationHandle memory, size_t bytes) {
  char *at = (char *)mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)(memory - 1));
  if (at == MAP_FAILED) cuda_host_die("device memory cannot be mapped");
  return at;
}

static void poison(CUmemGenericAllocationHandle memory) {
  const size_t bytes = memories.at(memory);
  char *at = window(memory, bytes);
  cuda_host_poison(at, bytes);
  munmap(at, bytes);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *memory, size_t bytes, const CUmemAllocationProp *of,
                     unsigned long long) {
  int device;
  cudaGetDevice(&device);
  if (!bytes || bytes % granularity() || of->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      of->location.type != CU_MEM_LOCATION_TYPE_DEVICE || of->location.id != device)
    return CUDA_ERROR_INVALID_VALUE;
  if (!cuda_host_take_memory((ptrdiff_t)bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (file < 0) file = make_file("cuda_host");
  *memory = file_bytes + 1;
  file_bytes += bytes;
  if (ftruncate(file, (off_t)file_bytes)) cuda_host_die("no memory for a file of device memory");
  memories[*memory] = bytes;
  poison(*memory);
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle memory) {
  auto found = memories.find(memory);
  if (found == memories.end()) return CUDA_ERROR_INVALID_VALUE;
  for (auto &[at, m] : mappings)
    if (m.memory == memory) cuda_host_die("cuMemRelease of memory that is still mapped: CUDA can, this cannot");
  cuda_host_take_memory(-(ptrdiff_t)found->second);
  if (fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(memory - 1), (off_t)found->second))
    cuda_host_die("a file of device memory keeps what is given back");
  memories.erase(found);
  return CUDA_SUCCESS;
}

/* ---- memory at addresses ------------------------------------------------------------------------------- */

CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle memory,
                  unsigned long long) {
  auto found = memories.find(memory);
  auto in = mappings.lower_bound((uintptr_t)at);
  if (found == memories.end() || found->second != bytes || offset || at % granularity() ||
      !is_reserved((uintptr_t)at, bytes) || (in != mappings.end() && in->first < (uintptr_t)at + bytes))
    return CUDA_ERROR_INVALID_VALUE;
  for (auto &[where, m] : mappings)
    if (m.memory == memory) cuda_host_die("memory is at two addresses: CUDA can, this cannot");
  mappings[(uintptr_t)at] = {bytes, memory, false};
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *who, size_t n) {
  if (n != 1 || who->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return CUDA_ERROR_INVALID_VALUE;
  for (uintptr_t next = (uintptr_t)at; next < (uintptr_t)at + bytes;) {
    auto found = mappings.find(next);
    if (found == mappings.end()) return CUDA_ERROR_INVALID_VALUE;
    Mapping &m = found->second;
    if (!m.granted) map_file((char *)next, m.bytes, cuda_host_page_protection(), file, m.memory - 1);
    m.granted = true;
    next += m.bytes;
  }
  return CUDA_SUCCESS;
}

/* What runs afterwards finds nothing there. */
CUresult cuMemUnmap(CUdeviceptr at, size_t bytes) {
  auto found = mappings.find((uintptr_t)at);
  if (found == mappings.end() || found->second.bytes != bytes) return CUDA_ERROR_INVALID_VALUE;
  poison(found->second.memory);
  map_file((char *)at, bytes, cuda_host_page_protection(), nothing, 0);
  mappings.erase(found);
  return CUDA_SUCCESS;
}

void cuda_host_must_have_pages(const void *p, size_t bytes, const char *what) {
  const uintptr_t end = (uintptr_t)p + std::max<size_t>(bytes, 1);
  for (uintptr_t at = (uintptr_t)p; at < end;) {
    auto next = mappings.upper_bound(at);
    auto found = next == mappings.begin() ? mappings.end() : std::prev(next);
    if (found == mappings.end() || at >= found->first + found->second.bytes || !found->second.granted)
      cuda_host_die("%s (%zu bytes) has no memory from byte %zu on", what, bytes, (size_t)(at - (uintptr_t)p));
    at = found->first + found->second.bytes;
  }
}

const char *cuda_host_describe_reserved(const void *, size_t at) {
  static char text[128];
  snprintf(text, sizeof text, "byte %zu of reserved addresses: there is no memory, or the host touches it", at);
  return text;
}

/* ---- the driver's functions by name ---------------------------------------------------------------------- */

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult *found) {
  static const struct {
    const char *name;
    void *function;
  } all[] = {{"cuMemGetAllocationGranularity", (void *)cuMemGetAllocationGranularity},
             {"cuMemAddressReserve", (void *)cuMemAddressReserve},
             {"cuMemAddressFree", (void *)cuMemAddressFree},
             {"cuMemCreate", (void *)cuMemCreate},
             {"cuMemRelease", (void *)cuMemRelease},
             {"cuMemMap", (void *)cuMemMap},
             {"cuMemUnmap", (void *)cuMemUnmap},
             {"cuMemSetAccess", (void *)cuMemSetAccess}};
  *function = nullptr;
  for (auto &one : all)
    if (!strcmp(one.name, name)) *function = one.function;
  *found = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

static void check_end(int status, void *) {
  if (status == 0 && !memories.empty())
    cuda_host_die("%zu pieces of memory have not been released", memories.size());
}

[[gnu::constructor]] static void watch_end() {
  if (!getenv("CUDA_HOST_LEAKS") || strcmp(getenv("CUDA_HOST_LEAKS"), "0") != 0) on_exit(check_end, nullptr);
}
