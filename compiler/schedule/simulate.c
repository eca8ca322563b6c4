/* What a schedule takes, from timing a run of it. */
#include <math.h>

#include "schedule/timing.h"

enum { STEADY = 3 }; /* ends of batches that follow at equal times show the steady state */

typedef struct Ends {
  int stage;           /* whose first rank is timed */
  int64_t from, to;    /* batches whose ends are */
  bool may_stop;       /* as soon as the state is steady */
  double first;        /* when batch `from` ended */
  double last[STEADY]; /* of the batches since: their ends, the latest at [0] */
  int64_t ended;       /* batches since, with `from` itself */
} Ends;

static bool is_steady(const Ends *ends) {
  double interval = ends->last[0] - ends->last[1], before = ends->last[1] - ends->last[2];
  return ends->ended >= STEADY && fabs(interval - before) <= 1e-9 * fabs(ends->last[0]);
}

static bool time_end(void *context, int stage, int replica, int64_t batch, double seconds) {
  Ends *ends = context;
  if (stage != ends->stage || replica != 0 || batch < ends->from || batch > ends->to)
    return true;
  for (int i = STEADY - 1; i > 0; i--)
    ends->last[i] = ends->last[i - 1];
  ends->last[0] = seconds;
  ends->first = ends->ended++ == 0 ? seconds : ends->first;
  return !(ends->may_stop && is_steady(ends));
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
  Ends ends = {.stage = timed_at, .from = filled, .to = filled + timed, .may_stop = may_stop};
  char *why = NULL;
  if (!time_batches(programs, times, n_stages, ends.to + filled, time_end, &ends))
    BUG("schedule: %s", run_schedule(programs, times, n_stages, ends.to + filled, NULL, NULL, &why) ? "" : why);
  arena_release(mark);
  bool steady = may_stop && is_steady(&ends);
  return steady ? ends.last[0] - ends.last[1] : (ends.last[0] - ends.first) / (double)timed;
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
