/* Messages by MPI, staged in host memory. A message moves in pieces through a few pinned buffers: a sent piece is
 * copied to the host, then given to MPI; a received piece comes from MPI, then is copied to the device. Pieces
 * overlap with each other and with computation: copies run in streams of the line, and the host advances pieces
 * with messages. A send has passed once all its copies are enqueued; a receive, once all pieces have arrived and
 * their copies are enqueued. */
#include "transport.h"
#include "run/run.h"

#include "shared/checksum.h"

#include <cstdlib>
#include <cstring>

enum { PIECE = 1 << 20, DEPTH = 4 }; /* bytes, the same at both ends; buffers of a message ... */
enum { BUFFERS = 256 };              /* per transfer, divided among its messages, at least one each */

struct staged_line : pd_line {
  MPI_Comm comm;
  cudaStream_t out, in;
  staged_line *next;
};

struct staged_message;

struct piece {
  char *buffer;
  cudaEvent_t copied;
  MPI_Request request;
  const staged_line *line;
  bool sent;
  int peer, tag, bytes;         /* at most PIECE */
  int64_t number;               /* of its message, among all */
  const staged_message *before; /* predecessor whose pieces MPI must get first; NULL: none */
  int64_t end_before;
};

/* Pieces are counted over the life of a message's place in a transfer; piece i uses buffer i % depth. Each goes
 * through three steps: begun (sent: its copy, received: MPI), moved (the other of the two), ended. */
struct staged_message {
  pd_message is;
  const staged_line *line;
  int depth;
  piece ring[DEPTH];
  int64_t first, end;           /* those of the message posted last: first ... end - 1 */
  int64_t begun, moved, ended;  /* number of pieces in each step */
  int64_t number;               /* of the message posted last, among all */
  const staged_message *before; /* of its pieces */
  int64_t end_before;
};

struct staged_transfer : pd_transfer {
  cudaEvent_t posted;
  int n, room;
  bool active; /* not through yet */
  bool passed; /* the side's stream waits for the copies already */
  staged_message *message;
  staged_transfer *next;
};

static struct {
  staged_line *lines;
  staged_transfer *transfers;
} staged;

/* ---- checksums ------------------------------------------------------------------------------- */

/* With --check-messages a piece's checksum follows it in the same message. */
static int sum_bytes() { return pd_options.check_messages ? static_cast<int>(sizeof(uint64_t)) : 0; }

static void add_sum(piece *p) {
  if (!pd_options.check_messages) return;
  uint64_t sum = pd_checksum(p->buffer, (size_t)p->bytes);
  memcpy(p->buffer + p->bytes, &sum, sizeof sum);
}

static void compare_sum(const piece *p) {
  if (!pd_options.check_messages) return;
  uint64_t sum;
  memcpy(&sum, p->buffer + p->bytes, sizeof sum);
  if (sum != pd_checksum(p->buffer, (size_t)p->bytes))
    pd_fail(
        "--check-messages: %d bytes from rank %d arrived with a different checksum (message %d): a link, or the "
        "memory of either host, corrupts data",
        p->bytes, p->peer, p->tag);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static piece *piece_of(staged_message *m, int64_t i) { return &m->ring[i % m->depth]; }

/* The number of the place's pieces given to MPI in this direction. */
static int64_t given(const staged_message *m, bool sent) { return sent ? m->moved : m->begun; }

static void begin(staged_message *m, piece *p) {
  size_t at = (size_t)(m->begun - m->first) * PIECE, left = m->is.bytes - at;
  p->line = m->line;
  p->sent = m->is.sent;
  p->peer = m->is.peer;
  p->tag = m->is.tag;
  p->number = m->number;
  p->bytes = left < PIECE ? (int)left : PIECE;
  p->before = m->before;
  p->end_before = m->end_before;
  if (!p->sent) {
    MPI_Irecv(p->buffer, p->bytes + sum_bytes(), MPI_BYTE, p->peer, p->tag, p->line->comm, &p->request);
    return;
  }
  pd_cuda_check(cudaMemcpyAsync(p->buffer, (char *)m->is.at + at, (size_t)p->bytes, cudaMemcpyDeviceToHost,
                                p->line->out),
                "copy a message to the host");
  pd_cuda_check(cudaEventRecord(p->copied, p->line->out), "record an event");
}

static bool mpi_is_done(piece *p) {
  int done;
  MPI_Test(&p->request, &done, MPI_STATUS_IGNORE);
  return done;
}

static bool move_on(staged_message *m, piece *p) {
  if (p->sent) {
    if ((p->before && given(p->before, true) < p->end_before) || !pd_cuda_happened(p->copied)) return false;
    add_sum(p);
    MPI_Isend(p->buffer, p->bytes + sum_bytes(), MPI_BYTE, p->peer, p->tag, p->line->comm, &p->request);
    return true;
  }
  if (!mpi_is_done(p)) return false;
  compare_sum(p);
  char *to = (char *)m->is.at + (size_t)(m->moved - m->first) * PIECE;
  pd_cuda_check(cudaMemcpyAsync(to, p->buffer, (size_t)p->bytes, cudaMemcpyHostToDevice, p->line->in),
                "copy a message to the device");
  pd_cuda_check(cudaEventRecord(p->copied, p->line->in), "record an event");
  return true;
}

/* A buffer is free; a receive is its message's turn, too: it begins with MPI. */
static bool can_begin(const staged_message *m) {
  if (m->begun == m->end || m->begun == m->ended + m->depth) return false;
  return m->is.sent || !m->before || given(m->before, false) >= m->end_before;
}

static bool has_ended(piece *p) { return p->sent ? mpi_is_done(p) : pd_cuda_happened(p->copied); }

/* Advances all pieces; false while pieces are in flight. */
static bool advance(staged_message *m) {
  for (;;) {
    while (m->ended < m->moved && has_ended(piece_of(m, m->ended))) m->ended++;
    for (; can_begin(m); m->begun++) begin(m, piece_of(m, m->begun));
    int64_t before = m->moved;
    while (m->moved < m->begun && move_on(m, piece_of(m, m->moved))) m->moved++;
    if (m->moved == before) return m->ended == m->end;
  }
}

static bool advance_all(staged_transfer *t) {
  if (!t->active) return true;
  bool through = true;
  for (int i = 0; i < t->room; i++) through &= advance(&t->message[i]);
  t->active = !through;
  return through;
}

/* ---- lines and transfers --------------------------------------------------------------------- */

static pd_line *staged_open(MPI_Comm comm, int n, const int *ranks, pd_line_use, cudaStream_t side) {
  (void)n, (void)ranks;
  staged_line *l = new staged_line{};
  l->side = side;
  l->comm = comm;
  l->out = pd_message_stream();
  l->in = pd_message_stream();
  l->next = staged.lines;
  return staged.lines = l;
}

static pd_transfer *staged_make(int messages, size_t bytes) {
  staged_transfer *t = new staged_transfer{};
  size_t pieces = (bytes + PIECE - 1) / PIECE, buffer = bytes < PIECE ? bytes : static_cast<size_t>(PIECE);
  t->posted = pd_cuda_event();
  t->room = messages;
  t->passed = true;
  t->message = (staged_message *)pd_allocate(sizeof *t->message * (size_t)messages);
  for (int i = 0; i < messages; i++) {
    staged_message *m = &t->message[i];
    m->depth = pieces < DEPTH ? (int)pieces : DEPTH;
    if (m->depth > 1 && m->depth * messages > BUFFERS) m->depth = messages < BUFFERS ? BUFFERS / messages : 1;
    for (int j = 0; j < m->depth; j++) {
      piece *p = &m->ring[j];
      p->buffer = (char *)pd_cuda_pinned(buffer + (size_t)sum_bytes());
      p->copied = pd_cuda_event();
      p->request = MPI_REQUEST_NULL;
    }
  }
  t->next = staged.transfers;
  return staged.transfers = t;
}

static void comes_before(staged_message *m, int64_t *latest, const staged_message *x, int64_t number,
                         int64_t end) {
  if (number < *latest) return;
  *latest = number;
  m->before = x;
  m->end_before = end;
}

/* MPI matches messages with equal line, peer, direction and tag by order. Finds the last posted one that still has
 * pieces to give to MPI: a place's current message, or its previous send, which is being copied. Pieces of a place
 * keep their order. */
static void find_before(staged_message *m) {
  int64_t latest = 0;
  m->before = NULL;
  for (staged_transfer *t = staged.transfers; t; t = t->next)
    for (int i = 0; i < (t->active ? t->room : 0); i++) {
      staged_message *x = &t->message[i];
      if (x == m) continue;
      const piece *p = x->moved < x->first ? piece_of(x, x->first - 1) : NULL;
      if (p && p->line == m->line && p->peer == m->is.peer && p->sent == m->is.sent && p->tag == m->is.tag)
        comes_before(m, &latest, x, p->number, x->first);
      bool alike =
          x->line == m->line && x->is.peer == m->is.peer && x->is.sent == m->is.sent && x->is.tag == m->is.tag;
      if (alike && given(x, x->is.sent) < x->end) comes_before(m, &latest, x, x->number, x->end);
    }
}

/* Places that this post does not use have passed: at most MPI still sends their pieces. */
static void staged_post(pd_transfer *transfer, pd_line *line, int n, const pd_message *message) {
  staged_transfer *t = (staged_transfer *)transfer;
  staged_line *l = (staged_line *)line;
  static int64_t posted;
  pd_order(l->side, l->out, t->posted);
  pd_cuda_check(cudaStreamWaitEvent(l->in, t->posted, 0), "let a stream wait");
  t->side = l->side;
  t->n = n;
  t->passed = false;
  t->active = true;
  for (int i = 0; i < n; i++) {
    staged_message *m = &t->message[i];
    m->is = message[i];
    m->line = l;
    m->number = ++posted;
    find_before(m);
    m->first = m->end;
    m->end += (int64_t)((m->is.bytes + PIECE - 1) / PIECE);
  }
  advance_all(t);
}

static bool staged_passed(pd_transfer *transfer) {
  staged_transfer *t = (staged_transfer *)transfer;
  if (t->passed) return true;
  advance_all(t);
  for (int i = 0; i < t->n; i++) {
    const staged_message *m = &t->message[i];
    if ((m->is.sent ? m->begun : m->moved) < m->end) return false;
  }
  for (int i = 0; i < t->n; i++) {
    staged_message *m = &t->message[i];
    if (m->first == m->end) continue;
    cudaEvent_t last = piece_of(m, m->end - 1)->copied;
    pd_cuda_check(cudaStreamWaitEvent(t->side, last, 0), "let a stream wait");
  }
  return t->passed = true;
}

static bool staged_through(pd_transfer *transfer) { return advance_all((staged_transfer *)transfer); }

static void staged_progress() {
  for (staged_transfer *t = staged.transfers; t; t = t->next) advance_all(t);
}

static void staged_watch() {} /* MPI errors end the launch in their handler */
static void staged_abort() {} /* no device waits for another */

static void staged_finish() {
  for (staged_transfer *t = staged.transfers, *next; t; t = next) {
    next = t->next;
    free(t->message);
    delete t;
  }
  for (staged_line *l = staged.lines, *next; l; l = next) {
    next = l->next;
    pd_cuda_check(cudaStreamDestroy(l->out), "give a stream back");
    pd_cuda_check(cudaStreamDestroy(l->in), "give a stream back");
    delete l;
  }
  staged.transfers = NULL;
  staged.lines = NULL;
}

const pd_transport pd_staged_transport = {staged_open,   staged_make,    staged_post,
                                          staged_passed, staged_through, staged_progress,
                                          staged_watch,  staged_abort,   staged_finish};
