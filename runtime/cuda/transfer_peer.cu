/* Messages between GPUs of one machine by their copy engines: a rank maps the arenas of its neighbours (CUDA's
 * programming guide, "Interprocess Communication") and copies its messages to the receiver's memory, in a stream
 * of the line. No kernel waits on the device for another rank, as NCCL's do.
 *   receiver  records an event after all work that still uses the memory, and sends the addresses by MPI
 *   sender    makes the line's stream wait for this event and for its own work, copies, records an event, and
 *             informs the receiver by MPI
 *   receiver  makes later work wait for the sender's event
 * A wait refers to the event's last record, so each end gets a message before it waits. A line has one
 * posted receive at a time, so neither end records again before the opposite end has enqueued its wait. Every
 * wait thus refers to work that is already enqueued: the host may wait for the device at any time. */
#include "transport.h"
#include "messages/messages.h"

#include <cstdlib>
#include <cstring>

/* ---- ranks with writable memory ----------------------------------------------------------------- */

/* The description of a rank's memory for other ranks. */
struct offer {
  pd_machine machine;
  char device[32];
  bool instance;      /* the device is one of MIG's */
  cudaError_t status; /* of what follows */
  cudaIpcMemHandle_t arena;
  cudaIpcEventHandle_t event;
};

/* Result of mapping a neighbour's memory; ERROR and above: a CUDA error. */
enum { NONE, REACHED, ELSEWHERE, NO_ACCESS, INSTANCES, ERROR };

struct peer_line;
struct peer_transfer;

static struct {
  bool tried;      /* all ranks have offered memory */
  char **arena_of; /* by rank: address of its arena in this process; NULL: not mapped */
  int *reach;      /* by rank and rank */
  char *scratch;   /* of the device, */
  uint64_t *seen;  /* of the host: a greeting's */
  peer_line *lines;
  peer_transfer *transfers;
} neighbours;

static bool are_neighbours(int a, int b) {
  const pd_stage *s = pd.stage;
  int apart = abs(pd_stage_of(a) - pd_stage_of(b));
  return apart == 1 || (s->chunks > 1 && apart == s->n_stages - 1 && apart > 0);
}

static offer offer_of_this(cudaEvent_t *event) {
  offer mine = {pd_this_machine(), "", pd_device_is_instance(), cudaSuccess, {}, {}};
  int device;
  pd_cuda_check(cudaGetDevice(&device), "ask for the device");
  pd_cuda_check(cudaDeviceGetPCIBusId(mine.device, sizeof mine.device, device), "ask for the device's address");
  *event = NULL;
  mine.status = cudaIpcGetMemHandle(&mine.arena, pd.arena);
  if (mine.status == cudaSuccess)
    mine.status = cudaEventCreateWithFlags(event, cudaEventDisableTiming | cudaEventInterprocess);
  if (mine.status == cudaSuccess) mine.status = cudaIpcGetEventHandle(&mine.event, *event);
  cudaGetLastError();
  return mine;
}

/* Devices outside CUDA_VISIBLE_DEVICES cannot be queried; opening decides. */
static bool has_access(const char *device) {
  int mine, other, can = 1;
  pd_cuda_check(cudaGetDevice(&mine), "ask for the device");
  bool known = cudaDeviceGetByPCIBusId(&other, device) == cudaSuccess;
  if (known && other != mine && cudaDeviceCanAccessPeer(&can, mine, other) != cudaSuccess) can = 1;
  cudaGetLastError();
  return can;
}

static int reach_out(int rank, const offer *o, const offer *mine) {
  cudaEvent_t event;
  if (strcmp(o->machine.boot, mine->machine.boot) != 0) return ELSEWHERE;
  if (mine->instance || o->instance) return INSTANCES;
  if (mine->status != cudaSuccess || o->status != cudaSuccess)
    return ERROR + (int)(mine->status != cudaSuccess ? mine->status : o->status);
  if (!has_access(o->device)) return NO_ACCESS;
  void *at = NULL;
  cudaError_t status = cudaIpcOpenMemHandle(&at, o->arena, cudaIpcMemLazyEnablePeerAccess);
  if (status == cudaSuccess) {
    neighbours.arena_of[rank] = static_cast<char *>(at);
    status = cudaIpcOpenEventHandle(&event, o->event);
    if (status == cudaSuccess) status = cudaEventDestroy(event);
  }
  cudaGetLastError();
  return status == cudaSuccess ? REACHED : ERROR + (int)status;
}

static void gather(const void *mine, size_t bytes, void *all, const char *what) {
  MPI_Request request;
  MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, pd_comm_control, &request);
  pd_wait(1, &request, what, -1, NULL, -1);
}

static int between(int a, int b) {
  int ab = neighbours.reach[a * pd.ranks + b], ba = neighbours.reach[b * pd.ranks + a];
  return ab == REACHED ? ba : ab;
}

pd_peers pd_peers_start(bool wanted) {
  size_t n = (size_t)pd.ranks;
  pd_peers found = {};
  neighbours.tried = wanted && pd.stage->n_stages > 1;
  if (!neighbours.tried) return found;
  neighbours.reach = static_cast<int *>(pd_allocate(sizeof *neighbours.reach * n * n));
  neighbours.arena_of = static_cast<char **>(pd_allocate(sizeof *neighbours.arena_of * n));
  offer *offers = static_cast<offer *>(pd_allocate(sizeof *offers * n));
  int *own = static_cast<int *>(pd_allocate(sizeof *own * n));
  cudaEvent_t event;
  offer mine = offer_of_this(&event);
  gather(&mine, sizeof mine, offers, "all ranks to offer their devices' memory");
  for (int r = 0; r < pd.ranks; r++)
    if (are_neighbours(pd.rank, r)) own[r] = reach_out(r, &offers[r], &mine);
  gather(own, sizeof *own * n, neighbours.reach, "all ranks to open their neighbours' memory");
  for (int a = 0; a < pd.ranks; a++)
    for (int b = a + 1; b < pd.ranks; b++) {
      int how = between(a, b);
      if (how == NONE) continue;
      (how == REACHED ? found.reached : found.others)++;
      if (how == REACHED || (found.why != NONE && (found.why != ELSEWHERE || how == ELSEWHERE))) continue;
      found.why = how, found.a = a, found.b = b; /* preferably of ranks on one machine */
    }
  if (event) pd_cuda_check(cudaEventDestroy(event), "give an event back");
  free(offers);
  free(own);
  if (found.reached) neighbours.scratch = static_cast<char *>(pd_cuda_memory(sizeof *neighbours.seen));
  if (found.reached) neighbours.seen = static_cast<uint64_t *>(pd_cuda_pinned(sizeof *neighbours.seen));
  return found;
}

bool pd_peers_apart(const pd_peers *p) { return p->why == ELSEWHERE; }

const char *pd_peers_why(const pd_peers *p) {
  if (p->why == ELSEWHERE) return "they are on different machines";
  if (p->why == NO_ACCESS) return "their GPUs have no peer access to each other (nvidia-smi topo -p2p w shows it)";
  if (p->why == INSTANCES) return "MIG instances have no peer access";
  return cudaGetErrorString(static_cast<cudaError_t>(p->why - ERROR));
}

bool pd_peer_reached(int rank) { return neighbours.tried && between(pd.rank, rank) == REACHED; }

/* ---- lines ---------------------------------------------------------------------------------------- */

struct peer_line : pd_line {
  MPI_Comm comm;
  int peer;
  cudaStream_t stream;
  cudaEvent_t mine;   /* recorded by this end: memory may be written (receiver), is written (sender) */
  cudaEvent_t theirs; /* the same of the opposite end */
  peer_line *next;
};

/* The tags of the two words between the ends are the transfer's first, and this far behind it: chunks may send
 * both ways under one tag. */
enum { COPIED = 1 };

/* The place of a message in the receiver's arena. */
struct placed {
  uint64_t at, bytes;
};

struct peer_transfer : pd_transfer {
  enum { THROUGH, POSTED, ENQUEUED } state;
  cudaEvent_t posted, done;
  bool passed; /* the side's stream waits for `done` already */
  peer_line *line;
  int n;
  bool sends;
  pd_message *message;
  placed *place;
  MPI_Request places, copied; /* the two words between the ends */
  peer_transfer *next;
};

static cudaEvent_t shared_event() {
  cudaEvent_t event;
  pd_cuda_check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess), "make an event");
  return event;
}

static pd_line *peer_open(MPI_Comm comm, int, const int *ranks, pd_line_use, cudaStream_t side) {
  enum { TAG = 32767 };
  peer_line *l = new peer_line{};
  l->side = side;
  l->comm = comm;
  l->peer = ranks[ranks[0] == pd.rank];
  l->stream = pd_message_stream();
  l->mine = shared_event();
  cudaIpcEventHandle_t mine, theirs;
  MPI_Request request[2];
  pd_cuda_check(cudaIpcGetEventHandle(&mine, l->mine), "share an event");
  MPI_Irecv(&theirs, sizeof theirs, MPI_BYTE, l->peer, TAG, comm, &request[0]);
  MPI_Isend(&mine, sizeof mine, MPI_BYTE, l->peer, TAG, comm, &request[1]);
  pd_wait(2, request, "an event of a line", -1, "from", l->peer);
  pd_cuda_check(cudaIpcOpenEventHandle(&l->theirs, theirs), "open an event of another rank");
  l->next = neighbours.lines;
  return neighbours.lines = l;
}

static pd_transfer *peer_make(int messages, size_t) {
  peer_transfer *t = new peer_transfer{};
  t->posted = pd_cuda_event();
  t->done = pd_cuda_event();
  t->passed = true;
  t->message = static_cast<pd_message *>(pd_allocate(sizeof *t->message * (size_t)messages));
  t->place = static_cast<placed *>(pd_allocate(sizeof *t->place * (size_t)messages));
  t->places = t->copied = MPI_REQUEST_NULL;
  t->next = neighbours.transfers;
  return neighbours.transfers = t;
}

/* ---- messages ------------------------------------------------------------------------------------- */

static bool is_done(MPI_Request *request) {
  int done;
  MPI_Test(request, &done, MPI_STATUS_IGNORE);
  return done;
}

static void wait_for(cudaStream_t stream, cudaEvent_t event) {
  pd_cuda_check(cudaStreamWaitEvent(stream, event, 0), "let a stream wait");
}

static void copy(const peer_transfer *t, int i) {
  const pd_message *m = &t->message[i];
  const placed *to = &t->place[i];
  if (to->bytes != m->bytes)
    pd_fail("internal: rank %d expects %llu bytes, not %zu", m->peer, (unsigned long long)to->bytes, m->bytes);
  if (m->bytes)
    pd_cuda_check(cudaMemcpyAsync(neighbours.arena_of[m->peer] + to->at, m->at, m->bytes, cudaMemcpyDeviceToDevice,
                                  t->line->stream),
                  "copy to another GPU");
}

static void enqueue(peer_transfer *t) {
  peer_line *l = t->line;
  wait_for(l->stream, l->theirs);
  if (t->sends) {
    wait_for(l->stream, t->posted);
    for (int i = 0; i < t->n; i++) copy(t, i);
    pd_cuda_check(cudaEventRecord(l->mine, l->stream), "record an event");
  }
  pd_cuda_check(cudaEventRecord(t->done, l->stream), "record an event");
  if (t->sends) MPI_Isend(NULL, 0, MPI_BYTE, l->peer, t->message[0].tag + COPIED, l->comm, &t->copied);
  t->state = peer_transfer::ENQUEUED;
}

static void advance(peer_transfer *t) {
  if (t->state == peer_transfer::POSTED && is_done(t->sends ? &t->places : &t->copied)) enqueue(t);
  if (t->state == peer_transfer::ENQUEUED && is_done(&t->places) && is_done(&t->copied) &&
      pd_cuda_happened(t->done))
    t->state = peer_transfer::THROUGH;
}

/* Equal messages and words match by MPI's order. */
static void peer_post(pd_transfer *transfer, pd_line *line, int n, const pd_message *message) {
  peer_transfer *t = static_cast<peer_transfer *>(transfer);
  peer_line *l = static_cast<peer_line *>(line);
  int tag = message[0].tag, bytes = n * (int)sizeof *t->place;
  t->side = l->side;
  t->line = l;
  t->n = n;
  t->sends = message[0].sent;
  t->passed = false;
  t->state = peer_transfer::POSTED;
  memcpy(t->message, message, sizeof *message * (size_t)n);
  pd_cuda_check(cudaEventRecord(t->sends ? t->posted : l->mine, l->side), "record an event");
  if (t->sends)
    MPI_Irecv(t->place, bytes, MPI_BYTE, l->peer, tag, l->comm, &t->places);
  else {
    for (int i = 0; i < n; i++) t->place[i] = {(uint64_t)((char *)message[i].at - pd.arena), message[i].bytes};
    MPI_Irecv(NULL, 0, MPI_BYTE, l->peer, tag + COPIED, l->comm, &t->copied);
    MPI_Isend(t->place, bytes, MPI_BYTE, l->peer, tag, l->comm, &t->places);
  }
  advance(t);
}

static bool peer_passed(pd_transfer *transfer) {
  peer_transfer *t = static_cast<peer_transfer *>(transfer);
  if (t->passed) return true;
  advance(t);
  if (t->state == peer_transfer::POSTED) return false;
  wait_for(t->side, t->done);
  return t->passed = true;
}

static bool peer_through(pd_transfer *transfer) {
  peer_transfer *t = static_cast<peer_transfer *>(transfer);
  advance(t);
  return t->state == peer_transfer::THROUGH;
}

static void peer_progress() {
  for (peer_transfer *t = neighbours.transfers; t; t = t->next) advance(t);
}

static void peer_watch() {}
static void peer_abort() {}

/* ---- a first message ------------------------------------------------------------------------------ */

static bool has_passed(void *transfer) { return peer_passed(static_cast<peer_transfer *>(transfer)); }
static bool is_through(void *transfer) { return peer_through(static_cast<peer_transfer *>(transfer)); }

/* A receive slot of this kind of message, before the first receive is posted. */
static char *slot_for(pd_kind kind) {
  const pd_channel *in = kind == PD_GRADIENTS ? pd.stage->gradients_in : pd.stage->activations_in;
  while (!in->n_values) in++;
  return pd.arena + pd_channel_start(in);
}

/* On some machines copies to another GPU succeed without effect, for example with an IOMMU between them, so the
 * first message of a line is checked. */
void pd_peer_greet(pd_line *line, int peer, bool sends, pd_kind kind) {
  static const char what[] = "a first message between two GPUs";
  static peer_transfer *t;
  enum { TAG = 32764 };
  if (!t) t = static_cast<peer_transfer *>(peer_make(1, sizeof *neighbours.seen));
  uint64_t word = 0x5eed000000000000u + (uint64_t)(sends ? pd.rank : peer) * PD_KINDS + kind;
  char *at = sends ? neighbours.scratch : slot_for(kind);
  *neighbours.seen = sends ? word : 0;
  pd_cuda_check(cudaMemcpyAsync(at, neighbours.seen, sizeof *neighbours.seen, cudaMemcpyHostToDevice, line->side),
                "copy to the device");
  pd_message message = {peer, sends, TAG, at, sizeof word};
  peer_post(t, line, 1, &message);
  pd_wait_until(has_passed, t, what, -1, sends ? "to be received by" : "from", peer);
  if (!sends)
    pd_cuda_check(cudaMemcpyAsync(neighbours.seen, at, sizeof *neighbours.seen, cudaMemcpyDeviceToHost,
                                  line->side),
                  "copy to the host");
  pd_device_wait(what);
  pd_wait_until(is_through, t, what, -1, sends ? "to be received by" : "from", peer);
  if (*neighbours.seen != word)
    pd_fail(
        "the data that rank %d copied to this rank's GPU did not arrive: peer access between the two GPUs does "
        "not work. help: use --comm nccl or --comm mpi",
        pd_self_of(peer));
}

/* ---- the end --------------------------------------------------------------------------------------- */

/* Frees memory only after all other ranks have unmapped it. */
static void peer_finish() {
  if (!neighbours.tried) return;
  for (peer_line *l = neighbours.lines, *next; l; l = next) {
    next = l->next;
    pd_cuda_check(cudaStreamDestroy(l->stream), "give a stream back");
    pd_cuda_check(cudaEventDestroy(l->theirs), "let go of another rank's event");
  }
  for (int r = 0; r < pd.ranks; r++)
    if (neighbours.arena_of[r])
      pd_cuda_check(cudaIpcCloseMemHandle(neighbours.arena_of[r]), "let go of another rank's memory");
  MPI_Request request;
  MPI_Ibarrier(pd_comm_control, &request);
  pd_wait(1, &request, "all ranks to unmap each other's memory", -1, NULL, -1);
  for (peer_line *l = neighbours.lines, *next; l; l = next) {
    next = l->next;
    pd_cuda_check(cudaEventDestroy(l->mine), "give an event back");
    delete l;
  }
  for (peer_transfer *t = neighbours.transfers, *next; t; t = next) {
    next = t->next;
    free(t->message);
    free(t->place);
    delete t;
  }
  free(neighbours.arena_of);
  free(neighbours.reach);
  neighbours.arena_of = NULL;
  neighbours.reach = NULL;
  neighbours.lines = NULL;
  neighbours.transfers = NULL;
}

const pd_transport pd_peer_transport = {peer_open,     peer_make,  peer_post,  peer_passed, peer_through,
                                        peer_progress, peer_watch, peer_abort, peer_finish};
