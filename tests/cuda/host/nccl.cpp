/* NCCL's point-to-point messages, over a socket between each two processes of a communicator. What a program may
 * not rely on does not work here: a send is over only when its receive has taken it; operations take place in
 * stream order, a group's at once; a communicator that does not block is in progress for a while after each
 * call, and what was called has not been enqueued before that is over; a call meanwhile is an error. One that blocks
 * returns from each call when its work is enqueued, or all ranks have come. Two ranks
 * on one device are refused. A peer that goes leaves ncclRemoteError behind, and what waits for it waits on. */
#include "host.h"

#include <nccl.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <csignal>
#include <fcntl.h>
#include <sched.h>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <vector>

/* ---- a connection to one peer -------------------------------------------------------------------- */

/* Behind a frame of DATA stand `piece` bytes of a message of `bytes`. */
enum FrameKind : uint32_t { HELLO, DATA, TAKEN, BYE };
struct Frame {
  FrameKind kind;
  uint32_t rank;
  uint64_t bytes, piece;
  char device[32];
};

/* A message that has been asked for. Its bytes move while its group runs. */
struct Message {
  bool sent;
  char *at;
  size_t bytes, moved;
  bool done;
};

/* What has come of one, whether or not its receive has been reached. */
struct Arrived {
  size_t bytes;
  std::string data;
};

struct Peer {
  int socket = -1;
  bool greeted = false, gone = false, said_bye = false, heard_bye = false;
  std::string out = {}, in = {}; /* on their way; come, and no whole frame yet */
  std::deque<Arrived> arrived = {};
  std::deque<Message *> sending = {}, taking = {}, unanswered = {};
};

enum State { CONNECTING, READY, FINALIZING, FINALIZED, ABORTED };

struct ncclComm {
  std::string name;
  int rank, ranks;
  bool blocks;
  State state = CONNECTING;
  ncclResult_t error = ncclSuccess;
  std::string says = {};
  int listening = -1;
  std::vector<Peer> peers = {};
  int polls = 0;                      /* so many more, and the last call is done */
  std::function<void()> at_last = {}; /* what it does then */
  cudaStream_t stream = nullptr;
  char device[32] = {};
};

static int depth; /* of groups that are open */

static void fail(ncclComm *c, ncclResult_t error, const std::string &says) {
  if (c->error == ncclSuccess) {
    c->error = error;
    c->says = says;
  }
}

static void lose(ncclComm *c, Peer &p, int rank) {
  if (p.gone) return;
  p.gone = true;
  if (!p.heard_bye) fail(c, ncclRemoteError, "rank " + std::to_string(rank) + " of the communicator is gone");
}

static void say(Peer &p, Frame f) { p.out.append((const char *)&f, sizeof f); }

/* Writes what a socket takes; false: not all of it. */
static bool write_out(ncclComm *c, Peer &p, int rank) {
  while (!p.out.empty() && !p.gone) {
    ssize_t n = send(p.socket, p.out.data(), p.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (n <= 0)
      lose(c, p, rank);
    else
      p.out.erase(0, (size_t)n);
  }
  return p.out.empty();
}

static void send_messages(ncclComm *c, Peer &p, int rank) {
  enum { PIECE = 1 << 16 };
  while (!p.sending.empty() && write_out(c, p, rank)) {
    Message *m = p.sending.front();
    size_t left = m->bytes - m->moved, piece = left < PIECE ? left : PIECE;
    say(p, {DATA, (uint32_t)c->rank, m->bytes, piece, {}});
    p.out.append(m->at + m->moved, piece);
    m->moved += piece;
    if (m->moved < m->bytes) continue;
    p.unanswered.push_back(m);
    p.sending.pop_front();
  }
  write_out(c, p, rank);
}

static void take_frame(ncclComm *c, Peer &p, int rank, const Frame &f, const char *data) {
  switch (f.kind) {
  case HELLO:
    p.greeted = true;
    if (!strcmp(f.device, c->device))
      fail(c, ncclInvalidUsage,
           "Duplicate GPU detected : rank " + std::to_string(c->rank) + " and rank " + std::to_string(rank) +
               " both on CUDA device " + c->device);
    break;
  case TAKEN:
    p.unanswered.front()->done = true;
    p.unanswered.pop_front();
    break;
  case BYE: p.heard_bye = true; break;
  case DATA:
    if (p.arrived.empty() || p.arrived.back().data.size() == p.arrived.back().bytes)
      p.arrived.push_back({f.bytes, {}});
    p.arrived.back().data.append(data, f.piece);
  }
}

/* Reads what there is, and takes all whole frames. */
static void read_in(ncclComm *c, Peer &p, int rank) {
  static char buffer[1 << 16];
  ssize_t n = 0;
  while (!p.gone && (n = recv(p.socket, buffer, sizeof buffer, MSG_DONTWAIT)) > 0) {
    p.in.append(buffer, (size_t)n);
    size_t at = 0;
    for (Frame f; p.in.size() - at >= sizeof f; at += sizeof f + f.piece) {
      memcpy(&f, p.in.data() + at, sizeof f);
      if (p.in.size() - at < sizeof f + f.piece) break;
      take_frame(c, p, rank, f, p.in.data() + at + sizeof f);
    }
    p.in.erase(0, at);
  }
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) lose(c, p, rank);
}

static void receive_messages(ncclComm *c, Peer &p, int rank) {
  read_in(c, p, rank);
  while (!p.taking.empty() && !p.arrived.empty()) {
    Message *m = p.taking.front();
    const Arrived &a = p.arrived.front();
    if (m->bytes != a.bytes)
      cuda_host_die("ncclRecv of %zu bytes from rank %d meets its ncclSend of %zu", m->bytes, rank, a.bytes);
    memcpy(m->at + m->moved, a.data.data() + m->moved, a.data.size() - m->moved);
    m->moved = a.data.size();
    if (m->moved < m->bytes) return;
    m->done = true;
    p.taking.pop_front();
    p.arrived.pop_front();
    say(p, {TAKEN, (uint32_t)c->rank, 0, 0, {}});
  }
}

/* What a rank sends to itself. */
static void pass_to_self(Peer &p) {
  while (!p.sending.empty() && !p.taking.empty()) {
    Message *from = p.sending.front(), *to = p.taking.front();
    if (to->bytes != from->bytes)
      cuda_host_die("ncclRecv of %zu bytes from its own rank meets its ncclSend of %zu", to->bytes, from->bytes);
    memcpy(to->at, from->at, from->bytes);
    from->done = to->done = true;
    p.sending.pop_front();
    p.taking.pop_front();
  }
}

static void move(ncclComm *c) {
  cuda_host_open_memory();
  for (int r = 0; r < (int)c->peers.size() && c->state != ABORTED; r++) {
    Peer &p = c->peers[(size_t)r];
    if (r == c->rank) pass_to_self(p);
    if (p.socket < 0) continue;
    receive_messages(c, p, r);
    send_messages(c, p, r);
  }
  cuda_host_close_memory();
}

/* ---- connecting ---------------------------------------------------------------------------------- */

static sockaddr_un address_of(const std::string &name, int rank, socklen_t *length) {
  sockaddr_un a = {};
  a.sun_family = AF_UNIX; /* a name that begins with 0 is in no file system */
  int n = snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "%s.%d", name.c_str(), rank);
  *length = (socklen_t)(offsetof(sockaddr_un, sun_path) + 1 + (size_t)n);
  return a;
}

static void listen_for_peers(ncclComm *c) {
  socklen_t length;
  sockaddr_un a = address_of(c->name, c->rank, &length);
  c->listening = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (bind(c->listening, (sockaddr *)&a, length) || listen(c->listening, c->ranks))
    fail(c, ncclSystemError, "cannot listen for other ranks");
}

static Frame hello(const ncclComm *c) {
  Frame f = {HELLO, (uint32_t)c->rank, 0, 0, {}};
  memcpy(f.device, c->device, sizeof f.device);
  return f;
}

/* A rank calls those below it; those above it call. */
static void connect_peers(ncclComm *c) {
  for (int r = 0; r < c->rank; r++) {
    Peer &p = c->peers[(size_t)r];
    if (p.socket >= 0) continue;
    socklen_t length;
    sockaddr_un a = address_of(c->name, r, &length);
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(s, (sockaddr *)&a, length)) {
      close(s); /* not there yet */
      continue;
    }
    p.socket = s;
    say(p, hello(c));
  }
  for (int s; (s = accept4(c->listening, NULL, NULL, SOCK_CLOEXEC)) >= 0;) {
    Frame f = {};
    if (recv(s, &f, sizeof f, MSG_WAITALL) != sizeof f || f.kind != HELLO)
      cuda_host_die("a stranger calls a communicator");
    Peer &p = c->peers[f.rank];
    p.socket = s;
    take_frame(c, p, (int)f.rank, f, nullptr);
    say(p, hello(c));
  }
  move(c);
  for (int r = 0; r < c->ranks; r++)
    if (r != c->rank && !c->peers[(size_t)r].greeted) return;
  c->state = READY;
}

static void finalize(ncclComm *c) {
  move(c);
  bool over = true;
  for (int r = 0; r < c->ranks; r++) {
    Peer &p = c->peers[(size_t)r];
    if (r == c->rank) continue;
    if (!p.sending.empty() || !p.taking.empty() || !p.unanswered.empty())
      cuda_host_die("ncclCommFinalize while messages with rank %d are under way", r);
    if (!p.said_bye) say(p, {BYE, (uint32_t)c->rank, 0, 0, {}});
    p.said_bye = true;
    over &= write_out(c, p, r) && p.heard_bye;
  }
  if (over) c->state = FINALIZED;
}

static void hang_up(ncclComm *c) {
  for (Peer &p : c->peers)
    if (p.socket >= 0) close(p.socket);
  if (c->listening >= 0) close(c->listening);
  c->peers.clear();
  c->listening = -1;
}

/* ---- calls that do not block --------------------------------------------------------------------- */

/* Moves the call under way on. */
static ncclResult_t poll(ncclComm *c) {
  if (c->error != ncclSuccess) return c->error;
  if (c->state == CONNECTING)
    connect_peers(c);
  else if (c->state == FINALIZING)
    finalize(c);
  else
    move(c);
  if (c->error != ncclSuccess) return c->error;
  if (c->state == CONNECTING || c->state == FINALIZING) return ncclInProgress;
  if (c->polls > 0 && --c->polls > 0) return ncclInProgress;
  if (c->at_last) {
    auto at_last = std::move(c->at_last);
    c->at_last = nullptr;
    at_last();
  }
  return c->error;
}

static ncclResult_t begin(ncclComm *c, std::function<void()> at_last) {
  c->at_last = std::move(at_last);
  c->polls = 1 + (int)cuda_host_random_below(4);
  ncclResult_t status = ncclInProgress;
  while (c->blocks && status == ncclInProgress) {
    if (c->stream) cudaStreamQuery(c->stream); /* a device moves by itself */
    status = poll(c);
    sched_yield();
  }
  return status;
}

static void must_be_idle(ncclComm *c, const char *what) {
  if (c->state == CONNECTING || c->state == FINALIZING || c->polls > 0)
    cuda_host_die("%s on a communicator whose last call is in progress, as ncclCommGetAsyncError tells", what);
  if (c->state != READY) cuda_host_die("%s on a communicator that has ended", what);
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  static int count;
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  *id = {};
  snprintf(id->internal, sizeof id->internal, "cuda_host.%d.%d.%lld", (int)getpid(), count++,
           (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000);
  return ncclSuccess;
}

/* CUDA_HOST_TRACE=1: what a communicator is given. */
static void tell_config(int ranks, int rank, const ncclConfig_t *config) {
  char most[32] = "any number of";
  if (!getenv("CUDA_HOST_TRACE")) return;
  if (config && config->maxCTAs != NCCL_CONFIG_UNDEF_INT) snprintf(most, sizeof most, "%d", config->maxCTAs);
  fprintf(stderr, "cuda_host: rank %d of a communicator of %d: %s CTAs, %s\n", rank, ranks, most,
          !config || config->blocking != 0 ? "blocking" : "nonblocking");
}

/* CUDA_HOST_NCCL_SILENT=RANK: that rank of a communicator stops before it comes. */
static void be_silent(int rank) {
  const char *silent = getenv("CUDA_HOST_NCCL_SILENT");
  if (silent && atoi(silent) == rank) raise(SIGSTOP);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config) {
  int device;
  if (config && config->maxCTAs != NCCL_CONFIG_UNDEF_INT && config->maxCTAs <= 0) return ncclInvalidArgument;
  tell_config(ranks, rank, config);
  be_silent(rank);
  if (ranks < 1 || rank < 0 || rank >= ranks) return ncclInvalidArgument;
  ncclComm *c = *comm = new ncclComm{id.internal, rank, ranks, !config || config->blocking != 0};
  c->peers.resize((size_t)ranks);
  cudaGetDevice(&device);
  cudaDeviceGetPCIBusId(c->device, sizeof c->device, device);
  listen_for_peers(c);
  return begin(c, {});
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *error) {
  if (c->stream) cudaStreamQuery(c->stream); /* a device moves by itself */
  *error = poll(c);
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t c) {
  must_be_idle(c, "ncclCommFinalize");
  c->state = FINALIZING;
  return begin(c, {});
}

ncclResult_t ncclCommDestroy(ncclComm_t c) {
  if (c->state != FINALIZED) cuda_host_die("ncclCommDestroy of a communicator that is not finalized");
  hang_up(c);
  delete c;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t c) {
  if (depth > 0) cuda_host_die("ncclCommAbort between ncclGroupStart and ncclGroupEnd");
  c->state = ABORTED; /* what is enqueued still looks at it */
  hang_up(c);
  return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
  static const char *const names[] = {"no error",
                                      "unhandled cuda error",
                                      "unhandled system error",
                                      "internal error",
                                      "invalid argument",
                                      "invalid usage",
                                      "remote process exited or there was a network error",
                                      "NCCL operation in progress"};
  return result >= 0 && result < ncclNumResults ? names[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t c) { return c ? c->says.c_str() : ""; }

/* ---- messages ------------------------------------------------------------------------------------ */

struct Posted {
  ncclComm *comm;
  int peer;
  cudaStream_t stream;
  Message message;
};

static std::vector<Posted> posted; /* in the group */

static size_t size_of(ncclDataType_t type) { return type == ncclUint8 ? 1 : type == ncclBfloat16 ? 2 : 4; }

/* The messages of one communicator as one operation: they begin when its stream comes to it. */
static void enqueue(ncclComm *c, cudaStream_t stream, std::vector<Posted> all) {
  auto messages = std::make_shared<std::vector<Posted>>(std::move(all));
  auto begun = std::make_shared<bool>(false);
  c->stream = stream;
  cuda_host_enqueue(stream, {"messages by NCCL", {}, [c, messages, begun] {
                               if (c->state == ABORTED) return true;
                               if (!*begun)
                                 for (Posted &p : *messages) {
                                   Peer &peer = c->peers[(size_t)p.peer];
                                   (p.message.sent ? peer.sending : peer.taking).push_back(&p.message);
                                 }
                               *begun = true;
                               move(c);
                               for (const Posted &p : *messages)
                                 if (!p.message.done) return false;
                               return true;
                             }});
}

ncclResult_t ncclGroupStart() {
  depth++;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (depth == 0) cuda_host_die("ncclGroupEnd without ncclGroupStart");
  if (--depth > 0 || posted.empty()) return ncclSuccess;
  std::vector<Posted> all = std::move(posted);
  posted.clear();
  ncclComm *c = all[0].comm;
  cudaStream_t stream = all[0].stream;
  for (const Posted &p : all)
    if (p.comm != c || p.stream != stream)
      cuda_host_die("a group on several communicators or streams: NCCL can, this cannot");
  must_be_idle(c, "ncclGroupEnd");
  return begin(c, [c, stream, all] { enqueue(c, stream, all); });
}

static ncclResult_t post(bool sent, const void *at, size_t count, ncclDataType_t type, int peer, ncclComm *c,
                         cudaStream_t stream) {
  size_t bytes = count * size_of(type);
  must_be_idle(c, sent ? "ncclSend" : "ncclRecv");
  if (peer < 0 || peer >= c->ranks) return ncclInvalidArgument;
  cuda_host_must_be_device(at, bytes, sent ? "what ncclSend sends" : "where ncclRecv receives");
  ncclGroupStart();
  posted.push_back({c, peer, stream, {sent, (char *)const_cast<void *>(at), bytes, 0, false}});
  return ncclGroupEnd();
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t c,
                      cudaStream_t s) {
  return post(true, from, count, type, peer, c, s);
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t s) {
  return post(false, to, count, type, peer, c, s);
}
