/* What a schedule takes, from running it. */
#include "schedule/program.h"

typedef struct Ends {
  const Program *program; /* of the stage whose first rank is timed */
  int64_t from, to;       /* batches whose ends are */
  double from_time, to_time;
} Ends;

/* The batch that the step ends: by its update or, where there are none, by sending the rank's last microbatch of
 * it; else -1. */
static int64_t batch_ended(const Program *p, Step step) {
  if (step.action == DO_UPDATE)
    return step.number;
  bool last = (step.number - 1) % p->period == p->period - p->replicas;
  return p->forward_only && step.action == DO_SEND && last ? (step.number - 1) / p->period : -1;
}

static void time_end(void *context, const Event *e) {
  Ends *ends = context;
  if (e->stage != ends->program->stage || e->replica != 0)
    return;
  int64_t batch = batch_ended(ends->program, e->step);
  if (batch == ends->from)
    ends->from_time = e->end;
  if (batch == ends->to)
    ends->to_time = e->end;
}

/* The mean of at least four batches and `microbatches`. The pipeline is full after twice the turns that stage 0
 * has in flight, and starts to empty as many before the end. Without backward passes nothing holds stage 0 up at
 * first: the last stage has the pace of the slowest as soon as microbatches have come through all. */
static double mean_seconds(const Program *programs, const StageTimes *times, int n_stages, int64_t microbatches) {
  enum { LEAST_TIMED = 4 };
  int64_t timed = (microbatches + programs->period - 1) / programs->period;
  timed = timed > LEAST_TIMED ? timed : LEAST_TIMED;
  const Program *timed_at = programs->forward_only ? &programs[n_stages - 1] : programs;
  int64_t turns = programs->forward_only ? n_stages : programs->in_flight + programs->lag;
  int64_t filled = 2 + 2 * turns / program_turns(programs);
  Ends ends = {.program = timed_at, .from = filled, .to = filled + timed};
  char *why = NULL;
  if (!run_schedule(programs, times, n_stages, ends.to + filled, time_end, &ends, &why))
    BUG("schedule: %s", why);
  return (ends.to_time - ends.from_time) / (double)timed;
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
