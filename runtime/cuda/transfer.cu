/* The choice of transports for device memory. Copy engines write messages between neighbouring stages to GPUs on
 * the same machine, where possible. NCCL copies all other messages from device to device, but does not support two
 * ranks on one device; MPI needs copies in host memory. */
#include "transport.h"
#include "messages/messages.h"

#include <cstdlib>
#include <cstring>

cudaStream_t pd_exchange_stream, pd_meeting_stream;
static struct {
  const pd_transport *transport; /* for lines without copy engines */
  pd_peers peers;
} chosen;

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
  bool instance; /* the device is one of MIG's */
};

static place place_of_this() {
  place here = {pd_this_machine(), "", pd_device_is_instance()};
  int device;
  pd_cuda_check(cudaGetDevice(&device), "ask for the device");
  pd_cuda_check(cudaDeviceGetPCIBusId(here.device, sizeof here.device, device), "ask for the device's address");
  return here;
}

/* The reason against NCCL, in `text`; false: none. NCCL refuses two ranks on one device, and two MIG instances of
 * a GPU have the same address. Between instances of several GPUs NVIDIA guarantees only host memory. */
static bool find_obstacle(char *text, size_t room) {
  place here = place_of_this(), *all = (place *)pd_allocate(sizeof *all * (size_t)pd.everyone);
  MPI_Request request;
  MPI_Iallgather(&here, sizeof here, MPI_BYTE, all, sizeof here, MPI_BYTE, pd_comm_everyone, &request);
  pd_wait(1, &request, "all ranks to name their devices", -1, NULL, -1);
  bool found = false;
  for (int i = 0; i < pd.everyone && pd.everyone > 1 && !found; i++) {
    found = all[i].instance;
    if (found)
      snprintf(text, room, "rank %d has a MIG instance of device %s of %s", i, all[i].device, all[i].machine.host);
    for (int j = i + 1; j < pd.everyone && !found; j++) {
      found = !strcmp(all[i].machine.boot, all[j].machine.boot) && !strcmp(all[i].device, all[j].device);
      if (found)
        snprintf(text, room, "ranks %d and %d share device %s of %s", i, j, all[i].device, all[i].machine.host);
    }
  }
  free(all);
  return found;
}

/* Refuses a --comm that is not possible. */
static bool check_wish(const char *wish, bool hindered, const char *obstacle, char *why) {
  bool mpi = !strcmp(wish, "mpi"), peer = !strcmp(wish, "peer");
  if (!mpi && !peer && strcmp(wish, "nccl") != 0)
    return pd_refuse(why, "--comm %s is not a transport between GPUs. help: use peer, nccl or mpi", wish);
  if (hindered && !mpi && !peer)
    return pd_refuse(why, "--comm nccl: %s, which NCCL does not support. help: use --comm mpi", obstacle);
  if (peer && chosen.peers.others)
    return pd_refuse(why, "--comm peer: ranks %d and %d cannot copy to each other's GPU: %s",
                     pd_self_of(chosen.peers.a), pd_self_of(chosen.peers.b), pd_peers_why(&chosen.peers));
  return true;
}

static void tell_choice(const char *wish, bool hindered, const char *obstacle) {
  bool base_needed = pd.stage->n_stages < 2 || chosen.peers.others || pd_tensor_degree() > 1;
  if (!wish && hindered && base_needed)
    pd_note("%s: messages go through host memory, by MPI", obstacle);
  else if (!wish && chosen.peers.others && !pd_peers_apart(&chosen.peers))
    pd_note("ranks %d and %d use no peer copies: %s", pd_self_of(chosen.peers.a), pd_self_of(chosen.peers.b),
            pd_peers_why(&chosen.peers));
  if (pd_options.graphs && chosen.transport == &pd_nccl_transport && pd.stage->n_stages > 1) {
    /* Creating a graph may wait for all device work, including a peer that does the same. */
    pd_warn("--graphs is ignored: between stages it needs --comm mpi");
    pd_options.graphs = false;
  }
  if (pd_options.graphs && pd_tensor_degree() > 1) {
    pd_warn("--graphs is ignored: tensor-parallel ranks communicate within a pass");
    pd_options.graphs = false;
  }
}

bool pd_transfers_start(char *why) {
  const char *wish = pd_options.comm;
  char obstacle[256] = "";
  bool hindered = find_obstacle(obstacle, sizeof obstacle), mpi = wish && !strcmp(wish, "mpi");
  chosen.transport = hindered || mpi ? &pd_staged_transport : &pd_nccl_transport;
  pd_exchange_stream = pd_message_stream();
  pd_meeting_stream = pd_message_stream();
  bool checked = pd_options.check_messages && pd.everyone > 1;
  chosen.peers = pd_peers_start(!checked && (!wish || !strcmp(wish, "peer")));
  if (checked && (chosen.transport == &pd_nccl_transport || (wish && !mpi)))
    return pd_refuse(why, "--check-messages needs --comm mpi: the other transports bypass the host");
  if (wish && !check_wish(wish, hindered, obstacle, why)) return false;
  tell_choice(wish, hindered, obstacle);
  return true;
}

const char *pd_messages_travel() {
  static const char *const names[2][2] = {{"nccl", "mpi"}, {"peer copies, and nccl", "peer copies, and mpi"}};
  if (pd.stage->n_stages < 2 && pd_tensor_degree() < 2) return NULL;
  if (chosen.peers.reached && !chosen.peers.others && pd_tensor_degree() < 2) return "peer copies";
  return names[chosen.peers.reached > 0][chosen.transport == &pd_staged_transport];
}

/* ---- transfer.h ------------------------------------------------------------------------------ */

/* The line has a transport; a transfer has one part per transport. */
struct either_transfer : pd_transfer {
  const pd_transport *by; /* of the last post; NULL: none */
  pd_transfer *part, *peers;
};

static pd_line *open_by(const pd_transport *by, MPI_Comm comm, int n, const int *ranks, pd_line_use use,
                        pd_side side) {
  const cudaStream_t streams[PD_SIDES] = {pd_stream, pd_exchange_stream, pd_meeting_stream};
  pd_line *line = by->open(comm, n, ranks, use, streams[side]);
  line->by = by;
  return line;
}

pd_line *pd_line_open(MPI_Comm comm, int n, const int *ranks, pd_side side) {
  return open_by(chosen.transport, comm, n, ranks, PD_OF_GROUP, side);
}

pd_line *pd_line_between(MPI_Comm comm, int peer, bool sends, pd_kind kind) {
  const int ranks[2] = {pd.rank < peer ? pd.rank : peer, pd.rank < peer ? peer : pd.rank};
  const bool reached = pd_peer_reached(peer);
  pd_line *line =
      open_by(reached ? &pd_peer_transport : chosen.transport, comm, 2, ranks, PD_OF_STAGES, PD_COMPUTING);
  if (reached) pd_peer_greet(line, peer, sends, kind);
  return line;
}

/* Kernels do not write to the receiver's memory directly: remote stores are slower than a concurrent copy. */
char *pd_line_slot(const pd_line *line, int cut, int64_t least, const pd_channel *c) {
  (void)line, (void)cut, (void)least, (void)c;
  return NULL;
}

/* Kernels do not read remote memory either. */
bool pd_replicas_shared() { return false; }
void pd_replicas_ready(int64_t t, int bucket) { (void)t, (void)bucket; }
bool pd_replicas_gathered(int64_t t, int bucket) { return (void)t, (void)bucket, true; }
void pd_replicas_sum(int64_t t, int bucket) { (void)t, (void)bucket; }
bool pd_replicas_spread(int64_t t, int bucket) { return (void)t, (void)bucket, true; }

pd_transfer *pd_transfer_new(int messages, size_t bytes) {
  either_transfer *t = static_cast<either_transfer *>(pd_allocate(sizeof *t));
  *t = {};
  t->part = chosen.transport->make(messages, bytes);
  if (chosen.peers.reached) t->peers = pd_peer_transport.make(messages, bytes);
  return t;
}

static pd_transfer *part_of(either_transfer *t) { return t->by == &pd_peer_transport ? t->peers : t->part; }

void pd_transfer_post(pd_transfer *transfer, pd_line *line, int n, const pd_message *message) {
  either_transfer *t = static_cast<either_transfer *>(transfer);
  t->by = line->by;
  t->by->post(part_of(t), line, n, message);
}

bool pd_transfer_passed(pd_transfer *transfer) {
  either_transfer *t = static_cast<either_transfer *>(transfer);
  return !t->by || t->by->passed(part_of(t));
}

bool pd_transfer_through(pd_transfer *transfer) {
  either_transfer *t = static_cast<either_transfer *>(transfer);
  return !t->by || t->by->through(part_of(t));
}

void pd_transfers_progress() {
  if (!chosen.transport) return;
  chosen.transport->progress();
  pd_peer_transport.progress();
}

void pd_transfers_watch() {
  if (chosen.transport) chosen.transport->watch();
}

void pd_transfers_abort() {
  if (chosen.transport) chosen.transport->abort();
}

void pd_transfers_finish() {
  pd_peer_transport.finish();
  chosen.transport->finish();
  chosen.transport = NULL;
  pd_cuda_check(cudaStreamDestroy(pd_exchange_stream), "give a stream back");
  pd_cuda_check(cudaStreamDestroy(pd_meeting_stream), "give a stream back");
}
