/* What a schedule takes, from timing a run of it. */
#include <math.h>

#include "schedule/timing.h"

/* When batches end. A run that goes on by equal times, for all ranks alike and two batches in turn, is steady. */
typedef struct Ends {
  int n_ranks;
  const int *first; /* by stage: its first rank */
  int rank;         /* whose ends are timed */
  int64_t from, to; /* between the ends of these batches */
  bool may_stop;    /* as soon as the state is steady */
  int *ended;       /* by batch: ranks that have */
  double *at;       /* by batch and rank */
  double interval;  /* of the steady state; 0: not yet */
} Ends;

static double end_of(const Ends *e, int64_t batch, int rank) { return e->at[batch * e->n_ranks + rank]; }

/* Of one batch by all ranks, or 0. */
static double common_interval(const Ends *e, int64_t batch) {
  double interval = end_of(e, batch, 0) - end_of(e, batch - 1, 0), most = 1e-9 * end_of(e, batch, 0);
  for (int i = 1; i < e->n_ranks; i++)
    if (fabs(end_of(e, batch, i) - end_of(e, batch - 1, i) - interval) > most)
      return 0;
  return interval;
}

static bool time_end(void *context, int stage, int replica, int64_t batch, double seconds) {
  enum { FIRST = 3 }; /* that may show it: the batch before all others fills the pipeline */
  Ends *e = context;
  if (batch > e->to)
    return true;
  e->at[batch * e->n_ranks + e->first[stage] + replica] = seconds;
  if (++e->ended[batch] < e->n_ranks || !e->may_stop || batch < FIRST)
    return true;
  double interval = common_interval(e, batch), before = common_interval(e, batch - 1);
  if (interval > 0 && before > 0 && fabs(interval - before) <= 1e-9 * seconds)
    e->interval = interval;
  return e->interval <= 0;
}

/* Where a number divides the replicas of all stages, the ranks are so many sets that never send each other messages, in step
 * with each other: to time one of them is enough. */
struct Simulation {
  const Program *programs; /* of all ranks */
  const Program *one;      /* of a set of them */
  int sets;
  int n_stages;
  Arena *arena;
  Run *batch, *several; /* NULL: not yet */
};

/* Batches until the pipeline is full, for it has that many before those that are timed and behind them. It is full after twice
 * the turns that stage 0 has in flight, and starts to empty as many before the end. Without backward passes nothing holds
 * stage 0 up at first: the last stage has the pace of the slowest as soon as microbatches have come through all. */
static int64_t batches_to_fill(const Simulation *s) {
  const Program *programs = s->programs;
  int64_t turns = programs->forward_only ? s->n_stages : programs->in_flight + programs->lag;
  return programs->per_batch ? 1 : 2 + 2 * turns / program_turns(programs);
}

/* At least four, and with so many microbatches. */
static int64_t batches_to_time(const Simulation *s, int64_t microbatches) {
  enum { LEAST_TIMED = 4 };
  int64_t timed = (microbatches + s->programs->period - 1) / s->programs->period;
  return timed > LEAST_TIMED ? timed : LEAST_TIMED;
}

static Run *run_of(const Simulation *s, int64_t batches) {
  Arena *before = arena_use(s->arena);
  Run *run = run_new(s->one, s->n_stages, s->sets, batches);
  arena_use(before);
  return run;
}

/* Their mean. */
static double mean_seconds(Simulation *s, const StageTimes *times, int64_t microbatches, bool may_stop) {
  const Program *programs = s->programs;
  const int n_stages = s->n_stages;
  const int64_t filled = batches_to_fill(s), timed = batches_to_time(s, microbatches), all = timed + 2 * filled;
  if (!s->several)
    s->several = run_of(s, all);
  ArenaMark mark = arena_mark();
  int *first = alloc((size_t)(n_stages + 1) * sizeof *first);
  for (int i = 0; i < n_stages; i++)
    first[i + 1] = first[i] + s->one[i].replicas;
  const int timed_at = programs->forward_only ? n_stages - 1 : 0;
  Ends e = {.n_ranks = first[n_stages], .first = first, .rank = first[timed_at], .may_stop = may_stop};
  e.from = filled, e.to = filled + timed;
  e.ended = alloc((size_t)(e.to + 1) * sizeof *e.ended);
  e.at = alloc((size_t)(e.to + 1) * (size_t)e.n_ranks * sizeof *e.at);
  char *why = NULL;
  if (!time_batches(s->several, times, time_end, &e))
    BUG("schedule: %s", run_schedule(programs, times, n_stages, all, NULL, NULL, &why) ? "" : why);
  double seconds =
      e.interval > 0 ? e.interval : (end_of(&e, e.to, e.rank) - end_of(&e, e.from, e.rank)) / (double)timed;
  arena_release(mark);
  return seconds;
}

static double drained_seconds(Simulation *s, const StageTimes *times, double most) {
  if (!s->batch)
    s->batch = run_of(s, 1);
  ArenaMark mark = arena_mark();
  double seconds = time_drained(s->batch, times, most);
  arena_release(mark);
  return seconds;
}

/* Of all ranks as one set. */
static Simulation simulation(const Program *programs, int n_stages) {
  Simulation s = {
      .programs = programs, .one = programs, .sets = 1, .n_stages = n_stages, .arena = arena_use(NULL)};
  arena_use(s.arena);
  return s;
}

static Simulation simulation_of_sets(const Program *programs, int n_stages) {
  Simulation s = simulation(programs, n_stages);
  s.sets = programs_sets(programs, n_stages);
  if (s.sets > 1)
    s.one = programs_of_set(programs, n_stages, s.sets);
  return s;
}

Simulation *simulation_new(const Program *programs, int n_stages) {
  Simulation s = simulation_of_sets(programs, n_stages);
  return alloc_copy(&s, sizeof s);
}

int64_t simulation_bytes(const Simulation *s) {
  return (s->batch ? run_bytes(s->batch) : 0) + (s->several ? run_bytes(s->several) : 0);
}

/* Of very short batches on replicas no update follows as the one before did: their mean is taken over several rounds. */
double simulate(Simulation *s, const StageTimes *times, double most) {
  enum { SEVERAL_ROUNDS = 48, LONG = 16 };
  double drained = s->programs->per_batch ? drained_seconds(s, times, most) : 0;
  if (drained > 0)
    return drained;
  bool may_stop = s->programs->per_batch || s->programs->period >= LONG;
  return mean_seconds(s, times, SEVERAL_ROUNDS, may_stop);
}

double simulate_schedule(const Program *programs, const StageTimes *times, int n_stages, double most) {
  ArenaMark mark = arena_mark();
  Simulation s = simulation_of_sets(programs, n_stages);
  double seconds = simulate(&s, times, most);
  arena_release(mark);
  return seconds;
}

double simulate_schedule_jitter(const Program *programs, const StageTimes *times, int n_stages, double jitter) {
  enum { ENOUGH_FOR_A_MEAN = 256 };
  const int parts = programs->parts;
  ArenaMark mark = arena_mark();
  StageTimes *varied = alloc_copy(times, (size_t)parts * sizeof *times);
  for (int i = 0; i < n_stages; i++)
    varied[programs[i].part].jitter = jitter;
  Simulation s = simulation(programs, n_stages);
  double seconds = mean_seconds(&s, varied, ENOUGH_FOR_A_MEAN, false);
  arena_release(mark);
  return seconds;
}

void schedule_idle(const Program *programs, const StageTimes *times, int n_stages, double batch_seconds,
                   double *idle) {
  for (int i = 0; i < n_stages; i++) {
    const Program *p = &programs[i];
    double busy = 0;
    for (int c = 0; c < p->chunks; c++) {
      const StageTimes *t = &times[program_part(p, c)];
      busy += t->forward + t->backward + (program_recomputes_chunk(p, c) ? t->recompute : 0) +
              (p->split_backward ? t->weights : 0);
    }
    busy *= (double)program_turns(p) / p->chunks;
    idle[i] = batch_seconds > 0 ? 1 - (busy + times[p->part].update) / batch_seconds : 0;
  }
}
