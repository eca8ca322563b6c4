/* Forms of a pipeline, ranks by stage, and what schedules ask of them. */
#include <string.h>

#include "plan/planner.h"

/* What a schedule lets the planner choose. Those that are not listed take anything. */
static const struct Traits {
  const char *name;
  bool one_rank_a_stage;
  bool chunks;         /* a rank holds several parts of the model, and groups of microbatches fill it */
  bool every_round;    /* an update after every round of the replicas */
  bool never_drains;
  bool keeps_forward;  /* the backward pass in two leaves nothing to recompute from */
} traits[] = {
    {"interleaved", true, true, false, false, false},
    {"zb_h1", true, false, false, false, true},
    {"pipedream", false, false, true, true, false},
    {"2bw", false, false, false, true, false},
};

static struct Traits traits_of(Name schedule) {
  for (size_t i = 0; i < sizeof traits / sizeof *traits; i++)
    if (!strcmp(traits[i].name, schedule))
      return traits[i];
  return (struct Traits){.name = schedule};
}

bool schedule_takes_replicas(Name schedule) { return !traits_of(schedule).one_rank_a_stage; }
bool schedule_takes_chunks(Name schedule) { return traits_of(schedule).chunks; }
bool schedule_updates_every_round(Name schedule) { return traits_of(schedule).every_round; }
bool schedule_never_drains(Name schedule) { return traits_of(schedule).never_drains; }
bool schedule_recomputes(Name schedule) { return !traits_of(schedule).keeps_forward; }

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

Plan plan_of_form(const Planner *r, const Form *form, int64_t microbatch) {
  Plan plan = {.model = r->g->name,
               .schedule = r->schedule,
               .batch = r->g->train.batch,
               .microbatch = microbatch,
               .microbatches = r->g->train.batch / microbatch,
               .threads = r->threads,
               .vertical_sync = r->vertical_sync,
               .chunks = r->chunks,
               .n_stages = form->positions,
               .why = ""};
  plan.stage = alloc((size_t)form->stages * sizeof *plan.stage);
  for (int i = 0; i < form->stages; i++) {
    plan.stage[i].replicas = form->replicas[i % form->positions];
    plan.stage[i].ahead = form->ahead[i % form->positions];
  }
  return plan;
}

int form_ranks(const Form *f) {
  int ranks = 0;
  for (int i = 0; i < f->positions; i++)
    ranks += f->replicas[i];
  return ranks;
}

bool form_is_plain(const Form *f) { return form_ranks(f) == f->positions; }

static int64_t least_common_multiple(int64_t a, int64_t b) {
  int64_t x = a, y = b;
  while (y != 0) {
    int64_t rest = x % y;
    x = y, y = rest;
  }
  return a / x * b;
}

int64_t form_multiple(Name schedule, const Form *f) {
  int64_t multiple = schedule_takes_chunks(schedule) ? f->positions : 1;
  for (int i = 0; i < f->positions; i++)
    multiple = least_common_multiple(multiple, f->replicas[i]);
  return multiple;
}

/* n_i of docs/schedules.md, from the last stage to the first; 2BW lets none be beyond a batch. */
int64_t form_least(Name schedule, const Form *f) {
  int64_t least = schedule_least_microbatches(schedule, f->positions), n = 1;
  bool bounded = schedule_never_drains(schedule) && !schedule_updates_every_round(schedule);
  for (int i = f->positions - 2; i >= 0 && bounded; i--) {
    int64_t w = f->replicas[i], next = f->replicas[i + 1], more = w > next ? w : next;
    n = (n * next + f->ahead[i] * more + w - 1) / w;
    least = (n - 1) * w > least ? (n - 1) * w : least;
  }
  int64_t multiple = form_multiple(schedule, f);
  return (least + multiple - 1) / multiple * multiple;
}

bool form_allows(Name schedule, const Form *f, int64_t microbatches) {
  int64_t multiple = form_multiple(schedule, f);
  if (schedule_updates_every_round(schedule))
    return microbatches == multiple;
  return microbatches % multiple == 0 && microbatches >= form_least(schedule, f);
}

const char *form_text(const Form *f) {
  Text t = {0};
  for (int i = 0; i < f->positions; i++)
    text_add(&t, "%s%d", i ? "," : "", f->replicas[i]);
  return t.at;
}
