/* Measures the link between a GPU's memory and its host's for `pdc profile --spill`, as offload uses it
 * (spill_host.cu): copies to and from pinned memory, in one stream per direction, both at once. Also measures an
 * update by the host (home.cu). */
#include "update/update.h"
#include "pd_cuda.h"
#include "workers.h"

#include <algorithm>
#include <chrono>
#include <string.h>

namespace {

enum { ROUNDS = 9, BLOCKS = 8 };
const size_t BLOCK = 8 << 20; /* bytes */

struct Way {
  cudaMemcpyKind kind;
  cudaStream_t stream;
  cudaEvent_t start, end;
  char *device, *host;
  float milliseconds[ROUNDS];
};

void start(Way *w) {
  pd_cuda_check(cudaStreamCreateWithFlags(&w->stream, cudaStreamNonBlocking), "make a stream");
  pd_cuda_check(cudaEventCreate(&w->start), "make an event");
  pd_cuda_check(cudaEventCreate(&w->end), "make an event");
  pd_cuda_check(cudaMalloc((void **)&w->device, BLOCK), "get memory for profiling");
  pd_cuda_check(cudaMallocHost((void **)&w->host, BLOCK), "get pinned memory for profiling");
}

void enqueue(const Way *w) {
  const bool in = w->kind == cudaMemcpyHostToDevice;
  pd_cuda_check(cudaEventRecord(w->start, w->stream), "record an event");
  for (int i = 0; i < BLOCKS; i++)
    pd_cuda_check(cudaMemcpyAsync(in ? w->device : w->host, in ? w->host : w->device, BLOCK, w->kind, w->stream),
                  "copy");
  pd_cuda_check(cudaEventRecord(w->end, w->stream), "record an event");
}

void read_clock(Way *w, int round) {
  pd_cuda_check(cudaEventSynchronize(w->end), "time copies");
  pd_cuda_check(cudaEventElapsedTime(&w->milliseconds[round], w->start, w->end), "time copies");
}

double finish(Way *w) {
  pd_cuda_check(cudaStreamDestroy(w->stream), "end a stream");
  pd_cuda_check(cudaEventDestroy(w->start), "end an event");
  pd_cuda_check(cudaEventDestroy(w->end), "end an event");
  pd_cuda_check(cudaFree(w->device), "free memory");
  pd_cuda_check(cudaFreeHost(w->host), "give back pinned memory");
  std::nth_element(w->milliseconds, w->milliseconds + ROUNDS / 2, w->milliseconds + ROUNDS);
  return 1e-3 * w->milliseconds[ROUNDS / 2] / (double)(BLOCK * BLOCKS);
}

/* AdamW's: as many arrays as it has, in tiles as programs have them. */
struct Arrays {
  enum { N = 4, TILES = 1024 };
  float *at[N]; /* weights, gradient, moments */
};

void update_tile(const Arrays &a, int tile) {
  const pd_adamw_arguments arguments = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01};
  const pd_adamw_step step = pd_adamw_constants(&arguments, {.lr = 1e-3, .ahead = 0, .damping = 0}, 0, 1, true);
  const size_t first = static_cast<size_t>(tile) * PD_TILE;
  float *moment[] = {a.at[2] + first, a.at[3] + first};
  const pd_change unchanged = {NULL, NULL, false};
  pd_adamw_elements(PD_TILE, &step, a.at[0] + first, a.at[0] + first, a.at[1] + first, moment, &unchanged);
}

double seconds_of_update(const Arrays &a) {
  const auto start = std::chrono::steady_clock::now();
  pd_workers_share(0, Arrays::TILES, [&](int tile, int) { update_tile(a, tile); });
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

} // namespace

pd_link pd_time_link(void) {
  Way in = {.kind = cudaMemcpyHostToDevice}, out = {.kind = cudaMemcpyDeviceToHost};
  for (Way *w : {&in, &out}) start(w);
  for (int round = -1; round < ROUNDS; round++) { /* the first is not counted: its numbers are overwritten */
    for (const Way *w : {&in, &out}) enqueue(w);
    for (Way *w : {&in, &out}) read_clock(w, round < 0 ? 0 : round);
  }
  return {finish(&in), finish(&out)};
}

double pd_time_home_update(void) {
  const size_t bytes = sizeof(float) * Arrays::TILES * PD_TILE;
  double seconds[ROUNDS];
  Arrays a;
  pd_workers_start();
  for (float *&at : a.at) {
    pd_cuda_check(cudaMallocHost((void **)&at, bytes), "get pinned memory for profiling");
    memset(at, 0, bytes);
  }
  seconds_of_update(a);
  for (double &one : seconds) one = seconds_of_update(a);
  for (float *at : a.at) pd_cuda_check(cudaFreeHost(at), "give back pinned memory");
  std::nth_element(seconds, seconds + ROUNDS / 2, seconds + ROUNDS);
  return seconds[ROUNDS / 2] / static_cast<double>(bytes * (2 * Arrays::N - 1)); /* the gradient is read alone */
}
