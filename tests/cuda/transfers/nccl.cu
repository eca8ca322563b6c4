/* nccl CASE, by two ranks: mistakes with NCCL that its stand-in must show, and the same done right. */
#include <cuda_runtime.h>
#include <mpi.h>
#include <nccl.h>

#include <cstdio>
#include <cstring>

static int rank;
static ncclComm_t comm;
static cudaStream_t stream;

static ncclResult_t settle(ncclResult_t status) {
  while (status == ncclInProgress) ncclCommGetAsyncError(comm, &status);
  return status;
}

static ncclResult_t open_comm() {
  ncclUniqueId id;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (!rank) ncclGetUniqueId(&id);
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
  return settle(ncclCommInitRankConfig(&comm, 2, id, rank, &config));
}

static void send(const char *at, size_t n) { settle(ncclSend(at, n, ncclUint8, 1 - rank, comm, stream)); }
static void receive(char *at, size_t n) { settle(ncclRecv(at, n, ncclUint8, 1 - rank, comm, stream)); }

/* Both ranks send and receive n bytes, as one operation or as two. */
static void exchange(char *mine, char *theirs, size_t n, bool grouped) {
  if (grouped) ncclGroupStart();
  send(mine, n);
  receive(theirs, n);
  if (grouped) settle(ncclGroupEnd());
}

int main(int argc, char **argv) {
  enum { N = 1 << 20 };
  const char *what = argc > 1 ? argv[1] : "";
  char *mine, *theirs, *seen;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  int devices;
  cudaGetDeviceCount(&devices);
  cudaSetDevice(rank % devices);
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaMalloc((void **)&mine, N);
  cudaMalloc((void **)&theirs, N);
  cudaMallocHost((void **)&seen, N);
  if (ncclResult_t status = open_comm(); status != ncclSuccess) {
    fprintf(stderr, "%s: %s\n", ncclGetErrorString(status), ncclGetLastError(comm));
    return 1;
  }
  MPI_Barrier(MPI_COMM_WORLD);
  cudaMemsetAsync(mine, 7 + rank, N, stream);
  if (!strcmp(what, "group")) exchange(mine, theirs, N, true);
  if (!strcmp(what, "crossed")) exchange(mine, theirs, N, false);
  if (!strcmp(what, "lonely") && !rank) send(mine, 64);
  if (!strcmp(what, "sizes")) rank ? receive(theirs, 32) : send(mine, 64);
  if (!strcmp(what, "hasty")) {
    ncclSend(mine, 64, ncclUint8, 1 - rank, comm, stream);
    ncclRecv(theirs, 64, ncclUint8, 1 - rank, comm, stream);
  }
  if (!strcmp(what, "host")) send(argv[0], 1);
  if (!strcmp(what, "open")) {
    ncclGroupStart();
    ncclCommAbort(comm);
  }
  if (!strcmp(what, "abort")) {
    if (!rank) send(mine, 64);
    ncclCommAbort(comm);
  }
  cudaMemcpyAsync(seen, theirs, N, cudaMemcpyDeviceToHost, stream);
  cudaStreamSynchronize(stream);
  if (!strcmp(what, "group") && (seen[0] != 8 - rank || seen[N - 1] != 8 - rank)) return 1;
  if (strcmp(what, "abort")) {
    settle(ncclCommFinalize(comm));
    ncclCommDestroy(comm);
  }
  cudaStreamDestroy(stream);
  cudaFree(mine);
  cudaFree(theirs);
  cudaFreeHost(seen);
  return MPI_Finalize();
}
