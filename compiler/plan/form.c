/* Forms of a pipeline, ranks by stage, and what schedules ask of them. */
#include "plan/planner.h"

Form form_make(const Planner *r, int positions, const int *replicas) {
  Form f = {.positions = positions, .stages = positions * r->chunks};
  f.replicas = alloc((size_t)positions * sizeof *f.replicas);
  f.ahead = alloc((size_t)positions * sizeof *f.ahead);
  for (int i = 0; i < positions; i++) {
    f.replicas[i] = replicas ? replicas[i] : 1;
    f.ahead[i] = i < positions - 1 && r->request->ahead ? r->request->ahead : 1;
  }
  return f;
}

Form form_of_plan(const Plan *plan) {
  Form f = {.positions = plan->n_stages, .stages = plan_parts(plan)};
  f.replicas = alloc((size_t)f.positions * sizeof *f.replicas);
  f.ahead = alloc((size_t)f.positions * sizeof *f.ahead);
  for (int i = 0; i < f.positions; i++) {
    f.replicas[i] = plan->stage[i].replicas;
    f.ahead[i] = plan->stage[i].ahead;
  }
  return f;
}

static void set_ranks(const Form *form, Plan *plan) {
  for (int i = 0; i < form->stages; i++) {
    plan->stage[i].replicas = form->replicas[i % form->positions];
    plan->stage[i].ahead = form->ahead[i % form->positions];
  }
}

Plan plan_of_form(const Planner *r, const Form *form, int64_t microbatch) {
  Plan plan = {.model = r->g->name,
               .schedule = r->schedule,
               .batch = r->g->train.batch,
               .microbatch = microbatch,
               .microbatches = r->g->train.batch / microbatch,
               .target = r->target,
               .precision = r->precision,
               .threads = r->threads,
               .vertical_sync = r->vertical_sync,
               .chunks = r->chunks,
               .n_stages = form->positions,
               .why = ""};
  plan.stage = alloc((size_t)form->stages * sizeof *plan.stage);
  set_ranks(form, &plan);
  return plan;
}

int form_ranks(const Form *f) {
  int ranks = 0;
  for (int i = 0; i < f->positions; i++)
    ranks += f->replicas[i];
  return ranks;
}

bool form_is_plain(const Form *f) { return form_ranks(f) == f->positions; }

void form_needs(Name schedule, const Form *f, int64_t *least, int64_t *multiple) {
  Plan plan = {.schedule = schedule, .chunks = f->stages / f->positions, .n_stages = f->positions};
  plan.stage = alloc((size_t)f->stages * sizeof *plan.stage);
  set_ranks(f, &plan);
  schedule_needs(&plan, least, multiple);
}

bool form_allows(Name schedule, const Form *f, int64_t microbatches) {
  int64_t least, multiple;
  form_needs(schedule, f, &least, &multiple);
  if (schedule_traits(schedule).every_round)
    return microbatches == multiple;
  return microbatches % multiple == 0 && microbatches >= least;
}

const char *form_text(const Form *f) {
  Text t = {0};
  for (int i = 0; i < f->positions; i++)
    text_add(&t, "%s%d", i ? "," : "", f->replicas[i]);
  return t.at;
}
