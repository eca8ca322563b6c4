/* Predicts the time of a schedule from a timed run. */
#include <math.h>

#include "schedule/timing.h"

/* End times of batches. A run is steady once two consecutive intervals are equal for all ranks. */
typedef struct Ends {
  int n_ranks;
  const int *first; /* by stage: its first rank */
  int rank;         /* the rank to time */
  int64_t from, to; /* the interval between the ends of these batches */
  bool may_stop;    /* as soon as the run is steady */
  int *ended;       /* by batch: ranks that have ended it */
  double *at;       /* by batch and rank */
  double interval;  /* of the steady state; 0: not steady yet */
} Ends;

static double end_of(const Ends *e, int64_t batch, int rank) { return e->at[batch * e->n_ranks + rank]; }

/* The common interval of a batch on all ranks, or 0. */
static double common_interval(const Ends *e, int64_t batch) {
  double interval = end_of(e, batch, 0) - end_of(e, batch - 1, 0), most = 1e-9 * end_of(e, batch, 0);
  for (int i = 1; i < e->n_ranks; i++)
    if (fabs(end_of(e, batch, i) - end_of(e, batch - 1, i) - interval) > most)
      return 0;
  return interval;
}

static bool time_end(void *context, int stage, int replica, int64_t batch, double seconds) {
  enum { FIRST = 3 }; /* the first batch that may be steady: earlier ones fill the pipeline */
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

/* If a number divides the replicas of all stages, the ranks form that many sets. Sets exchange no messages and run
 * in step, so timing one set suffices. */
struct Simulation {
  const Program *programs; /* for all ranks */
  const Program *one;      /* for one set */
  int sets;
  int n_stages;
  Arena *arena;
  Run *batch, *several; /* NULL: not created yet */
};

/* Batches that fill the pipeline; the run has that many before and after the timed batches. The pipeline is full
 * after twice the turns in flight of stage 0, and starts to drain the same number before the end. Without backward
 * passes stage 0 is never held up at first: the last stage reaches the slowest stage's pace once microbatches have
 * passed all stages. */
static int64_t batches_to_fill(const Simulation *s) {
  const Program *programs = s->programs;
  int64_t turns = programs->forward_only ? s->n_stages : programs->in_flight + programs->lag;
  return programs->per_batch ? 1 : 2 + 2 * turns / program_turns(programs);
}

/* At least four, with at least this many microbatches. */
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

/* Very short batches on replicas have no steady interval, so several rounds are averaged. */
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
