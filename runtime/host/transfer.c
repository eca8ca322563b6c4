/* Messages straight between the ranks' arenas, by MPI. There is no device beside the host: a transfer has passed
 * when it is through. */
#include "checksum.h"
#include "internal.h"
#include "transfer.h"

#include <stdlib.h>
#include <string.h>

struct pd_line {
  MPI_Comm comm;
};
/* With --check-messages each message has a second one behind it, of the checksum of its bytes: what is received is
 * compared with it before anybody reads it. */
struct check {
  struct pd_message message;
  uint64_t sum; /* of what is sent */
};

struct pd_transfer {
  int first, n;        /* its requests, of all; those in use */
  bool unchecked;      /* what was posted last has not been compared */
  struct check *check; /* by message; NULL: none is checked */
};
enum { SUM_TAG = 1 << 16 }; /* of a checksum: its message's, and this */

static MPI_Request *requests;
static int n_requests;

bool pd_transfers_start(char *why) {
  const char *comm = pd_options.comm;
  int *most, known = 0;
  if (pd_options.check_messages) MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &known);
  if (pd_options.check_messages && (!known || *most < 2 * SUM_TAG))
    return pd_refuse(why, "--check-messages: this MPI has too few tags for checksums");
  return !comm || !strcmp(comm, "mpi") ||
         pd_refuse(why, "--comm %s: a program for the host's processors has MPI alone", comm);
}

void pd_transfers_finish(void) {}
void pd_transfers_abort(void) {}

struct pd_line *pd_line_open(MPI_Comm comm, int n, const int *ranks, enum pd_side side) {
  (void)n, (void)ranks, (void)side;
  struct pd_line *line = pd_allocate(sizeof *line);
  line->comm = comm;
  return line;
}

struct pd_transfer *pd_transfer_new(int messages, size_t bytes) {
  (void)bytes;
  struct pd_transfer *t = pd_allocate(sizeof *t);
  struct check *check = pd_options.check_messages ? pd_allocate(sizeof *check * (size_t)messages) : NULL;
  if (check) messages *= 2;
  requests = realloc(requests, sizeof *requests * (size_t)(n_requests + messages));
  if (!requests && messages) pd_fail("out of memory: cannot get room for %d messages", n_requests + messages);
  *t = (struct pd_transfer){.first = n_requests, .check = check};
  for (int i = 0; i < messages; i++) requests[n_requests++] = MPI_REQUEST_NULL;
  return t;
}

/* Messages are counted in numbers of four bytes, so that they may have 8 GiB, or in odd numbers of two, of bf16. */
static int unit(const struct pd_message *m) { return m->bytes % sizeof(float) ? 2 : 4; }
static MPI_Datatype type(const struct pd_message *m) { return unit(m) == 2 ? MPI_UINT16_T : MPI_FLOAT; }

static int count(const struct pd_message *m) {
  size_t n = m->bytes / (size_t)unit(m);
  if (n > INT32_MAX) pd_fail("a message of %zu bytes is larger than MPI can count", m->bytes);
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
    if (!m->sent && pd_checksum(m->at, m->bytes) != t->check[i].sum)
      pd_fail("--check-messages: the %zu bytes that rank %d sent came with another checksum (message %d): a link, "
              "or the memory of this host or that rank's, changes bits",
              m->bytes, m->peer, m->tag);
  }
}

void pd_transfer_post(struct pd_transfer *t, struct pd_line *line, int n, const struct pd_message *message) {
  t->n = t->check ? 2 * n : n;
  t->unchecked = t->check != NULL;
  for (int i = 0; i < n && t->check; i++) post_sum(line, &t->check[i], &message[i], &requests[t->first + n + i]);
  for (int i = 0; i < n; i++) {
    const struct pd_message *m = &message[i];
    MPI_Request *request = &requests[t->first + i];
    if (m->sent)
      MPI_Isend(m->at, count(m), type(m), m->peer, m->tag, line->comm, request);
    else
      MPI_Irecv(m->at, count(m), type(m), m->peer, m->tag, line->comm, request);
  }
}

bool pd_transfer_through(struct pd_transfer *t) {
  int done;
  MPI_Testall(t->n, requests + t->first, &done, MPI_STATUSES_IGNORE);
  if (done && t->unchecked) {
    t->unchecked = false;
    compare_sums(t);
  }
  return done;
}

bool pd_transfer_passed(struct pd_transfer *t) { return pd_transfer_through(t); }

void pd_transfers_progress(void) {
  int done;
  if (n_requests) MPI_Testall(n_requests, requests, &done, MPI_STATUSES_IGNORE);
}

void pd_transfers_watch(void) {}
