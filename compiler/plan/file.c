/* plan.json: written in one order, read back with every choice checked, so that a person may edit it. */
#include <string.h>

#include "plan/planner.h"

enum { MOST_STAGES = 4096, MOST_THREADS = 4096, MOST_REPLICAS = 4096 };

static void json_int(Text *t, const char *key, int64_t x) { text_add(t, "\"%s\": %lld", key, (long long)x); }

static void json_number(Text *t, const char *key, double x) {
  text_add(t, "\"%s\": ", key);
  json_double(t, x);
}

static void json_text(Text *t, const char *key, const char *s) {
  text_add(t, "\"%s\": ", key);
  json_string(t, s);
}

static void write_stage(const Graph *g, const Pieces *p, const Plan *plan, int i, Text *t) {
  const StagePlan *s = &plan->stage[i];
  text_add(t, "    { ");
  json_text(t, "starts_at", p->at[s->first_piece].name);
  text_add(t, ", \"recompute\": %s, ", s->recompute ? "true" : "false");
  json_int(t, "replicas", s->replicas);
  text_add(t, ", ");
  json_int(t, "ahead", s->ahead);
  text_add(t, ",\n      ");
  json_text(t, "ends_with", piece_last_instance(g, p, s->end_piece - 1));
  text_add(t, ", ");
  json_int(t, "parameters", stage_parameters(g, p, s));
  text_add(t, ",\n      ");
  json_number(t, "forward_seconds", s->forward_seconds);
  text_add(t, ", ");
  json_number(t, "backward_seconds", s->backward_seconds);
  text_add(t, ", ");
  json_number(t, "weights_seconds", s->weights_seconds);
  text_add(t, ", ");
  json_number(t, "update_seconds", s->update_seconds);
  text_add(t, ",\n      ");
  json_number(t, "send_bytes", s->send_bytes);
  text_add(t, ", ");
  json_int(t, "peak_bytes", s->peak_bytes);
  text_add(t, ", ");
  json_int(t, "weight_bytes", s->weight_bytes);
  text_add(t, ", ");
  json_int(t, "gradient_bytes", s->gradient_bytes);
  text_add(t, ", ");
  json_int(t, "optimizer_bytes", s->optimizer_bytes);
  text_add(t, " }%s\n", i + 1 < plan_parts(plan) ? "," : "");
}

char *plan_json(const Graph *g, const Pieces *p, const Plan *plan) {
  Text t = {0};
  text_add(&t, "{\n  ");
  json_text(&t, "model", plan->model);
  text_add(&t, ",\n  ");
  json_text(&t, "schedule", plan->schedule);
  if (schedule_traits(plan->schedule).every_round)
    text_add(&t, ",\n  \"vertical_sync\": %s", plan->vertical_sync ? "true" : "false");
  if (schedule_traits(plan->schedule).chunks) {
    text_add(&t, ",\n  ");
    json_int(&t, "chunks", plan->chunks);
  }
  text_add(&t, ",\n  ");
  json_int(&t, "batch", plan->batch);
  text_add(&t, ",\n  ");
  json_int(&t, "microbatch", plan->microbatch);
  text_add(&t, ",\n  ");
  json_int(&t, "microbatches", plan->microbatches);
  text_add(&t, ",\n  ");
  json_text(&t, "target", target_name(plan->target));
  text_add(&t, ", ");
  json_text(&t, "precision", precision_name(plan->precision));
  text_add(&t, ",\n  ");
  json_int(&t, "threads", plan->threads);
  text_add(&t, ",\n  \"stages\": [\n");
  for (int i = 0; i < plan_parts(plan); i++)
    write_stage(g, p, plan, i, &t);
  text_add(&t, "  ],\n  ");
  json_number(&t, "batch_seconds", plan->batch_seconds);
  text_add(&t, ",\n  ");
  json_text(&t, "costs", plan->costs);
  text_add(&t, ",\n  ");
  json_text(&t, "why", plan->why ? plan->why : "");
  text_add(&t, "\n}\n");
  return t.at;
}

/* ---- reading ----------------------------------------------------------------------------------- */

static bool is_there(const JsonPlace *at, const char *key) {
  return cJSON_GetObjectItemCaseSensitive(at->object, key) != NULL;
}

/* What the planner noted about a stage is optional: it is worked out again. */
static bool read_notes(const JsonPlace *at, StagePlan *s) {
  const struct {
    const char *key;
    double *to;
  } seconds[] = {
      {"forward_seconds", &s->forward_seconds},
      {"backward_seconds", &s->backward_seconds},
      {"weights_seconds", &s->weights_seconds},
      {"update_seconds", &s->update_seconds},
      {"send_bytes", &s->send_bytes},
  };
  const struct {
    const char *key;
    int64_t *to;
  } bytes[] = {
      {"peak_bytes", &s->peak_bytes},
      {"weight_bytes", &s->weight_bytes},
      {"gradient_bytes", &s->gradient_bytes},
      {"optimizer_bytes", &s->optimizer_bytes},
  };
  bool good = true;
  for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++)
    if (is_there(at, seconds[i].key))
      good &= json_get_seconds(at, seconds[i].key, seconds[i].to);
  for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
    if (is_there(at, bytes[i].key))
      good &= json_get_int(at, bytes[i].key, 0, (int64_t)1 << 53, bytes[i].to);
  return good;
}

/* Plans of an older pdc have one rank a stage, and none ahead. */
static bool read_ranks(const JsonPlace *at, int i, Plan *plan) {
  int64_t replicas = 1, ahead = 1;
  bool good = true;
  if (is_there(at, "replicas"))
    good &= json_get_int(at, "replicas", 1, MOST_REPLICAS, &replicas);
  if (is_there(at, "ahead"))
    good &= json_get_int(at, "ahead", 1, 2, &ahead);
  plan->stage[i].replicas = (int)replicas;
  plan->stage[i].ahead = (int)ahead;
  const StagePlan *rank = &plan->stage[i % plan->n_stages];
  if (!good || (replicas == rank->replicas && ahead == rank->ahead))
    return good;
  error_at((Span){.file = at->file}, "PD0603", "'%s': part %d is on the ranks of part %d, of other number",
           at->path, i, i % plan->n_stages);
  return false;
}

static bool read_stage(const Graph *g, const Pieces *p, const JsonPlace *at, int i, Plan *plan) {
  static const char *const keys[] = {
      "starts_at",    "recompute",       "replicas",         "ahead",           "ends_with",
      "parameters",   "forward_seconds", "backward_seconds", "weights_seconds", "update_seconds",
      "send_bytes",   "peak_bytes",      "weight_bytes",     "gradient_bytes",  "optimizer_bytes",
      NULL};
  StagePlan *s = &plan->stage[i];
  if (!json_only(at, keys))
    return false;
  const char *start = json_get_string(at, "starts_at");
  bool good = read_notes(at, s) && read_ranks(at, i, plan);
  good &= json_get_bool(at, "recompute", &s->recompute);
  if (!start)
    return false;
  Span where = {.file = at->file};
  s->first_piece = piece_find_or_tell(g, p, start, where, format("%s.starts_at", at->path));
  if (s->first_piece < 0)
    return false;
  if (i == 0 && s->first_piece != 0) {
    Diagnostic *d = error_at(where, "PD0603", "'%s.starts_at': stage 0 starts with the model", at->path);
    help(d, "that is '%s'", p->at[0].name);
    return false;
  }
  if (i > 0 && s->first_piece <= plan->stage[i - 1].first_piece) {
    error_at(where, "PD0603", "'%s.starts_at': '%s' does not come after what the stage before starts with",
             at->path, start);
    return false;
  }
  return good;
}

static bool read_stages(const Graph *g, const Pieces *p, const JsonPlace *top, Plan *plan) {
  const cJSON *stages = json_get_array(top, "stages", 1);
  if (!stages)
    return false;
  int parts = cJSON_GetArraySize(stages);
  if (parts > p->n || parts > MOST_STAGES) {
    error_at((Span){.file = top->file}, "PD0603",
             "'stages' lists %d, but the model has only %d place%s to cut", parts, p->n - 1,
             p->n == 2 ? "" : "s");
    return false;
  }
  if (parts % plan->chunks != 0) {
    error_at((Span){.file = top->file}, "PD0603", "'stages' lists %d, which are not %d for each rank", parts,
             plan->chunks);
    return false;
  }
  plan->n_stages = parts / plan->chunks;
  plan->stage = alloc((size_t)parts * sizeof *plan->stage);
  for (int i = 0; i < parts; i++) {
    JsonPlace at = json_element(top, "stages", stages, i);
    if (!read_stage(g, p, &at, i, plan))
      return false;
    if (i > 0)
      plan->stage[i - 1].end_piece = plan->stage[i].first_piece;
  }
  plan->stage[parts - 1].end_piece = p->n;
  return true;
}

static bool read_sizes(const Graph *g, const JsonPlace *top, Plan *plan) {
  Span where = {.file = top->file};
  int64_t threads = 1, microbatches = 0;
  if (!json_get_int(top, "batch", 1, (int64_t)1 << 53, &plan->batch) ||
      !json_get_int(top, "microbatch", 1, plan->batch, &plan->microbatch) ||
      !json_get_int(top, "threads", 1, MOST_THREADS, &threads))
    return false;
  plan->threads = (int)threads;
  plan->microbatches = plan->batch / plan->microbatch;
  if (plan->batch != g->train.batch) {
    Diagnostic *d = error_at(where, "PD0603", "'batch' is %lld, but the model trains with %lld",
                             (long long)plan->batch, (long long)g->train.batch);
    help(d, "'-D batch=%lld', or a plan for this batch", (long long)plan->batch);
    return false;
  }
  if (plan->batch % plan->microbatch != 0) {
    error_at(where, "PD0603", "'microbatch': microbatches of %lld do not make up a batch of %lld",
             (long long)plan->microbatch, (long long)plan->batch);
    return false;
  }
  if (is_there(top, "microbatches") && json_get_int(top, "microbatches", 1, plan->batch, &microbatches) &&
      microbatches != plan->microbatches)
    error_at(where, "PD0603", "'microbatches' is %lld, but a batch of %lld has %lld of %lld",
             (long long)microbatches, (long long)plan->batch, (long long)plan->microbatches,
             (long long)plan->microbatch);
  return !is_there(top, "microbatches") || microbatches == plan->microbatches;
}

static bool read_name(const JsonPlace *top, const char *key, const char *const *names, int n, int *to) {
  const char *name = is_there(top, key) ? json_get_string(top, key) : names[0];
  for (int i = 0; name && i < n; i++)
    if (!strcmp(name, names[i])) {
      *to = i;
      return true;
    }
  if (name)
    error_at((Span){.file = top->file}, "PD0603", "'%s': there is no %s '%s'", key, key, name);
  return false;
}

/* Plans of an older pdc are for processors. */
static bool read_target(const JsonPlace *top, Plan *plan) {
  const char *const targets[] = {target_name(TARGET_C), target_name(TARGET_CUDA)};
  const char *const precisions[] = {precision_name(PRECISION_F32), precision_name(PRECISION_TF32),
                                    precision_name(PRECISION_BF16)};
  int target, precision;
  if (!read_name(top, "target", targets, 2, &target) || !read_name(top, "precision", precisions, 3, &precision))
    return false;
  plan->target = (TargetKind)target;
  plan->precision = (Precision)precision;
  return true;
}

static bool not_for(const JsonPlace *top, const char *setting, Name schedule) {
  error_at((Span){.file = top->file}, "PD0603", "'%s' is not for '%s'", setting, schedule);
  return false;
}

/* What belongs to some schedules only. */
static bool read_settings(const JsonPlace *top, Plan *plan) {
  ScheduleTraits traits = schedule_traits(plan->schedule);
  int64_t chunks = 1;
  if (is_there(top, "chunks") && !json_get_int(top, "chunks", 1, MAX_CHUNKS, &chunks))
    return false;
  if (is_there(top, "vertical_sync") && !json_get_bool(top, "vertical_sync", &plan->vertical_sync))
    return false;
  plan->chunks = (int)chunks;
  if (plan->chunks > 1 && !traits.chunks)
    return not_for(top, "chunks", plan->schedule);
  return !plan->vertical_sync || traits.every_round || not_for(top, "vertical_sync", plan->schedule);
}

/* Whether the schedule recomputes these parts: of a rank's chunks all or none. */
static bool recomputation_fits(const JsonPlace *top, const Plan *plan) {
  Span where = {.file = top->file};
  for (int i = 0; i < plan_parts(plan); i++) {
    int first = i % plan->n_stages;
    if (plan->stage[i].recompute && !schedule_traits(plan->schedule).recomputes) {
      error_at(where, "PD0706", "'stages[%d].recompute': '%s' cannot recompute", i, plan->schedule);
      return false;
    }
    if (plan->stage[i].recompute != plan->stage[first].recompute) {
      error_at(where, "PD0706", "'stages[%d].recompute': part %d is on the rank of part %d, which does%s", i, i,
               first, plan->stage[first].recompute ? "" : " not");
      return false;
    }
  }
  return true;
}

/* Whether the schedule runs stages on so many ranks with so many microbatches. */
static bool form_fits(const JsonPlace *top, const Plan *plan) {
  Span where = {.file = top->file};
  Form form = form_of_plan(plan);
  if (!form_is_plain(&form) && !schedule_traits(plan->schedule).replicas) {
    error_at(where, "PD0705", "'replicas': '%s' runs every stage on one rank, not on %s", plan->schedule,
             form_text(&form));
    return false;
  }
  if (plan->n_stages == 1 && plan->chunks > 1) {
    error_at(where, "PD0708", "'chunks': '%s' needs two stages or more, and there is one of %d chunks",
             plan->schedule, plan->chunks);
    return false;
  }
  if (form_allows(plan->schedule, &form, plan->microbatches))
    return true;
  int64_t least, multiple;
  form_needs(plan->schedule, &form, &least, &multiple);
  const char *ranks = form_is_plain(&form) ? format("%d stages", form.positions)
                                           : format("replicas %s", form_text(&form));
  if (plan->microbatches < least)
    error_at(where, "PD0701", "'microbatch': '%s' with %s needs at least %lld microbatches an update, has %lld",
             plan->schedule, ranks, (long long)least, (long long)plan->microbatches);
  else
    error_at(where, "PD0704", "'microbatch': '%s' with %s needs %s %lld microbatches an update, has %lld",
             plan->schedule, ranks, schedule_traits(plan->schedule).every_round ? "exactly" : "a multiple of",
             (long long)multiple, (long long)plan->microbatches);
  return false;
}

Plan *plan_read(const Graph *g, const Pieces *p, const char *path) {
  static const char *const keys[] = {"model",         "schedule",     "vertical_sync", "chunks", "batch",
                                     "microbatch",    "microbatches", "target",        "precision",
                                     "threads",       "stages",       "batch_seconds", "costs",  "why",
                                     NULL};
  JsonPlace top = {.path = ""};
  top.object = json_load(path, &top.file);
  if (!top.object || !json_only(&top, keys))
    return NULL;
  Plan *plan = alloc(sizeof *plan);
  const char *model = json_get_string(&top, "model"), *schedule = json_get_string(&top, "schedule");
  if (!model || !schedule || !read_sizes(g, &top, plan) || !read_target(&top, plan))
    return NULL;
  Span where = {.file = top.file};
  if (strcmp(model, g->name) != 0) {
    error_at(where, "PD0603", "'model': the plan is for '%s', not '%s'", model, g->name);
    return NULL;
  }
  plan->model = g->name;
  plan->schedule = intern(schedule);
  if (!schedule_named(plan->schedule, where, "'schedule': "))
    return NULL;
  if (!read_settings(&top, plan) || !read_stages(g, p, &top, plan) || !form_fits(&top, plan) ||
      !recomputation_fits(&top, plan))
    return NULL;
  if (is_there(&top, "batch_seconds") && !json_get_seconds(&top, "batch_seconds", &plan->batch_seconds))
    return NULL;
  const char *costs = is_there(&top, "costs") ? json_get_string(&top, "costs") : "";
  const char *why = is_there(&top, "why") ? json_get_string(&top, "why") : "";
  if (!costs || !why)
    return NULL;
  plan->costs = intern(costs);
  plan->why = format("%s", why);
  return plan;
}
