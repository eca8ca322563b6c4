/* Writes and reads the tape of ticks. Speed matters: a turn takes a few nanoseconds. */
#include "schedule/tape.h"

#include <math.h>
#include <string.h>

#include "schedule/messages.h"
#include "schedule/timing.h"

Tick *tape_write(Tape *t, TickKind kind, int rank) {
  Reel *c = t->last;
  if (!c || c->n == (int)(sizeof c->tick / sizeof *c->tick)) {
    c = alloc(sizeof *c);
    *(t->last ? &t->last->next : &t->first) = c;
    t->last = c;
  }
  t->ticks++;
  Tick *tick = &c->tick[c->n++];
  tick->rank = (uint32_t)rank << KIND_BITS | kind;
  return tick;
}

void tape_clear(Tape *t) {
  if (t->first)
    t->first->next = NULL, t->first->n = 0;
  t->last = t->first;
}

/* ---- passes with jitter ------------------------------------------------------------------------- */

static double later(double a, double b) { return a > b ? a : b; }

/* A standard normal number that depends on the counters alone (SplitMix64's mixing, Steele et al. 2014; sum of
 * four uniform numbers). */
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

/* Microbatches pass each chunk in order. */
static double pass_seconds(const Reader *r, RankClock *rank, uint32_t at) {
  static const Action action[N_PASSES] = {[PASS_FORWARD] = DO_FORWARD,
                                          [PASS_BACKWARD] = DO_BACKWARD,
                                          [PASS_RECOMPUTE] = DO_RECOMPUTE,
                                          [PASS_WEIGHTS] = DO_WEIGHTS};
  if (at == no_pass(r->layout))
    return 0;
  const Program *p = &r->programs[rank->stage];
  const int pass = (int)at % N_PASSES, chunk = program_chunk(p, (int)at / N_PASSES);
  int64_t number = rank->passes[chunk * N_PASSES + pass]++ * p->replicas + rank->replica + 1;
  return turn_seconds(p, &r->times[p->part], rank->replica, (Step){action[pass], chunk, number}, r->pass[at]);
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

Reader reader_new(const Layout *l, const Program *programs) {
  Reader r = {.layout = l, .programs = programs};
  r.message = alloc((size_t)(lost_message(l) + 1) * sizeof *r.message);
  r.exchange = alloc((size_t)exchanges_of(l) * sizeof *r.exchange);
  r.rank = alloc((size_t)l->first[l->n_stages] * sizeof *r.rank);
  r.pass = alloc((size_t)(l->parts * N_PASSES + 1) * sizeof *r.pass);
  r.send = alloc((size_t)l->parts * sizeof *r.send);
  for (int i = 0; i < l->n_stages; i++)
    for (int k = 0; k < programs[i].replicas; k++)
      r.rank[l->first[i] + k] = (RankClock){
          .stage = i, .replica = k, .passes = alloc((size_t)programs[i].chunks * N_PASSES * sizeof(int64_t))};
  return r;
}

static void set_seconds(Reader *r) {
  const int parts = r->layout->parts;
  for (int i = 0; i < parts; i++) {
    const StageTimes *t = &r->times[i];
    double *pass = &r->pass[i * N_PASSES];
    pass[PASS_FORWARD] = t->forward;
    pass[PASS_BACKWARD] = t->backward;
    pass[PASS_RECOMPUTE] = t->recompute;
    pass[PASS_WEIGHTS] = t->weights;
    r->send[i] = i + 1 < parts ? t->send : 0;
  }
}

/* Messages need no reset: both sides write them before either reads them. */
void reader_start(Reader *r, const StageTimes *times) {
  const Layout *l = r->layout;
  r->times = times;
  set_seconds(r);
  memset(r->exchange, 0, (size_t)exchanges_of(l) * sizeof *r->exchange);
  r->varies = r->stopped = false;
  r->ended = NULL;
  r->at = NULL, r->tick = 0;
  for (int i = 0; i < l->n_stages; i++)
    r->varies |= times[r->programs[i].part].jitter > 0;
  for (int i = 0; i < l->first[l->n_stages]; i++) {
    RankClock *rank = &r->rank[i];
    *rank =
        (RankClock){.stage = rank->stage, .replica = rank->replica, .passes = rank->passes, .may_wait = INFINITY};
    if (r->varies)
      memset(rank->passes, 0, (size_t)r->programs[rank->stage].chunks * N_PASSES * sizeof *rank->passes);
  }
}

/* Returns the time of the message's arrival, and adds the rank's wait to *waited. */
static inline double wait(const Reader *r, uint32_t message, int ring_bits, double now, double *waited) {
  const Sides *m = &r->message[message];
  double after = later(now, message_arrival(m->sent, m->posted, r->send[message >> (ring_bits + 1)]));
  *waited += after - now;
  return after;
}

/* False: the rank has exceeded its limit of waiting. */
static inline bool take_turn(const Reader *r, const Tick *t, RankClock *rank, int ring_bits, bool varies) {
  const uint32_t *deed = t->deed;
  double now = rank->now, waited = rank->waited;
  now = wait(r, deed[TURN_WAIT], ring_bits, now, &waited);
  r->message[deed[TURN_POST]].posted = now;
  now += varies ? pass_seconds(r, rank, deed[TURN_FIRST]) : r->pass[deed[TURN_FIRST]];
  now = wait(r, deed[TURN_SLOT], ring_bits, now, &waited);
  now += varies ? pass_seconds(r, rank, deed[TURN_PASS]) : r->pass[deed[TURN_PASS]];
  r->message[deed[TURN_SEND]].sent = now;
  now += varies ? pass_seconds(r, rank, deed[TURN_LAST]) : r->pass[deed[TURN_LAST]];
  rank->now = now, rank->waited = waited;
  return waited <= rank->may_wait;
}

static double exchange_seconds(const Reader *r, uint32_t exchange) {
  const int n = r->layout->n_stages, which = (int)(exchange / (uint32_t)(r->layout->batches + 1));
  const StageTimes *times = &r->times[r->programs[which % n].part];
  return which < n ? times->reduce : times->gather;
}

/* Seconds of a reduction that the backward pass hides. */
static double hidden_seconds(const Reader *r, uint32_t exchange) {
  const int n = r->layout->n_stages, which = (int)(exchange / (uint32_t)(r->layout->batches + 1));
  return which < n ? r->times[r->programs[which].part].hidden : 0;
}

static bool end_batch(const Reader *r, RankClock *rank) {
  return !r->ended || r->ended(r->context, rank->stage, rank->replica, rank->ended++, rank->now);
}

/* False: the run ends here. */
static bool take_other(const Reader *r, const Tick *t, RankClock *rank) {
  double *e = &r->exchange[t->exchange];
  switch ((TickKind)(t->rank & ((1 << KIND_BITS) - 1))) {
  case TICK_TURN: break;
  case TICK_MEET: rank->now = later(rank->now, *e); return true;
  case TICK_UPDATE: rank->now += r->times[r->programs[rank->stage].part].update; return end_batch(r, rank);
  case TICK_GATHER: *e = later(*e, rank->now); return true;
  case TICK_FOLLOW: *e = later(*e, e[-1] + hidden_seconds(r, t->exchange)); return true;
  case TICK_REDUCE: *e += exchange_seconds(r, t->exchange) - hidden_seconds(r, t->exchange); return true;
  case TICK_BEGIN: rank->began = rank->now; return true;
  case TICK_END: return end_batch(r, rank);
  }
  BUG("tick %u", t->rank);
}

static inline bool take_all(const Reader *r, const Tick *t, const Tick *end, bool varies) {
  const int ring_bits = r->layout->ring_bits;
  bool goes_on = true;
  for (; t < end && goes_on; t++) {
    RankClock *rank = &r->rank[t->rank >> KIND_BITS];
    if (t->rank & ((1 << KIND_BITS) - 1))
      goes_on = take_other(r, t, rank);
    else
      goes_on = take_turn(r, t, rank, ring_bits, varies);
  }
  return goes_on;
}

static bool read_reel(const Reader *r, const Tick *t, const Tick *end) {
  return r->varies ? take_all(r, t, end, true) : take_all(r, t, end, false);
}

void reader_go_on(Reader *r, const Tape *t) {
  if (!r->at)
    r->at = t->first;
  while (r->at && !r->stopped) {
    const Reel *c = r->at;
    r->stopped = !read_reel(r, c->tick + r->tick, c->tick + c->n);
    r->tick = c->n;
    if (!c->next)
      return;
    r->at = c->next, r->tick = 0;
  }
}
