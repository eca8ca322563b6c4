/* Offload to pinned host memory: one stream of copies per direction. */
#include "spill_place.h"

#include "offload/spill.h"

static struct {
  char *home;
  cudaStream_t in, out;
} pinned;

static bool start(const char *, int64_t bytes, char *why) {
  cudaError_t status = cudaMallocHost(&pinned.home, static_cast<size_t>(bytes));
  if (status != cudaSuccess)
    return pd_refuse(why, "--spill host: cannot pin %.1f MiB of host memory for offloaded blocks: %s",
                     static_cast<double>(bytes) / (1 << 20), cudaGetErrorString(status));
  pinned.in = pd_spill_stream(), pinned.out = pd_spill_stream();
  return true;
}

static void finish() {
  for (cudaStream_t s : {pinned.in, pinned.out}) pd_cuda_check(cudaStreamDestroy(s), "end a stream");
  pd_cuda_check(cudaFreeHost(pinned.home), "give back pinned memory");
}

char *pd_spill_pinned(const pd_spill_block *b) { return pinned.home + b->home; }

static void bring(pd_spill_block *b, const pd_spill_events &events) {
  char *to = pd.arena + b->block.offset;
  if (events.at_home) pd_spill_order(pinned.in, events.at_home);
  pd_cuda_check(cudaMemcpyAsync(to, pinned.home + b->home, b->block.bytes, cudaMemcpyHostToDevice, pinned.in),
                "copy a block to the device");
  pd_spill_record(events.arrived, pinned.in);
}

static void send(pd_spill_block *b, const pd_spill_events &events) {
  const char *from = pd.arena + b->block.offset;
  pd_spill_order(pinned.out, events.used);
  if (events.at_home) pd_spill_order(pinned.out, events.at_home);
  pd_cuda_check(cudaMemcpyAsync(pinned.home + b->home, from, b->block.bytes, cudaMemcpyDeviceToHost, pinned.out),
                "copy a block to the host");
  pd_spill_record(events.gone, pinned.out);
}

static const char *failure() { return NULL; }

const pd_spill_place pd_spill_to_host = {start, finish, bring, send, false, failure};
