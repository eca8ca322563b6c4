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

/* The mean of at least four batches and `microbatches`. The pipeline is full after twice the turns that stage 0
 * has in flight, and starts to empty as many before the end. Without backward passes nothing holds stage 0 up at
 * first: the last stage has the pace of the slowest as soon as microbatches have come through all. */
static double mean_seconds(const Program *programs, const StageTimes *times, int n_stages, int64_t microbatches,
                           bool may_stop) {
  enum { LEAST_TIMED = 4 };
  ArenaMark mark = arena_mark();
  int64_t timed = (microbatches + programs->period - 1) / programs->period;
  timed = timed > LEAST_TIMED ? timed : LEAST_TIMED;
  int timed_at = programs->forward_only ? n_stages - 1 : 0;
  int64_t turns = programs->forward_only ? n_stages : programs->in_flight + programs->lag;
  int64_t filled = programs->per_batch ? 1 : 2 + 2 * turns / program_turns(programs);
  int *first = alloc((size_t)(n_stages + 1) * sizeof *first);
  for (int i = 0; i < n_stages; i++)
    first[i + 1] = first[i] + programs[i].replicas;
  Ends e = {.n_ranks = first[n_stages], .first = first, .rank = first[timed_at], .may_stop = may_stop};
  e.from = filled, e.to = filled + timed;
  e.ended = alloc((size_t)(e.to + 1) * sizeof *e.ended);
  e.at = alloc((size_t)(e.to + 1) * (size_t)e.n_ranks * sizeof *e.at);
  char *why = NULL;
  if (!time_batches(programs, times, n_stages, e.to + filled, time_end, &e))
    BUG("schedule: %s", run_schedule(programs, times, n_stages, e.to + filled, NULL, NULL, &why) ? "" : why);
  double seconds =
      e.interval > 0 ? e.interval : (end_of(&e, e.to, e.rank) - end_of(&e, e.from, e.rank)) / (double)timed;
  arena_release(mark);
  return seconds;
}

static double drained_seconds(const Program *programs, const StageTimes *times, int n_stages, double most) {
  ArenaMark mark = arena_mark();
  double seconds = time_drained(programs, times, n_stages, most);
  arena_release(mark);
  return seconds;
}

/* Of very short batches on replicas no update follows as the one before did: their mean is taken over several rounds. */
double simulate_schedule(const Program *programs, const StageTimes *times, int n_stages, double most) {
  enum { SEVERAL_ROUNDS = 48, LONG = 16 };
  double drained = programs->per_batch ? drained_seconds(programs, times, n_stages, most) : 0;
  if (drained > 0)
    return drained;
  bool may_stop = programs->per_batch || programs->period >= LONG;
  return mean_seconds(programs, times, n_stages, SEVERAL_ROUNDS, may_stop);
}

double simulate_schedule_jitter(const Program *programs, const StageTimes *times, int n_stages, double jitter) {
  enum { ENOUGH_FOR_A_MEAN = 256 };
  int parts = n_stages * programs->chunks;
  StageTimes *varied = alloc_copy(times, (size_t)parts * sizeof *times);
  for (int i = 0; i < n_stages; i++)
    varied[i].jitter = jitter;
  return mean_seconds(programs, varied, n_stages, ENOUGH_FOR_A_MEAN, false);
}

void schedule_idle(const Program *programs, const StageTimes *times, int n_stages, double batch_seconds,
                   double *idle) {
  for (int i = 0; i < n_stages; i++) {
    const Program *p = &programs[i];
    double busy = 0;
    for (int c = 0; c < p->chunks; c++) {
      const StageTimes *t = &times[part_of(n_stages, i, c)];
      busy += t->forward + t->backward + (program_recomputes(p) ? t->recompute : 0) +
              (p->split_backward ? t->weights : 0);
    }
    busy *= (double)program_turns(p) / p->chunks;
    idle[i] = batch_seconds > 0 ? 1 - (busy + times[i].update) / batch_seconds : 0;
  }
}
