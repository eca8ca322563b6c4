/* What a schedule takes, from running it. */
#include "schedule/program.h"

typedef struct Updates {
  int64_t from, to;    /* batches whose updates are timed, at stage 0 */
  double from_time, to_time;
} Updates;

static void time_update(void *context, const Event *e) {
  Updates *u = context;
  if (e->stage != 0 || e->step.action != DO_UPDATE)
    return;
  if (e->step.number == u->from)
    u->from_time = e->end;
  if (e->step.number == u->to)
    u->to_time = e->end;
}

/* The pipeline is full after 2 n_0 microbatches and starts to empty n_0 before the end. */
double simulate_schedule(const Program *programs, const StageTimes *times, int n_stages) {
  enum { TIMED = 4 };
  int64_t filled = 2 + 2 * programs->in_flight / programs->period;
  Updates u = {.from = filled, .to = filled + TIMED};
  char *why = NULL;
  if (!run_schedule(programs, times, n_stages, u.to + filled, time_update, &u, &why))
    BUG("schedule: %s", why);
  return (u.to_time - u.from_time) / TIMED;
}
