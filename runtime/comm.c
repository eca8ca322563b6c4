/* Messages between neighbouring stages. A lane is one direction over one cut, seen from one end: at the
 * receiving end one microbatch's receives are posted at a time, at the sending end one request a value
 * and slot. Its other end may have several ranks: which one a microbatch comes from or goes to follows from the
 * microbatch's number, and messages between the same two ranks keep their order. Nothing here relies on MPI
 * buffering a message: sends are awaited only when their slot is needed again, receives are posted before
 * anything waits for them. */
#include "internal.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

MPI_Comm pd_comm_control, pd_comm_replicas, pd_comm_ties, pd_comm_figures;
static MPI_Comm comm_channels, comm_validation;

/* What a lane carries; the receiving ones come first. */
enum lane_kind { ACTIVATIONS_IN, GRADIENTS_IN, ACTIVATIONS_OUT, GRADIENTS_OUT, N_KINDS };

struct lane {
  const struct pd_channel *channel;
  const char *what;
  enum pd_work work;
  int stage, tag;       /* at the other end; of the first value: the others follow */
  int64_t posted;       /* receiving: the microbatch whose receives are posted; 0: none */
  MPI_Request *request; /* receiving: [value]; sending: [slot][value] */
};

static struct lane lanes[N_KINDS][PD_MAX_CHUNKS];
static MPI_Request *requests; /* of all lanes */
static int n_requests;

void pd_comm_open(void) {
  MPI_Comm *all[] = {&pd_comm_control, &pd_comm_replicas, &pd_comm_ties,
                     &pd_comm_figures, &comm_channels,    &comm_validation};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) MPI_Comm_dup(MPI_COMM_WORLD, all[i]);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void give_up(double seconds, const char *what, int64_t number, const char *direction, int peer) {
  char text[256];
  if (peer < 0 && pd.ranks == 2) { /* all ranks are one other */
    direction = "from";
    peer = 1 - pd.rank;
  }
  int n = snprintf(text, sizeof text, "%s", what);
  if (number >= 0) n += snprintf(text + n, sizeof text - (size_t)n, " %lld", (long long)number);
  if (peer >= 0) snprintf(text + n, sizeof text - (size_t)n, " %s rank %d", direction, peer);
  pd_fail("nothing came for %.0f s (--timeout): waited for %s", seconds, text);
}

bool pd_wait_until(bool (*ready)(void *), void *of, const char *what, int64_t number, const char *direction,
                   int peer) {
  if (ready(of)) return false;
  for (double start = pd_seconds();;) {
    pd_exchange_progress();
    if (ready(of)) return true;
    double waited = pd_seconds() - start;
    if (waited > pd_options.timeout) give_up(waited, what, number, direction, peer);
    if (waited > 2e-3)
      nanosleep(&(struct timespec){0, 20000}, NULL);
    else if (waited > 50e-6)
      sched_yield();
  }
}

struct requests { int n; MPI_Request *at; };

static bool are_complete(void *of) {
  struct requests *r = of;
  int done;
  MPI_Testall(r->n, r->at, &done, MPI_STATUSES_IGNORE);
  return done;
}

bool pd_wait(int n, MPI_Request *request, const char *what, int64_t number, const char *direction, int peer) {
  struct requests all = {n, request};
  return pd_wait_until(are_complete, &all, what, number, direction, peer);
}

void pd_progress(void) {
  int done;
  if (n_requests) MPI_Testall(n_requests, requests, &done, MPI_STATUSES_IGNORE);
  pd_exchange_progress();
}

void pd_emulate(double seconds) {
  for (double until = pd_seconds() + seconds, left; (left = until - pd_seconds()) > 0;) {
    pd_progress();
    nanosleep(&(struct timespec){0, left > 200e-6 ? 200000 : (long)(left * 1e9)}, NULL);
  }
}

/* ---- lanes ----------------------------------------------------------------------------------- */

static void *value_at(const struct pd_channel *c, int value, int64_t slot) {
  return pd.arena + c->value[value].offset + (size_t)slot * c->value[value].stride;
}

static int value_floats(const struct pd_channel *c, int value) {
  size_t n = c->value[value].bytes / sizeof(float);
  if (n > INT32_MAX) pd_fail("a message of %zu bytes is larger than MPI can count", c->value[value].bytes);
  return (int)n;
}

/* The rank at the lane's other end, for this rank's microbatch k. */
static int peer_of(const struct lane *l, int64_t k) { return pd_rank_of_number(l->stage, pd_number(k)); }

static void post_receives(struct lane *l, int64_t k) {
  const struct pd_channel *c = l->channel;
  for (int i = 0; i < c->n; i++)
    MPI_Irecv(value_at(c, i, k % c->slots), value_floats(c, i), MPI_FLOAT, peer_of(l, k), l->tag + i,
              comm_channels, &l->request[i]);
  l->posted = k;
}

/* One receive a direction is posted at a time, that of the next turn that gets a message: where it goes must
 * be free by then (compiler/schedule/machine.c counts on the same). */
static void post_next(enum lane_kind kind, int64_t number) {
  int64_t turns = pd.steps * pd_own_microbatches() * pd.stage->chunks;
  int64_t group = number + (int64_t)pd.stage->n_stages * pd.stage->chunks; /* every chunk comes up in one */
  for (int64_t next = number + 1; next <= turns && next <= group; next++) {
    struct pd_turn turn = pd_turn(next, kind == GRADIENTS_IN);
    struct lane *l = &lanes[kind][turn.chunk];
    if (l->channel->n) {
      post_receives(l, turn.k);
      return;
    }
  }
}

static void receive(enum lane_kind kind, int64_t number) {
  struct pd_turn turn = pd_turn(number, kind == GRADIENTS_IN);
  struct lane *l = &lanes[kind][turn.chunk];
  if (!l->channel->n) return;
  if (l->posted != turn.k)
    pd_fail("internal: receives %s %lld, but %lld was posted", l->what, (long long)turn.k, (long long)l->posted);
  double start = pd_seconds();
  int peer = peer_of(l, turn.k);
  pd_wait(l->channel->n, l->request, l->what, pd_number(turn.k), "from", peer);
  pd_trace(l->work, number, peer, start, pd_seconds());
  post_next(kind, number);
}

static void await_slot(const struct lane *l, int64_t number, int64_t k) {
  const struct pd_channel *c = l->channel;
  if (!c->n || k <= c->slots) return;
  double start = pd_seconds();
  int64_t before = k - c->slots;
  int peer = peer_of(l, before);
  if (pd_wait(c->n, l->request + k % c->slots * c->n, l->what, pd_number(before), "to be taken by", peer))
    pd_trace(PD_WAIT, number, peer, start, pd_seconds());
}

static void await_turn(enum lane_kind kind, int64_t number) {
  struct pd_turn turn = pd_turn(number, kind == GRADIENTS_OUT);
  await_slot(&lanes[kind][turn.chunk], number, turn.k);
}

static void send(enum lane_kind kind, int64_t number) {
  struct pd_turn turn = pd_turn(number, kind == GRADIENTS_OUT);
  struct lane *l = &lanes[kind][turn.chunk];
  const struct pd_channel *c = l->channel;
  if (!c->n) return;
  await_slot(l, number, turn.k);
  double start = pd_seconds();
  int64_t slot = turn.k % c->slots;
  int peer = peer_of(l, turn.k);
  for (int i = 0; i < c->n; i++)
    MPI_Isend(value_at(c, i, slot), value_floats(c, i), MPI_FLOAT, peer, l->tag + i, comm_channels,
              &l->request[slot * c->n + i]);
  pd_trace(l->work, number, peer, start, pd_seconds());
}

void pd_receive_activations(int64_t k) { receive(ACTIVATIONS_IN, k); }
void pd_send_activations(int64_t k) { send(ACTIVATIONS_OUT, k); }
void pd_receive_gradients(int64_t k) { receive(GRADIENTS_IN, k); }
void pd_send_gradients(int64_t k) { send(GRADIENTS_OUT, k); }
void pd_await_activations_slot(int64_t k) { await_turn(ACTIVATIONS_OUT, k); }
void pd_await_gradients_slot(int64_t k) { await_turn(GRADIENTS_OUT, k); }

/* Two ranks may share several cuts: a cut's tags follow from the chunk before it and the direction. MPI
 * promises tags up to 32767. */
static void open_lane(enum lane_kind kind, int chunk) {
  enum { VALUES = 1024 };
  const struct pd_stage *s = pd.stage;
  const struct pd_channel *const channels[] = {s->activations_in, s->gradients_in, s->activations_out,
                                               s->gradients_out};
  bool gradients = kind == GRADIENTS_IN || kind == GRADIENTS_OUT;
  bool before = kind == ACTIVATIONS_IN || kind == GRADIENTS_OUT; /* the cut is before this stage */
  int other = before ? s->stage - 1 : s->stage + 1;
  struct lane *l = &lanes[kind][chunk];
  *l = (struct lane){.channel = &channels[kind][chunk],
                     .what = gradients ? "gradients of microbatch" : "activations of microbatch",
                     .work = (const enum pd_work[]){PD_RECEIVE_ACTIVATIONS, PD_RECEIVE_GRADIENTS,
                                                    PD_SEND_ACTIVATIONS, PD_SEND_GRADIENTS}[kind],
                     .stage = (other + s->n_stages) % s->n_stages,
                     .tag = ((other < 0 ? chunk - 1 : chunk) * 2 + gradients) * VALUES};
  if (l->channel->n > VALUES) pd_fail("%d values cross one cut: more than have tags", l->channel->n);
}

static int lane_requests(enum lane_kind kind, int chunk) {
  const struct pd_channel *c = lanes[kind][chunk].channel;
  return c->n * (kind <= GRADIENTS_IN ? 1 : c->slots);
}

void pd_comm_start(void) {
  const struct pd_stage *s = pd.stage;
  for (int i = 0; i < N_KINDS; i++)
    for (int c = 0; c < s->chunks; c++) {
      open_lane((enum lane_kind)i, c);
      n_requests += lane_requests((enum lane_kind)i, c);
    }
  requests = pd_allocate(sizeof *requests * (size_t)n_requests);
  for (int i = 0; i < n_requests; i++) requests[i] = MPI_REQUEST_NULL;
  MPI_Request *next = requests;
  for (int i = 0; i < N_KINDS; i++)
    for (int c = 0; c < s->chunks; c++) {
      lanes[i][c].request = next;
      next += lane_requests((enum lane_kind)i, c);
    }
  for (int i = 0; i <= GRADIENTS_IN; i++)
    post_next((enum lane_kind)i, pd.first_step * pd_own_microbatches() * s->chunks);
}

void pd_comm_finish(void) { pd_wait(n_requests, requests, "the last messages to be taken", -1, NULL, -1); }

/* ---- validation: the same buffers, messages apart -------------------------------------------- */

static void validation_transfer(enum lane_kind kind, int64_t turn, int64_t slot) {
  int64_t v = (turn - 1) / pd.stage->chunks + 1;
  const struct lane *l = &lanes[kind][(turn - 1) % pd.stage->chunks];
  const struct pd_channel *c = l->channel;
  bool in = kind == ACTIVATIONS_IN;
  for (int i = 0; i < c->n; i++) { /* values are few, and neighbours agree on their order */
    MPI_Request request;
    int peer = peer_of(l, v);
    if (in)
      MPI_Irecv(value_at(c, i, slot), value_floats(c, i), MPI_FLOAT, peer, l->tag + i, comm_validation, &request);
    else
      MPI_Isend(value_at(c, i, slot), value_floats(c, i), MPI_FLOAT, peer, l->tag + i, comm_validation, &request);
    pd_wait(1, &request, "activations of validation microbatch", pd_number(v), in ? "from" : "to be taken by",
            peer);
  }
}

void pd_validation_receive(int64_t v, int64_t slot) { validation_transfer(ACTIVATIONS_IN, v, slot); }
void pd_validation_send(int64_t v, int64_t slot) { validation_transfer(ACTIVATIONS_OUT, v, slot); }
