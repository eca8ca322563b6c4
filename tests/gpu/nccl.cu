/* NCCL as runtime/cuda/transfer_nccl.cu calls it, on one GPU: a rank sends to itself. A communicator that does not
 * block the host, of few blocks, messages of several sizes in one group on a stream of their own, which meets
 * another stream by events; what arrives is what was sent, also when the buffers are used again at once. */
#include <cuda_runtime.h>
#include <nccl.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sched.h>
#include <vector>

static void need(cudaError_t status, const char *what) {
  if (status == cudaSuccess) return;
  fprintf(stderr, "nccl: cannot %s: %s\n", what, cudaGetErrorString(status));
  exit(1);
}

static void settle(ncclComm_t comm, ncclResult_t status, const char *what) {
  while (status == ncclInProgress) {
    sched_yield();
    if (ncclCommGetAsyncError(comm, &status) != ncclSuccess) status = ncclInternalError;
  }
  if (status == ncclSuccess) return;
  fprintf(stderr, "nccl: cannot %s: %s (%s)\n", what, ncclGetErrorString(status), ncclGetLastError(comm));
  exit(1);
}

static ncclComm_t open_alone() {
  enum { BLOCKS = 4 };
  ncclComm_t comm = nullptr;
  ncclUniqueId id;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.maxCTAs = BLOCKS;
  settle(comm, ncclGetUniqueId(&id), "start");
  ncclResult_t status = ncclCommInitRankConfig(&comm, 1, id, 0, &config);
  settle(comm, status, "open a communicator of one rank");
  return comm;
}

/* The messages of a round, one behind the other in a buffer. */
static const size_t SIZES[] = {1, 4, 511, 4096, 1 << 20, 3145729};
static const size_t BYTES = 1 + 4 + 511 + 4096 + (1 << 20) + 3145729;

static void pass_on(ncclComm_t comm, const char *from, char *to, cudaStream_t stream) {
  settle(comm, ncclGroupStart(), "begin a group");
  for (size_t bytes : SIZES) {
    for (ncclResult_t status :
         {ncclSend(from, bytes, ncclUint8, 0, comm, stream), ncclRecv(to, bytes, ncclUint8, 0, comm, stream)})
      if (status != ncclInProgress) settle(comm, status, "post a message to itself");
    from += bytes, to += bytes;
  }
  settle(comm, ncclGroupEnd(), "pass messages to itself");
}

int main() {
  enum { ROUNDS = 4 };
  char *from, *to;
  cudaStream_t computing, passing;
  cudaEvent_t ready, passed;
  std::vector<uint8_t> sent(ROUNDS * BYTES), seen(BYTES);
  uint32_t state = 1;
  for (uint8_t &x : sent) x = (uint8_t)((state = state * 1664525u + 1013904223u) >> 24);
  need(cudaMalloc((void **)&from, BYTES), "get memory");
  need(cudaMalloc((void **)&to, BYTES), "get memory");
  need(cudaStreamCreateWithFlags(&computing, cudaStreamNonBlocking), "make a stream");
  need(cudaStreamCreateWithFlags(&passing, cudaStreamNonBlocking), "make a stream");
  need(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming), "make an event");
  need(cudaEventCreateWithFlags(&passed, cudaEventDisableTiming), "make an event");
  ncclComm_t comm = open_alone();
  size_t wrong = 0;
  for (int round = 0; round < ROUNDS; round++) {
    const uint8_t *now = sent.data() + (size_t)round * BYTES;
    need(cudaMemcpyAsync(from, now, BYTES, cudaMemcpyHostToDevice, computing), "copy to the device");
    need(cudaEventRecord(ready, computing), "record an event");
    need(cudaStreamWaitEvent(passing, ready, 0), "let a stream wait");
    pass_on(comm, from, to, passing);
    need(cudaEventRecord(passed, passing), "record an event");
    need(cudaStreamWaitEvent(computing, passed, 0), "let a stream wait");
    need(cudaMemsetAsync(from, 0, BYTES, computing), "fill memory");
    need(cudaMemcpyAsync(seen.data(), to, BYTES, cudaMemcpyDeviceToHost, computing), "copy from the device");
    need(cudaStreamSynchronize(computing), "wait for the device");
    for (size_t i = 0; i < BYTES; i++) wrong += seen[i] != now[i];
  }
  settle(comm, ncclCommFinalize(comm), "end");
  ncclCommDestroy(comm);
  need(cudaStreamDestroy(computing), "end a stream");
  need(cudaStreamDestroy(passing), "end a stream");
  need(cudaEventDestroy(ready), "end an event");
  need(cudaEventDestroy(passed), "end an event");
  need(cudaFree(from), "give memory back");
  need(cudaFree(to), "give memory back");
  printf("%d rounds of %zu messages to itself, %zu bytes wrong\n", ROUNDS, sizeof SIZES / sizeof *SIZES, wrong);
  return wrong != 0;
}
