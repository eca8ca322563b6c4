/* Layer profiles under every schedule: the fastest one if the request leaves it open, and a comparison. */
#include <string.h>

#include "pipedream/pipedream.h"
#include "schedule/program.h"

/* Ratio within which plans count as equal: the error of predictions. */
static const double AS_FAST = 1.005;

static int64_t fullest_rank(const Plan *plan) {
  int64_t most = 0;
  for (int i = 0; i < plan_parts(plan); i++)
    most = plan->stage[i].peak_bytes > most ? plan->stage[i].peak_bytes : most;
  return most;
}

/* The best plan under a schedule, without diagnostics; NULL with the first error in *why. */
static const Plan *try_schedule(const LayersJob *job, const char *schedule, bool data_parallel, const char **why) {
  PlanRequest q = *job->request;
  LayerPlans plans;
  q.schedule = schedule;
  q.delay = DELAY_FREE;
  q.stages = data_parallel ? 1 : q.stages;
  if (q.recompute == RECOMPUTE_ON && !schedule_traits(schedule).recomputes)
    q.recompute = RECOMPUTE_AUTO;
  int mark = diagnostics_mark();
  bool found = layer_plans_make(job->profile, &q, job->cluster, job->microbatches, NULL, &plans);
  *why = diagnostics_forget(mark);
  return found ? plans.own.plan : NULL;
}

const char *layers_fastest_schedule(const LayersJob *job) {
  const char *best = NULL;
  const Plan *fastest = NULL;
  int n;
  const char *const *name = schedule_names(&n);
  for (int i = 0; i < n; i++) {
    const char *why;
    const Plan *plan = delay_allows(job->request->delay, name[i]) ? try_schedule(job, name[i], false, &why) : NULL;
    if (!plan)
      continue;
    bool close = fastest && plan_pace(plan) <= AS_FAST * plan_pace(fastest) &&
                 AS_FAST * plan_pace(plan) >= plan_pace(fastest);
    if (!fastest || (close ? fullest_rank(plan) <= fullest_rank(fastest) : plan_pace(plan) < plan_pace(fastest)))
      fastest = plan, best = name[i];
  }
  return best ? best : "flush"; /* it needs least memory; its diagnostics explain why nothing fits */
}

/* ---- the table -------------------------------------------------------------------------------------------- */

static void add_row(const char *label, const Plan *plan, double fastest, Grid *grid) {
  const Pipeline *p = &plan->pipeline;
  Text ranks = {0};
  bool recomputes = false;
  for (int i = 0; i < p->n_stages; i++) {
    text_add(&ranks, "%s%d", i ? "," : "", p->replicas[i]);
  }
  for (int i = 0; i < plan_parts(plan); i++)
    recomputes |= part_recomputes(plan, i);
  push(&grid->cells, label);
  push(&grid->cells, ms(plan_pace(plan)));
  push(&grid->cells, format("%.2f", plan_pace(plan) / fastest));
  push(&grid->cells, format("%lld", (long long)p->microbatches));
  push(&grid->cells, recomputes ? "yes" : "no");
  push(&grid->cells, bytes_text(fullest_rank(plan)));
  push(&grid->cells, format("%.1f %%", plan_waiting(plan) * 100));
  push(&grid->cells, critical_text(plan_critical(plan)));
  push(&grid->cells, ranks.at);
}

/* Reasons for missing plans go below the table, where they have room. */
bool layers_compare(const LayersJob *job, FILE *out) {
  static const char *const heads[] = {"schedule",     "ms a microbatch",   "times",
                                      "microbatches", "recompute",         "memory",
                                      "waiting",      "critical resource", "ranks by stage"};
  const int columns = sizeof heads / sizeof *heads;
  const Plan *plan[N_COMPARED];
  const char *why[N_COMPARED];
  double fastest = 0;
  Grid grid = {.columns = columns, .left = 0};
  for (int i = 0; i < columns; i++)
    push(&grid.cells, heads[i]);
  for (int i = 0; i < N_COMPARED; i++) {
    const ComparedKind *kind = &compared_kinds[i];
    plan[i] = try_schedule(job, kind->schedule, kind->replicas_alone, &why[i]);
    if (plan[i] && (fastest <= 0 || plan_pace(plan[i]) < fastest))
      fastest = plan_pace(plan[i]);
  }
  for (int i = 0; i < N_COMPARED; i++)
    if (plan[i])
      add_row(compared_kinds[i].label, plan[i], fastest, &grid);
  fprintf(out, "%s: %s\n\n", job->profile->graph->name, machines_text(job->cluster));
  print_grid(&grid, out);
  for (int i = 0; i < N_COMPARED; i++)
    if (!plan[i])
      fprintf(out, "%s: %s\n", compared_kinds[i].label, why[i] ? why[i] : "no plan");
  return fastest > 0;
}
