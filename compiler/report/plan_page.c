/* Page data for a plan without a run: the output of `pdc plan`, extended. */
#include "report/report.h"

#include "schedule/program.h"

/* Above MOST_ROWS ranks the timeline has a row per stage. Above MOST_COMPARED ranks the page does not compare all
 * schedules. */
enum { MOST_ROWS = 64, MOST_COMPARED = 8 };

/* ---- the plan and the runners-up ---------------------------------------------------------------- */

static int64_t fullest(const Plan *plan) {
  int64_t most = 0;
  for (int i = 0; i < plan_parts(plan); i++)
    most = plan->stage[i].peak_bytes > most ? plan->stage[i].peak_bytes : most;
  return most;
}

static void add_numbers(Text *out, const char *name, const int *number, int n) {
  text_add(out, ",\"%s\":[", name);
  for (int i = 0; i < n; i++)
    text_add(out, "%s%d", i ? "," : "", number[i]);
  text_add(out, "]");
}

static void add_runner_up(const PlanPage *page, const Plan *plan, Text *out) {
  const Pipeline *l = &plan->pipeline;
  text_add(out, "{\"seconds\":");
  json_double(out, plan->batch_seconds);
  text_add(out, ",\"microbatch\":%lld,\"peak_bytes\":%lld", (long long)l->microbatch, (long long)fullest(plan));
  add_numbers(out, "replicas", l->replicas, l->n_stages);
  Ints again = {0};
  for (int i = 0; i < l->n_stages; i++)
    if (part_recomputes(plan, plan_part_of(plan, i, 0)))
      push(&again, i);
  add_numbers(out, "recompute", again.at, again.n);
  text_add(out, ",\"cuts\":[");
  for (int i = 1; i < plan_parts(plan); i++) {
    text_add(out, i > 1 ? "," : "");
    json_string(out, page->p->at[plan->stage[i].first_piece].name);
  }
  text_add(out, "]}");
}

static void add_plans(const PlanPage *page, Text *out) {
  const Plan *plan = page->plan;
  text_add(out, "\"plan\":%s,\n\"waiting\":%.6f,\"pinned\":%s,\"tokens_per_sample\":%lld,\n\"runners_up\":[",
           plan_json(page->g, page->p, plan), plan_waiting(plan), page->request->plan ? "true" : "false",
           (long long)graph_tokens_per_sample(page->g));
  const char *between = "";
  for (int i = 0; i < page->n_runners_up; i++) {
    if (!page->runners_up[i])
      continue;
    text_add(out, "%s", between);
    add_runner_up(page, page->runners_up[i], out);
    between = ",\n";
  }
  text_add(out, "]");
}

/* ---- the timeline ------------------------------------------------------------------------------- */

/* By stage: the maximum of microbatches between forward and backward on one rank. */
static void add_in_flight(const PlanPage *page, Text *out) {
  const Pipeline *l = &page->plan->pipeline;
  const Program *programs = schedule(l, plan_exchanges(page->g, page->p, page->plan), NO_SPAN);
  int *in_flight = alloc((size_t)l->n_stages * sizeof *in_flight);
  for (int i = 0; programs && i < l->n_stages; i++)
    in_flight[i] = (int)programs[i].in_flight;
  add_numbers(out, "in_flight", in_flight, programs ? l->n_stages : 0);
}

static void add_timeline(const PlanPage *page, Text *out) {
  const Pipeline *l = &page->plan->pipeline;
  bool first_replicas = pipeline_ranks(l) > MOST_ROWS && l->n_stages < pipeline_ranks(l);
  const char *why = NULL;
  const Timeline *t = predict_plan(page->g, page->p, page->plan, first_replicas, &why);
  add_in_flight(page, out);
  text_add(out, ",\n\"first_replicas\":%s,\n\"%s\":", first_replicas ? "true" : "false",
           t ? "predicted" : "unpredicted");
  if (t)
    timeline_json(t, out);
  else
    json_string(out, why ? why : "its schedule cannot be run");
}

/* ---- comparison of schedules -------------------------------------------------------------------- */

PlanRequest plan_anew(const PlanPage *page) {
  PlanRequest q = *page->request;
  if (!q.plan)
    return q;
  q.plan = NULL;
  q.workers = pipeline_ranks(&page->plan->pipeline);
  return q;
}

static void add_schedule(const ComparedSchedule *row, Text *out) {
  text_add(out, "{\"label\":");
  json_string(out, row->label);
  if (!row->plan) {
    text_add(out, ",\"why\":");
    json_string(out, row->why);
    text_add(out, "}");
    return;
  }
  const Pipeline *l = &row->plan->pipeline;
  text_add(out, ",\"seconds\":");
  json_double(out, row->plan->batch_seconds);
  text_add(out, ",\"times\":%.6f,\"microbatch\":%lld,\"recompute\":%s,\"peak_bytes\":%lld,\"waiting\":%.6f",
           row->times, (long long)l->microbatch, row->recomputes ? "true" : "false", (long long)row->peak_bytes,
           plan_waiting(row->plan));
  text_add(out, ",\"critical\":");
  json_string(out, row->critical.resource);
  text_add(out, ",\"share\":%.6f", row->critical.share);
  add_numbers(out, "replicas", l->replicas, l->n_stages);
  text_add(out, "}");
}

/* Adds nothing for programs that do not train: they have a single schedule. */
static void add_schedules(const PlanPage *page, Text *out) {
  ComparedSchedule rows[N_COMPARED];
  PlanRequest q = plan_anew(page);
  q.delay = DELAY_FREE;
  if (page->g->inference)
    return;
  plan_comparison(page->g, page->p, &q, pipeline_ranks(&page->plan->pipeline) > MOST_COMPARED, rows);
  text_add(out, ",\n\"schedules\":[");
  for (int i = 0; i < N_COMPARED; i++) {
    text_add(out, i ? ",\n" : "");
    add_schedule(&rows[i], out);
  }
  text_add(out, "]");
}

bool plan_page(const PlanPage *page, const char *output) {
  Text data = {0};
  text_add(&data, "{");
  add_plans(page, &data);
  add_placement(page, &data);
  add_timeline(page, &data);
  add_sweeps(page, &data);
  add_schedules(page, &data);
  if (page->picture) {
    text_add(&data, ",\n\"picture\":");
    json_string(&data, page->picture);
  }
  text_add(&data, "}");
  return error_count() == 0 && page_write(output, page_make(PAGE_OF_PLAN, page->plan->model, data.at));
}
