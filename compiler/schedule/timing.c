/* Times the batches of a run, bit-identical to machine.c, for Programs that are known to be correct. Dependencies
 * between ranks do not depend on times: the order of ticks is computed first, on demand, and written to a tape
 * (tape.h). Reading the tape with times gives the result, so moved cuts only need another reading. A message
 * arrives one transfer time after the later of its send and its posted receive. Neighbours share only these two
 * times, so no rank needs another's state. */
#include "schedule/timing.h"

#include <math.h>
#include <string.h>

enum { DOWN, UP, N_WAYS }; /* activations, gradients */
enum { KEPT = 1 << 17 };   /* most ticks of a stored tape */

/* State of a message over a cut, in a ring by microbatch: the microbatch last sent, and the one whose receive was
 * last posted. */
typedef struct Message {
  int32_t sent_for, posted_for;
} Message;

typedef struct Rank {
  const Program *p;
  int number; /* among all ranks */
  int replica;
  int64_t turns; /* a batch */
  int64_t scope; /* completed batches, if loops run once a batch */
  int64_t end;   /* turns of the scope */
  int64_t f, b, w, u;
  int loop, at;
  Turn turn[N_WAYS];   /* of turn f, and of turn b */
  Turn posted[N_WAYS]; /* the posted receive; 0: none yet */
  bool over;
} Rank;

struct Run {
  const Program *programs;
  Layout layout;
  Arena *arena; /* owns the tape */
  Tape tape;
  bool forgets; /* the tape is too long to keep */

  Reader reader;
  Message *message; /* by index of messages */
  int **exchanged,
      /* by stage and batch: ranks that have contributed their gradients, and their shards of the weights */
      **updated;
  Rank *rank;
  int n_ranks;
  int sets;    /* of ranks; the run has one of them */
  bool waits;  /* some update waits for exchanges of other stages */
  int turn_of; /* the current rank */
  Tick *turn;  /* the last one written, if it is a turn; it has ... */
  int last_deed;
  bool moved; /* an earlier rank of this round has made progress */
  bool ended; /* no rank can continue */
};

static void tick(Run *c, const Rank *r, TickKind kind, uint32_t exchange) {
  tape_write(&c->tape, kind, r->number)->exchange = exchange;
  c->turn = NULL;
}

/* Adds a step to the last tick if that is this rank's turn and the step follows its present ones, else to a new
 * tick. */
static void deed(Run *c, const Rank *r, int which, uint32_t about) {
  if (!c->turn || c->turn->rank >> KIND_BITS != (uint32_t)r->number || which <= c->last_deed) {
    const uint32_t none = no_message(&c->layout), lost = lost_message(&c->layout), pass = no_pass(&c->layout);
    c->turn = tape_write(&c->tape, TICK_TURN, r->number);
    const uint32_t nothing[TURN_DEEDS] = {none, lost, pass, none, pass, lost, pass};
    memcpy(c->turn->deed, nothing, sizeof nothing);
  }
  c->turn->deed[which] = about;
  c->last_deed = which;
}

/* ---- messages ------------------------------------------------------------------------------------------- */

/* Whether microbatch k's message arrives; the rank then waits for it. */
static bool await(Run *c, const Rank *r, int which, int cut, int way, int64_t k) {
  const uint32_t at = message_at(&c->layout, cut, way, k);
  const Message *m = &c->message[at];
  if (m->sent_for != k || m->posted_for != k)
    return false;
  deed(c, r, which, at);
  return true;
}

/* Slots are reused in order: the slot for k was last used `slots` microbatches of this rank earlier. */
static bool slot_free(Run *c, const Rank *r, int cut, int way, int64_t k, int slots) {
  int64_t before = k - (int64_t)slots * r->p->replicas;
  return before < 1 || await(c, r, TURN_SLOT, cut, way, before);
}

static void send(Run *c, const Rank *r, int cut, int way, int64_t k) {
  const uint32_t at = message_at(&c->layout, cut, way, k);
  c->message[at].sent_for = (int32_t)k;
  deed(c, r, TURN_SEND, at);
}

static void post(Run *c, const Rank *r, int cut, int way, int64_t k) {
  const uint32_t at = message_at(&c->layout, cut, way, k);
  c->message[at].posted_for = (int32_t)k;
  deed(c, r, TURN_POST, at);
}

/* The cut of the part's incoming messages of that direction; -1: none. */
static int cut_to(const Run *c, const Rank *r, int way, int chunk) {
  const int part = program_part(r->p, chunk);
  (void)c;
  if (way == DOWN)
    return program_receives(r->p, chunk) ? part - 1 : -1;
  return program_sends(r->p, chunk) ? part : -1;
}

/* Whether some turn of a rank with several chunks has a message of that direction. */
static bool has_messages(const Program *p, int way) {
  return p->chunks > 1 && (!p->offload.on || (way == DOWN ? p->stage > 0 : p->stage < p->n_stages - 1));
}

static void post_next(Run *c, Rank *r, int way) {
  Turn *t = &r->posted[way];
  int cut = -1;
  if (r->p->chunks == 1)
    *t = (Turn){0, t->microbatch == 0 ? r->replica + 1 : t->microbatch + r->p->replicas};
  do {
    if (r->p->chunks > 1)
      *t = t->microbatch == 0 ? program_turn(r->p, r->replica, 1, way == UP)
                              : program_turn_after(r->p, *t, way == UP);
    cut = cut_to(c, r, way, t->chunk);
  } while (cut < 0 && has_messages(r->p, way));
  if (cut >= 0)
    post(c, r, cut, way, t->microbatch);
}

static bool receive(Run *c, Rank *r, int way) {
  const Turn *t = &r->turn[way];
  int cut = cut_to(c, r, way, t->chunk);
  if (cut < 0)
    return true;
  if (!await(c, r, TURN_WAIT, cut, way, t->microbatch))
    return false;
  if (way == DOWN && r->scope == 0 && r->f == 1)
    tick(c, r, TICK_BEGIN, 0);
  post_next(c, r, way);
  return true;
}

/* ---- passes --------------------------------------------------------------------------------------------- */

static void work(Run *c, const Rank *r, int pass, int chunk) {
  static const int which[N_PASSES] = {[PASS_FORWARD] = TURN_PASS,
                                      [PASS_BACKWARD] = TURN_PASS,
                                      [PASS_RECOMPUTE] = TURN_FIRST,
                                      [PASS_WEIGHTS] = TURN_LAST};
  deed(c, r, which[pass], (uint32_t)(program_part(r->p, chunk) * N_PASSES + pass));
}

/* Whether all shards of a weight version are there. */
static bool has_all_parts(Run *c, const Rank *r, int64_t version) {
  if (!r->p->sharded || version == 0)
    return true;
  if (c->updated[r->p->stage][version - 1] < r->p->replicas)
    return false;
  tick(c, r, TICK_MEET, exchange_at(&c->layout, true, r->p->stage, version - 1));
  return true;
}

static bool forward(Run *c, Rank *r) {
  const Turn *t = &r->turn[DOWN];
  int cut = cut_to(c, r, UP, t->chunk); /* of the outgoing activations */
  if (cut >= 0 && !slot_free(c, r, cut, DOWN, t->microbatch, r->p->slots[t->chunk].sent))
    return false;
  if (!has_all_parts(c, r, program_version(r->p, t->microbatch)))
    return false;
  work(c, r, PASS_FORWARD, t->chunk);
  return true;
}

static bool backward(Run *c, Rank *r) {
  const Turn *t = &r->turn[UP];
  int cut = cut_to(c, r, DOWN, t->chunk);
  if (cut >= 0 && !slot_free(c, r, cut, UP, t->microbatch, r->p->slots[t->chunk].returned))
    return false;
  work(c, r, PASS_BACKWARD, t->chunk);
  return true;
}

/* ---- cursors -------------------------------------------------------------------------------------------- */

static void turn_at(Rank *r, int way, int64_t cursor) {
  Turn *t = &r->turn[way];
  if (r->p->chunks > 1)
    *t = program_turn(r->p, r->replica, r->scope * r->turns + cursor, way == UP);
  else
    *t = (Turn){0, (r->scope * r->turns + cursor - 1) * r->p->replicas + r->replica + 1};
}

static void enter_scope(const Run *c, Rank *r, int64_t scope) {
  r->scope = scope;
  r->over = scope >= (r->p->per_batch ? c->layout.batches : c->layout.batches > 0);
  r->f = r->b = r->w = 1;
  r->u = 0;
  r->loop = r->at = 0;
  turn_at(r, DOWN, 1);
  turn_at(r, UP, 1);
}

static void next_forward(Rank *r) {
  r->f++;
  r->turn[DOWN] = program_turn_after(r->p, r->turn[DOWN], false);
}

static void next_backward(Rank *r) {
  r->b++;
  r->turn[UP] = program_turn_after(r->p, r->turn[UP], true);
}

static bool loop_goes_on(const Rank *r) {
  switch (r->loop) {
  case 0: return r->f <= r->end && r->f - r->b < r->p->in_flight - 1;
  case 1: return r->f <= r->end;
  case 2: return r->b <= r->end;
  default: return r->p->split_backward && r->w <= r->end;
  }
}

/* Completed turns, as updates count them. */
static int64_t done(const Rank *r) { return (r->p->split_backward ? r->w : r->b) - 1; }

/* ---- updates -------------------------------------------------------------------------------------------- */

/* Whether other ranks of the stage, in this set or another, share its microbatches. */
static bool is_replicated(const Run *c, const Rank *r) { return r->p->replicas * c->sets > 1; }

static void exchange(Run *c, const Rank *r, int64_t batch) {
  const uint32_t value = exchange_at(&c->layout, false, r->p->stage, batch);
  const bool all = ++c->exchanged[r->p->stage][batch] == r->p->replicas;
  if (!is_replicated(c, r) && !c->waits)
    return;
  tick(c, r, TICK_GATHER, value);
  if (!all || !is_replicated(c, r))
    return;
  tick(c, r, TICK_FOLLOW, value);
  tick(c, r, TICK_REDUCE, value);
}

static bool exchanged(const Run *c, int stage, int64_t batch) {
  return c->exchanged[stage][batch] == c->programs[stage].replicas;
}

static bool update(Run *c, const Rank *r, int64_t batch) {
  const int own = r->p->stage;
  for (int i = 0; i < c->layout.n_stages; i++)
    if ((i == own || r->p->waits) && !exchanged(c, i, batch))
      return false;
  if (!has_all_parts(c, r, batch))
    return false;
  for (int i = 0; i < c->layout.n_stages; i++)
    if (i == own ? is_replicated(c, r) : r->p->waits)
      tick(c, r, TICK_MEET, exchange_at(&c->layout, false, i, batch));
  tick(c, r, TICK_UPDATE, 0);
  if (r->p->sharded) {
    const uint32_t value = exchange_at(&c->layout, true, own, batch);
    tick(c, r, TICK_GATHER, value);
    if (++c->updated[own][batch] == r->p->replicas)
      tick(c, r, TICK_REDUCE, value);
  }
  return true;
}

/* Without updates a batch ends when the rank sends its last microbatch of it. */
static void end_forward(Run *c, const Rank *r, int64_t k) {
  if ((k - 1) % r->p->period == r->p->period - r->p->replicas + r->replica)
    tick(c, r, TICK_END, 0);
}

/* ---- all ranks ------------------------------------------------------------------------------------------ */

static bool take_update(Run *c, Rank *r) {
  int64_t turns = done(r) - r->p->lag;
  if (turns <= 0 || turns % r->turns)
    return true;
  if (!update(c, r, r->scope + turns / r->turns - 1))
    return false;
  r->u++;
  return true;
}

static void take_exchange(Run *c, Rank *r) {
  if (done(r) > 0 && done(r) % r->turns == 0)
    exchange(c, r, r->scope + done(r) / r->turns - 1);
}

static void take_weights(Run *c, Rank *r) {
  if (r->loop < 3 && r->b - r->w <= r->p->weights_lag)
    return;
  work(c, r, PASS_WEIGHTS, program_turn(r->p, r->replica, r->scope * r->turns + r->w, true).chunk);
  r->w++;
}

/* False: the rank must wait. */
static bool take(Run *c, Rank *r, Action a) {
  const Turn *f = &r->turn[DOWN], *b = &r->turn[UP];
  int cut;
  switch (a) {
  case DO_RECEIVE: return receive(c, r, DOWN);
  case DO_FORWARD: return forward(c, r);
  case DO_SEND:
    if ((cut = cut_to(c, r, UP, f->chunk)) >= 0)
      send(c, r, cut, DOWN, f->microbatch);
    if (r->p->forward_only)
      end_forward(c, r, f->microbatch);
    next_forward(r);
    return true;
  case DO_RECEIVE_GRADIENT: return receive(c, r, UP);
  case DO_RECOMPUTE:
    if (!program_keeps(r->p, b->chunk))
      work(c, r, PASS_RECOMPUTE, b->chunk);
    return true;
  case DO_BACKWARD: return backward(c, r);
  case DO_SEND_GRADIENT:
    if ((cut = cut_to(c, r, DOWN, b->chunk)) >= 0)
      send(c, r, cut, UP, b->microbatch);
    next_backward(r);
    return true;
  case DO_WEIGHTS: take_weights(c, r); return true;
  case DO_UPDATE: return take_update(c, r);
  case DO_EXCHANGE: take_exchange(c, r); return true;
  case DO_PROMOTE:
  case DO_DEMOTE: return true;
  }
  BUG("action %d", a);
}

/* After the loops: the updates still due, then the next scope. False: the rank must wait. */
static bool end_scope(Run *c, Rank *r) {
  int64_t batches = r->p->per_batch ? 1 : c->layout.batches;
  if (r->u < batches && !r->p->forward_only) {
    if (!update(c, r, r->scope + r->u))
      return false;
    r->u++;
  } else {
    enter_scope(c, r, r->scope + 1);
  }
  return true;
}

/* One action of a rank; false: it waits, or has ended. */
static bool rank_step(Run *c, Rank *r) {
  while (!r->over && r->loop < N_LOOPS && r->at == 0 && (r->p->loop[r->loop].n == 0 || !loop_goes_on(r)))
    r->loop++;
  if (r->over)
    return false;
  if (r->loop == N_LOOPS)
    return end_scope(c, r);
  const Loop *l = &r->p->loop[r->loop];
  if (!take(c, r, l->action[r->at]))
    return false;
  r->at = r->at + 1 < l->n ? r->at + 1 : 0;
  return true;
}

/* Runs ranks round-robin, each until it waits, for a limited number of ticks. */
static void go_on(Run *c) {
  enum { AT_ONCE = 1 << 10 };
  const int64_t enough = c->tape.ticks + AT_ONCE;
  Arena *before = arena_use(c->arena);
  c->turn = NULL; /* the reader may have consumed it */
  while (!c->ended && c->tape.ticks < enough) {
    if (rank_step(c, &c->rank[c->turn_of])) {
      c->moved = true;
      continue;
    }
    if (++c->turn_of < c->n_ranks)
      continue;
    c->ended = !c->moved;
    c->turn_of = 0;
    c->moved = false;
  }
  arena_use(before);
}

/* ---- the start ------------------------------------------------------------------------------------------ */

/* Bits of the ring of microbatches, which spans all that a rank may still use: turns in flight and update lags, of
 * all ranks of a stage. Replicas may be a batch apart, so they add a batch. */
static int ring_bits(const Program *programs, int n_stages) {
  int64_t most = 0;
  int bits = 0;
  bool replicated = false;
  for (int i = 0; i < n_stages; i++) {
    const Program *p = &programs[i];
    int64_t held = (p->in_flight + p->lag + p->weights_lag + 1) * p->replicas;
    most = held > most ? held : most;
    replicated |= p->replicas > 1;
  }
  while ((int64_t)1 << bits < 2 * (most + programs->n_stages + (replicated ? programs->period : 0)))
    bits++;
  return bits;
}

static void rank_start(Run *c, Rank *r, const Program *p, int replica) {
  *r = (Rank){.p = p, .number = (int)(r - c->rank), .replica = replica, .turns = program_turns(p)};
  r->end = r->turns * (p->per_batch ? 1 : c->layout.batches);
  enter_scope(c, r, 0);
  for (int way = 0; way < (p->forward_only ? UP : N_WAYS); way++)
    post_next(c, r, way);
}

static void run_start(Run *c) {
  const int n_stages = c->layout.n_stages;
  const size_t batches = (size_t)c->layout.batches + 1;
  Arena *before = arena_use(c->arena);
  tape_clear(&c->tape);
  memset(c->message, 0, (size_t)messages(&c->layout) * sizeof *c->message);
  c->turn = NULL, c->turn_of = 0;
  c->moved = c->ended = false;
  for (int i = 0; i < n_stages; i++) {
    memset(c->exchanged[i], 0, batches * sizeof **c->exchanged);
    memset(c->updated[i], 0, batches * sizeof **c->updated);
    for (int k = 0; k < c->programs[i].replicas; k++)
      rank_start(c, &c->rank[c->layout.first[i] + k], &c->programs[i], k);
  }
  arena_use(before);
}

int programs_sets(const Program *programs, int n_stages) {
  int64_t sets = programs->replicas; /* the greatest common divisor */
  for (int i = 1; i < n_stages; i++)
    sets /= common_multiple(sets, programs[i].replicas) / programs[i].replicas;
  return (int)sets;
}

Program *programs_of_set(const Program *programs, int n_stages, int sets) {
  Program *one = alloc_copy(programs, (size_t)n_stages * sizeof *one);
  for (int i = 0; i < n_stages; i++) {
    one[i].replicas /= sets;
    one[i].period /= sets;
  }
  return one;
}

Run *run_new(const Program *programs, int n_stages, int sets, int64_t batches) {
  Run *c = alloc(sizeof *c);
  int *first = alloc((size_t)(n_stages + 1) * sizeof *first);
  for (int i = 0; i < n_stages; i++)
    first[i + 1] = first[i] + programs[i].replicas;
  *c = (Run){.programs = programs,
             .layout = {.n_stages = n_stages,
                        .parts = programs->parts,
                        .ring_bits = ring_bits(programs, n_stages),
                        .batches = batches,
                        .first = first},
             .n_ranks = first[n_stages],
             .sets = sets};
  ensure(lost_message(&c->layout) == messages(&c->layout) + 1);
  for (int i = 0; i < n_stages; i++)
    c->waits |= programs[i].waits;
  c->arena = arena_use(NULL);
  arena_use(c->arena);
  c->rank = alloc((size_t)c->n_ranks * sizeof *c->rank);
  c->message = alloc((size_t)messages(&c->layout) * sizeof *c->message);
  c->exchanged = alloc((size_t)n_stages * sizeof *c->exchanged);
  c->updated = alloc((size_t)n_stages * sizeof *c->updated);
  for (int i = 0; i < n_stages; i++) {
    c->exchanged[i] = alloc((size_t)(batches + 1) * sizeof **c->exchanged);
    c->updated[i] = alloc((size_t)(batches + 1) * sizeof **c->updated);
  }
  c->reader = reader_new(&c->layout, programs);
  run_start(c);
  return c;
}

int64_t run_bytes(const Run *c) {
  return (int64_t)sizeof *c + (c->forgets ? KEPT : c->tape.ticks) * (int64_t)sizeof(Tick) +
         messages(&c->layout) * (int64_t)(sizeof *c->message + sizeof(Sides)) +
         c->n_ranks * (int64_t)sizeof *c->rank +
         2 * c->layout.n_stages * (c->layout.batches + 1) * (int64_t)sizeof(int);
}

/* ---- with times ------------------------------------------------------------------------------------------ */

/* Reads the known part of the run and computes the remaining part. False: deadlock. */
static bool read_all(Run *c) {
  Reader *reader = &c->reader;
  if (c->forgets)
    run_start(c);
  for (;;) {
    reader_go_on(reader, &c->tape);
    if (reader->stopped || c->ended)
      break;
    if (c->tape.ticks > KEPT) { /* a longer tape costs more memory than it saves time */
      c->forgets = true;
      tape_clear(&c->tape);
      reader->at = NULL, reader->tick = 0;
    }
    go_on(c);
  }
  bool all = true;
  for (int i = 0; i < c->n_ranks; i++)
    all &= c->rank[i].over;
  return reader->stopped || all;
}

bool time_batches(Run *run, const StageTimes *times, BatchEnded *ended, void *context) {
  reader_start(&run->reader, times);
  run->reader.ended = ended;
  run->reader.context = context;
  return read_all(run);
}

/* ---- a batch that drains --------------------------------------------------------------------------------- */

/* Limit of a rank's waiting in a batch of `most` seconds: its own passes, the return of its last gradients through
 * earlier stages, and the first stage's update need the remaining time. */
static double may_wait(const Program *p, const StageTimes *times, double most) {
  double works = 0, behind = times->update;
  for (int chunk = 0; chunk < p->chunks; chunk++) {
    const StageTimes *t = &times[program_part(p, chunk)];
    works += t->forward + t->backward + (program_recomputes_chunk(p, chunk) ? t->recompute : 0);
  }
  for (const Program *q = p - p->stage; q < p; q++)
    for (int chunk = 0; chunk < q->chunks && program_part(q, chunk) < p->part; chunk++) {
      const StageTimes *t = &times[program_part(q, chunk)];
      behind += t->backward + (program_sends(q, chunk) ? t->send : 0);
    }
  const int64_t microbatches = program_turns(p) / p->chunks;
  return most - works * (double)microbatches - behind;
}

double time_drained(Run *run, const StageTimes *times, double most) {
  const Program *programs = run->programs;
  ensure(programs->per_batch && run->layout.batches == 1 && times->jitter <= 0);
  for (int i = 0; i < run->layout.n_stages; i++)
    if (programs[i].sharded) /* the next batch waits for the shards of the first batch's updates */
      return 0;
  Reader *reader = &run->reader;
  reader_start(reader, times);
  for (int i = 0; run->layout.n_stages > 1 && i < run->n_ranks; i++) /* a single stage never waits */
    reader->rank[i].may_wait = may_wait(run->rank[i].p, times, most);
  if (!read_all(run))
    return 0;
  double seconds = reader->stopped ? INFINITY : reader->rank->now;
  for (int i = 0; i < run->n_ranks && !reader->stopped; i++)
    if (reader->rank[i].now > seconds + reader->rank[i].began)
      return 0;
  return seconds;
}
