/* Internals of the emulated machine, shared by its files and the emulated libraries (cuBLASLt, cuDNN, NCCL). */
#ifndef CUDA_HOST_H
#define CUDA_HOST_H

#include <cuda_runtime.h>

#include <cstdarg>
#include <functional>
#include <memory>
#include <vector>

/* ---- errors.cpp ---------------------------------------------------------------------------------- */

/* "cuda_host: MESSAGE", what runs or is being enqueued, exit status 3. For what a device would not survive, or
 * would survive by luck. */
[[noreturn]] void cuda_host_die(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Sets the last error and returns it. */
cudaError_t cuda_host_error(cudaError_t e);

/* ---- random.cpp ---------------------------------------------------------------------------------- */

/* CUDA_HOST_SEED, mixed with the rank under mpirun; 0: everything runs at once and in order. */
uint64_t cuda_host_seed();
uint64_t cuda_host_random();
inline uint64_t cuda_host_random_below(uint64_t n) { return cuda_host_random() % n; }
/* The numbers below n, each once: steps of one size around a circle. */
struct cuda_host_order {
  uint64_t n, step, at;
  uint64_t next() {
    uint64_t i = at;
    at += step;
    if (at >= n) at -= n;
    return i;
  }
};
cuda_host_order cuda_host_shuffled(uint64_t n);

/* ---- memory.cpp ---------------------------------------------------------------------------------- */

void cuda_host_poison(void *p, size_t bytes);
/* Whether these bytes lie within one allocation of device memory, or one of pinned memory. */
bool cuda_host_is_device(const void *p, size_t bytes);
bool cuda_host_is_pinned(const void *p, size_t bytes);
/* Dies unless operations may use these bytes: device memory or pinned. */
void cuda_host_must_be_device(const void *p, size_t bytes, const char *what);
/* Device memory can be touched between the two, which nest. */
void cuda_host_open_memory();
void cuda_host_close_memory();
/* Device memory becomes, where it is, memory of a file, whose last page is the caller's: page size, that page and
 * where the allocation begins in the file; -1: it is no allocation. And the other way around, in another
 * process. */
int cuda_host_share_memory(void *p, size_t *file, size_t *at, size_t *bytes, void **page);
void *cuda_host_map_shared(int fd, size_t file, size_t at, size_t bytes, void **page);
void cuda_host_unmap_shared(void *p, void *page);
/* "device memory at byte 128 of 4096", for an address that nobody may touch; NULL: it is nothing of ours. */
const char *cuda_host_describe(const void *p);
size_t cuda_host_memory_in_use();

/* ---- pages.cpp ----------------------------------------------------------------------------------- */

/* Dies unless all pages of these bytes, which are reserved, have memory. */
void cuda_host_must_have_pages(const void *p, size_t bytes, const char *what);
const char *cuda_host_describe_reserved(const void *p, size_t at);
/* memory.cpp's part: addresses that others may point to, a device's memory got or given back (false: it has no
 * more), and the protection that its pages have now. */
void cuda_host_add_reserved(char *at, size_t bytes);
void cuda_host_remove_reserved(char *at);
bool cuda_host_take_memory(ptrdiff_t bytes);
int cuda_host_page_protection();

/* ---- stream.cpp ---------------------------------------------------------------------------------- */

/* One operation of a stream. It runs when those before it in its stream are done and ready() is true (none: at
 * once). run() sees device memory. ready() may look outside, at other processes; it opens device memory if it
 * must. An operation without ready() can be captured, and then runs again and again. */
struct cuda_host_operation {
  const char *name;
  std::function<void()> run;
  std::function<bool()> ready = {};
};
void cuda_host_enqueue(cudaStream_t stream, cuda_host_operation operation);
size_t cuda_host_queued(); /* operations that have not run */
/* The operation that runs takes so long on a device, for events that are recorded from now on. */
void cuda_host_spend(double seconds);

/* ---- ipc.cpp ------------------------------------------------------------------------------------- */

/* An event between processes: how often it was recorded, and how often that has happened. */
struct cuda_host_shared_event;
cuda_host_shared_event *cuda_host_new_shared_event();
uint64_t cuda_host_record_shared(cuda_host_shared_event *e); /* the number of the record */
void cuda_host_happens(cuda_host_shared_event *e, uint64_t record);
uint64_t cuda_host_recorded(const cuda_host_shared_event *e);
bool cuda_host_has_happened(const cuda_host_shared_event *e, uint64_t record);
void cuda_host_end_shared_event(cuda_host_shared_event *e);
void cuda_host_check_free(void *p); /* dies if another process still has this memory mapped */
/* A copy to there leaves nothing behind: CUDA_HOST_IPC=blind, and it is another process's memory. */
bool cuda_host_is_blind(const void *to);

/* ---- device.cpp, block.cpp ----------------------------------------------------------------------- */

const cudaDeviceProp &cuda_host_properties();
size_t cuda_host_shared_limit(const void *kernel); /* bytes of dynamic shared memory that it may have */
/* A launch with parameters of its own, each at a multiple of 16 bytes. */
struct cuda_host_kernel_launch {
  const char *name; /* as written at the launch */
  cuda_host_shape shape;
  cuda_host_kernel kernel;
  std::vector<void *> parameters;
  std::vector<float4> memory;
  cuda_host_kernel_launch(const char *name, const cuda_host_shape &shape, const cuda_host_kernel &kernel,
                          const void *const *parameters);
};
void cuda_host_run_kernel(const cuda_host_kernel_launch &launch);
/* Bytes from the start of the dynamic shared memory of the block that runs; -1: the address is not near it. */
ptrdiff_t cuda_host_in_shared(const void *p, size_t *bytes);
/* "kernel 'name', block (1, 0, 0), thread (3, 0, 0)", or what else is under way. */
const char *cuda_host_where();
extern const char *cuda_host_doing; /* the operation that runs or is being enqueued; NULL: none */

#endif
