/* What emitted CUDA programs and the runtime's CUDA files share. nvcc compiles them for a GPU; clang compiles the
 * same text as C++ for tests on machines without one (tests/cuda/host, whose headers stand in for the toolkit's).
 * So launches, dynamic shared memory and tensor-core instructions go through macros, and nothing else may depend
 * on the compiler. */
#ifndef PD_CUDA_H
#define PD_CUDA_H

#include <climits>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "counts.h"
#include "pd_runtime.h"

typedef __nv_bfloat16 pd_bf16;

/* The stream of all computation on the arena. Other streams meet it by events. */
extern cudaStream_t pd_stream;

/* Whether products and convolutions may round floats to TF32 (--precision tf32); set at the start. */
extern bool pd_allow_tf32;

/* How cuBLASLt does a product, by the numbers that it gives its algorithms (cublasLtMatmulAlgoConfigAttributes_t). */
struct pd_algorithm {
  const char *product; /* by sizes and types, as `pdc profile` calls it */
  uint32_t id, tile, stages, split_k, reduction, swizzle, custom, inner_shape, cluster_shape;
};
/* What was the fastest for products on this device with this version of the library; on others it is not used, which is
 * noted. */
void pd_use_algorithms(const struct pd_algorithm *of, int n, const char *device, int64_t version);
/* For the program of `pdc profile`: from here on algorithms are timed, and the fastest is taken, or not any more. The second prints those of
 * products that have run since the last call, "algorithm NUMBERS... SECONDS SECONDS_OF_THE_FIRST PRODUCT" or an object
 * each; the third "library VERSION DEVICE". */
void pd_time_algorithms(bool on);
void pd_tell_algorithms(bool json);
void pd_tell_library(void);

/* Which attentions cuDNN computes, and how, by the numbers that it gives its engines (attention_cudnn.cu); as above: on
 * another device or with another version kernels of ours compute them. */
struct pd_planned_attention {
  const char *attention;     /* by sizes, as `pdc profile` calls it */
  int64_t engine, workspace; /* bytes */
  int n_knobs;
  int64_t knobs[8]; /* type and value of each */
};
void pd_use_attentions(const struct pd_planned_attention *of, int n, const char *device, int64_t version);
/* "attention ENGINE KNOBS WORKSPACE SECONDS OWN_SECONDS NAME" for each that is new since the last call and that cuDNN is
 * faster at than our own kernels, or an object for each at all; "cudnn VERSION DEVICE", where there is a cuDNN. */
void pd_time_attentions(bool on);
void pd_tell_attentions(bool json);
void pd_tell_cudnn(void);

/* What kernels know of the microbatch that the stream is at, and of the run, in device memory. */
struct pd_now {
  uint64_t seed;
  int64_t first_sample; /* the microbatch's, counted over the run */
  int64_t following;    /* microbatches of its batch after it, over all replicas */
  int shard;            /* this rank, among those that share its layers */
  bool training;        /* false while validating */
};
extern const struct pd_now *pd_now;
/* Sets *pd_now to this rank's microbatch k, in the stream's order. */
void pd_at(int64_t k);

/* Ends the launch with what was being done and CUDA's reason. */
void pd_cuda_check(cudaError_t status, const char *what);

/* Containers may have one name on several machines, or several on one: what tells machines apart is Linux's number of
 * their start (boot), or the name, where that cannot be read. */
struct pd_machine {
  char host[HOST_NAME_MAX + 1], boot[40];
};
pd_machine pd_this_machine(void);
int pd_ranks_here(void);          /* so many of the launch's are on this one */
bool pd_device_is_instance(void); /* this rank's device is an instance of a divided GPU (MIG) */

/* Device memory, pinned memory and events without times, which are given back at the end of the run. */
void *pd_cuda_memory(size_t bytes);
void *pd_cuda_pinned(size_t bytes);
cudaEvent_t pd_cuda_event(void);
/* The buffers of inputs and figures: getting pinned memory may wait for all that the device has to do, and so is
 * done before messages are under way. */
void pd_pinned_start(void);
/* Whether what was recorded last has happened; the second waits for it, while messages move on. */
bool pd_cuda_happened(cudaEvent_t event);
void pd_cuda_await(cudaEvent_t event, const char *what);

/* Whether the pass was launched as the graph recorded for these arguments; else it is to be called, between this
 * and pd_graph_called. Without --graphs nothing is recorded. */
bool pd_graph_launched(const void *pass, const uint64_t *arguments, size_t n);
void pd_graph_called(void);
void pd_graphs_finish(void);

template <typename T> inline uint64_t pd_word(T x) {
  if constexpr (std::is_pointer_v<T>)
    return reinterpret_cast<uintptr_t>(x);
  else
    return static_cast<uint64_t>(x);
}

/* pass(arguments...), which enqueues work that depends on their values alone, or the graph of it. */
template <typename... P> inline void pd_graph(void (*pass)(P...), std::type_identity_t<P>... arguments) {
  const uint64_t words[] = {0, pd_word(arguments)...};
  if (pd_graph_launched(reinterpret_cast<const void *>(pass), words, sizeof words / sizeof *words)) return;
  pass(arguments...);
  pd_graph_called();
}

/* Blocks of a grid along y, of which CUDA has at most 65535 (2^31 - 1 along x). pd_grid_part: for a kernel whose blocks
 * loop over n in steps of gridDim.y. pd_grid_all: for a kernel that has a block for each of n; ends the launch above the
 * limit. */
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

/* What update t multiplies gradients by, on the device, or what is not finite where one of them is not; NULL: the host
 * says it (sums.cu). */
const float *pd_scale_of(int64_t t);

/* Seconds of a byte that is copied over the link to the host's memory, which is pinned, and back, both ways at once (link.cu):
 * for the program of `pdc profile --spill`. */
struct pd_link {
  double to_device, from_device;
};
pd_link pd_time_link(void);
/* Seconds of a byte that the host reads or writes in an update in pinned memory, on as many threads as programs have. */
double pd_time_home_update(void);

/* A kernel's pointer parameters with how many elements they have, for readers and for tests/cuda/host, which
 * checks every access against it. */
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
