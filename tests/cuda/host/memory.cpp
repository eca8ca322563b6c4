/* Device and pinned memory: fresh bytes are poison, the byte behind an allocation cannot be touched, and device
 * memory only while operations run. */
#include "host.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sys/mman.h>
#include <unistd.h>

enum { GUARD = 64 << 10, HUGE = 2 << 20, ALIGNMENT = 256 /* of cudaMalloc */ };
enum Kind {
  DEVICE,
  PINNED,
  REGISTERED,
  IMPORTED /* device memory of another process */,
  RESERVED /* addresses (pages.cpp) */
};

/* [mapping: slack, bytes, up to ALIGNMENT - 1 bytes of poison][guard] */
struct Allocation {
  Kind kind;
  char *at, *mapping;
  size_t bytes, mapped; /* without the guard */
};

static std::map<uintptr_t, Allocation> &allocations() { /* by first byte; outlives other static objects */
  static auto *all = new std::map<uintptr_t, Allocation>;
  return *all;
}
static size_t in_use;
static int open_depth;

static bool protects() {
  static const bool on = !getenv("CUDA_HOST_PROTECT") || strcmp(getenv("CUDA_HOST_PROTECT"), "0") != 0;
  return on;
}

size_t cuda_host_memory_in_use() { return in_use; }

void cuda_host_poison(void *p, size_t bytes) {
  char *at = (char *)p;
  uint64_t poison = CUDA_HOST_POISON;
  /* As if the pattern began at address 0, so that aligned elements hold it whole. */
  for (; bytes > 0 && (uintptr_t)at % 8 != 0; at++, bytes--) *at = ((char *)&poison)[(uintptr_t)at % 8];
  for (; bytes >= 8; at += 8, bytes -= 8) memcpy(at, &poison, 8);
  memcpy(at, &poison, bytes);
}

static const Allocation *find(const void *p) { /* the last that begins at p or before */
  auto next = allocations().upper_bound((uintptr_t)p);
  return next == allocations().begin() ? nullptr : &std::prev(next)->second;
}

static const Allocation *holder(const void *p, size_t bytes) {
  const Allocation *a = find(p);
  return a && bytes <= a->bytes && (size_t)((const char *)p - a->at) <= a->bytes - bytes ? a : nullptr;
}

static bool is_of_device(Kind k) { return k == DEVICE || k == IMPORTED || k == RESERVED; }

bool cuda_host_is_device(const void *p, size_t bytes) {
  const Allocation *a = holder(p, bytes);
  return a && is_of_device(a->kind);
}

bool cuda_host_is_pinned(const void *p, size_t bytes) {
  const Allocation *a = holder(p, bytes);
  return a && (a->kind == PINNED || a->kind == REGISTERED);
}

void cuda_host_must_be_device(const void *p, size_t bytes, const char *what) {
  const Allocation *a = holder(p, bytes);
  if (a && a->kind == RESERVED) cuda_host_must_have_pages(p, bytes, what);
  if (a) return;
  a = holder(p, 0);
  if (a)
    cuda_host_die("%s is of %zu bytes at byte %zu of an allocation of %zu", what, bytes,
                  (size_t)((const char *)p - a->at), a->bytes);
  cuda_host_die("%s (%zu bytes at %p) is in no memory of the device", what, bytes, p);
}

/* ---- allocation ---------------------------------------------------------------------------------- */

static cudaError_t allocate(void **p, size_t bytes, Kind kind) {
  *p = nullptr;
  if (bytes == 0) return cudaSuccess;
  size_t room = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT, page = room >= HUGE / 2 ? HUGE : GUARD;
  Allocation a = {kind, nullptr, nullptr, bytes, (room + page - 1) / page * page};
  if (kind == DEVICE && bytes > cuda_host_properties().totalGlobalMem - in_use)
    return cuda_host_error(cudaErrorMemoryAllocation);
  char *whole = (char *)mmap(nullptr, a.mapped + page + GUARD, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (whole == MAP_FAILED) return cuda_host_error(cudaErrorMemoryAllocation);
  a.mapping = (char *)(((uintptr_t)whole + page - 1) / page * page);
  if (a.mapping > whole) munmap(whole, (size_t)(a.mapping - whole));
  char *guard = a.mapping + a.mapped, *end = whole + a.mapped + page + GUARD;
  if (end > guard + GUARD) munmap(guard + GUARD, (size_t)(end - (guard + GUARD)));
  /* Of another kind than the memory before it, so that the kernel need not join and split the two whenever
   * protection changes. */
  mmap(guard, GUARD, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (page == HUGE) madvise(a.mapping, a.mapped, MADV_HUGEPAGE); /* protection then changes in microseconds */
  a.at = guard - room;
  cuda_host_poison(a.at, room);
  if (kind == DEVICE) {
    in_use += bytes;
    if (protects() && open_depth == 0) mprotect(a.mapping, a.mapped, PROT_NONE);
  }
  allocations()[(uintptr_t)a.at] = a;
  *p = a.at;
  return cudaSuccess;
}

/* Nothing has been written behind its last byte, up to where the guard would have caught it. */
static void check_tail(const Allocation &a) {
  for (char *at = a.at + a.bytes; at < a.mapping + a.mapped; at++) {
    uint64_t poison = CUDA_HOST_POISON;
    if (*at != ((char *)&poison)[(uintptr_t)at % 8])
      cuda_host_die("somebody has written byte %zu of an allocation of %zu bytes", (size_t)(at - a.at), a.bytes);
  }
}

static cudaError_t release(void *p, bool device) {
  if (!p) return cudaSuccess;
  cudaError_t e = cudaDeviceSynchronize();
  if (e != cudaSuccess) return e;
  auto found = allocations().find((uintptr_t)p);
  if (found == allocations().end() || found->second.kind != (device ? DEVICE : PINNED))
    cuda_host_die("%s of what is not allocated", device ? "cudaFree" : "cudaFreeHost");
  if (device) cuda_host_check_free(p);
  Allocation a = found->second;
  cuda_host_open_memory();
  check_tail(a);
  allocations().erase(found);
  cuda_host_close_memory();
  if (device) in_use -= a.bytes;
  munmap(a.mapping, a.mapped + GUARD);
  return cudaSuccess;
}

cudaError_t cuda_host_malloc(void **p, size_t bytes) { return allocate(p, bytes, DEVICE); }
cudaError_t cuda_host_malloc_pinned(void **p, size_t bytes) { return allocate(p, bytes, PINNED); }
cudaError_t cudaFree(void *p) { return release(p, true); }
cudaError_t cudaFreeHost(void *p) { return release(p, false); }

cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned) {
  if (!p || bytes == 0 || holder(p, 1) || holder((char *)p + bytes - 1, 1))
    return cuda_host_error(cudaErrorInvalidValue);
  allocations()[(uintptr_t)p] = {REGISTERED, (char *)p, (char *)p, bytes, bytes};
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *p) {
  const Allocation *a = holder(p, 1);
  if (!a || a->kind != REGISTERED || a->at != p) return cuda_host_error(cudaErrorInvalidValue);
  allocations().erase((uintptr_t)p);
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *a, const void *p) {
  const Allocation *found = holder(p, 1);
  *a = {};
  a->device = -2; /* unregistered memory's, as in the toolkit */
  if (found) {
    bool device = is_of_device(found->kind);
    a->type = device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    cudaGetDevice(&a->device);
    a->devicePointer = (void *)p;
    a->hostPointer = device ? nullptr : (void *)p;
  }
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
  *total = cuda_host_properties().totalGlobalMem;
  *free = *total - in_use;
  return cudaSuccess;
}

/* ---- memory of files, which other processes map ---------------------------------------------------- */

enum { PAGE = 4096 };

int cuda_host_share_memory(void *p, size_t *file, size_t *at, size_t *bytes, void **page) {
  auto found = allocations().find((uintptr_t)p);
  if (found == allocations().end() || found->second.kind != DEVICE) return -1;
  const Allocation &a = found->second;
  int fd = memfd_create("cuda_host", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, (off_t)(a.mapped + PAGE))) cuda_host_die("no memory for a file of device memory");
  cuda_host_open_memory();
  for (size_t done = 0; done < a.mapped;) {
    ssize_t n = pwrite(fd, a.mapping + done, a.mapped - done, (off_t)done);
    if (n <= 0) cuda_host_die("no memory for a file of device memory");
    done += (size_t)n;
  }
  if (mmap(a.mapping, a.mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
    cuda_host_die("a file of device memory cannot be mapped");
  cuda_host_close_memory();
  *page = mmap(nullptr, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)a.mapped);
  *file = a.mapped;
  *at = (size_t)(a.at - a.mapping);
  *bytes = a.bytes;
  return fd;
}

void *cuda_host_map_shared(int fd, size_t file, size_t at, size_t bytes, void **page) {
  char *mapping =
      (char *)mmap(nullptr, file + GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  *page = mmap(nullptr, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)file);
  int how = protects() && open_depth == 0 ? PROT_NONE : PROT_READ | PROT_WRITE;
  if (mapping == MAP_FAILED || *page == MAP_FAILED ||
      mmap(mapping, file, how, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
    cuda_host_die("memory of another process cannot be mapped");
  allocations()[(uintptr_t)(mapping + at)] = {IMPORTED, mapping + at, mapping, bytes, file};
  return mapping + at;
}

void cuda_host_unmap_shared(void *p, void *page) {
  Allocation a = allocations().at((uintptr_t)p);
  allocations().erase((uintptr_t)p);
  munmap(a.mapping, a.mapped + GUARD);
  munmap(page, PAGE);
}

/* ---- addresses without memory (pages.cpp) ---------------------------------------------------------- */

void cuda_host_add_reserved(char *at, size_t bytes) {
  allocations()[(uintptr_t)at] = {RESERVED, at, at, bytes, bytes};
}

void cuda_host_remove_reserved(char *at) {
  auto found = allocations().find((uintptr_t)at);
  if (found == allocations().end() || found->second.kind != RESERVED)
    cuda_host_die("cuMemAddressFree of what is not reserved");
  munmap(at, found->second.bytes + GUARD);
  allocations().erase(found);
}

bool cuda_host_take_memory(ptrdiff_t bytes) {
  if (bytes > 0 && (size_t)bytes > cuda_host_properties().totalGlobalMem - in_use) return false;
  in_use += (size_t)bytes;
  return true;
}

int cuda_host_page_protection() { return protects() && open_depth == 0 ? PROT_NONE : PROT_READ | PROT_WRITE; }

/* ---- who may touch it ---------------------------------------------------------------------------- */

static void protect(int how) {
  if (protects())
    for (auto &[first, a] : allocations())
      if (is_of_device(a.kind)) mprotect(a.mapping, a.mapped, how);
}

void cuda_host_open_memory() {
  if (open_depth++ == 0) protect(PROT_READ | PROT_WRITE);
}

void cuda_host_close_memory() {
  if (--open_depth == 0) protect(PROT_NONE);
}

const char *cuda_host_describe(const void *p) {
  static char text[256];
  for (auto &[first, a] : allocations()) {
    if (a.kind == REGISTERED || (char *)p < a.mapping || (char *)p >= a.mapping + a.mapped + GUARD) continue;
    if (a.kind == RESERVED && (char *)p < a.at + a.bytes)
      return cuda_host_describe_reserved(p, (size_t)((char *)p - a.at));
    const char *kind = a.kind == DEVICE ? "device" : a.kind == PINNED ? "pinned" : "another process's device";
    if ((char *)p >= a.at && (char *)p < a.at + a.bytes)
      snprintf(text, sizeof text, "byte %td of %zu of device memory from the host", (char *)p - a.at, a.bytes);
    else
      snprintf(text, sizeof text, "byte %td of an allocation of %zu bytes of %s memory: out of bounds",
               (char *)p - a.at, a.bytes, kind);
    return text;
  }
  return nullptr;
}

/* ---- at the end ---------------------------------------------------------------------------------- */

static void check_end(int status, void *) {
  if (status != 0) return;
  cuda_host_doing = "at the program's end";
  if (size_t left = cuda_host_queued()) cuda_host_die("%zu operations have not run", left);
  size_t n = 0, bytes = 0;
  cuda_host_open_memory();
  for (auto &[first, a] : allocations())
    if (a.kind != REGISTERED) {
      if (a.kind != IMPORTED && a.kind != RESERVED) check_tail(a);
      n++;
      bytes += a.bytes;
    }
  if (n > 0)
    cuda_host_die("%zu allocations of device and pinned memory, together %zu bytes, have not been freed", n,
                  bytes);
}

[[gnu::constructor]] static void watch_end() {
  if (!getenv("CUDA_HOST_LEAKS") || strcmp(getenv("CUDA_HOST_LEAKS"), "0") != 0) on_exit(check_end, nullptr);
}
