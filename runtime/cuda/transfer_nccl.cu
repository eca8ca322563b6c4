/* Messages from device to device by NCCL. Every line has its own communicator and stream, so that an operation
 * that waits for its peer does not block other lines, in any order of ranks. Operations run in stream order
 * without host waits: a post makes the line's stream wait for the side's stream, passing makes the side's stream
 * wait for the line's.
 *
 * Communicators block: a call returns when its work is enqueued. For one that does not block NCCL starts a thread
 * at every ncclGroupEnd (group.cc of NCCL 2.28), and the attribute is fixed when the communicator is made. An
 * alarm (pd_watch_begin) limits the time of calls that wait for other ranks: those that make a communicator, its
 * connections and its end, and those of messages when NCCL's queues are full. All connections are made at start,
 * since a connection that is made later would keep the host waiting in the middle of the run. */
#include "transport.h"
#include "messages/messages.h"
#include "run/upward.h"

#include <nccl.h>

#include <cstdlib>
#include <cstring>
#include <sched.h>

struct nccl_line : pd_line {
  ncclComm_t comm;
  cudaStream_t stream;
  int self;      /* this rank, in the numbering of ranks */
  int n, *ranks; /* a rank's index here is its number in the communicator */
  nccl_line *next;
};

struct nccl_transfer : pd_transfer {
  cudaEvent_t posted, done;
  bool passed; /* the side's stream waits for `done` already */
  nccl_transfer *next;
};

static struct {
  nccl_line *lines, **end_of_lines = &lines; /* in order of opening */
  nccl_transfer *transfers;
} nccl;

/* ---- calls ------------------------------------------------------------------------------------- */

/* A peer that ended has reported the cause, or the launcher will; the launch ends before this rank reports. */
[[noreturn]] static void nccl_failed(const nccl_line *l, ncclResult_t status, const char *what) {
  if (status == ncclRemoteError) pd_signals_await_turn(5);
  pd_fail("cannot %s: NCCL: %s (%s)", what, ncclGetErrorString(status), ncclGetLastError(l->comm));
}

/* Calls NCCL on the line's communicator and waits for the call's end, also if NCCL_COMM_BLOCKING=0 lets it return
 * early. */
template <typename Call> static void call(const nccl_line *l, const char *what, Call call_nccl) {
  char waited[128];
  snprintf(waited, sizeof waited, "to %s", what);
  pd_watch_begin(waited);
  ncclResult_t status = call_nccl();
  while (status == ncclInProgress) {
    sched_yield();
    if (ncclCommGetAsyncError(l->comm, &status) != ncclSuccess) status = ncclInternalError;
  }
  pd_watch_end();
  if (status != ncclSuccess) nccl_failed(l, status, what);
}

static int number_of(const nccl_line *l, int rank) {
  int i = 0;
  while (i < l->n && l->ranks[i] != rank) i++;
  if (i == l->n) pd_fail("internal: a message to rank %d, which is not on this line", rank);
  return i;
}

/* The group ends also where NCCL refuses a message: ncclCommAbort is not allowed within one. */
static ncclResult_t group(const nccl_line *l, int n, const pd_message *message) {
  ncclResult_t status = ncclGroupStart();
  for (int i = 0; i < n && (status == ncclSuccess || status == ncclInProgress); i++) {
    const pd_message *m = &message[i];
    if (!m->bytes) continue;
    int peer = number_of(l, m->peer);
    status = m->sent ? ncclSend(m->at, m->bytes, ncclUint8, peer, l->comm, l->stream)
                     : ncclRecv(m->at, m->bytes, ncclUint8, peer, l->comm, l->stream);
  }
  ncclResult_t end = ncclGroupEnd();
  return status != ncclSuccess && status != ncclInProgress ? status : end;
}

/* Runs the messages as one NCCL operation; empty messages are not sent. */
static void enqueue(const nccl_line *l, int n, const pd_message *message, const char *what) {
  call(l, what, [=] { return group(l, n, message); });
}

/* ---- opening --------------------------------------------------------------------------------- */

/* The line's first rank creates the communicator's id and sends it by MPI. */
static ncclUniqueId agree_on_name(const nccl_line *l, MPI_Comm comm) {
  enum { TAG = 32767 };
  ncclUniqueId id = {};
  MPI_Request *request = (MPI_Request *)pd_allocate(sizeof *request * (size_t)l->n);
  int n = 0;
  if (l->self != l->ranks[0])
    MPI_Irecv(&id, sizeof id, MPI_BYTE, l->ranks[0], TAG, comm, &request[n++]);
  else {
    ncclResult_t status = ncclGetUniqueId(&id);
    if (status != ncclSuccess) pd_fail("cannot start NCCL: %s", ncclGetErrorString(status));
    for (int i = 1; i < l->n; i++) MPI_Isend(&id, sizeof id, MPI_BYTE, l->ranks[i], TAG, comm, &request[n++]);
  }
  pd_wait(n, request, "the name of a NCCL communicator", -1, "from", l->ranks[0]);
  free(request);
  return id;
}

static bool has_happened(void *event) { return pd_cuda_happened((cudaEvent_t)event); }

/* A byte from each rank to each, so that connections exist. */
static void connect(const nccl_line *l, const char *what) {
  char *bytes = (char *)pd_cuda_memory((size_t)l->n + 1);
  pd_message *message = (pd_message *)pd_allocate(sizeof *message * 2 * (size_t)l->n);
  int n = 0;
  for (int i = 0; i < l->n; i++) {
    if (l->ranks[i] == l->self) continue;
    message[n++] = {l->ranks[i], true, 0, bytes + l->n, 1};
    message[n++] = {l->ranks[i], false, 0, bytes + i, 1};
  }
  pd_cuda_check(cudaMemsetAsync(bytes, 0, (size_t)l->n + 1, l->stream), "fill memory");
  enqueue(l, n, message, what);
  cudaEvent_t done = pd_cuda_event();
  pd_cuda_check(cudaEventRecord(done, l->stream), "record an event");
  int peer = l->n == 2 ? l->ranks[l->ranks[0] == l->self] : -1;
  pd_wait_until(has_happened, done, "a first message by NCCL", -1, "from", peer);
  free(message);
}

/* The most blocks (CTAs) that kernels of a line occupy. Between two stages they wait for the peer beside passes,
 * which need the multiprocessors: few. All ranks of a group come to an exchange at the same point of the program
 * and need its bytes, so NCCL's own number holds: by topology, two channels for each NVLink between two ranks
 * (NCCL's paths.cc), 32 on an H100. The environment's NCCL_MAX_CTAS wins. */
static int most_blocks(pd_line_use use) {
  enum { OF_STAGES = 4 };
  return use == PD_OF_STAGES ? OF_STAGES : NCCL_CONFIG_UNDEF_INT;
}

static pd_line *nccl_open(MPI_Comm comm, int n, const int *ranks, pd_line_use use, cudaStream_t side) {
  nccl_line *l = new nccl_line{};
  l->side = side;
  l->stream = pd_message_stream();
  l->n = n;
  MPI_Comm_rank(comm, &l->self);
  l->ranks = (int *)pd_allocate(sizeof *ranks * (size_t)n);
  memcpy(l->ranks, ranks, sizeof *ranks * (size_t)n);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  config.maxCTAs = most_blocks(use);
  *nccl.end_of_lines = l;
  nccl.end_of_lines = &l->next;
  ncclUniqueId id = agree_on_name(l, comm);
  char what[96];
  snprintf(what, sizeof what,
           n == 2 ? "open a line by NCCL between ranks %d and %d" : "open a line by NCCL among ranks %d ... %d",
           ranks[0], ranks[n - 1]);
  call(l, what, [&] { return ncclCommInitRankConfig(&l->comm, n, id, number_of(l, l->self), &config); });
  connect(l, what);
  return l;
}

static pd_transfer *nccl_make(int messages, size_t bytes) {
  (void)messages, (void)bytes;
  nccl_transfer *t = new nccl_transfer{};
  t->posted = pd_cuda_event();
  t->done = pd_cuda_event();
  t->passed = true;
  t->next = nccl.transfers;
  return nccl.transfers = t;
}

/* ---- messages -------------------------------------------------------------------------------- */

static void nccl_post(pd_transfer *transfer, pd_line *line, int n, const pd_message *message) {
  nccl_transfer *t = (nccl_transfer *)transfer;
  nccl_line *l = (nccl_line *)line;
  t->side = l->side;
  t->passed = false;
  pd_order(l->side, l->stream, t->posted);
  enqueue(l, n, message, "post messages");
  pd_cuda_check(cudaEventRecord(t->done, l->stream), "record an event");
}

static bool nccl_passed(pd_transfer *transfer) {
  nccl_transfer *t = (nccl_transfer *)transfer;
  if (!t->passed) pd_cuda_check(cudaStreamWaitEvent(t->side, t->done, 0), "let a stream wait");
  t->passed = true;
  return true;
}

static bool nccl_through(pd_transfer *transfer) { return pd_cuda_happened(((nccl_transfer *)transfer)->done); }

static void nccl_progress() {} /* the device does */

static void nccl_watch() {
  for (const nccl_line *l = nccl.lines; l && l->comm; l = l->next) {
    ncclResult_t status;
    if (ncclCommGetAsyncError(l->comm, &status) != ncclSuccess) status = ncclInternalError;
    if (status != ncclSuccess && status != ncclInProgress) nccl_failed(l, status, "pass messages on");
  }
}

/* ---- the end --------------------------------------------------------------------------------- */

static void nccl_abort() {
  nccl_line *all = nccl.lines;
  nccl.lines = NULL; /* aborting may fail, too */
  for (const nccl_line *l = all; l; l = l->next)
    if (l->comm) ncclCommAbort(l->comm);
}

static void nccl_finish() {
  for (nccl_transfer *t = nccl.transfers, *next; t; t = next) {
    next = t->next;
    delete t;
  }
  for (nccl_line *l = nccl.lines, *next; l; l = next) {
    next = l->next;
    call(l, "end NCCL", [=] { return ncclCommFinalize(l->comm); });
    ncclCommDestroy(l->comm);
    pd_cuda_check(cudaStreamDestroy(l->stream), "give a stream back");
    free(l->ranks);
    delete l;
  }
  nccl.lines = NULL;
  nccl.transfers = NULL;
}

const pd_transport pd_nccl_transport = {nccl_open,     nccl_make,  nccl_post,  nccl_passed, nccl_through,
                                        nccl_progress, nccl_watch, nccl_abort, nccl_finish};
