/* Which way messages of device memory go. NCCL copies from device to device, but refuses two ranks on one device;
 * MPI needs copies in the host's memory. */
#include "transport.h"

#include <cstdlib>
#include <cstring>

cudaStream_t pd_exchange_stream;
static const pd_transport *transport;

cudaStream_t pd_message_stream() {
  int least, greatest;
  cudaStream_t stream;
  pd_cuda_check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "ask for the priorities of streams");
  pd_cuda_check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest), "make a stream");
  return stream;
}

void pd_order(cudaStream_t earlier, cudaStream_t later, cudaEvent_t event) {
  pd_cuda_check(cudaEventRecord(event, earlier), "record an event");
  pd_cuda_check(cudaStreamWaitEvent(later, event, 0), "let a stream wait");
}

/* ---- the choice ------------------------------------------------------------------------------ */

struct place {
  pd_machine machine;
  char device[32];
};

static place place_of_this() {
  place here = {pd_this_machine(), ""};
  int device;
  pd_cuda_check(cudaGetDevice(&device), "ask for the device");
  pd_cuda_check(cudaDeviceGetPCIBusId(here.device, sizeof here.device, device), "ask for the device's address");
  return here;
}

/* Two ranks on one device; false: there are none. NCCL counts parts of a device as one, too. */
static bool find_sharing(int *a, int *b, place *where) {
  place here = place_of_this(), *all = (place *)pd_allocate(sizeof *all * (size_t)pd.everyone);
  MPI_Request request;
  MPI_Iallgather(&here, sizeof here, MPI_BYTE, all, sizeof here, MPI_BYTE, pd_comm_everyone, &request);
  pd_wait(1, &request, "all ranks to name their devices", -1, NULL, -1);
  bool found = false;
  for (int i = 0; i < pd.everyone && !found; i++)
    for (int j = i + 1; j < pd.everyone && !found; j++)
      if (!strcmp(all[i].machine.boot, all[j].machine.boot) && !strcmp(all[i].device, all[j].device)) {
        *a = i, *b = j, *where = all[i];
        found = true;
      }
  free(all);
  return found;
}

bool pd_transfers_start(char *why) {
  const char *wish = pd_options.comm;
  bool mpi = wish && !strcmp(wish, "mpi"), nccl = wish && !strcmp(wish, "nccl");
  int a = 0, b = 0;
  place where;
  bool sharing = find_sharing(&a, &b, &where);
  transport = sharing || mpi ? &pd_staged_transport : &pd_nccl_transport;
  pd_exchange_stream = pd_message_stream();
  if (pd_options.check_messages && transport == &pd_nccl_transport && pd.everyone > 1)
    return pd_refuse(why, "--check-messages needs --comm mpi: what NCCL sends does not pass through the host");
  if (wish && !mpi && !nccl) return pd_refuse(why, "--comm %s: messages travel by nccl or by mpi", wish);
  if (sharing && nccl)
    return pd_refuse(why, "--comm nccl: ranks %d and %d share device %s of %s, which NCCL cannot: use --comm mpi",
                     a, b, where.device, where.machine.host);
  if (sharing && !mpi)
    pd_note("ranks %d and %d share a device: messages travel through the host's memory, by MPI", a, b);
  if (pd_options.graphs && transport == &pd_nccl_transport && pd.stage->n_stages > 1) {
    /* Making a graph may wait for all that the device has to do, so for a peer that does the same. */
    pd_note("--graphs is left out: between stages it needs --comm mpi");
    pd_options.graphs = false;
  }
  if (pd_options.graphs && pd_shards() > 1) {
    pd_note("--graphs is left out: ranks that share layers meet within a pass");
    pd_options.graphs = false;
  }
  return true;
}

const char *pd_messages_travel() {
  if (pd.stage->n_stages < 2 && pd_shards() < 2) return NULL;
  return transport == &pd_nccl_transport ? "nccl" : "mpi";
}

/* ---- transfer.h ------------------------------------------------------------------------------ */

pd_line *pd_line_open(MPI_Comm comm, int n, const int *ranks, pd_side side) {
  return transport->open(comm, n, ranks, side == PD_COMPUTING ? pd_stream : pd_exchange_stream);
}

/* Kernels write to memory of their own device alone. */
void pd_line_share(pd_line *line, int peer, bool sends, bool gradients) {
  (void)line, (void)peer, (void)sends, (void)gradients;
}

/* ... nor do they read another's. */
bool pd_replicas_shared() { return false; }
void pd_replicas_ready(int64_t t) { (void)t; }
bool pd_replicas_gathered(int64_t t) { return (void)t, true; }
void pd_replicas_sum(int64_t t) { (void)t; }
bool pd_replicas_spread(int64_t t) { return (void)t, true; }

char *pd_line_slot(const pd_line *line, int cut, int64_t least, const pd_channel *c) {
  (void)line, (void)cut, (void)least, (void)c;
  return NULL;
}

pd_transfer *pd_transfer_new(int messages, size_t bytes) { return transport->make(messages, bytes); }

void pd_transfer_post(pd_transfer *t, pd_line *line, int n, const pd_message *message) {
  transport->post(t, line, n, message);
}

bool pd_transfer_passed(pd_transfer *t) { return transport->passed(t); }
bool pd_transfer_through(pd_transfer *t) { return transport->through(t); }

void pd_transfers_progress() {
  if (transport) transport->progress();
}

void pd_transfers_watch() {
  if (transport) transport->watch();
}

void pd_transfers_abort() {
  if (transport) transport->abort();
}

void pd_transfers_finish() {
  transport->finish();
  transport = NULL;
  pd_cuda_check(cudaStreamDestroy(pd_exchange_stream), "give a stream back");
}
