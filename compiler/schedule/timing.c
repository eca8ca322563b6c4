/* When the batches of a run end: what machine.c finds out, to the bit, of Programs that are known to be right. Ranks wait
 * for each other here, too, but nothing is checked, so that a step takes a few nanoseconds; the planner asks for a great
 * many runs. A message is there when it has been sent, and the receive for it posted, and its seconds have passed: these
 * two times are all that neighbours see of each other, so no rank needs another's state. */
#include "schedule/timing.h"

#include <math.h>

enum { DOWN, UP, N_WAYS }; /* activations, gradients */

/* Of a message over a cut, in a ring by microbatch: when it was sent, and when its receive was posted; valid where the
 * microbatch is the one that is asked for. */
typedef struct Message {
  int64_t sent_for, posted_for;
  double sent, posted;
} Message;

/* Between a part of the model and the next. */
typedef struct Cut {
  double seconds;
  Message *way[N_WAYS];
} Cut;

/* By batch: how many of a stage's ranks have handed their gradients, or the weights that they updated, over, and when all
 * of it was there. */
typedef struct Exchange {
  int ranks;
  double at;
} Exchange;

typedef struct Rank {
  const Program *p;
  const StageTimes *times; /* its first chunk's; those of chunk c are n_stages * c further on */
  Exchange *exchange;      /* its stage's, of gradients ... */
  Exchange *update;        /* ... and of weights, where they are sharded */
  int replica;
  int64_t turns; /* a batch */
  int64_t scope; /* batches done, where loops run once a batch */
  int64_t end;   /* turns of the scope */
  int64_t f, b, w, u;
  int loop, at;
  Turn turn[N_WAYS];   /* number f, and number b */
  Turn posted[N_WAYS]; /* the receive that is posted; 0: none was */
  double now;
  double began;  /* when it had what its first turn of the run needs */
  double waited; /* for messages and slots, while nothing else was to be done, and so long it may at most */
  double may_wait;
  bool over;
} Rank;

typedef struct Clock {
  int n_stages, n_ranks, parts;
  int64_t batches, mask; /* of rings */
  Rank *rank;
  int *first; /* by stage: its first rank; at the end n_ranks */
  Cut *cut;   /* behind each part but the last */
  Exchange **exchange, **update;
  BatchEnded *ended;
  void *context;
  bool stopped;
} Clock;

static double later(double a, double b) { return a > b ? a : b; }

/* ---- messages ------------------------------------------------------------------------------------------- */

static Message *message(const Clock *c, int cut, int way, int64_t k) { return &c->cut[cut].way[way][k & c->mask]; }

/* Whether microbatch k's message has arrived; then `now` is not before that. */
static bool arrived(const Clock *c, int cut, int way, int64_t k, double *now) {
  const Message *m = message(c, cut, way, k);
  if (m->sent_for != k || m->posted_for != k)
    return false;
  *now = later(*now, later(m->sent, m->posted) + c->cut[cut].seconds);
  return true;
}

/* Whether it has; then the rank has waited for it. */
static bool await(Clock *c, Rank *r, int cut, int way, int64_t k) {
  const double before = r->now;
  if (!arrived(c, cut, way, k, &r->now))
    return false;
  r->waited += r->now - before;
  c->stopped |= r->waited > r->may_wait;
  return true;
}

/* Slots free up in turn: the one that k will be sent from was last used by the microbatch so many before. */
static bool slot_free(Clock *c, Rank *r, int cut, int way, int64_t k, int slots) {
  int64_t before = k - (int64_t)slots * r->p->replicas;
  return before < 1 || await(c, r, cut, way, before);
}

static void send(const Clock *c, const Rank *r, int cut, int way, int64_t k) {
  Message *m = message(c, cut, way, k);
  m->sent_for = k, m->sent = r->now;
}

/* The cut over which the part's messages that way come, -1: none does. */
static int cut_to(const Clock *c, const Rank *r, int way, int chunk) {
  int part = part_of(c->n_stages, r->p->stage, chunk);
  if (r->p->spills)
    return -1;
  return way == DOWN ? part - 1 : part + 1 < c->parts ? part : -1;
}

static void post_next(const Clock *c, Rank *r, int way) {
  Turn *t = &r->posted[way];
  int cut = -1;
  if (r->p->chunks == 1)
    *t = (Turn){0, t->microbatch == 0 ? r->replica + 1 : t->microbatch + r->p->replicas};
  do {
    if (r->p->chunks > 1)
      *t = t->microbatch == 0 ? program_turn(r->p, r->replica, 1, way == UP)
                              : program_turn_after(r->p, *t, way == UP);
    cut = cut_to(c, r, way, t->chunk);
  } while (cut < 0 && r->p->chunks > 1 && !r->p->spills);
  if (cut < 0)
    return;
  Message *m = message(c, cut, way, t->microbatch);
  m->posted_for = t->microbatch, m->posted = r->now;
}

static bool receive(Clock *c, Rank *r, int way) {
  const Turn *t = &r->turn[way];
  int cut = cut_to(c, r, way, t->chunk);
  if (cut < 0)
    return true;
  if (!await(c, r, cut, way, t->microbatch))
    return false;
  if (way == DOWN && r->scope == 0 && r->f == 1)
    r->began = r->now;
  post_next(c, r, way);
  return true;
}

/* A number from the standard normal distribution that depends on the counters alone (SplitMix64's mixing,
 * Steele et al. 2014; sum of four uniform numbers). */
static double noise(uint64_t a, uint64_t b) {
  double sum = 0;
  for (int i = 0; i < 4; i++) {
    uint64_t x = (a * 4 + (uint64_t)i) * 0x9e3779b97f4a7c15u ^ b * 0xd1b54a32d192ed03u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    sum += (double)((x ^ x >> 31) >> 11) * 0x1p-53;
  }
  return (sum - 2) * sqrt(3);
}

double turn_seconds(const Program *p, const StageTimes *times, int replica, Step step, double seconds) {
  if (times->jitter <= 0)
    return seconds;
  uint64_t who = (uint64_t)p->stage << 32 | (uint64_t)replica << 16;
  uint64_t what = (uint64_t)step.action * MOST_INTERLEAVED + (uint64_t)step.chunk;
  return seconds * later(1 + times->jitter * noise(who + what, (uint64_t)step.number), 0);
}

/* ---- passes --------------------------------------------------------------------------------------------- */

static void work(Rank *r, Action action, const Turn *t, double seconds) {
  r->now += turn_seconds(r->p, r->times, r->replica, (Step){action, t->chunk, t->microbatch}, seconds);
}

static const StageTimes *times_at(const Clock *c, const Rank *r, int chunk) {
  return &r->times[part_of(c->n_stages, 0, chunk)];
}

/* Whether all parts of a version of the weights are there, where each of the replicas updates one. */
static bool has_all_parts(Rank *r, int64_t version) {
  if (!r->p->sharded || version == 0)
    return true;
  const Exchange *e = &r->update[version - 1];
  if (e->ranks < r->p->replicas)
    return false;
  r->now = later(r->now, e->at);
  return true;
}

static bool forward(Clock *c, Rank *r) {
  const Turn *t = &r->turn[DOWN];
  int cut = cut_to(c, r, UP, t->chunk); /* over which the activations go */
  if (cut >= 0 && !slot_free(c, r, cut, DOWN, t->microbatch, r->p->slots[t->chunk].sent))
    return false;
  if (!has_all_parts(r, program_version(r->p, t->microbatch)))
    return false;
  work(r, DO_FORWARD, t, times_at(c, r, t->chunk)->forward);
  return true;
}

static bool backward(Clock *c, Rank *r) {
  const Turn *t = &r->turn[UP];
  int cut = cut_to(c, r, DOWN, t->chunk);
  if (cut >= 0 && !slot_free(c, r, cut, UP, t->microbatch, r->p->slots[t->chunk].gradients))
    return false;
  work(r, DO_BACKWARD, t, times_at(c, r, t->chunk)->backward);
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

static void enter_scope(const Clock *c, Rank *r, int64_t scope) {
  r->scope = scope;
  r->over = scope >= (r->p->per_batch ? c->batches : c->batches > 0);
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
  case 0: return r->f <= r->end && (r->p->spills || r->f - r->b < r->p->in_flight - 1);
  case 1: return r->f <= r->end;
  case 2: return r->b <= r->end;
  default: return r->p->split_backward && r->w <= r->end;
  }
}

/* Turns done, as updates count them. */
static int64_t done(const Rank *r) { return (r->p->split_backward ? r->w : r->b) - 1; }

/* ---- updates -------------------------------------------------------------------------------------------- */

static void exchange(Rank *r, int64_t batch) {
  Exchange *e = &r->exchange[batch];
  e->at = later(e->at, r->now);
  if (++e->ranks == r->p->replicas && r->p->replicas > 1)
    e->at = later(e->at, batch > 0 ? e[-1].at : 0) + r->times->reduce;
}

static bool exchanged(const Clock *c, int stage, int64_t batch, double *now) {
  const Exchange *e = &c->exchange[stage][batch];
  if (e->ranks < c->first[stage + 1] - c->first[stage])
    return false;
  *now = later(*now, e->at);
  return true;
}

static void tell(Clock *c, const Rank *r, int64_t batch) {
  c->stopped |= c->ended && !c->ended(c->context, r->p->stage, r->replica, batch, r->now);
}

static bool update(Clock *c, Rank *r, int64_t batch) {
  double now = r->now;
  bool all = exchanged(c, r->p->stage, batch, &now);
  for (int i = 0; r->p->waits && i < c->n_stages && all; i++)
    all = exchanged(c, i, batch, &now);
  if (!all || !has_all_parts(r, batch))
    return false;
  r->now = later(r->now, now) + r->times->update;
  Exchange *e = &r->update[batch];
  e->at = later(e->at, r->now);
  if (++e->ranks == r->p->replicas)
    e->at += r->times->gather;
  tell(c, r, batch);
  return true;
}

/* Without updates a batch ends as the rank sends its last microbatch of it. */
static void end_forward(Clock *c, const Rank *r, int64_t k) {
  if ((k - 1) % r->p->period == r->p->period - r->p->replicas + r->replica)
    tell(c, r, (k - 1) / r->p->period);
}

/* ---- all ranks ------------------------------------------------------------------------------------------ */

static bool take_update(Clock *c, Rank *r) {
  int64_t turns = done(r) - r->p->lag;
  if (turns <= 0 || turns % r->turns)
    return true;
  if (!update(c, r, r->scope + turns / r->turns - 1))
    return false;
  r->u++;
  return true;
}

static void take_exchange(Rank *r) {
  if (done(r) > 0 && done(r) % r->turns == 0)
    exchange(r, r->scope + done(r) / r->turns - 1);
}

static void take_weights(const Clock *c, Rank *r) {
  if (r->loop < 3 && r->b - r->w <= r->p->weights_lag)
    return;
  Turn t = program_turn(r->p, r->replica, r->scope * r->turns + r->w, true);
  work(r, DO_WEIGHTS, &t, times_at(c, r, t.chunk)->weights);
  r->w++;
}

/* False: it has to wait. */
static bool take(Clock *c, Rank *r, Action a) {
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
      work(r, a, b, times_at(c, r, b->chunk)->recompute);
    return true;
  case DO_BACKWARD: return backward(c, r);
  case DO_SEND_GRADIENT:
    if ((cut = cut_to(c, r, DOWN, b->chunk)) >= 0)
      send(c, r, cut, UP, b->microbatch);
    next_backward(r);
    return true;
  case DO_WEIGHTS: take_weights(c, r); return true;
  case DO_UPDATE: return take_update(c, r);
  case DO_EXCHANGE: take_exchange(r); return true;
  case DO_PROMOTE:
  case DO_DEMOTE: return true;
  }
  BUG("action %d", a);
}

/* Behind the loops: the updates still due, then the next scope. False: it has to wait. */
static bool end_scope(Clock *c, Rank *r) {
  int64_t batches = r->p->per_batch ? 1 : c->batches;
  if (r->u < batches && !r->p->forward_only) {
    if (!update(c, r, r->scope + r->u))
      return false;
    r->u++;
  } else {
    enter_scope(c, r, r->scope + 1);
  }
  return true;
}

/* Steps a rank until it waits or ends; whether it did anything. */
static bool rank_run(Clock *c, Rank *r) {
  for (bool moved = false;; moved = true) {
    if (r->over || c->stopped)
      return moved;
    if (r->loop == N_LOOPS) {
      if (!end_scope(c, r))
        return moved;
      continue;
    }
    const Loop *l = &r->p->loop[r->loop];
    if (r->at == 0 && (l->n == 0 || !loop_goes_on(r))) {
      r->loop++;
      continue;
    }
    if (!take(c, r, l->action[r->at]))
      return moved;
    r->at = r->at + 1 < l->n ? r->at + 1 : 0;
  }
}

/* ---- the start ------------------------------------------------------------------------------------------ */

/* Microbatches between the first that somebody may still ask about and the last that somebody works on: what is in
 * flight and what updates lag, of all of a stage's ranks; where replicas run ahead of each other those of a batch, too. */
static int64_t ring(const Program *programs, int n_stages) {
  int64_t most = 0, n = 1;
  bool replicated = false;
  for (int i = 0; i < n_stages; i++) {
    const Program *p = &programs[i];
    int64_t held = (p->in_flight + p->lag + p->weights_lag + 1) * p->replicas;
    most = held > most ? held : most;
    replicated |= p->replicas > 1;
  }
  while (n < 2 * (most + programs->n_stages + (replicated ? programs->period : 0)))
    n *= 2;
  return n;
}

static void rank_start(const Clock *c, Rank *r, const Program *p, int replica, const StageTimes *times) {
  *r = (Rank){.p = p,
              .times = times,
              .exchange = c->exchange[p->stage],
              .update = c->update[p->stage],
              .replica = replica,
              .turns = program_turns(p),
              .may_wait = INFINITY};
  r->end = r->turns * (p->per_batch ? 1 : c->batches);
  enter_scope(c, r, 0);
  for (int way = 0; way < (p->forward_only ? UP : N_WAYS); way++)
    post_next(c, r, way);
}

static void clock_start(Clock *c, const Program *programs, const StageTimes *times) {
  int64_t room = ring(programs, c->n_stages);
  c->mask = room - 1;
  c->cut = alloc((size_t)c->parts * sizeof *c->cut);
  for (int i = 0; i + 1 < c->parts; i++)
    c->cut[i] =
        (Cut){times[i].send, {alloc((size_t)room * sizeof(Message)), alloc((size_t)room * sizeof(Message))}};
  c->first = alloc((size_t)(c->n_stages + 1) * sizeof *c->first);
  c->exchange = alloc((size_t)c->n_stages * sizeof *c->exchange);
  c->update = alloc((size_t)c->n_stages * sizeof *c->update);
  for (int i = 0; i < c->n_stages; i++) {
    c->first[i + 1] = c->first[i] + programs[i].replicas;
    c->exchange[i] = alloc((size_t)(c->batches + 1) * sizeof **c->exchange);
    c->update[i] = alloc((size_t)(c->batches + 1) * sizeof **c->update);
  }
  c->n_ranks = c->first[c->n_stages];
  c->rank = alloc((size_t)c->n_ranks * sizeof *c->rank);
  for (int i = 0; i < c->n_stages; i++)
    for (int k = 0; k < programs[i].replicas; k++)
      rank_start(c, &c->rank[c->first[i] + k], &programs[i], k, &times[i]);
}

/* False: no rank could go on. */
static bool run(Clock *c) {
  for (bool moved = true; moved && !c->stopped;) {
    moved = false;
    for (int i = 0; i < c->n_ranks; i++)
      moved |= rank_run(c, &c->rank[i]);
  }
  for (int i = 0; i < c->n_ranks && !c->stopped; i++)
    if (!c->rank[i].over)
      return false;
  return true;
}

bool time_batches(const Program *programs, const StageTimes *times, int n_stages, int64_t batches,
                  BatchEnded *ended, void *context) {
  Clock c = {.n_stages = n_stages,
             .parts = n_stages * programs->chunks,
             .batches = batches,
             .ended = ended,
             .context = context};
  clock_start(&c, programs, times);
  return run(&c);
}

/* ---- a batch that drains --------------------------------------------------------------------------------- */

/* How long a rank may wait in a batch that shall take `most` seconds: beside that there are its own passes, and then the
 * way back of its last gradients through the stages before it, and the update of the first. */
static double may_wait(const Rank *r, double most) {
  const StageTimes *first = r->times - r->p->stage;
  double works = 0, behind = first->update;
  for (int chunk = 0; chunk < r->p->chunks; chunk++) {
    const StageTimes *t = &r->times[part_of(r->p->n_stages, 0, chunk)];
    works += t->forward + t->backward + (program_recomputes(r->p) ? t->recompute : 0);
  }
  for (int i = 0; i < r->p->stage; i++)
    behind += first[i].backward + first[i].send;
  const int64_t microbatches = r->turns / r->p->chunks;
  return most - works * (double)microbatches - behind;
}

double time_drained(const Program *programs, const StageTimes *times, int n_stages, double most) {
  Clock c = {.n_stages = n_stages, .parts = n_stages * programs->chunks, .batches = 1};
  ensure(programs->per_batch && times->jitter <= 0);
  for (int i = 0; i < n_stages; i++)
    if (programs[i].sharded) /* the next batch waits for what the first one's updates send */
      return 0;
  clock_start(&c, programs, times);
  for (int i = 0; i < c.n_ranks; i++)
    c.rank[i].may_wait = may_wait(&c.rank[i], most);
  if (!run(&c))
    return 0;
  double seconds = c.stopped ? INFINITY : c.rank->now;
  for (int i = 0; i < c.n_ranks && !c.stopped; i++)
    if (c.rank[i].now > seconds + c.rank[i].began)
      return 0;
  return seconds;
}
