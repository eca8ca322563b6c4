/* Comparison of schedules: a table, and a hint. */
#include "optimizers/optimizer.h"
#include "plan/answer.h"

#include <string.h>

const ComparedKind compared_kinds[N_COMPARED] = {
    {.label = "sequential (naive)", .schedule = "sequential"},
    {.label = "data parallel", .schedule = "flush", .replicas_alone = true},
    {.label = "gpipe", .schedule = "gpipe"},
    {.label = "flush (PipeDream-Flush)", .schedule = "flush"},
    {.label = "interleaved", .schedule = "interleaved"},
    {.label = "zb_h1", .schedule = "zb_h1"},
    {.label = "pipedream", .schedule = "pipedream"},
    {.label = "2bw (PipeDream-2BW)", .schedule = "2bw"}};

/* Slow to plan with hundreds of ranks: the search lays out and simulates that many stages. */
static bool takes_long(const char *schedule) {
  ScheduleTraits traits = schedule_traits(schedule);
  return traits.serial || traits.every_round || !traits.replicas;
}

static ComparedSchedule compare_one(const Graph *g, const Pieces *p, const PlanRequest *request, int i) {
  PlanRequest q = *request;
  q.plan = NULL;
  if (compared_kinds[i].replicas_alone)
    q.stages = 1;
  ComparedSchedule row = {.label = compared_kinds[i].label};
  const Plan *plan = row.plan = try_schedule(g, p, q, compared_kinds[i].schedule, &row.why);
  if (!plan) {
    row.why = row.why ? row.why : "no plan";
    return row;
  }
  row.peak_bytes = largest_peak(plan);
  row.critical = plan_critical(plan);
  for (int part = 0; part < plan_parts(plan); part++)
    row.recomputes |= part_recomputes(plan, part);
  return row;
}

bool plan_comparison(const Graph *g, const Pieces *p, const PlanRequest *request, bool quick,
                     ComparedSchedule rows[N_COMPARED]) {
  double best = 0;
  for (int i = 0; i < N_COMPARED; i++) {
    if (quick && takes_long(compared_kinds[i].schedule))
      rows[i] = (ComparedSchedule){.label = compared_kinds[i].label,
                                   .why = "left out: planning takes too long with this many ranks"};
    else
      rows[i] = compare_one(g, p, request, i);
    double seconds = rows[i].plan ? rows[i].plan->batch_seconds : 0;
    best = seconds > 0 && (best <= 0 || seconds < best) ? seconds : best;
  }
  for (int i = 0; i < N_COMPARED; i++)
    if (rows[i].plan)
      rows[i].times = rows[i].plan->batch_seconds / best;
  return best > 0;
}

/* The best of the quickly planned schedules with the chosen delay, or one update more; NULL: not worth a hint. */
static const Plan *worth_a_hint(const Graph *g, const Pieces *p, const PlanRequest *request, const Plan *plan) {
  const Plan *best = plan;
  PlanRequest brief = *request;
  brief.brief = true;
  int n;
  const char *const *name = schedule_names(&n);
  for (int i = 0; i < n; i++) {
    if (!delay_allows(DELAY_ONE, name[i]) || schedule_traits(name[i]).serial ||
        !strcmp(name[i], plan->pipeline.schedule) || (takes_long(name[i]) && request->workers > FEW_WORKERS))
      continue;
    const Plan *other = try_schedule(g, p, brief, name[i], NULL);
    if (other && other->batch_seconds < best->batch_seconds)
      best = other;
  }
  return best->batch_seconds <= WORTH_HINT * plan->batch_seconds ? best : NULL;
}

void plan_delay_hint(const Graph *g, const Plan *plan, FILE *out) {
  const Train *t = &g->train;
  const ScheduleTraits traits = schedule_traits(plan->pipeline.schedule);
  const bool said = t->correction_span.line > 0, late = !traits.drains && !traits.forward_only;
  const DelayCorrection *c = &t->optimizer->correction;
  if (g->inference || said || !late || !keeps_momentum(t) || (c->ahead == 0 && c->damping == 0))
    return;
  fprintf(
      out,
      "hint: '%s' computes gradients with old weights; 'delay_correction = auto;' in 'train %s' corrects updates for "
      "that ('none' hides this hint)\n",
      plan->pipeline.schedule, g->name);
}

void plan_hint(const Graph *g, const Pieces *p, const PlanRequest *request, const Plan *plan, FILE *out) {
  if (g->inference || request->plan || schedule_open(g, request) || request->workers > MOST_HINT_WORKERS ||
      p->n > MOST_HINT_PIECES)
    return;
  const Plan *other = worth_a_hint(g, p, request, plan);
  if (!other)
    return;
  bool older = schedule_traits(other->pipeline.schedule).two_versions &&
               !schedule_traits(plan->pipeline.schedule).two_versions;
  fprintf(out, "hint: '--schedule %s' takes %.2f ms per batch, %.1f %% less%s ('--compare' shows all schedules)\n",
          other->pipeline.schedule, other->batch_seconds * 1e3,
          (1 - other->batch_seconds / plan->batch_seconds) * 100, older ? ", with weights one update old" : "");
}

static void print_row(const ComparedSchedule *row, FILE *out) {
  const Plan *plan = row->plan;
  if (!plan) {
    fprintf(out, "%-26s  %s\n", row->label, row->why);
    return;
  }
  fprintf(out, "%-26s  %10.2f  %6.2f  %10lld  %9s  %9s  %5.1f %%  %-30s  %s\n", row->label,
          plan->batch_seconds * 1e3, row->times, (long long)plan->pipeline.microbatch,
          row->recomputes ? "yes" : "no", bytes_text(row->peak_bytes), plan_waiting(plan) * 100,
          critical_text(row->critical), replicas_text(&plan->pipeline));
}

/* --compare plans all schedules, so the request may not fix one. */
static bool may_compare(const Graph *g, const PlanRequest *request) {
  const char *option = request->schedule ? "--schedule"
                       : request->plan   ? "--plan"
                       : request->delay  ? "--delay"
                                         : NULL;
  if (!option && !g->inference)
    return true;
  Diagnostic *d =
      error_at(NO_SPAN, "PD0511", "--compare plans all training schedules and cannot be combined with '%s'",
               option ? option : "--infer");
  help(d, "leave one of them out");
  return false;
}

bool plan_compare(const Graph *g, const Pieces *p, const PlanRequest *request, FILE *out) {
  if (!may_compare(g, request))
    return false;
  ComparedSchedule rows[N_COMPARED];
  bool found = plan_comparison(g, p, request, false, rows);
  fprintf(out, "%-26s  %10s  %6s  %10s  %9s  %9s  %7s  %-30s  %s\n", g->name, "ms a batch", "times", "microbatch",
          "recompute", "memory", "waiting", "critical resource", "ranks by stage");
  for (int i = 0; i < N_COMPARED; i++)
    print_row(&rows[i], out);
  for (int i = 0; i < N_COMPARED; i++)
    if (rows[i].plan) { /* equal for all plans, except the used part of a cluster */
      fprintf(out, "\n%s\n", plan_device_text(rows[i].plan));
      break;
    }
  return found;
}
