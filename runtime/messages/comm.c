/* Messages between neighbouring stages. A route is one direction over one cut, at one of its ends. A receiving end
 * posts the receives of one microbatch at a time; a sending end has one transfer per slot. The other end may have
 * several ranks, with one line each: a microbatch's number gives the rank, and messages between two ranks keep
 * their order. If both ranks share the receiver's slots and the receive is posted when a pass begins, the pass
 * writes its results directly to the receiver. No code relies on buffered messages: a send is awaited only before
 * its slot is reused, and receives are posted before any wait. The host waits until messages pass (transfer.h)
 * and, before it reuses a transfer, until they are through, which limits how far it runs ahead of a device. */
#include "data/load.h"
#include "messages/messages.h"
#include "run/upward.h"
#include "transfer.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

MPI_Comm pd_comm_control, pd_comm_replicas, pd_comm_ties, pd_comm_figures, pd_comm_checkpoints,
    pd_comm_signals = MPI_COMM_NULL;

enum { VALUES = 1024 }; /* tags of a cut in one direction */

/* Kinds of routes; receiving kinds come first. */
enum route_kind { ACTIVATIONS_IN, GRADIENTS_IN, ACTIVATIONS_OUT, GRADIENTS_OUT, N_KINDS };

struct route {
  const struct pd_channel *channel;
  const char *what;
  enum pd_work work;
  int stage, tag;         /* of the other end; tag of the first value, followed by the next values */
  char **slot;            /* by slot: address of the microbatch's values, in the arena or at the receiver */
  int64_t posted, passed; /* last microbatch with posted messages, with passed receives */
  int n_transfers;        /* microbatch k uses k % n_transfers; at least two, so that the host can run ahead */
  struct pd_transfer **transfer, *validation;
};

static struct {
  MPI_Comm channels, validation;
  struct route routes[N_KINDS][PD_MAX_CHUNKS];
  struct pd_message *messages; /* messages being posted */
  /* The lines to and from the ranks of the previous and next stage, by replica. */
  struct pd_line **lines[N_KINDS][PD_KINDS];
  int64_t waiting_for; /* of the innermost wait */
  int64_t first_passes;
  int64_t turns_posted; /* last turn with a posted receive */
  bool validates;       /* while training microbatches are in flight */
} comm = {.waiting_for = -2};

/* Numbers ranks stage by stage. The launch may start stages in another order, for the devices that they are
 * planned for. */
void pd_comm_open(int stage) {
  MPI_Comm *all[] = {&pd_comm_control,     &pd_comm_replicas, &pd_comm_ties,
                     &pd_comm_checkpoints, &comm.channels,    &comm.validation};
  MPI_Comm by_stage, pipeline;
  MPI_Comm_split(MPI_COMM_WORLD, 0, stage, &by_stage);
  pd_tensor_open(by_stage, &pipeline);
  MPI_Comm_rank(pipeline, &pd.rank);
  MPI_Comm_size(pipeline, &pd.ranks);
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) MPI_Comm_dup(pipeline, all[i]);
  MPI_Comm_dup(by_stage, &pd_comm_figures);
  MPI_Comm_dup(by_stage, &pd_comm_signals);
  MPI_Comm_free(&by_stage);
  MPI_Comm_free(&pipeline);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static struct pd_transfer *transfer_of(const struct route *l, int64_t k) {
  return l->transfer[k % l->n_transfers];
}

/* The rank at the other end of the route for microbatch k of this rank. */
static int peer_of(const struct route *l, int64_t k) { return pd_rank_of_number(l->stage, pd_number(k)); }

/* Describes a message that has passed but is not through, because the host does not know what a device waits
 * for. */
static void describe_overdue(char *text, size_t room) {
  for (int i = 0; i <= GRADIENTS_IN; i++)
    for (int c = 0; c < pd.stage->chunks; c++) {
      const struct route *l = &comm.routes[i][c];
      int64_t k = l->posted > l->n_transfers ? l->posted - l->n_transfers + 1 : 1;
      while (k <= l->passed && pd_transfer_through(transfer_of(l, k))) k++;
      if (k > l->passed) continue;
      snprintf(text, room, "; %s %lld have not come from rank %d", l->what, (long long)pd_number(k),
               pd_self_of(peer_of(l, k)));
      return;
    }
}

static void give_up(double seconds, const char *what, int64_t number, const char *direction, int peer) {
  char text[512];
  bool anyone = peer < 0;
  peer = pd_self_of(peer);
  if (anyone && pd.everyone == 2) { /* of two ranks, the peer is known */
    direction = "from";
    peer = 1 - pd.self;
  }
  int n = snprintf(text, sizeof text, "%s", what);
  if (number >= 0) n += snprintf(text + n, sizeof text - (size_t)n, " %lld", (long long)number);
  if (peer >= 0) n += snprintf(text + n, sizeof text - (size_t)n, " %s rank %d", direction, peer);
  if (anyone) describe_overdue(text + n, sizeof text - (size_t)n);
  char story[256];
  pd_signals_ask(peer, story, sizeof story);
  pd_fail("nothing came for %.0f s (--timeout): waited for %s%s", seconds, text, story);
}

int64_t pd_waiting_for(void) { return comm.waiting_for; }

bool pd_wait_until(bool (*done)(void *of), void *of, const char *what, int64_t number, const char *direction,
                   int peer) {
  if (done(of)) return false;
  int64_t outer = comm.waiting_for;
  for (double start = pd_seconds();;) {
    comm.waiting_for = outer;
    pd_progress();
    if (done(of)) return true;
    comm.waiting_for = pd_self_of(peer);
    pd_signals_poll(false);
    double waited = pd_seconds() - start;
    if (waited > pd_options.timeout) give_up(waited, what, number, direction, peer);
    if (waited > 2e-3) {
      pd_transfers_watch();
      pd_signals_poll(true);
      nanosleep(&(struct timespec){0, 20000}, NULL);
    } else if (waited > 50e-6)
      sched_yield();
  }
}

struct requests {
  int n;
  MPI_Request *request;
};

static bool are_done(void *of) {
  const struct requests *r = of;
  int done;
  MPI_Testall(r->n, r->request, &done, MPI_STATUSES_IGNORE);
  return done;
}

bool pd_wait(int n, MPI_Request *request, const char *what, int64_t number, const char *direction, int peer) {
  return pd_wait_until(are_done, &(struct requests){n, request}, what, number, direction, peer);
}

static bool has_passed(void *transfer) { return pd_transfer_passed(transfer); }
static bool is_through(void *transfer) { return pd_transfer_through(transfer); }

void pd_progress(void) {
  if (pd_device_recording()) return;
  pd_transfers_progress();
  pd_exchange_progress();
}

void pd_emulate(double seconds) {
  for (double until = pd_seconds() + seconds, left; (left = until - pd_seconds()) > 0;) {
    pd_progress();
    nanosleep(&(struct timespec){0, left > 200e-6 ? 200000 : (long)(left * 1e9)}, NULL);
  }
}

/* ---- routes ----------------------------------------------------------------------------------- */

size_t pd_channel_start(const struct pd_channel *c) {
  size_t start = SIZE_MAX;
  for (int i = 0; i < c->n_values; i++)
    if (c->values[i].offset < start) start = c->values[i].offset;
  return c->n_values ? start : 0;
}

static char *in_arena(const struct pd_channel *c, int64_t slot) {
  return pd.arena + pd_channel_start(c) + (size_t)slot * c->stride;
}

static struct pd_line *line_to(enum route_kind kind, const struct route *l, enum pd_kind line, int peer) {
  return comm.lines[kind][line][peer - pd_rank_of(l->stage, 0)];
}

/* `number`: microbatch of the pipeline. */
static void post(enum route_kind kind, const struct route *l, struct pd_transfer *t, enum pd_kind line, int peer,
                 int64_t slot, int64_t number) {
  const struct pd_channel *c = l->channel;
  size_t start = pd_channel_start(c);
  char *at = line == PD_VALIDATION ? in_arena(c, slot) : l->slot[slot];
  for (int i = 0; i < c->n_values; i++)
    comm.messages[i] = (struct pd_message){peer, kind >= ACTIVATIONS_OUT, l->tag + i,
                                           at + c->values[i].offset - start, c->values[i].bytes};
  pd_range_begin(l->work, number);
  pd_transfer_post(t, line_to(kind, l, line, peer), c->n_values, comm.messages);
  pd_range_end();
}

static enum pd_kind line_of(enum route_kind kind) {
  return kind == ACTIVATIONS_IN || kind == ACTIVATIONS_OUT ? PD_ACTIVATIONS : PD_GRADIENTS;
}

/* Posts the messages of microbatch k, after the transfer's previous messages are through. */
static void post_microbatch(enum route_kind kind, struct route *l, int64_t k) {
  bool sends = kind >= ACTIVATIONS_OUT;
  int64_t before = k - l->n_transfers;
  pd_wait_until(is_through, transfer_of(l, k), l->what, before > 0 ? pd_number(before) : -1,
                sends ? "to be received by" : "from", before > 0 ? peer_of(l, before) : -1);
  post(kind, l, transfer_of(l, k), line_of(kind), peer_of(l, k), k % l->channel->slots, pd_number(k));
  l->posted = k;
}

/* Up to this turn receives are not posted ahead. A device loads library kernels in the first passes, and loading
 * may wait for all device work: with a receive posted ahead, both ranks would wait for each other. */

/* This rank's turns of the run. */
static int64_t run_turns(void) {
  if (pd.stage->generation) return 0; /* none is posted ahead */
  if (pd.stage->inference) return pd_own_evaluations();
  return pd.steps * pd_own_microbatches() * pd.stage->chunks;
}

int64_t pd_turns_posted(void) { return comm.turns_posted; }

static void post_turn(enum route_kind kind, int64_t number, struct route *l, int64_t k) {
  post_microbatch(kind, l, k);
  if (number > comm.turns_posted) comm.turns_posted = number;
}

/* Posts one receive per direction, of the next turn that gets a message; its slot must be free by then, as
 * compiler/schedule/machine.c assumes. */
static void post_next(enum route_kind kind, int64_t number) {
  int64_t turns = pd_last_turn_to_post(run_turns());
  int64_t group = number + pd_turns_together() * pd.stage->chunks; /* every chunk comes up in one */
  for (int64_t next = number + 1; next <= turns && next <= group; next++) {
    struct pd_turn turn = pd_turn(next, kind == GRADIENTS_IN);
    struct route *l = &comm.routes[kind][turn.chunk];
    if (l->channel->n_values) {
      if (next > comm.first_passes) post_turn(kind, next, l, turn.k);
      return;
    }
  }
}

static void receive(enum route_kind kind, int64_t number) {
  struct pd_turn turn = pd_turn(number, kind == GRADIENTS_IN);
  struct route *l = &comm.routes[kind][turn.chunk];
  if (!l->channel->n_values) return;
  if (l->posted < turn.k)
    post_turn(kind, number, l, turn.k); /* of a first pass, or during an agreement on the end */
  if (l->posted != turn.k)
    pd_fail("internal: receives %s %lld, but %lld was posted", l->what, (long long)turn.k, (long long)l->posted);
  double start = pd_seconds();
  int peer = peer_of(l, turn.k);
  struct pd_transfer *t = transfer_of(l, turn.k);
  pd_range_begin(l->work, pd_number(turn.k));
  pd_wait_until(pd_options.trace ? is_through : has_passed, t, l->what, pd_number(turn.k), "from", peer);
  pd_range_end();
  l->passed = turn.k;
  pd_transfer_passed(t); /* with a trace the host waits, to record the time */
  pd_trace(l->work, number, peer, start, pd_seconds());
  post_next(kind, number);
}

static void await_slot(const struct route *l, int64_t number, int64_t k) {
  const struct pd_channel *c = l->channel;
  if (!c->n_values || k <= c->slots) return;
  double start = pd_seconds();
  int64_t before = k - c->slots;
  int peer = peer_of(l, before);
  pd_range_begin(PD_WAIT, pd_number(k));
  if (pd_wait_until(has_passed, transfer_of(l, before), l->what, pd_number(before), "to be received by", peer))
    pd_trace(PD_WAIT, number, peer, start, pd_seconds());
  pd_range_end();
}

/* The number of receiver slots such that the sender no longer uses a slot when it comes up again: the pipeline's
 * microbatches between two microbatches in one slot of the sender, plus validations in between. */
static int64_t least_slots(const struct route *l) {
  int theirs = pd.stage->replicas[l->stage];
  if (!l->channel->kept) return 1;
  if (comm.validates && l->work == PD_SEND_ACTIVATIONS) return INT64_MAX;
  return (l->channel->slots * (int64_t)pd_replicas() + theirs - 1) / theirs;
}

/* Chooses the slot of microbatch k: the receiver's slot, or a slot in the arena. */
static void choose_slot(enum route_kind kind, struct route *l, int64_t k) {
  const struct pd_channel *c = l->channel;
  if (!c->n_values) return;
  const struct pd_line *line = line_to(kind, l, line_of(kind), peer_of(l, k));
  char *there = pd_line_slot(line, l->tag / (2 * VALUES), least_slots(l), c);
  l->slot[k % c->slots] = there ? there : in_arena(c, k % c->slots);
}

static void await_turn(enum route_kind kind, int64_t number) {
  struct pd_turn turn = pd_turn(number, kind == GRADIENTS_OUT);
  struct route *l = &comm.routes[kind][turn.chunk];
  await_slot(l, number, turn.k);
  choose_slot(kind, l, turn.k);
}

static void send(enum route_kind kind, int64_t number) {
  struct pd_turn turn = pd_turn(number, kind == GRADIENTS_OUT);
  struct route *l = &comm.routes[kind][turn.chunk];
  if (!l->channel->n_values) return;
  await_slot(l, number, turn.k);
  double start = pd_seconds();
  post_microbatch(kind, l, turn.k);
  pd_trace(l->work, number, peer_of(l, turn.k), start, pd_seconds());
}

void pd_receive_activations(int64_t k) { receive(ACTIVATIONS_IN, k); }
void pd_send_activations(int64_t k) { send(ACTIVATIONS_OUT, k); }
void pd_receive_gradients(int64_t k) { receive(GRADIENTS_IN, k); }
void pd_send_gradients(int64_t k) { send(GRADIENTS_OUT, k); }
void pd_await_activations_slot(int64_t k) { await_turn(ACTIVATIONS_OUT, k); }
void pd_await_gradients_slot(int64_t k) { await_turn(GRADIENTS_OUT, k); }

/* Two ranks may share several cuts; the chunk before a cut and the direction give the tags. MPI guarantees tags up
 * to 32767. */
static void open_route(enum route_kind kind, int chunk) {
  const struct pd_stage *s = pd.stage;
  const struct pd_channel *const channels[] = {s->activations_in, s->gradients_in, s->activations_out,
                                               s->gradients_out};
  bool gradients = kind == GRADIENTS_IN || kind == GRADIENTS_OUT;
  bool before = kind == ACTIVATIONS_IN || kind == GRADIENTS_OUT; /* the cut is before this stage */
  int other = before ? s->stage - 1 : s->stage + 1;
  struct route *l = &comm.routes[kind][chunk];
  int cut = s->spilled  ? 0
            : other < 0 ? chunk - 1
                        : chunk; /* a rank with consecutive parts has one cut with each neighbour */
  *l = (struct route){.channel = &channels[kind][chunk],
                      .what = gradients ? "gradients of microbatch" : "activations of microbatch",
                      .work = (const enum pd_work[]){PD_RECEIVE_ACTIVATIONS, PD_RECEIVE_GRADIENTS,
                                                     PD_SEND_ACTIVATIONS, PD_SEND_GRADIENTS}[kind],
                      .stage = (other + s->n_stages) % s->n_stages,
                      .tag = (cut * 2 + gradients) * VALUES};
  if (l->channel->n_values > VALUES)
    pd_fail("%d values cross one cut: more than there are message tags", l->channel->n_values);
}

/* Largest value of a channel, in bytes. */
static size_t largest(const struct pd_channel *c) {
  size_t bytes = 0;
  for (int i = 0; i < c->n_values; i++)
    if (c->values[i].bytes > bytes) bytes = c->values[i].bytes;
  return bytes;
}

static void make_transfers(struct route *l, bool to_validate) {
  const struct pd_channel *c = l->channel;
  if (!c->n_values) return;
  l->n_transfers = c->slots > 1 ? c->slots : 2;
  l->slot = pd_allocate(sizeof *l->slot * (size_t)c->slots);
  for (int i = 0; i < c->slots; i++) l->slot[i] = in_arena(c, i);
  l->transfer = pd_allocate(sizeof *l->transfer * (size_t)l->n_transfers);
  for (int i = 0; i < l->n_transfers; i++) l->transfer[i] = pd_transfer_new(c->n_values, largest(c));
  if (to_validate) l->validation = pd_transfer_new(c->n_values, largest(c));
}

/* A line to open. The key is equal at both ends and unique among all lines: opening in the order of keys avoids
 * deadlocks. */
struct opening {
  int64_t key;
  struct pd_line **line;
  MPI_Comm comm;
  int peer;
  bool sends;
  enum pd_kind kind;
};

static int by_key(const void *a, const void *b) {
  int64_t x = ((const struct opening *)a)->key, y = ((const struct opening *)b)->key;
  return (x > y) - (x < y);
}

/* True if replicas q and r of two neighbouring stages share microbatches of the pipeline. */
static bool share_microbatches(int q, int w, int r, int v) {
  int common = w;
  for (int rest = v; rest;) {
    int next = common % rest;
    common = rest;
    rest = next;
  }
  return q % common == r % common;
}

/* Adds the lines of a kind of route, one for each rank at the other end with common microbatches. */
static int list_lines(enum route_kind kind, enum pd_kind line, struct opening *to) {
  bool sends = kind >= ACTIVATIONS_OUT;
  int stage = comm.routes[kind][0].stage, w = pd.stage->replicas[stage], n = 0;
  bool used = false;
  for (int c = 0; c < pd.stage->chunks; c++) used |= comm.routes[kind][c].channel->n_values > 0;
  comm.lines[kind][line] = pd_allocate(sizeof(struct pd_line *) * (size_t)w);
  for (int r = 0; r < w && used; r++) {
    if (!share_microbatches(pd.replica, pd_replicas(), r, w)) continue;
    int peer = pd_rank_of(stage, r);
    int64_t from = sends ? pd.rank : peer, to_rank = sends ? peer : pd.rank;
    to[n++] = (struct opening){(from * pd.ranks + to_rank) * PD_KINDS + line,
                               &comm.lines[kind][line][r],
                               line == PD_VALIDATION ? comm.validation : comm.channels,
                               peer,
                               sends,
                               line};
  }
  return n;
}

static void open_lines(void) {
  struct opening *opening = pd_allocate(sizeof *opening * N_KINDS * 2 * (size_t)pd.ranks);
  int n = 0;
  for (int i = 0; i < N_KINDS; i++) {
    bool activations = i == ACTIVATIONS_IN || i == ACTIVATIONS_OUT;
    n += list_lines((enum route_kind)i, activations ? PD_ACTIVATIONS : PD_GRADIENTS, opening + n);
    if (activations && comm.validates) n += list_lines((enum route_kind)i, PD_VALIDATION, opening + n);
  }
  qsort(opening, (size_t)n, sizeof *opening, by_key);
  for (int i = 0; i < n; i++) {
    const struct opening *o = &opening[i];
    *o->line = pd_line_between(o->comm, o->peer, o->sends, o->kind);
  }
  free(opening);
}

static void *slot_of(const struct route *l, int64_t k) { return l->slot[k % l->channel->slots]; }
void *pd_activations_slot(int chunk, int64_t k) { return slot_of(&comm.routes[ACTIVATIONS_OUT][chunk], k); }
void *pd_gradients_slot(int chunk, int64_t k) { return slot_of(&comm.routes[GRADIENTS_OUT][chunk], k); }

void pd_comm_start(void) {
  const struct pd_stage *s = pd.stage;
  comm.validates = pd_evaluation_data && !s->inference;
  int values = 0;
  for (int i = 0; i < N_KINDS; i++)
    for (int c = 0; c < s->chunks; c++) {
      struct route *l = &comm.routes[i][c];
      open_route((enum route_kind)i, c);
      make_transfers(l, comm.validates && (i == ACTIVATIONS_IN || i == ACTIVATIONS_OUT));
      if (l->channel->n_values > values) values = l->channel->n_values;
    }
  comm.messages = pd_allocate(sizeof *comm.messages * (size_t)values);
  pd_tensor_start();
  open_lines();
  int64_t batch = pd_own_microbatches() * s->chunks, done = pd.first_step * batch;
  if (pd_device_name()) comm.first_passes = done + batch;
  if (s->generation) comm.first_passes = INT64_MAX; /* any step may be the last */
  for (int i = 0; i <= GRADIENTS_IN; i++) post_next((enum route_kind)i, done);
}

/* All transfers of all routes. */
static bool all_are_through(void *unused) {
  (void)unused;
  for (int i = 0; i < N_KINDS; i++)
    for (int c = 0; c < pd.stage->chunks; c++)
      for (int j = 0; j < comm.routes[i][c].n_transfers; j++)
        if (!pd_transfer_through(comm.routes[i][c].transfer[j])) return false;
  return true;
}

void pd_comm_finish(void) {
  pd_wait_until(all_are_through, NULL, "the last messages to be received", -1, NULL, -1);
  pd_sums_finish();
  /* Some transports end by calls that block and progress no MPI message, such as a part of a checkpoint that this rank
   * has sent and its peer has yet to receive. */
  MPI_Request request;
  MPI_Ibarrier(pd_comm_control, &request);
  pd_wait(1, &request, "the other ranks to end", -1, NULL, -1);
  pd_transfers_finish();
}

/* ---- validation: the same buffers, messages apart -------------------------------------------- */

static void validation_transfer(enum route_kind kind, int64_t turn, int64_t slot) {
  static const char what[] = "activations of validation microbatch";
  int64_t v = (turn - 1) / pd.stage->chunks + 1;
  const struct route *l = &comm.routes[kind][(turn - 1) % pd.stage->chunks];
  const char *direction = kind == ACTIVATIONS_IN ? "from" : "to be received by";
  if (!l->channel->n_values) return;
  int peer = peer_of(l, v);
  pd_wait_until(is_through, l->validation, what, pd_number(v), direction, peer);
  post(kind, l, l->validation, PD_VALIDATION, peer, slot, pd_number(v));
  pd_wait_until(has_passed, l->validation, what, pd_number(v), direction, peer);
}

void pd_evaluation_receive(int64_t v, int64_t slot) { validation_transfer(ACTIVATIONS_IN, v, slot); }
void pd_evaluation_send(int64_t v, int64_t slot) { validation_transfer(ACTIVATIONS_OUT, v, slot); }
