/* Messages directly between the ranks' arenas, by shared memory (shared.h) or MPI. Without a device, a transfer
 * has passed when it is through. */
#include "shared/checksum.h"
#include "messages/messages.h"
#include "shared.h"
#include "transfer.h"

#include <stdlib.h>
#include <string.h>

struct pd_line {
  MPI_Comm comm;
  bool shared, sends; /* shared: by a box; sends: this is the sending end */
  int peer;
  struct pd_share share;
  int64_t posted; /* transfers, at this end */
};
/* With --check-messages a second message with the checksum follows each message; received bytes are verified
 * before use. */
struct check {
  struct pd_message message;
  uint64_t sum; /* of what is sent */
};

struct pd_transfer {
  int first, n;        /* requests of the transfer, those in use */
  bool unchecked;      /* the last post is not verified yet */
  struct check *check; /* by message; NULL: no checks */
  /* Through a box: */
  struct pd_line *line; /* while bytes are in flight; NULL: none, or by MPI */
  int64_t number;       /* on the line, from 1 */
  int n_messages;
  struct pd_message *message;
};
enum { SUM_TAG = 1 << 16 }; /* added to the tag of the message */

static struct {
  MPI_Request *requests;
  int n_requests;
  struct pd_transfer **transfers;
  int n_transfers;
} posted;

bool pd_transfers_start(char *why) {
  int *most, known = 0;
  if (pd_options.check_messages) MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &known);
  if (pd_options.check_messages && (!known || *most < 2 * SUM_TAG))
    return pd_refuse(why, "--check-messages: this MPI library has too few message tags for checksums");
  return true;
}

void pd_transfers_finish(void) {}
void pd_transfers_abort(void) {}

struct pd_line *pd_line_open(MPI_Comm comm, int n, const int *ranks, enum pd_side side) {
  (void)n, (void)ranks, (void)side;
  struct pd_line *line = pd_allocate(sizeof *line);
  *line = (struct pd_line){.comm = comm};
  return line;
}

struct pd_line *pd_line_between(MPI_Comm comm, int peer, bool sends, enum pd_kind kind) {
  struct pd_line *line = pd_line_open(comm, 2, (const int[]){pd.rank, peer}, PD_COMPUTING);
  line->peer = peer;
  line->sends = sends;
  line->shared = kind != PD_VALIDATION && pd_shared_with(peer, sends, kind == PD_GRADIENTS, &line->share);
  return line;
}

struct pd_transfer *pd_transfer_new(int messages, size_t bytes) {
  (void)bytes;
  struct pd_transfer *t = pd_allocate(sizeof *t);
  struct check *check = pd_options.check_messages ? pd_allocate(sizeof *check * (size_t)messages) : NULL;
  if (check) messages *= 2;
  posted.requests = realloc(posted.requests, sizeof *posted.requests * (size_t)(posted.n_requests + messages));
  if (!posted.requests && messages)
    pd_fail("out of memory: cannot get room for %d messages", posted.n_requests + messages);
  *t = (struct pd_transfer){.first = posted.n_requests, .check = check};
  t->message = pd_allocate(sizeof *t->message * (size_t)messages);
  posted.transfers = realloc(posted.transfers, sizeof(struct pd_transfer *) * (size_t)(posted.n_transfers + 1));
  if (!posted.transfers) pd_fail("out of memory: cannot get room for %d transfers", posted.n_transfers + 1);
  posted.transfers[posted.n_transfers++] = t;
  for (int i = 0; i < messages; i++) posted.requests[posted.n_requests++] = MPI_REQUEST_NULL;
  return t;
}

static void differ(const struct pd_message *m) {
  pd_fail(
      "--check-messages: %zu bytes from rank %d arrived with a different checksum (message %d): a link, or the "
      "memory of either host, corrupts data",
      m->bytes, m->peer, m->tag);
}

/* ---- by MPI ------------------------------------------------------------------------------------- */

/* Messages are counted in units of four bytes, for up to 8 GiB, or of two bytes for odd numbers of bf16. */
static int unit(const struct pd_message *m) { return m->bytes % sizeof(float) ? 2 : 4; }
static MPI_Datatype type(const struct pd_message *m) { return unit(m) == 2 ? MPI_UINT16_T : MPI_FLOAT; }

static int count(const struct pd_message *m) {
  size_t n = m->bytes / (size_t)unit(m);
  if (n > INT32_MAX) pd_fail("a message of %zu bytes exceeds MPI's largest message", m->bytes);
  return (int)n;
}

static void post_sum(struct pd_line *line, struct check *c, const struct pd_message *m, MPI_Request *request) {
  c->message = *m;
  if (m->sent) {
    c->sum = pd_checksum(m->at, m->bytes);
    MPI_Isend(&c->sum, 1, MPI_UINT64_T, m->peer, m->tag + SUM_TAG, line->comm, request);
  } else
    MPI_Irecv(&c->sum, 1, MPI_UINT64_T, m->peer, m->tag + SUM_TAG, line->comm, request);
}

static void compare_sums(struct pd_transfer *t) {
  for (int i = 0; i < t->n / 2; i++) {
    const struct pd_message *m = &t->check[i].message;
    if (!m->sent && pd_checksum(m->at, m->bytes) != t->check[i].sum) differ(m);
  }
}

/* ---- through shared memory ------------------------------------------------------------------------ */

static bool is_posted(const struct pd_line *line, int64_t number) {
  return atomic_load_explicit(&line->share.box->posted, memory_order_acquire) >= number;
}

char *pd_line_slot(const struct pd_line *line, int cut, int64_t least, const struct pd_channel *c) {
  if (!line->shared || !is_posted(line, line->posted + 1)) return NULL;
  const struct pd_box *box = line->share.box;
  uint64_t slot = box->value[0].at - (c->values[0].offset - pd_channel_start(c));
  bool alike = box->slots[cut] >= least;
  for (int i = 0; i < c->n_values && alike; i++)
    alike = box->value[i].at == slot + c->values[i].offset - pd_channel_start(c);
  return alike ? line->share.segment + slot : NULL;
}

/* Values that passes wrote to the receiver's slots need no copy. A release alone does not order non-temporal
 * stores of passes and their threads on every processor; the fence does. */
static void put(const struct pd_transfer *t) {
  const struct pd_share *s = &t->line->share;
  for (int i = 0; i < t->n_messages; i++) {
    const struct pd_message *m = &t->message[i];
    struct pd_placed *to = &s->box->value[i];
    if (to->bytes != m->bytes)
      pd_fail("internal: rank %d expects %llu bytes, not %zu", m->peer, (unsigned long long)to->bytes, m->bytes);
    if (s->segment + to->at != m->at) memcpy(s->segment + to->at, m->at, m->bytes);
    if (pd_options.check_messages) to->sum = pd_checksum(m->at, m->bytes);
  }
  atomic_thread_fence(memory_order_seq_cst);
  atomic_store_explicit(&s->box->sent, t->number, memory_order_release);
}

static void take(const struct pd_transfer *t) {
  for (int i = 0; i < t->n_messages && pd_options.check_messages; i++) {
    const struct pd_message *m = &t->message[i];
    if (pd_checksum(m->at, m->bytes) != t->line->share.box->value[i].sum) differ(m);
  }
}

/* True once the transfer is through; for a sender, once the bytes are at the receiver. */
static bool move_shared(struct pd_transfer *t) {
  struct pd_box *box = t->line->share.box;
  if (t->line->sends) {
    if (!is_posted(t->line, t->number)) return false;
    put(t);
  } else {
    if (atomic_load_explicit(&box->sent, memory_order_acquire) < t->number) return false;
    take(t);
  }
  t->line = NULL;
  return true;
}

/* The previous receive has arrived, so its places in the box are free (comm.c posts one receive at a time). */
static void post_shared(struct pd_transfer *t, struct pd_line *line, int n, const struct pd_message *message) {
  struct pd_box *box = line->share.box;
  t->line = line;
  t->number = ++line->posted;
  t->n_messages = n;
  t->n = 0;
  memcpy(t->message, message, sizeof *message * (size_t)n);
  if (line->sends) {
    move_shared(t);
    return;
  }
  if (atomic_load_explicit(&box->sent, memory_order_acquire) != t->number - 1)
    pd_fail("internal: receive %lld is posted before the previous one has arrived", (long long)t->number);
  for (int i = 0; i < n; i++)
    box->value[i] = (struct pd_placed){pd_shared_offset(message[i].at), message[i].bytes, 0};
  atomic_store_explicit(&box->posted, t->number, memory_order_release);
}

/* ---- either ----------------------------------------------------------------------------------- */

void pd_transfer_post(struct pd_transfer *t, struct pd_line *line, int n, const struct pd_message *message) {
  if (line->shared) {
    post_shared(t, line, n, message);
    return;
  }
  t->n = t->check ? 2 * n : n;
  t->unchecked = t->check != NULL;
  for (int i = 0; i < n && t->check; i++)
    post_sum(line, &t->check[i], &message[i], &posted.requests[t->first + n + i]);
  for (int i = 0; i < n; i++) {
    const struct pd_message *m = &message[i];
    MPI_Request *request = &posted.requests[t->first + i];
    if (m->sent)
      MPI_Isend(m->at, count(m), type(m), m->peer, m->tag, line->comm, request);
    else
      MPI_Irecv(m->at, count(m), type(m), m->peer, m->tag, line->comm, request);
  }
}

bool pd_transfer_through(struct pd_transfer *t) {
  if (t->line) return move_shared(t);
  int done;
  MPI_Testall(t->n, posted.requests + t->first, &done, MPI_STATUSES_IGNORE);
  if (done && t->unchecked) {
    t->unchecked = false;
    compare_sums(t);
  }
  return done;
}

bool pd_transfer_passed(struct pd_transfer *t) { return pd_transfer_through(t); }

void pd_transfers_progress(void) {
  for (int i = 0; i < posted.n_transfers; i++)
    if (posted.transfers[i]->line && posted.transfers[i]->line->sends) move_shared(posted.transfers[i]);
  int done;
  if (posted.n_requests) MPI_Testall(posted.n_requests, posted.requests, &done, MPI_STATUSES_IGNORE);
}

void pd_transfers_watch(void) {}
