/* A rank's GPU: its choice, the arena, the stream of work, and reports of failures. */
#include "messages/messages.h"
#include "run/upward.h"
#include "update/update.h"
#include "pages.h"
#include "pd_cuda.h"
#include "processors.h"
#include "offload/spill.h"
#include "workers.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

cudaStream_t pd_stream;
const struct pd_now *pd_now;

struct Held {
  enum { MEMORY, PINNED, EVENT } kind;
  void *it;
};

static struct {
  char name[256];
  cudaEvent_t work_done;
  Held *held; /* until the end */
  int n_held;
  int ranks = 1; /* on this machine */
  size_t free_at_start, least_free = SIZE_MAX;
} gpu;

/* ---- failures -------------------------------------------------------------------------------- */

/* A later call reports a failed kernel, so the message includes the stage's last work. */
void pd_cuda_check(cudaError_t status, const char *what) {
  if (status == cudaSuccess) return;
  pd_fail("CUDA reports '%s' (%s) at: %s; the stage's last work was %s", cudaGetErrorString(status),
          cudaGetErrorName(status), what, pd_last_work());
}

static bool refuse(cudaError_t status, const char *what, char *why) {
  return pd_refuse(why, "CUDA cannot %s: %s", what, cudaGetErrorString(status));
}

/* ---- resources held until the end -------------------------------------------------------------- */

static void hold(struct Held h) {
  if (gpu.n_held % 64 == 0)
    gpu.held = static_cast<Held *>(realloc(gpu.held, sizeof *gpu.held * (gpu.n_held + 64u)));
  if (!gpu.held) pd_fail("out of memory");
  gpu.held[gpu.n_held++] = h;
}

void *pd_cuda_memory(size_t bytes) {
  void *p;
  pd_cuda_check(cudaMalloc(&p, bytes), "get device memory");
  hold({Held::MEMORY, p});
  return p;
}

void *pd_cuda_pinned(size_t bytes) {
  void *p;
  pd_cuda_check(cudaMallocHost(&p, bytes), "get pinned memory");
  hold({Held::PINNED, p});
  return p;
}

cudaEvent_t pd_cuda_event(void) {
  cudaEvent_t event;
  pd_cuda_check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "make an event");
  hold({Held::EVENT, event});
  return event;
}

static void release(struct Held h) {
  switch (h.kind) {
  case Held::MEMORY: pd_cuda_check(cudaFree(h.it), "give back device memory"); break;
  case Held::PINNED: pd_cuda_check(cudaFreeHost(h.it), "give back pinned memory"); break;
  case Held::EVENT: pd_cuda_check(cudaEventDestroy(static_cast<cudaEvent_t>(h.it)), "give back an event");
  }
}

/* ---- start and end ----------------------------------------------------------------------------- */

pd_machine pd_this_machine(void) {
  pd_machine here = {};
  gethostname(here.host, sizeof here.host - 1);
  memcpy(here.boot, here.host, sizeof here.boot - 1);
  if (FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r")) {
    char boot[sizeof here.boot];
    if (fgets(boot, sizeof boot, f)) memcpy(here.boot, boot, sizeof boot);
    fclose(f);
  }
  return here;
}

struct Standing {
  pd_machine machine;
  int place;
};

int pd_ranks_here(void) { return gpu.ranks; }

/* This rank's number on its machine, in launch order, which is the order of the plan's devices. */
static int number_here(void) {
  Standing mine = {pd_this_machine(), pd.place};
  Standing *all = static_cast<Standing *>(pd_allocate(sizeof *all * static_cast<size_t>(pd.everyone)));
  MPI_Request request;
  MPI_Iallgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, pd_comm_everyone, &request);
  pd_wait(1, &request, "all ranks to name their machine", -1, NULL, -1);
  int number = 0;
  gpu.ranks = 0;
  for (int r = 0; r < pd.everyone; r++) {
    const bool here = !strcmp(all[r].machine.boot, mine.machine.boot);
    number += here && all[r].place < mine.place;
    gpu.ranks += here;
  }
  free(all);
  return number;
}

/* With several ranks, kernels are loaded at start: loading may wait for all running work (CUDA's programming
 * guide, "Lazy Loading"), including a message from a peer that waits for this rank. For the same reason streams
 * must not share the device's work queues, 8 by default: a wait at the head of a queue blocks all its streams, and
 * a line has several streams, including NCCL's. */
/* Unused rows cost little: products read a matrix once for all rows. */
void pd_device_use_rows(int64_t) {}

void pd_device_prepare(void) {
  if (pd_planned_ranks() * pd_tensor_degree() == 1) return;
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); /* the most there are */
}

/* --device, or ranks of one machine take its devices in turn. */
static bool choose_device(int number, int *device, char *why) {
  int n = 0;
  cudaError_t status = cudaGetDeviceCount(&n);
  if (status == cudaSuccess && n == 0) status = cudaErrorNoDevice;
  if (status != cudaSuccess)
    return pd_refuse(why, "CUDA finds no GPU on this machine: %s. help: nvidia-smi lists the driver's devices",
                     cudaGetErrorString(status));
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  if (pd_options.device >= n)
    return pd_refuse(why, "--device %lld: CUDA numbers the GPUs of %s from 0 to %d%s%s%s",
                     (long long)pd_options.device, pd_this_machine().host, n - 1,
                     visible ? " (CUDA_VISIBLE_DEVICES=" : "", visible ? visible : "", visible ? ")" : "");
  *device = pd_options.device >= 0 ? static_cast<int>(pd_options.device) : number % n;
  return true;
}

static bool take_device(char *why) {
  int chosen;
  cudaDeviceProp device;
  if (!choose_device(number_here(), &chosen, why)) return false;
  pd_processors_bind(chosen); /* before the device is opened: CUDA starts threads */
  cudaError_t status = cudaSetDevice(chosen);
  if (status == cudaSuccess) status = cudaGetDeviceProperties(&device, chosen);
  if (status != cudaSuccess) return refuse(status, "use this rank's GPU", why);
  snprintf(gpu.name, sizeof gpu.name, "%s", device.name);
  return device.major >= 8 || pd_refuse(why, "%s has compute capability %d.%d: programs need at least 8.0",
                                        gpu.name, device.major, device.minor);
}

/* CUDA gives such a device a name with the instance's profile: "NVIDIA H100 80GB HBM3 MIG 1g.10gb". */
bool pd_device_is_instance(void) { return strstr(gpu.name, " MIG ") != NULL; }

/* Other processes map whole pieces of 2 MiB (transfer_peer.cu), which may contain other memory (CUDA's programming
 * guide, "Interprocess Communication"): with several ranks the arena has whole pieces. */
static size_t allocated_bytes(const struct pd_stage *s) {
  enum { WHOLE = 2 << 20 };
  size_t bytes = s->arena_bytes ? s->arena_bytes : 1;
  return s->n_stages == 1 ? bytes : (bytes + WHOLE - 1) / WHOLE * WHOLE;
}

static bool get_arena(const struct pd_stage *s, char *why) {
  size_t all = 0;
  void *arena = NULL;
  cudaError_t status = cudaMemGetInfo(&gpu.free_at_start, &all);
  if (s->spilled) return pd_pages_reserve(why) && pd_spill_start(why);
  if (status == cudaSuccess) status = cudaMalloc(&arena, allocated_bytes(s));
  if (status == cudaErrorMemoryAllocation)
    return pd_refuse(why, "cannot get the %.1f MiB that the plan gives this stage: %s has %.1f MiB and %.1f free",
                     (double)s->arena_bytes / (1 << 20), gpu.name, (double)all / (1 << 20),
                     (double)gpu.free_at_start / (1 << 20));
  if (status != cudaSuccess) return refuse(status, "get this stage's memory", why);
  hold({Held::MEMORY, arena});
  pd.arena = static_cast<char *>(arena);
  if (pd_options.emulate) /* emulated gradients are sent and checked */
    status = cudaMemsetAsync(pd.arena, 0, s->arena_bytes, pd_stream);
  else if (pd_moments_bytes())
    status = cudaMemsetAsync(pd.arena + s->moments, 0, pd_moments_bytes(), pd_stream);
  return status == cudaSuccess || refuse(status, "clear the optimizer's state", why);
}

bool pd_device_start(char *why) {
  pd_allow_tf32 = pd.stage->tf32;
  if (!take_device(why)) return false;
  cudaError_t status = cudaStreamCreateWithFlags(&pd_stream, cudaStreamNonBlocking);
  if (status != cudaSuccess) return refuse(status, "make a stream", why);
  if (!get_arena(pd.stage, why)) return false;
  pd_now = static_cast<struct pd_now *>(pd_cuda_memory(sizeof *pd_now));
  gpu.work_done = pd_cuda_event();
  pd_pinned_start();
  return true;
}

void pd_device_finish(void) {
  pd_device_wait("the device's last work");
  pd_graphs_finish();
  if (pd.stage->spilled) {
    pd_spill_place_finish();
    pd_pages_finish();
  }
  pd_workers_finish();
  while (gpu.n_held) release(gpu.held[--gpu.n_held]);
  free(gpu.held);
  gpu.held = NULL;
  pd_cuda_check(cudaStreamDestroy(pd_stream), "end a stream");
}

const char *pd_device_name(void) { return gpu.name; }
const char *pd_device_library(void) { return nullptr; }
int pd_device_threads(void) { return pd_workers(); }

int pd_device_counts(struct pd_device_count to[PD_DEVICE_COUNTS]) {
  const struct pd_device_count counts[] = {{"own_products", pd_counts.own_products},
                                           {"plain_products", pd_counts.plain_products},
                                           {"other_algorithms", pd_counts.other_algorithms},
                                           {"separate_gelus", pd_counts.separate_gelus},
                                           {"separate_sums", pd_counts.separate_sums},
                                           {"refused_algorithms", pd_counts.refused_algorithms},
                                           {"column_convolutions", pd_counts.column_convolutions},
                                           {"own_attentions", pd_counts.own_attentions},
                                           {"late_kernels", pd_counts.late_kernels}};
  static_assert(sizeof counts / sizeof *counts == PD_DEVICE_COUNTS);
  memcpy(to, counts, sizeof counts);
  return PD_DEVICE_COUNTS;
}

/* ---- waiting ----------------------------------------------------------------------------------- */

bool pd_cuda_happened(cudaEvent_t event) {
  cudaError_t status = cudaEventQuery(event);
  if (status == cudaErrorNotReady) return false;
  pd_cuda_check(status, "wait for work of the device");
  return true;
}

static bool happened(void *event) { return pd_cuda_happened(static_cast<cudaEvent_t>(event)); }

void pd_cuda_await(cudaEvent_t event, const char *what) { pd_wait_until(happened, event, what, -1, NULL, -1); }

void pd_device_wait(const char *what) {
  pd_cuda_check(cudaEventRecord(gpu.work_done, pd_stream), "record an event");
  pd_cuda_await(gpu.work_done, what);
}

/* ---- now ----------------------------------------------------------------------------------------- */

static __global__ void __launch_bounds__(1) set_now(struct pd_now *to, struct pd_now now) { *to = now; }

void pd_at(int64_t k) {
  int64_t first = pd_first_sample(k);
  struct pd_now now = {pd.seed, first, pd_following(first), pd.tensor_rank, pd.training};
  PD_LAUNCH(set_now, 1, 1, 0, pd_stream, const_cast<struct pd_now *>(pd_now), now);
}

/* ---- memory --------------------------------------------------------------------------------------- */

static void look_at_memory(void) {
  size_t left, all;
  if (cudaMemGetInfo(&left, &all) == cudaSuccess && left < gpu.least_free) gpu.least_free = left;
}

/* Memory grows in the first updates, when libraries and kernels are loaded, and is freed only at the end. Later
 * samples are rare, because the driver's query is slow. */
void pd_memory_sample(void) {
  static int64_t samples;
  samples++;
  pd_counts.settled =
      pd_updates.done >= pd.first_step + 2; /* as the first, the second may add to gradients, or use other slots */
  if ((samples & (samples - 1)) == 0) look_at_memory();
}

/* Memory that was free on the device at start and is now used: this rank's, if it is alone on the device. */
int64_t pd_memory_peak(void) {
  look_at_memory();
  return gpu.least_free < gpu.free_at_start ? static_cast<int64_t>(gpu.free_at_start - gpu.least_free) : 0;
}
