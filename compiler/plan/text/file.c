/* plan.json: written in one order, read back with every choice checked, so that a person may edit it. */
#include <string.h>

#include "plan/problem/problem.h"

static void json_int(Text *t, const char *key, int64_t x) { text_add(t, "\"%s\": %lld", key, (long long)x); }

/* n 0: the first of them, without brackets. */
static void json_ints(Text *t, const char *key, const int *x, int n) {
  text_add(t, n ? "\"%s\": [%d" : "\"%s\": %d", key, x[0]);
  for (int i = 1; i < n; i++)
    text_add(t, ", %d", x[i]);
  text_add(t, n ? "]" : "");
}

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
  const Pipeline *l = &plan->pipeline;
  int stage = plan_stage_of(plan, i);
  text_add(t, "    { ");
  json_text(t, "starts_at", p->at[s->first_piece].name);
  text_add(t, ", \"recompute\": %s, ", plan_recomputes(plan, i) ? "true" : "false");
  json_int(t, "replicas", l->replicas[stage]);
  text_add(t, ", ");
  json_int(t, "ahead", l->ahead[stage]);
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
  if (g->generation.context) {
    text_add(t, ", ");
    json_int(t, "cache_bytes", s->cache_bytes);
  }
  if (s->spans) {
    text_add(t, ",\n      ");
    json_text(t, "spans", s->spans);
  }
  if (s->crosses) {
    text_add(t, s->spans ? ", " : ",\n      ");
    json_text(t, "crosses", s->crosses);
  }
  text_add(t, " }%s\n", i + 1 < plan_parts(plan) ? "," : "");
}

static void add_placement(Text *t, const Placement *at) {
  if (at->adjacent) {
    json_int(t, "adjacent", at->adjacent);
    text_add(t, ",\n  ");
  }
  if (at->backward)
    text_add(t, "\"backward\": true,\n  ");
}

/* Whether a stage may exchange in buckets, by its schedule and replicas. */
static bool exchanges_in_buckets(const Pipeline *p) {
  const ScheduleTraits traits = schedule_traits(p->schedule);
  return traits.replicas && !traits.forward_only && pipeline_ranks(p) > p->n_stages;
}

char *plan_json(const Graph *g, const Pieces *p, const Plan *plan) {
  Text t = {0};
  const Pipeline *l = &plan->pipeline;
  text_add(&t, "{\n  ");
  json_text(&t, "model", plan->model);
  text_add(&t, ",\n  ");
  json_text(&t, "schedule", l->schedule);
  if (schedule_traits(l->schedule).every_round)
    text_add(&t, ",\n  \"vertical_sync\": %s", l->vertical_sync ? "true" : "false");
  if (schedule_traits(l->schedule).chunks) {
    text_add(&t, ",\n  ");
    int *chunks = alloc((size_t)l->n_stages * sizeof *chunks);
    for (int i = 0; i < l->n_stages; i++)
      chunks[i] = pipeline_chunks(l, i);
    json_ints(&t, "chunks", chunks, l->first_part ? l->n_stages : 0);
  }
  if (l->memory) {
    text_add(&t, ",\n  ");
    json_int(&t, "memory_bytes", l->memory);
    text_add(&t, ", ");
    json_ints(&t, "kept_percent", l->kept, l->first_part ? l->n_stages : 0);
    text_add(&t, ", ");
    json_int(&t, "page_bytes", l->page);
    if (backend_of(&plan->target)->device->has_arch) {
      text_add(&t, ", ");
      json_text(&t, "update", l->at_home ? "host" : "device");
    }
  }
  if (l->shard_optimizer)
    text_add(&t, ",\n  \"shard_optimizer\": true");
  if (exchanges_in_buckets(l)) {
    text_add(&t, ",\n  ");
    json_int(&t, "bucket_bytes", pipeline_bucket(l));
  }
  if (g->shards) {
    text_add(&t, ",\n  ");
    json_int(&t, "tensor", g->shards);
  }
  if (g->spread)
    text_add(&t, ",\n  \"activations_by_positions\": true");
  text_add(&t, ",\n  ");
  json_int(&t, "batch", l->batch);
  text_add(&t, ",\n  ");
  json_int(&t, "microbatch", l->microbatch);
  text_add(&t, ",\n  ");
  json_int(&t, "microbatches", l->microbatches);
  text_add(&t, ",\n  ");
  json_text(&t, "target", backend_of(&plan->target)->name);
  text_add(&t, ", ");
  json_text(&t, "precision", precision_name(plan->target.precision));
  if (plan->target.residual != RESIDUAL_F32) {
    text_add(&t, ", ");
    json_text(&t, "residual", residual_name(plan->target.residual));
  }
  text_add(&t, ",\n  ");
  json_int(&t, "threads", plan->target.threads);
  text_add(&t, ",\n  \"stages\": [\n");
  for (int i = 0; i < plan_parts(plan); i++)
    write_stage(g, p, plan, i, &t);
  text_add(&t, "  ],\n  ");
  if (g->generation.context) {
    json_number(&t, "cache_bytes_a_token", plan_cache_bytes_a_token(g, plan));
    text_add(&t, ",\n  ");
  }
  json_number(&t, "batch_seconds", plan->batch_seconds);
  text_add(&t, ",\n  ");
  json_text(&t, "costs", plan->costs);
  text_add(&t, ",\n  ");
  if (plan->device) {
    json_text(&t, "device", plan->device);
    text_add(&t, plan->assumed ? ", \"assumed\": true,\n  " : ",\n  ");
  }
  if (plan->cluster) {
    json_text(&t, "cluster", plan->cluster);
    text_add(&t, ",\n  ");
  }
  add_placement(&t, &plan->placement);
  if (plan->algorithms) {
    product_library_write("cublaslt", &plan->algorithms->library, &t);
    text_add(&t, ",\n");
    algorithms_write(&plan->algorithms->of, false, 2, &t);
    text_add(&t, ",\n  ");
  }
  if (plan->attentions) {
    product_library_write("cudnn", &plan->attentions->library, &t);
    text_add(&t, ",\n");
    attentions_write(&plan->attentions->of, false, 2, &t);
    text_add(&t, ",\n  ");
  }
  json_text(&t, "why", plan->why ? plan->why : "");
  text_add(&t, "\n}\n");
  return t.at;
}

/* ---- for a model ----------------------------------------------------------------------------------- */

static bool sizes_fit(const Graph *g, const PlanFile *f) {
  Span where = {.file = f->file};
  const Pipeline *l = &f->plan.pipeline;
  long long batch = l->batch, microbatch = l->microbatch, microbatches = l->microbatches;
  if (l->batch != g->train.batch) {
    Diagnostic *d = error_at(where, "PD0603", "'batch' is %lld, but %s %lld", batch,
                             g->generation.context ? "there are so many samples:"
                             : g->inference        ? "the model runs with"
                                                   : "the model trains with",
                             (long long)g->train.batch);
    help(d, "'%s%lld', or a plan for this batch", g->generation.context ? "--samples " : "-D batch=", batch);
    return false;
  }
  if (l->batch % l->microbatch != 0) {
    error_at(where, "PD0603", "'microbatch': microbatches of %lld do not make up a batch of %lld", microbatch,
             batch);
    return false;
  }
  if (g->generation.context && microbatches > 1) {
    error_at(where, "PD0603", "'microbatch' is %lld, but the %lld samples of '--generate' go in step", microbatch,
             batch);
    return false;
  }
  if (f->microbatches && f->microbatches != l->microbatches) {
    error_at(where, "PD0603", "'microbatches' is %lld, but a batch of %lld has %lld of %lld",
             (long long)f->microbatches, batch, microbatches, microbatch);
    return false;
  }
  return statistics_suit(g, batch, microbatch, where, "'microbatch': ");
}

static bool not_for(const PlanFile *f, const char *setting) {
  error_at((Span){.file = f->file}, "PD0603", "'%s' is not for '%s'", setting, f->plan.pipeline.schedule);
  return false;
}

/* What belongs to some schedules only, or to some targets. */
static bool settings_fit(const PlanFile *f) {
  const Pipeline *l = &f->plan.pipeline;
  ScheduleTraits traits = schedule_traits(l->schedule);
  if ((l->chunks > 1 && !traits.chunks) || (l->first_part && !traits.spills))
    return not_for(f, "chunks");
  if (l->at_home && !traits.spills)
    return not_for(f, "update");
  if (l->shard_optimizer && (!traits.replicas || traits.forward_only))
    return not_for(f, "shard_optimizer");
  if (l->bucket && (!traits.replicas || traits.forward_only))
    return not_for(f, "bucket_bytes");
  for (int i = 0; i < f->parts; i++)
    if (f->part[i].ahead > 1 && !traits.looks_ahead)
      return not_for(f, format("stages[%d].ahead", i));
  const char *of_gpus = f->plan.algorithms ? "algorithms" : f->plan.attentions ? "attentions" : NULL;
  if (of_gpus && !backend_of(&f->plan.target)->device->has_arch) {
    error_at((Span){.file = f->file}, "PD0603", "'%s' are for GPUs, and the plan for '--target %s'", of_gpus,
             backend_of(&f->plan.target)->name);
    return false;
  }
  return !l->vertical_sync || traits.every_round || not_for(f, "vertical_sync");
}

static bool parts_fit(const Pieces *p, const PlanFile *f) {
  Span where = {.file = f->file};
  if (f->parts > p->n || f->parts > MOST_STAGES) {
    error_at(where, "PD0603", "'stages' lists %d, but the model has only %d place%s to cut", f->parts, p->n - 1,
             p->n == 2 ? "" : "s");
    return false;
  }
  const Pipeline *l = &f->plan.pipeline;
  if (l->first_part && f->parts != pipeline_parts(l)) {
    error_at(where, "PD0603", "'stages' lists %d, and 'chunks' are %d", f->parts, pipeline_parts(l));
    return false;
  }
  if (!l->first_part && f->parts % l->chunks != 0) {
    error_at(where, "PD0603", "'stages' lists %d, which are not %d for each rank", f->parts, l->chunks);
    return false;
  }
  return true;
}

/* The pieces that parts start with and end before. */
static bool find_pieces(const Graph *g, const Pieces *p, PlanFile *f) {
  Span where = {.file = f->file};
  StagePlan *s = f->plan.stage;
  for (int i = 0; i < f->parts; i++) {
    const char *start = f->part[i].starts_at, *what = format("stages[%d].starts_at", i);
    s[i].first_piece = piece_find_or_tell(g, p, start, where, what);
    if (s[i].first_piece < 0)
      return false;
    if (i == 0 && s->first_piece != 0) {
      Diagnostic *d = error_at(where, "PD0603", "'%s': stage 0 starts with the model", what);
      help(d, "that is '%s'", p->at[0].name);
      return false;
    }
    if (i > 0 && s[i].first_piece <= s[i - 1].first_piece) {
      error_at(where, "PD0603", "'%s': '%s' does not come after what the stage before starts with", what, start);
      return false;
    }
    if (i > 0)
      s[i - 1].end_piece = s[i].first_piece;
  }
  s[f->parts - 1].end_piece = p->n;
  return true;
}

static bool recomputation_fits(const PlanFile *f) {
  const Pipeline *l = &f->plan.pipeline;
  for (int i = 0; i < l->n_stages; i++)
    if (l->recompute[i] && !schedule_traits(l->schedule).recomputes) {
      error_at((Span){.file = f->file}, "PD0706", "'stages[%d].recompute': '%s' cannot recompute", i, l->schedule);
      return false;
    }
  return true;
}

/* Whether the schedule runs stages on so many ranks with so many microbatches. */
static bool ranks_fit(const Graph *g, const PlanFile *f) {
  Span where = {.file = f->file};
  const Pipeline *l = &f->plan.pipeline;
  bool generates = g->generation.context > 0;
  if (!form_is_plain(l) && (generates || !schedule_traits(l->schedule).replicas)) {
    error_at(where, "PD0705", "'replicas': '%s' runs every stage on one rank, not on %s",
             generates ? inference_option(g) : l->schedule, replicas_text(l));
    return false;
  }
  if (l->n_stages == 1 && l->chunks > 1 && !schedule_traits(l->schedule).spills) {
    error_at(where, "PD0708", "'chunks': '%s' needs two stages or more, and there is one of %d chunks",
             l->schedule, l->chunks);
    return false;
  }
  if (schedule_allows(l, l->microbatches))
    return true;
  int64_t least, multiple;
  schedule_needs(l, &least, &multiple);
  const char *period = schedule_period(l->schedule);
  if (l->microbatches < least)
    error_at(where, "PD0701", "'microbatch': '%s' with %s needs at least %lld microbatches %s, has %lld",
             l->schedule, ranks_text(l), (long long)least, period, (long long)l->microbatches);
  else
    error_at(where, "PD0704", "'microbatch': '%s' with %s needs %s %lld microbatches %s, has %lld", l->schedule,
             ranks_text(l), schedule_traits(l->schedule).every_round ? "exactly" : "a multiple of",
             (long long)multiple, period, (long long)l->microbatches);
  return false;
}

Plan *plan_read(const Graph *g, const Pieces *p, const char *path) {
  PlanFile f;
  if (!plan_file_read(path, PLAN_TO_FOLLOW, &f))
    return NULL;
  Span where = {.file = f.file};
  if (strcmp(f.plan.model, g->name) != 0) {
    error_at(where, "PD0603", "'model': the plan is for '%s', not '%s'", f.plan.model, g->name);
    return NULL;
  }
  if (f.tensor != g->shards) {
    help(error_at(where, "PD0603", "'tensor': the plan is for layers shared by %d rank%s, not %d",
                  f.tensor ? (int)f.tensor : 1, f.tensor ? "s" : "", g->shards ? g->shards : 1),
         f.tensor ? "'--tensor %d' shares them" : "leave '--tensor' out", (int)f.tensor);
    return NULL;
  }
  if (f.spread != g->spread) {
    help(error_at(where, "PD0603", "'activations_by_positions': the plan is for activations that are %s",
                  f.spread ? "split by positions" : "not split by positions"),
         "a line 'activations: positions' of '--sharding FILE' splits them");
    return NULL;
  }
  Name schedule = f.plan.pipeline.schedule;
  if (!schedule_named(schedule, where, "'schedule': ") || !schedule_suits(g, schedule, where, "'schedule': ") ||
      !sizes_fit(g, &f) || !settings_fit(&f) || !parts_fit(p, &f) || !plan_file_stages(&f) ||
      !find_pieces(g, p, &f) || !ranks_fit(g, &f) || !recomputation_fits(&f))
    return NULL;
  f.plan.model = g->name;
  return alloc_copy(&f.plan, sizeof f.plan);
}
