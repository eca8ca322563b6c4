/* Messages straight between the ranks' arenas, by MPI. There is no device beside the host: a transfer has passed
 * when it is through. */
#include "internal.h"
#include "transfer.h"

#include <stdlib.h>
#include <string.h>

struct pd_line {
  MPI_Comm comm;
};
struct pd_transfer {
  int first, n;
}; /* its requests, of all; those in use */

static MPI_Request *requests;
static int n_requests;

bool pd_transfers_start(char *why) {
  const char *comm = pd_options.comm;
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
  requests = realloc(requests, sizeof *requests * (size_t)(n_requests + messages));
  if (!requests && messages) pd_fail("out of memory: cannot get room for %d messages", n_requests + messages);
  *t = (struct pd_transfer){n_requests, 0};
  for (int i = 0; i < messages; i++) requests[n_requests++] = MPI_REQUEST_NULL;
  return t;
}

/* The arena holds numbers of four bytes: counted as such, messages may have 8 GiB. */
static int count(const struct pd_message *m) {
  if (m->bytes / sizeof(float) > INT32_MAX)
    pd_fail("a message of %zu bytes is larger than MPI can count", m->bytes);
  return (int)(m->bytes / sizeof(float));
}

void pd_transfer_post(struct pd_transfer *t, struct pd_line *line, int n, const struct pd_message *message) {
  t->n = n;
  for (int i = 0; i < n; i++) {
    const struct pd_message *m = &message[i];
    MPI_Request *request = &requests[t->first + i];
    if (m->sent)
      MPI_Isend(m->at, count(m), MPI_FLOAT, m->peer, m->tag, line->comm, request);
    else
      MPI_Irecv(m->at, count(m), MPI_FLOAT, m->peer, m->tag, line->comm, request);
  }
}

bool pd_transfer_through(struct pd_transfer *t) {
  int done;
  MPI_Testall(t->n, requests + t->first, &done, MPI_STATUSES_IGNORE);
  return done;
}

bool pd_transfer_passed(struct pd_transfer *t) { return pd_transfer_through(t); }

void pd_transfers_progress(void) {
  int done;
  if (n_requests) MPI_Testall(n_requests, requests, &done, MPI_STATUSES_IGNORE);
}

void pd_transfers_watch(void) {}
