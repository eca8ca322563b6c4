/* Simulates a batch with offload. Compute steps run in order; a transfer thread reads and writes beside them,
 * writes first, as runtime/host/spill_moves.c does. Steps wait for their reads, and for memory whose content is
 * still being written. A GPU's host may update parameters beside all that, as runtime/cuda/home.cu does: after
 * gradients arrive, before weights are read again.
 *
 * The schedule's simulator (schedule/timing.h) cannot replace this one. It replays a Program's fixed order by one
 * clock per rank. Here a rank has up to three clocks, and the order of its reads and writes depends on the times.
 * The search also times thousands of choices before they have Programs. Both simulators share the rules of
 * schedule/messages.h. */
#include <math.h>

#include "plan/offload/spilling.h"
#include "schedule/messages.h"

static double step_seconds(const SpillWork *t, const struct pd_step *s) {
  switch (s->kind) {
  case PD_STEP_FORWARD: return t->forward[s->part];
  case PD_STEP_BACKWARD: return t->backward[s->part];
  case PD_STEP_SQUARE: return t->square[s->group];
  case PD_STEP_UPDATE: return t->update[s->group];
  default: return 0;
  }
}

/* ---- the thread ------------------------------------------------------------------------------------------ */

typedef struct Request {
  int block;
  int64_t needed; /* for reads: the step that waits */
  double at;
} Request;
typedef struct Queue {
  Request *at; /* ring buffer */
  int first, n, room;
} Queue;

typedef struct Transfers {
  const SpillProblem *p;
  const struct pd_holding *of;
  Queue writes, reads;
  double free_at[2], busy[2]; /* seconds, by [writes]; equal entries if reads and writes take turns */
  double *written;            /* by block: seconds; INFINITY: in transit */
  int *awaited;               /* by step: outstanding reads */
  int64_t bytes_read, bytes_written;
} Transfers;

static void put(Queue *q, Request r) {
  ensure(q->n < q->room);
  q->at[(q->first + q->n++) % q->room] = r;
}

static Request next(Queue *q) {
  Request r = q->at[q->first];
  q->first = (q->first + 1) % q->room;
  q->n--;
  return r;
}

/* A block in transit to its home is read back only after the write. */
static double could_begin(const Transfers *t, bool writes) {
  const Queue *q = writes ? &t->writes : &t->reads;
  if (!q->n)
    return INFINITY;
  const Request *r = &q->at[q->first];
  double begin = fmax(t->free_at[writes], r->at);
  return writes ? begin : fmax(begin, t->written[r->block]);
}

/* Runs the next transfer that begins before `until`; false: none. */
static bool transfer(Transfers *t, double until) {
  double write = could_begin(t, true), read = could_begin(t, false);
  bool writes = write <= read;
  if (fmin(write, read) >= until)
    return false;
  Request r = next(writes ? &t->writes : &t->reads);
  double bytes = (double)t->of->block[r.block].bytes, seconds = bytes * (writes ? t->p->write : t->p->read);
  const double end = fmin(write, read) + seconds;
  for (int way = 0; way < 2; way++)
    if (way == writes || !t->p->both_ways)
      t->free_at[way] = end, t->busy[way] += seconds;
  *(writes ? &t->bytes_written : &t->bytes_read) += (int64_t)bytes;
  if (writes)
    t->written[r.block] = end;
  else
    t->awaited[r.needed]--;
  return true;
}

/* ---- a rank's steps --------------------------------------------------------------------------------------- */

typedef struct Run {
  const SpillStage *stage;
  Transfers t;
  SpillWork work;
  struct pd_holding of;
  struct pd_moves moves;
  double now, began, compute;
  double host, host_free; /* host updates: busy seconds; time when the host is free */
  int64_t at;             /* completed steps, over all batches */
  bool fits;
  SpillTime out;
} Run;

static double await_written(Run *r, int block, double now) {
  while (isinf(r->t.written[block]) && transfer(&r->t, INFINITY))
    ;
  return fmax(now, isinf(r->t.written[block]) ? now : r->t.written[block]);
}

static void leave(Run *r, int64_t step) {
  const int *block;
  int n = pd_moves_at(&r->moves, PD_LEAVES, step, &block);
  for (int i = 0; i < n; i++)
    if (r->moves.changed[r->moves.first[PD_LEAVES][step] + i]) {
      r->t.written[block[i]] = INFINITY;
      put(&r->t.writes, (Request){block[i], 0, r->now});
    }
}

/* Runs an update on the host, beside computation. Later reads of these blocks wait for it. */
static void do_at_home(Run *r, const struct pd_step *s, double begin, double seconds) {
  begin = fmax(begin, r->host_free);
  for (int i = 0; i < r->work.blocks.n; i++)
    if (pd_use_of(s, &r->work.blocks.at[i]) & PD_HOME)
      begin = await_written(r, i, begin);
  r->host += seconds;
  r->host_free = begin + seconds;
  for (int i = 0; i < r->work.blocks.n; i++)
    if (pd_use_of(s, &r->work.blocks.at[i]) & PD_HOME)
      r->t.written[i] = r->host_free;
}

/* Seconds of the forward pass that a backward step repeats before it receives gradients. A stage in several parts repeats it
 * afterwards (set_spilled_loops). */
static double repeated_seconds(const Run *r, const struct pd_step *s) {
  bool again = r->stage->choice.parts == 1 && s->kind == PD_STEP_BACKWARD &&
               spill_reruns(&r->stage->problem, &r->stage->choice, s->part);
  return again ? r->work.forward[s->part] : 0;
}

/* Runs a step. After its repeated forward pass it waits until `ready`. */
static void do_step(Run *r, int64_t step, const struct pd_step *s, double ready) {
  const int *block;
  int n = pd_moves_at(&r->moves, PD_DUE, step, &block);
  double now = r->now;
  for (int i = 0; i < n; i++)
    now = await_written(r, block[i], now);
  while (transfer(&r->t, now)) /* transfers in the meantime */
    ;
  n = pd_moves_at(&r->moves, PD_ASKED, step, &block);
  for (int i = 0; i < n; i++) {
    int64_t needed = r->moves.needed[r->moves.first[PD_ASKED][step] + i];
    r->t.awaited[needed]++;
    put(&r->t.reads, (Request){block[i], needed, now});
  }
  while (r->t.awaited[step] > 0 && transfer(&r->t, INFINITY))
    now = r->t.awaited[step] > 0 ? now : fmax(now, r->t.free_at[false]);
  double seconds = step_seconds(&r->work, s);
  if (s->at_home) {
    do_at_home(r, s, fmax(now, ready), seconds);
    r->now = now;
  } else {
    const double repeated = repeated_seconds(r, s);
    r->compute += seconds;
    r->now = fmax(now + repeated, ready) + seconds - repeated;
  }
  while (transfer(&r->t, r->now))
    ;
  leave(r, step);
}

static Queue queue_of(int room) { return (Queue){.at = alloc((size_t)room * sizeof(Request)), .room = room}; }

/* ---- messages --------------------------------------------------------------------------------------------- */

enum { BATCHES = 3 }; /* resident blocks and the transfer queue are in a steady state in the last batch */
enum { DOWN, UP, N_WAYS };
static const double UNKNOWN = -1;

/* Messages over a cut in one direction, by microbatch of the run: time sent, and time received. The receiver then
 * posts the next receive. */
typedef struct Wire {
  double *sent, *taken;
  double seconds;
  int slots; /* send buffers */
} Wire;

typedef struct Line {
  Run *run;
  int n;
  bool meets;
  Wire *wire[N_WAYS]; /* by cut: after stage i */
  double *squared;    /* by stage and batch: time when its gradients are complete */
} Line;

static double arrival(const Wire *w, int64_t k) {
  double posted = k > 0 ? w->taken[k - 1] : 0;
  return w->sent[k] < 0 || posted < 0 ? UNKNOWN : message_arrival(w->sent[k], posted, w->seconds);
}

/* Raises `ready` to a time; false: the time is unknown. */
static bool after(double *ready, double time) {
  *ready = fmax(*ready, time);
  return time >= 0;
}

static bool after_message(double *ready, const Wire *w, int64_t k) { return after(ready, arrival(w, k)); }
static bool after_slot(double *ready, const Wire *w, int64_t k) {
  return k < w->slots || after(ready, arrival(w, k - w->slots));
}

/* Messages of a stage's step. */
typedef struct Role {
  const Wire *takes, *fills; /* NULL: none */
  Wire *gives;               /* equals `fills` */
  int64_t k;                 /* microbatch of the run, from 0 */
} Role;

static Role role_of(const Line *l, int i, const struct pd_step *s, int64_t batch) {
  const struct pd_batch *b = &l->run[i].of.batch;
  const bool first = s->part == 0, last = s->part == b->parts - 1, turns = b->turns && last;
  Role r = {.k = batch * b->microbatches + (s->slot + b->microbatches - 1) % b->microbatches};
  if (s->kind == PD_STEP_FORWARD || (s->kind == PD_STEP_BACKWARD && turns))
    r.takes = first && i > 0 ? &l->wire[DOWN][i - 1] : NULL;
  if (s->kind == PD_STEP_FORWARD)
    r.gives = last && i < l->n - 1 ? &l->wire[DOWN][i] : NULL;
  if (s->kind == PD_STEP_BACKWARD) {
    r.takes = last && i < l->n - 1 ? &l->wire[UP][i] : r.takes;
    r.gives = first && i > 0 ? &l->wire[UP][i - 1] : NULL;
  }
  r.fills = r.gives;
  return r;
}

/* Whether all stages completed the batch's gradients, if updates wait for that. */
static bool after_all(const Line *l, int64_t batch, double *ready) {
  bool known = true;
  for (int i = 0; i < l->n && l->meets; i++)
    known &= l->run[i].of.batch.groups == 0 || after(ready, l->squared[i * BATCHES + batch]);
  return known;
}

/* The next step. A stage in one part runs as under 1F1B. */
static int64_t step_at(const Run *r, int64_t at) {
  const struct pd_batch *b = &r->of.batch;
  const int64_t m = b->microbatches, before = r->stage->in_flight - 1;
  if (b->parts > 1 || b->turns || at < before || at >= 2 * m - before)
    return at;
  const int64_t pair = (at - before) / 2;
  return (at - before) % 2 ? m + pair : before + pair;
}

/* Runs the stage's next step; false: it waits for another stage. */
static bool go_on(Line *l, int i) {
  Run *r = &l->run[i];
  const int64_t batch = r->at / r->moves.steps, step = step_at(r, r->at % r->moves.steps);
  const struct pd_step s = pd_batch_step(&r->of.batch, step);
  const Role role = role_of(l, i, &s, batch);
  double ready = 0;
  if ((role.takes && !after_message(&ready, role.takes, role.k)) ||
      (role.fills && !after_slot(&ready, role.fills, role.k)) ||
      (s.kind == PD_STEP_UPDATE && !after_all(l, batch, &ready)))
    return false;
  if (r->at % r->moves.steps == 0) {
    r->began = r->now;
    r->t.bytes_read = r->t.bytes_written = 0;
    r->t.busy[false] = r->t.busy[true] = r->compute = r->host = 0;
  }
  if (role.takes)
    role.takes->taken[role.k] = fmax(r->now + repeated_seconds(r, &s), arrival(role.takes, role.k));
  do_step(r, step, &s, ready);
  if (role.gives)
    role.gives->sent[role.k] = r->now;
  if (step + 1 == pd_update_step(&r->of.batch, 0))
    l->squared[i * BATCHES + batch] = fmax(r->now, r->of.batch.at_home ? r->host_free : 0);
  r->at++;
  return true;
}

/* ---- a pipeline ------------------------------------------------------------------------------------------- */

static void prepare(Run *r, const SpillStage *stage) {
  const SpillProblem *p = &stage->problem;
  const SpillChoice *c = &stage->choice;
  *r = (Run){.stage = stage, .work = spill_work(p, c)};
  const int64_t beside = r->work.beside, room = p->limit - beside;
  r->of = (struct pd_holding){.block = r->work.blocks.at,
                              .n = r->work.blocks.n,
                              .batch = {.parts = c->parts,
                                        .turns = !p->hands_on,
                                        .microbatches = p->microbatches,
                                        .groups = r->work.groups,
                                        .at_home = spill_at_home(p, c)},
                              .page = (size_t)p->page,
                              .room = c->parts == 1 ? SIZE_MAX / 2
                                      : room > 0    ? (size_t)room
                                                    : 0,
                              .kept = c->parts == 1 ? 100 : c->kept,
                              .must_fit = true};
  pd_moves_make(&r->of, alloc, &r->moves);
  r->out = (SpillTime){.seconds = INFINITY, .least = beside + (int64_t)r->moves.most};
  for (int i = 0; i < r->work.blocks.n; i++)
    r->out.home += (int64_t)r->work.blocks.at[i].bytes;
  r->fits = c->parts == 1 || (int64_t)r->moves.most <= room;
}

static void start(Run *r) {
  r->t = (Transfers){.p = &r->stage->problem,
                     .of = &r->of,
                     .writes = queue_of(2 * r->of.n + 1),
                     .reads = queue_of(2 * r->of.n + 1)};
  r->t.written = alloc((size_t)(r->of.n + 1) * sizeof(double));
  r->t.awaited = alloc((size_t)r->moves.steps * sizeof(int));
}

static double *unknown_times(int64_t n) {
  double *at = alloc((size_t)(n + 1) * sizeof *at);
  for (int64_t i = 0; i < n; i++)
    at[i] = UNKNOWN;
  return at;
}

static int slots_to_send(const SpillStage *s) {
  const SpillChoice *c = &s->choice;
  return c->parts == 1 || c->keeps[c->parts - 1] ? (int)s->problem.microbatches : SENT_SLOTS;
}

/* To the previous stage. If that runs several parts, all microbatches of a batch are in flight there. */
static int slots_to_return(const SpillStage *s) {
  const int64_t all = s->problem.microbatches, before = s[-1].choice.parts > 1 ? all : s[-1].in_flight;
  return s->choice.parts == 1 ? returned_slots(before, s->in_flight, all) : GRADIENT_SLOTS;
}

static void open_wires(Line *l, const SpillStage *stage) {
  const int64_t messages = BATCHES * stage->problem.microbatches;
  for (int way = 0; way < N_WAYS; way++) {
    l->wire[way] = alloc((size_t)l->n * sizeof(Wire));
    for (int i = 0; i + 1 < l->n; i++) {
      l->wire[way][i] = (Wire){.sent = unknown_times(messages),
                               .taken = unknown_times(messages),
                               .seconds = stage[i].send,
                               .slots = way == DOWN ? slots_to_send(&stage[i]) : slots_to_return(&stage[i + 1])};
    }
  }
}

/* Runs the stages in turn, each until it waits. */
static void run_all(Line *l) {
  for (bool moved = true; moved;) {
    moved = false;
    for (int i = 0; i < l->n; i++)
      while (l->run[i].at < BATCHES * l->run[i].moves.steps && go_on(l, i))
        moved = true;
  }
}

static void conclude(Run *r) {
  ensure(r->at == BATCHES * r->moves.steps);
  r->out.seconds = r->now - r->began;
  r->out.compute = r->compute;
  r->out.host = r->host;
  r->out.transfer = fmax(r->t.busy[false], r->t.busy[true]);
  r->out.read = r->t.bytes_read;
  r->out.written = r->t.bytes_written;
}

double spill_pipeline_seconds(const SpillStage *stage, int n, bool meets, SpillTime *time) {
  ArenaMark mark = arena_mark();
  Line l = {.run = alloc((size_t)n * sizeof *l.run), .n = n, .meets = meets};
  bool fit = true;
  for (int i = 0; i < n; i++) {
    prepare(&l.run[i], &stage[i]);
    fit &= l.run[i].fits;
  }
  if (fit) {
    open_wires(&l, stage);
    l.squared = unknown_times((int64_t)n * BATCHES);
    for (int i = 0; i < n; i++)
      start(&l.run[i]);
    run_all(&l);
  }
  for (int i = 0; i < n; i++) {
    if (fit)
      conclude(&l.run[i]);
    time[i] = l.run[i].out;
  }
  arena_release(mark);
  return time->seconds;
}

SpillTime spill_time(const SpillProblem *p, const SpillChoice *c) {
  const SpillStage alone = {.problem = *p, .choice = *c, .in_flight = 1};
  SpillTime time;
  spill_pipeline_seconds(&alone, 1, false, &time);
  return time;
}
