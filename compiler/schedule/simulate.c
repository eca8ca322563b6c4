/* What a schedule takes, from running it. */
#include "schedule/program.h"

typedef struct Updates {
  int64_t from, to; /* batches whose updates are timed, at stage 0 */
  double from_time, to_time;
} Updates;

static void time_update(void *context, const Event *e) {
  Updates *u = context;
  if (e->stage != 0 || e->replica != 0 || e->step.action != DO_UPDATE)
    return;
  if (e->step.number == u->from)
    u->from_time = e->end;
  if (e->step.number == u->to)
    u->to_time = e->end;
}

/* The mean of at least four batches and `microbatches`. The pipeline is full after twice the turns that stage 0
 * has in flight, and starts to empty as many before the end. */
static double mean_seconds(const Program *programs, const StageTimes *times, int n_stages, int64_t microbatches) {
  enum { LEAST_TIMED = 4 };
  int64_t timed = (microbatches + programs->period - 1) / programs->period;
  timed = timed > LEAST_TIMED ? timed : LEAST_TIMED;
  int64_t filled = 2 + 2 * (programs->in_flight + programs->lag) / program_turns(programs);
  Updates u = {.from = filled, .to = filled + timed};
  char *why = NULL;
  if (!run_schedule(programs, times, n_stages, u.to + filled, time_update, &u, &why))
    BUG("schedule: %s", why);
  return (u.to_time - u.from_time) / (double)timed;
}

double simulate_schedule(const Program *programs, const StageTimes *times, int n_stages) {
  enum { SEVERAL_ROUNDS = 48 }; /* of replicas: where they take turns no update follows as the one before did */
  return mean_seconds(programs, times, n_stages, SEVERAL_ROUNDS);
}

double simulate_schedule_jitter(const Program *programs, const StageTimes *times, int n_stages, double jitter) {
  enum { ENOUGH_FOR_A_MEAN = 256 };
  StageTimes *varied = alloc_copy(times, (size_t)n_stages * sizeof *times);
  for (int i = 0; i < n_stages; i++)
    varied[i].jitter = jitter;
  return mean_seconds(programs, varied, n_stages, ENOUGH_FOR_A_MEAN);
}

void schedule_idle(const Program *programs, const StageTimes *times, int n_stages, double batch_seconds,
                   double *idle) {
  for (int i = 0; i < n_stages; i++) {
    const Program *p = &programs[i];
    const StageTimes *t = &times[i];
    double turn = t->forward + t->backward;
    if (program_recomputes(p))
      turn += t->recompute;
    if (p->split_backward)
      turn += t->weights;
    idle[i] = batch_seconds > 0 ? 1 - ((double)program_turns(p) * turn + t->update) / batch_seconds : 0;
  }
}
