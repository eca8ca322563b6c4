/* The row of ticks, and reading it: a tick takes about a nanosecond. */
#include "schedule/tape.h"

#include <math.h>

#include "schedule/timing.h"

void tape_write(Tape *t, TickKind kind, int about) {
  Reel *c = t->last;
  if (!c || c->n == (int)(sizeof c->tick / sizeof *c->tick)) {
    c = alloc(sizeof *c);
    *(t->last ? &t->last->next : &t->first) = c;
    t->last = c;
  }
  c->tick[c->n++] = (uint32_t)about << TICK_BITS | kind;
  t->ticks++;
}

void tape_clear(Tape *t) {
  if (t->first)
    t->first->next = NULL, t->first->n = 0;
  t->last = t->first;
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static void set_passes(Reader *r) {
  r->pass = alloc((size_t)r->layout->parts * N_PASSES * sizeof *r->pass);
  for (int i = 0; i < r->layout->parts; i++) {
    const StageTimes *t = &r->times[i];
    double *pass = &r->pass[i * N_PASSES];
    pass[PASS_FORWARD] = t->forward;
    pass[PASS_BACKWARD] = t->backward;
    pass[PASS_RECOMPUTE] = t->recompute;
    pass[PASS_WEIGHTS] = t->weights;
  }
}

Reader reader_start(const Layout *l, const Program *programs, const StageTimes *times) {
  Reader r = {.layout = l, .programs = programs, .times = times};
  r.value = alloc((size_t)layout_values(l) * sizeof *r.value);
  r.rank = alloc((size_t)l->first[l->n_stages] * sizeof *r.rank);
  set_passes(&r);
  for (int i = 0; i < l->n_stages; i++)
    for (int k = 0; k < programs[i].replicas; k++) {
      RankClock *rank = &r.rank[l->first[i] + k];
      *rank = (RankClock){.stage = i, .replica = k, .may_wait = INFINITY};
      if (times[i].jitter > 0)
        rank->passes = alloc((size_t)programs[i].chunks * N_PASSES * sizeof *rank->passes);
    }
  return r;
}

static double later(double a, double b) { return a > b ? a : b; }

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

/* Microbatches come in their order through each chunk. */
static double pass_seconds(Reader *r, int about) {
  static const Action action[N_PASSES] = {
      [PASS_FORWARD] = DO_FORWARD, [PASS_BACKWARD] = DO_BACKWARD, [PASS_RECOMPUTE] = DO_RECOMPUTE, [PASS_WEIGHTS] = DO_WEIGHTS};
  RankClock *rank = &r->rank[r->reads];
  if (!rank->passes)
    return r->pass[about];
  const Program *p = &r->programs[rank->stage];
  const int part = about / N_PASSES, pass = about % N_PASSES, chunk = chunk_of_part(p->n_stages, part);
  int64_t number = rank->passes[chunk * N_PASSES + pass]++ * p->replicas + rank->replica + 1;
  return turn_seconds(p, &r->times[rank->stage], rank->replica, (Step){action[pass], chunk, number}, r->pass[about]);
}

/* What an exchange takes. */
static double exchange_seconds(const Reader *r, int value) {
  const Layout *l = r->layout;
  int stage = (value - n_message_values(l)) / (int)(l->batches + 1);
  return stage < l->n_stages ? r->times[stage].reduce : r->times[stage - l->n_stages].gather;
}

static void end_batch(Reader *r, RankClock *rank) {
  if (r->ended && !r->ended(r->context, rank->stage, rank->replica, rank->ended++, rank->now))
    r->stopped = true;
}

/* All ticks of the reel from `tick` on; but for the last what is seldom. */
static void read_reel(Reader *r, const uint32_t *tick, const uint32_t *end) {
  double *value = r->value;
  RankClock *rank = &r->rank[r->reads];
  double now = rank->now, waited = rank->waited;
  for (; tick < end && !r->stopped; tick++) {
    const int about = (int)(*tick >> TICK_BITS);
    double after;
    switch ((TickKind)(*tick & ((1 << TICK_BITS) - 1))) {
    case TICK_RANK:
      r->stopped = waited > rank->may_wait;
      rank->now = now, rank->waited = waited;
      r->reads = about;
      rank = &r->rank[about];
      now = rank->now, waited = rank->waited;
      break;
    case TICK_WAIT:
      after = later(now, value[about]);
      waited += after - now;
      now = after;
      break;
    case TICK_MEET: now = later(now, value[about]); break;
    case TICK_PASS: now += rank->passes ? pass_seconds(r, about) : r->pass[about]; break;
    case TICK_UPDATE: now += r->times[about].update; break;
    case TICK_READY: value[about] = now; break;
    case TICK_SENT: value[about] = later(value[about], now) + r->times[about >> (r->layout->ring_bits + 1)].send; break;
    case TICK_GATHER: value[about] = later(value[about], now); break;
    case TICK_FOLLOW: value[about] = later(value[about], value[about - 1]); break;
    case TICK_REDUCE: value[about] += exchange_seconds(r, about); break;
    case TICK_BEGIN: rank->began = now; break;
    case TICK_END:
      rank->now = now;
      end_batch(r, rank);
      break;
    }
  }
  rank->now = now, rank->waited = waited;
  r->stopped |= waited > rank->may_wait;
}

void reader_go_on(Reader *r, const Tape *t) {
  if (!r->at)
    r->at = t->first;
  while (r->at && !r->stopped) {
    const Reel *c = r->at;
    read_reel(r, c->tick + r->tick, c->tick + c->n);
    r->tick = c->n;
    if (!c->next)
      return;
    r->at = c->next, r->tick = 0;
  }
}
