/* The part of MPI that the runtime uses, for the ranks of one machine that `launch` (launch.c) starts: preloaded in front of
 * Open MPI's library, whose start and end take most of a second of a small training. Campaigns launch thousands.
 *
 * Each pair of ranks has a stream socket. A message is copied as it is sent, so that no send waits; it is a head and its
 * bytes. What comes before its receive is kept. A collective is a message from each rank to each other, added up or laid down
 * in the order of ranks once all are there. Ranks are those of MPI_COMM_WORLD in heads, of their communicator elsewhere. */
#define _GNU_SOURCE
#include <mpi.h>

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST_RANKS = 64, MOST_COMMS = 256 };

struct comm {
  int id, n, rank, rounds; /* rounds: of collectives */
  int member[MOST_RANKS];  /* ranks of the world */
};

struct head {
  int32_t context, tag;
  int64_t bytes;
};

/* On its way out of this rank, or into it. */
struct message {
  struct message *next;
  struct head head;
  int source;
  size_t moved; /* of head and bytes */
  char *bytes;
};

/* One message that is waited for. */
struct part {
  int context, source, tag; /* source: of the world, or MPI_ANY_SOURCE */
  size_t room;
  void *to;
  bool there;
};

struct request {
  struct request *next;
  const struct comm *comm;
  int n, left;
  void (*finish)(struct request *r);
  void *to;
  size_t count;
  MPI_Datatype type;
  MPI_Op op;
  struct part part[]; /* of a collective: by rank of the communicator */
};

static int ranks = 1, self;
static struct comm comms[MOST_COMMS];
static int n_comms, next_id = 1;
static struct peer {
  int fd;
  struct message *out, **out_end, *in;
} peer[MOST_RANKS];
static struct message *early, **early_end = &early; /* came before their receive */
static struct request *posted, **posted_end = &posted;
static MPI_Comm_errhandler_function *handler;

static void *get(size_t bytes) {
  void *p = calloc(1, bytes ? bytes : 1);
  if (!p) abort();
  return p;
}

static struct comm *comm_of(MPI_Comm comm) {
  return comm == MPI_COMM_WORLD ? &comms[0] : (struct comm *)(void *)comm;
}

static size_t size_of(MPI_Datatype type) {
  return type == MPI_INT64_T || type == MPI_UINT64_T || type == MPI_DOUBLE ? 8
         : type == MPI_INT || type == MPI_INT32_T || type == MPI_FLOAT     ? 4
         : type == MPI_UINT16_T                                            ? 2
                                                                           : 1;
}

int PMPI_Type_size(MPI_Datatype type, int *n) {
  *n = (int)size_of(type);
  return MPI_SUCCESS;
}

static int fail(MPI_Comm comm, int code) {
  if (handler) handler(&comm, &code);
  return code;
}

/* ---- receives --------------------------------------------------------------------------------------- */

static void settle(struct request *r, struct part *p, struct message *m) {
  if ((size_t)m->head.bytes > p->room) fail(MPI_COMM_WORLD, MPI_ERR_TRUNCATE);
  memcpy(p->to, m->bytes, (size_t)m->head.bytes);
  p->there = true;
  free(m->bytes);
  free(m);
  if (--r->left) return;
  if (r->finish) r->finish(r);
  for (struct request **at = &posted; *at; at = &(*at)->next) {
    if (*at != r) continue;
    *at = r->next;
    if (!r->next) posted_end = at;
    break;
  }
}

static bool fits(const struct part *p, const struct message *m) {
  return !p->there && p->context == m->head.context && (p->source == MPI_ANY_SOURCE || p->source == m->source) &&
         (p->tag == MPI_ANY_TAG || p->tag == m->head.tag);
}

static void arrive(struct message *m) {
  for (struct request *r = posted; r; r = r->next)
    for (int i = 0; i < r->n; i++)
      if (fits(&r->part[i], m)) {
        settle(r, &r->part[i], m);
        return;
      }
  m->next = NULL;
  *early_end = m;
  early_end = &m->next;
}

static void unlink_early(struct message **at) {
  if (early_end == &(*at)->next) early_end = at;
  *at = (*at)->next;
}

static void post(struct request *r) {
  *posted_end = r;
  posted_end = &r->next;
  for (int i = 0; i < r->n; i++)
    for (struct message **at = &early, *m; (m = *at); at = &m->next)
      if (fits(&r->part[i], m)) {
        unlink_early(at);
        settle(r, &r->part[i], m);
        break;
      }
}

/* ---- sockets ------------------------------------------------------------------------------------------ */

static void flush_to(struct peer *p) {
  for (struct message *m; (m = p->out);) {
    size_t head = sizeof m->head, whole = head + (size_t)m->head.bytes;
    while (m->moved < whole) {
      const char *from = m->moved < head ? (char *)&m->head + m->moved : m->bytes + (m->moved - head);
      ssize_t n =
          send(p->fd, from, m->moved < head ? head - m->moved : whole - m->moved, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      m->moved = n < 0 ? whole : m->moved + (size_t)n; /* to a rank that is gone: nowhere */
    }
    p->out = m->next;
    if (!p->out) p->out_end = &p->out;
    free(m->bytes);
    free(m);
  }
}

static void read_from(struct peer *p, int source) {
  for (;;) {
    struct message *m = p->in;
    if (!m) m = p->in = get(sizeof *m);
    size_t head = sizeof m->head, whole = m->moved < head ? head : head + (size_t)m->head.bytes;
    char *to = m->moved < head ? (char *)&m->head + m->moved : m->bytes + (m->moved - head);
    ssize_t n = whole > m->moved ? recv(p->fd, to, whole - m->moved, MSG_DONTWAIT) : 0;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 || (!n && whole > m->moved)) return;
    m->moved += (size_t)n;
    if (m->moved == head && !m->bytes) m->bytes = get((size_t)m->head.bytes);
    if (m->moved < head || m->moved < head + (size_t)m->head.bytes) continue;
    m->source = source;
    p->in = NULL;
    arrive(m);
  }
}

static void progress(void) {
  for (int i = 0; i < ranks; i++) {
    if (i == self) continue;
    flush_to(&peer[i]);
    read_from(&peer[i], i);
  }
}

static void await(const struct request *r) {
  while (r->left) {
    progress();
    if (r->left) nanosleep(&(struct timespec){0, 20000}, NULL);
  }
}

static void send_to(int to, int context, int tag, const void *from, size_t bytes) {
  struct message *m = get(sizeof *m);
  *m = (struct message){.head = {context, tag, (int64_t)bytes}, .source = self, .bytes = get(bytes)};
  memcpy(m->bytes, from, bytes);
  if (to == self) {
    arrive(m);
    return;
  }
  *peer[to].out_end = m;
  peer[to].out_end = &m->next;
  flush_to(&peer[to]);
}

/* ---- messages ----------------------------------------------------------------------------------------- */

int PMPI_Isend(const void *from, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request) {
  const struct comm *c = comm_of(comm);
  send_to(c->member[to], 2 * c->id, tag, from, (size_t)n * size_of(type));
  *request = MPI_REQUEST_NULL;
  return MPI_SUCCESS;
}

static struct request *request_new(const struct comm *c, int n) {
  struct request *r = get(sizeof *r + sizeof *r->part * (size_t)n);
  r->comm = c;
  r->n = r->left = n;
  return r;
}

int PMPI_Irecv(void *to, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request) {
  const struct comm *c = comm_of(comm);
  struct request *r = request_new(c, 1);
  r->part[0] =
      (struct part){2 * c->id, from < 0 ? MPI_ANY_SOURCE : c->member[from], tag, (size_t)n * size_of(type), to,
                    false};
  post(r);
  *request = (MPI_Request)(void *)r;
  return MPI_SUCCESS;
}

int PMPI_Iprobe(int from, int tag, MPI_Comm comm, int *there, MPI_Status *status) {
  const struct comm *c = comm_of(comm);
  struct part p = {2 * c->id, from < 0 ? MPI_ANY_SOURCE : c->member[from], tag, 0, NULL, false};
  progress();
  *there = 0;
  for (struct message *m = early; m && !*there; m = m->next) {
    if (!fits(&p, m)) continue;
    *there = 1;
    if (status == MPI_STATUS_IGNORE) continue;
    for (int i = 0; i < c->n; i++)
      if (c->member[i] == m->source) status->MPI_SOURCE = i;
    status->MPI_TAG = m->head.tag;
  }
  return MPI_SUCCESS;
}

int PMPI_Testall(int n, MPI_Request requests[], int *done, MPI_Status statuses[]) {
  (void)statuses;
  progress();
  *done = 1;
  for (int i = 0; i < n; i++)
    if (requests[i] != MPI_REQUEST_NULL && ((struct request *)(void *)requests[i])->left) *done = 0;
  for (int i = 0; i < n && *done; i++) {
    if (requests[i] != MPI_REQUEST_NULL) free((void *)requests[i]);
    requests[i] = MPI_REQUEST_NULL;
  }
  return MPI_SUCCESS;
}

int PMPI_Test(MPI_Request *request, int *done, MPI_Status *status) {
  return PMPI_Testall(1, request, done, status);
}

int PMPI_Request_free(MPI_Request *request) {
  *request = MPI_REQUEST_NULL; /* of a send, which is complete */
  return MPI_SUCCESS;
}

/* ---- collectives ---------------------------------------------------------------------------------------- */

/* Sends `bytes` to `to`, a rank of the communicator, or to all of them (-1). */
static void contribute(const struct comm *c, int round, int to, const void *from, size_t bytes) {
  for (int i = 0; i < c->n; i++)
    if (to < 0 || to == i) send_to(c->member[i], 2 * c->id + 1, round, from, bytes);
}

static struct part part_from(const struct comm *c, int round, int i, void *to, size_t room) {
  return (struct part){2 * c->id + 1, c->member[i], round, room, to, false};
}

static int begin(struct request *r, MPI_Request *request) {
  post(r);
  *request = (MPI_Request)(void *)r;
  return MPI_SUCCESS;
}

int PMPI_Iallgather(const void *from, int n, MPI_Datatype type, void *to, int n_each, MPI_Datatype each,
                    MPI_Comm comm, MPI_Request *request) {
  struct comm *c = comm_of(comm);
  struct request *r = request_new(c, c->n);
  size_t bytes = (size_t)n_each * size_of(each);
  int round = c->rounds++;
  if (from == MPI_IN_PLACE)
    from = (char *)to + bytes * (size_t)c->rank;
  else
    bytes = (size_t)n * size_of(type);
  for (int i = 0; i < c->n; i++) r->part[i] = part_from(c, round, i, (char *)to + bytes * (size_t)i, bytes);
  contribute(c, round, -1, from, bytes);
  return begin(r, request);
}

int PMPI_Ibarrier(MPI_Comm comm, MPI_Request *request) {
  static char nothing[MOST_RANKS];
  return PMPI_Iallgather(nothing, 1, MPI_BYTE, nothing, 1, MPI_BYTE, comm, request);
}

int PMPI_Ibcast(void *at, int n, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request *request) {
  struct comm *c = comm_of(comm);
  size_t bytes = (size_t)n * size_of(type);
  int round = c->rounds++;
  *request = MPI_REQUEST_NULL;
  for (int i = 0; i < c->n && c->rank == root; i++)
    if (i != root) contribute(c, round, i, at, bytes);
  if (c->rank == root) return MPI_SUCCESS;
  struct request *r = request_new(c, 1);
  r->part[0] = part_from(c, round, root, at, bytes);
  return begin(r, request);
}

/* ---- those that wait ---- */

static int wait_for(MPI_Request request) {
  if (request == MPI_REQUEST_NULL) return MPI_SUCCESS;
  await((struct request *)(void *)request);
  free((void *)request);
  return MPI_SUCCESS;
}

int PMPI_Barrier(MPI_Comm comm) {
  MPI_Request request;
  PMPI_Ibarrier(comm, &request);
  return wait_for(request);
}

int PMPI_Bcast(void *at, int n, MPI_Datatype type, int root, MPI_Comm comm) {
  MPI_Request request;
  PMPI_Ibcast(at, n, type, root, comm, &request);
  return wait_for(request);
}

int PMPI_Igatherv(const void *from, int n, MPI_Datatype type, void *to, const int n_each[], const int at[],
                  MPI_Datatype each, int root, MPI_Comm comm, MPI_Request *request) {
  struct comm *c = comm_of(comm);
  int round = c->rounds++;
  *request = MPI_REQUEST_NULL;
  contribute(c, round, root, from, (size_t)n * size_of(type));
  if (c->rank != root) return MPI_SUCCESS;
  struct request *r = request_new(c, c->n);
  for (int i = 0; i < c->n; i++)
    r->part[i] =
        part_from(c, round, i, (char *)to + size_of(each) * (size_t)at[i], size_of(each) * (size_t)n_each[i]);
  return begin(r, request);
}

#define REDUCE(t)                                        \
  for (size_t k = 0; k < r->count; k++) {                \
    t *to = (t *)r->to + k, x = ((t *)r->part[i].to)[k]; \
    if (!i)                                              \
      *to = x;                                           \
    else if (r->op == MPI_MAX)                           \
      *to = x > *to ? x : *to;                           \
    else if (r->op == MPI_MIN)                           \
      *to = x < *to ? x : *to;                           \
    else                                                 \
      *to += x;                                          \
  }

static void reduce(struct request *r) {
  for (int i = 0; i < r->n; i++) {
    if (r->type == MPI_INT) {
      REDUCE(int)
    } else if (r->type == MPI_INT64_T) {
      REDUCE(int64_t)
    } else if (r->type == MPI_UINT64_T) {
      REDUCE(uint64_t)
    } else if (r->type == MPI_DOUBLE) {
      REDUCE(double)
    } else if (r->type == MPI_FLOAT) {
      REDUCE(float)
    } else if (r->type == MPI_UNSIGNED_CHAR) {
      REDUCE(unsigned char)
    } else
      abort();
  }
  for (int i = 0; i < r->n; i++) free(r->part[i].to);
}

int PMPI_Iallreduce(const void *from, void *to, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                    MPI_Request *request) {
  struct comm *c = comm_of(comm);
  size_t bytes = (size_t)n * size_of(type);
  int round = c->rounds++;
  if (op != MPI_SUM && op != MPI_MAX && op != MPI_MIN) abort();
  struct request *r = request_new(c, c->n);
  r->finish = reduce, r->to = to, r->count = (size_t)n, r->type = type, r->op = op;
  for (int i = 0; i < c->n; i++) r->part[i] = part_from(c, round, i, get(bytes), bytes);
  contribute(c, round, -1, from == MPI_IN_PLACE ? to : from, bytes);
  return begin(r, request);
}

/* ---- communicators ---------------------------------------------------------------------------------------- */

int PMPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *to) {
  struct comm *from = comm_of(comm), *c = &comms[++n_comms];
  struct line {
    int id, color, key, rank;
  } mine = {next_id, color, key, from->rank}, *all = get(sizeof mine * (size_t)from->n);
  MPI_Request request;
  if (n_comms >= MOST_COMMS) abort();
  PMPI_Iallgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, comm, &request);
  wait_for(request);
  for (int i = 0; i < from->n; i++)
    if (all[i].id > next_id) next_id = all[i].id;
  c->id = next_id++;
  for (int i = 0; i < from->n; i++) { /* by key, then rank */
    int place = 0;
    if (all[i].color != color) continue;
    for (int j = 0; j < from->n; j++)
      place += all[j].color == color && (all[j].key < all[i].key || (all[j].key == all[i].key && j < i));
    c->member[place] = from->member[i];
    if (i == from->rank) c->rank = place;
    c->n++;
  }
  free(all);
  *to = color == MPI_UNDEFINED ? MPI_COMM_NULL : (MPI_Comm)(void *)c;
  return MPI_SUCCESS;
}

int PMPI_Comm_dup(MPI_Comm comm, MPI_Comm *to) { return PMPI_Comm_split(comm, 0, comm_of(comm)->rank, to); }

int PMPI_Comm_free(MPI_Comm *comm) {
  *comm = MPI_COMM_NULL;
  return MPI_SUCCESS;
}

int PMPI_Comm_rank(MPI_Comm comm, int *rank) {
  *rank = comm_of(comm)->rank;
  return MPI_SUCCESS;
}

int PMPI_Comm_size(MPI_Comm comm, int *n) {
  *n = comm_of(comm)->n;
  return MPI_SUCCESS;
}

int PMPI_Comm_get_attr(MPI_Comm comm, int key, void *value, int *known) {
  static int most_tags = 1 << 30;
  (void)comm, (void)key;
  *(int **)value = &most_tags;
  *known = 1;
  return MPI_SUCCESS;
}

int PMPI_Comm_create_errhandler(MPI_Comm_errhandler_function *function, MPI_Errhandler *to) {
  handler = function;
  *to = MPI_ERRORS_RETURN;
  return MPI_SUCCESS;
}

int PMPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler to) {
  (void)comm, (void)to;
  return MPI_SUCCESS;
}

int PMPI_Comm_call_errhandler(MPI_Comm comm, int code) { return fail(comm, code); }

int PMPI_Error_string(int code, char *text, int *n) {
  *n = snprintf(text, MPI_MAX_ERROR_STRING, "error %d", code);
  return MPI_SUCCESS;
}

/* ---- start and end ------------------------------------------------------------------------------------------ */

int PMPI_Init_thread(int *argc, char ***argv, int required, int *level) {
  (void)argc, (void)argv;
  const char *size = getenv("OMPI_COMM_WORLD_SIZE"), *sockets = getenv("PD_SOCKETS");
  if (size && sockets) {
    ranks = atoi(size);
    self = atoi(getenv("OMPI_COMM_WORLD_RANK"));
  }
  for (int i = 0; i < ranks; i++) {
    peer[i] = (struct peer){.fd = sockets ? (int)strtol(sockets, (char **)&sockets, 10) : -1};
    peer[i].out_end = &peer[i].out;
    if (peer[i].fd >= 0) fcntl(peer[i].fd, F_SETFD, FD_CLOEXEC);
    comms[0].member[i] = i;
  }
  comms[0].n = ranks;
  comms[0].rank = self;
  *level = required;
  return MPI_SUCCESS;
}

int PMPI_Init(int *argc, char ***argv) {
  int level;
  return PMPI_Init_thread(argc, argv, MPI_THREAD_SINGLE, &level);
}

int PMPI_Finalize(void) {
  bool waits = true;
  PMPI_Barrier(MPI_COMM_WORLD);
  while (waits) {
    progress();
    waits = false;
    for (int i = 0; i < ranks; i++) waits |= peer[i].out != NULL;
  }
  return MPI_SUCCESS;
}

int PMPI_Abort(MPI_Comm comm, int status) {
  (void)comm;
  _exit(status);
}

int ompi_mpi_abort(MPI_Comm comm, int status) {
  return PMPI_Abort(comm, status);
} /* Open MPI's own, runtime/run/abort.c */

#define ALSO(name, ...) int MPI_##name(__VA_ARGS__) __attribute__((alias("PMPI_" #name)))
ALSO(Isend, const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
ALSO(Irecv, void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
ALSO(Iprobe, int, int, MPI_Comm, int *, MPI_Status *);
ALSO(Testall, int, MPI_Request[], int *, MPI_Status[]);
ALSO(Test, MPI_Request *, int *, MPI_Status *);
ALSO(Request_free, MPI_Request *);
ALSO(Iallgather, const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm, MPI_Request *);
ALSO(Ibarrier, MPI_Comm, MPI_Request *);
ALSO(Barrier, MPI_Comm);
ALSO(Bcast, void *, int, MPI_Datatype, int, MPI_Comm);
ALSO(Ibcast, void *, int, MPI_Datatype, int, MPI_Comm, MPI_Request *);
ALSO(Igatherv, const void *, int, MPI_Datatype, void *, const int[], const int[], MPI_Datatype, int, MPI_Comm,
     MPI_Request *);
ALSO(Iallreduce, const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *);
ALSO(Comm_split, MPI_Comm, int, int, MPI_Comm *);
ALSO(Comm_dup, MPI_Comm, MPI_Comm *);
ALSO(Comm_free, MPI_Comm *);
ALSO(Comm_rank, MPI_Comm, int *);
ALSO(Comm_size, MPI_Comm, int *);
ALSO(Comm_get_attr, MPI_Comm, int, void *, int *);
ALSO(Comm_create_errhandler, MPI_Comm_errhandler_function *, MPI_Errhandler *);
ALSO(Comm_set_errhandler, MPI_Comm, MPI_Errhandler);
ALSO(Error_string, int, char *, int *);
ALSO(Init, int *, char ***);
ALSO(Init_thread, int *, char ***, int, int *);
ALSO(Type_size, MPI_Datatype, int *);
ALSO(Finalize, void);
ALSO(Abort, MPI_Comm, int);
