/* Common declarations of emitted CUDA programs and the runtime's CUDA files. nvcc compiles them for a GPU; clang
 * compiles the same text as C++ for tests on machines without a GPU (tests/cuda/host replaces the toolkit's
 * headers). Launches, dynamic shared memory and tensor core instructions therefore use macros; all other code is
 * independent of the compiler. */
#ifndef PD_CUDA_H
#define PD_CUDA_H

#include <climits>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "counts.h"
#include "pd_runtime.h"

typedef __nv_bfloat16 pd_bf16;

/* The stream of all computation on the arena. Other streams synchronize with it by events. */
extern cudaStream_t pd_stream;

/* Whether products and convolutions may round floats to TF32 (--precision tf32); set at the start. */
extern bool pd_allow_tf32;

/* A cuBLASLt algorithm for a product, as cublasLtMatmulAlgoConfigAttributes_t values. */
struct pd_algorithm {
  const char *product; /* name with sizes and types, as in `pdc profile` */
  uint32_t id, tile, stages, split_k, reduction, swizzle, custom, inner_shape, cluster_shape;
};
/* Sets the plan's fastest algorithms, for this device and library version; ignored, with a note, on other devices
 * and versions. */
void pd_use_algorithms(const struct pd_algorithm *of, int n, const char *device, int64_t version);
/* For `pdc profile`'s programs. pd_time_algorithms starts or stops timing algorithms and using the fastest.
 * pd_tell_algorithms prints those of products since its last call, as "algorithm NUMBERS... SECONDS
 * SECONDS_OF_THE_FIRST PRODUCT" or as JSON objects; pd_tell_library prints "library VERSION DEVICE". */
void pd_time_algorithms(bool on);
void pd_tell_algorithms(bool json);
void pd_tell_library(void);

/* An attention that cuDNN computes, with its engine's parameters (attention_cudnn.cu). On another device or
 * version pdc's kernels compute it. */
struct pd_planned_attention {
  const char *attention;     /* name with sizes, as in `pdc profile` */
  int64_t engine, workspace; /* bytes */
  int n_knobs;
  int64_t knobs[8]; /* type and value of each */
};
void pd_use_attentions(const struct pd_planned_attention *of, int n, const char *device, int64_t version);
/* pd_tell_attentions prints "attention ENGINE KNOBS WORKSPACE SECONDS OWN_SECONDS NAME" for each attention since
 * its last call that is faster with cuDNN, or a JSON object for every attention; pd_tell_cudnn prints "cudnn
 * VERSION DEVICE", if cuDNN is present. */
void pd_time_attentions(bool on);
void pd_tell_attentions(bool json);
void pd_tell_cudnn(void);

/* The stream's current microbatch and the run, in device memory, for kernels. */
struct pd_now {
  uint64_t seed;
  int64_t first_sample; /* of the microbatch, counted over the run */
  int64_t following;    /* microbatches of its batch after it, over all replicas */
  int shard;            /* this rank's index in its shard group */
  bool training;        /* false while validating */
};
extern const struct pd_now *pd_now;
/* Sets *pd_now to this rank's microbatch k, in the stream's order. */
void pd_at(int64_t k);

/* On an error, ends the launch with the operation and CUDA's reason. */
void pd_cuda_check(cudaError_t status, const char *what);

/* Identifies a machine by Linux's boot id, or by the host name if the id is not readable: containers may share
 * names across machines, or have several names on one. */
struct pd_machine {
  char host[HOST_NAME_MAX + 1], boot[40];
};
pd_machine pd_this_machine(void);
int pd_ranks_here(void);          /* ranks of the launch on this machine */
bool pd_device_is_instance(void); /* this rank's device is an instance of a divided GPU (MIG) */

/* Device memory, pinned memory and events without timing, freed at the end of the run. */
void *pd_cuda_memory(size_t bytes);
void *pd_cuda_pinned(size_t bytes);
cudaEvent_t pd_cuda_event(void);
/* Allocates the buffers of inputs and figures before messages start, because allocating pinned memory may wait for
 * all device work. */
void pd_pinned_start(void);
/* True if the event's last record is complete; pd_cuda_await waits for it and advances messages. */
bool pd_cuda_happened(cudaEvent_t event);
void pd_cuda_await(cudaEvent_t event, const char *what);

/* Launches the graph recorded for these arguments; false: the caller must call the pass, then pd_graph_called.
 * Records only with --graphs. */
bool pd_graph_launched(const void *pass, const uint64_t *arguments, size_t n);
void pd_graph_called(void);
void pd_graphs_finish(void);

template <typename T> inline uint64_t pd_word(T x) {
  if constexpr (std::is_pointer_v<T>)
    return reinterpret_cast<uintptr_t>(x);
  else
    return static_cast<uint64_t>(x);
}

/* Runs pass(arguments...), or its graph; the enqueued work must depend only on the arguments' values. */
template <typename... P> inline void pd_graph(void (*pass)(P...), std::type_identity_t<P>... arguments) {
  const uint64_t words[] = {0, pd_word(arguments)...};
  if (pd_graph_launched(reinterpret_cast<const void *>(pass), words, sizeof words / sizeof *words)) return;
  pass(arguments...);
  pd_graph_called();
}

/* Grid blocks along y; CUDA allows 65535 (2^31 - 1 along x). pd_grid_part: for kernels whose blocks loop over n in
 * steps of gridDim.y. pd_grid_all: for kernels with one block for each of n; ends the launch above the limit. */
constexpr int64_t PD_GRID_MOST = 65535;
inline unsigned pd_grid_part(int64_t n) { return static_cast<unsigned>(n < PD_GRID_MOST ? n : PD_GRID_MOST); }
inline unsigned pd_grid_all(int64_t n, const char *what) {
  if (n > PD_GRID_MOST)
    pd_fail("%s is too large for its kernel: a grid of %lld blocks along y, but CUDA allows %d", what,
            (long long)n, static_cast<int>(PD_GRID_MOST));
  return static_cast<unsigned>(n);
}

/* kernel<<<grid, block, shared bytes, stream>>>(arguments); a template's name with commas in parentheses. */
#ifdef __CUDACC__
#define PD_LAUNCH(kernel, grid, block, shared, stream, ...)  \
  do {                                                       \
    static bool pd_launched;                                 \
    pd_count_launch(&pd_launched);                           \
    kernel<<<grid, block, shared, stream>>>(__VA_ARGS__);    \
    pd_cuda_check(cudaPeekAtLastError(), "launch " #kernel); \
  } while (0)
#else
#define PD_LAUNCH(kernel, grid, block, shared, stream, ...)                                      \
  do {                                                                                           \
    static bool pd_launched;                                                                     \
    pd_count_launch(&pd_launched);                                                               \
    cuda_host_begin_launch(#kernel, stream);                                                     \
    cuda_host_launch(#kernel, {grid, block, shared}, stream, kernel __VA_OPT__(, ) __VA_ARGS__); \
  } while (0)
#endif

/* The gradient scale of update t in device memory, non-finite if a gradient is; NULL: the host passes the scale
 * (sums.cu). */
const float *pd_scale_of(int64_t t);

/* Seconds per byte of copies to and from pinned host memory, both directions at once (link.cu), for `pdc profile
 * --spill`. */
struct pd_link {
  double to_device, from_device;
};
pd_link pd_time_link(void);
/* Seconds per byte that the host reads or writes in an update in pinned memory, with the programs' number of
 * threads. */
double pd_time_home_update(void);

/* Pointer parameters of kernels with their number of elements, which tests/cuda/host checks at every access. */
#ifdef __CUDACC__
#define PD_READS(type, n) const type *__restrict__
#define PD_WRITES(type, n) type *__restrict__
#else
#define PD_READS(type, n) cuda_host_pointer<const type, (n)>
#define PD_WRITES(type, n) cuda_host_pointer<type, (n)>
#endif

/* type *name: the block's dynamic shared memory, at a multiple of 16 bytes; once in a kernel. */
#ifdef __CUDACC__
#define PD_SHARED(type, name)                                        \
  extern __shared__ __align__(16) unsigned char pd_dynamic_shared[]; \
  type *const name = (type *)pd_dynamic_shared
#else
#define PD_SHARED(type, name) type *const name = (type *)cuda_host_dynamic_shared()
#endif

#endif
