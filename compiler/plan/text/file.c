/* plan.json, for users to edit: members in fixed order, all choices checked on reading. */
#include <string.h>

#include "plan/problem/problem.h"

/* Separators before a member: on the same line, on a new line of the file, or of a stage. */
static const char NEXT[] = ", ", LINE[] = ",\n  ", STAGE_LINE[] = ",\n      ";

static void add_int(Text *t, const char *before, const char *key, int64_t x) {
  text_add(t, "%s\"%s\": %lld", before, key, (long long)x);
}

/* n 0: only the first, without brackets. */
static void add_ints(Text *t, const char *before, const char *key, const int *x, int n) {
  text_add(t, n ? "%s\"%s\": [%d" : "%s\"%s\": %d", before, key, x[0]);
  for (int i = 1; i < n; i++)
    text_add(t, ", %d", x[i]);
  text_add(t, n ? "]" : "");
}

static void add_bool(Text *t, const char *before, const char *key, bool x) {
  text_add(t, "%s\"%s\": %s", before, key, x ? "true" : "false");
}

static void add_number(Text *t, const char *before, const char *key, double x) {
  text_add(t, "%s\"%s\": ", before, key);
  json_double(t, x);
}

static void add_text(Text *t, const char *before, const char *key, const char *s) {
  text_add(t, "%s\"%s\": ", before, key);
  json_string(t, s);
}

/* false, or the recomputation with its worth; of offloaded parts only true, because slots are not counted. */
static void add_recomputed(const Graph *g, const Pieces *p, const Plan *plan, int i, Text *t) {
  const StagePlan *s = &plan->stage[i];
  if (!part_recomputes(plan, i) || schedule_traits(plan->pipeline.schedule).spills) {
    add_bool(t, NEXT, "recompute", plan_recomputes(plan, i));
    return;
  }
  const Patterns all = pieces_describe(g, p, part_recomputed(p, s), s->first_piece, s->end_piece);
  text_add(t, "%s\"recompute\": { \"layers\": [", NEXT);
  for (int k = 0; k < all.n; k++) {
    text_add(t, k ? ", " : "");
    json_string(t, all.at[k]);
  }
  text_add(t, "]");
  add_bool(t, NEXT, "whole", plan_recomputes(plan, i));
  add_int(t, NEXT, "saves_bytes", s->again_bytes > 0 ? s->again_bytes : 0);
  add_number(t, NEXT, "adds_seconds", recomputed_seconds(plan, i));
  text_add(t, " }");
}

static void write_stage(const Graph *g, const Pieces *p, const Plan *plan, int i, Text *t) {
  const StagePlan *s = &plan->stage[i];
  const Pipeline *l = &plan->pipeline;
  const int stage = plan_stage_of(plan, i);
  add_text(t, "    { ", "starts_at", p->at[s->first_piece].name);
  add_recomputed(g, p, plan, i, t);
  add_int(t, NEXT, "replicas", l->replicas[stage]);
  add_int(t, NEXT, "ahead", l->ahead[stage]);
  add_text(t, STAGE_LINE, "ends_with", piece_last_instance(g, p, s->end_piece - 1));
  add_int(t, NEXT, "parameters", stage_parameters(g, p, s));
  add_number(t, STAGE_LINE, "forward_seconds", s->forward_seconds);
  add_number(t, NEXT, "backward_seconds", s->backward_seconds);
  add_number(t, NEXT, "weights_seconds", s->weights_seconds);
  add_number(t, NEXT, "update_seconds", s->update_seconds);
  add_number(t, STAGE_LINE, "send_bytes", s->send_bytes);
  add_int(t, NEXT, "peak_bytes", s->peak_bytes);
  add_int(t, NEXT, "weight_bytes", s->weight_bytes);
  add_int(t, NEXT, "gradient_bytes", s->gradient_bytes);
  add_int(t, NEXT, "optimizer_bytes", s->optimizer_bytes);
  if (g->generation.context)
    add_int(t, NEXT, "cache_bytes", s->cache_bytes);
  if (s->spans)
    add_text(t, STAGE_LINE, "spans", s->spans);
  if (s->crosses)
    add_text(t, s->spans ? NEXT : STAGE_LINE, "crosses", s->crosses);
  text_add(t, " }%s\n", i + 1 < plan_parts(plan) ? "," : "");
}

/* Whether stages may exchange gradients in buckets, by schedule and replicas. */
static bool exchanges_in_buckets(const Pipeline *p) {
  const ScheduleTraits traits = schedule_traits(p->schedule);
  return traits.replicas && !traits.forward_only && pipeline_ranks(p) > p->n_stages;
}

/* Offload members. */
static void write_memory(const Plan *plan, Text *t) {
  const Pipeline *l = &plan->pipeline;
  add_int(t, LINE, "memory_bytes", l->memory);
  add_ints(t, NEXT, "kept_percent", l->kept, l->first_part ? l->n_stages : 0);
  add_int(t, NEXT, "page_bytes", l->page);
  if (backend_of(&plan->target)->device->has_arch)
    add_text(t, NEXT, "update", l->at_home ? "host" : "device");
}

static void write_pipeline(const Graph *g, const Plan *plan, Text *t) {
  const Pipeline *l = &plan->pipeline;
  const ScheduleTraits traits = schedule_traits(l->schedule);
  int *chunks = alloc((size_t)l->n_stages * sizeof *chunks);
  for (int i = 0; i < l->n_stages; i++)
    chunks[i] = pipeline_chunks(l, i);
  add_text(t, LINE, "schedule", l->schedule);
  if (traits.every_round)
    add_bool(t, LINE, "vertical_sync", l->vertical_sync);
  if (traits.chunks)
    add_ints(t, LINE, "chunks", chunks, l->first_part ? l->n_stages : 0);
  if (l->memory)
    write_memory(plan, t);
  if (l->shard_optimizer)
    add_bool(t, LINE, "shard_optimizer", true);
  if (exchanges_in_buckets(l))
    add_int(t, LINE, "bucket_bytes", pipeline_bucket(l));
  if (g->shards)
    add_int(t, LINE, "tensor", g->shards);
  if (g->spread)
    add_bool(t, LINE, "activations_by_positions", true);
  add_int(t, LINE, "batch", l->batch);
  add_int(t, LINE, "microbatch", l->microbatch);
  add_int(t, LINE, "microbatches", l->microbatches);
}

static void write_target(const Target *target, Text *t) {
  add_text(t, LINE, "target", backend_of(target)->name);
  add_text(t, NEXT, "precision", precision_name(target->precision));
  if (target->residual != RESIDUAL_F32)
    add_text(t, NEXT, "residual", residual_name(target->residual));
  add_int(t, LINE, "threads", target->threads);
}

/* Origin of the plan. The library's members start without a comma. */
static void write_origin(const Plan *plan, Text *t) {
  add_text(t, LINE, "costs", plan->costs);
  if (plan->device)
    add_text(t, LINE, "device", plan->device);
  if (plan->device && plan->assumed)
    add_bool(t, NEXT, "assumed", true);
  if (plan->cluster)
    add_text(t, LINE, "cluster", plan->cluster);
  if (plan->placement.adjacent)
    add_int(t, LINE, "adjacent", plan->placement.adjacent);
  if (plan->placement.backward)
    add_bool(t, LINE, "backward", true);
  if (plan->algorithms) {
    text_add(t, "%s", LINE);
    product_library_write("cublaslt", &plan->algorithms->library, t);
    text_add(t, ",\n");
    algorithms_write(&plan->algorithms->of, false, 2, t);
  }
  if (plan->attentions) {
    text_add(t, "%s", LINE);
    product_library_write("cudnn", &plan->attentions->library, t);
    text_add(t, ",\n");
    attentions_write(&plan->attentions->of, false, 2, t);
  }
}

char *plan_json(const Graph *g, const Pieces *p, const Plan *plan) {
  Text t = {0};
  add_text(&t, "{\n  ", "model", plan->model);
  write_pipeline(g, plan, &t);
  write_target(&plan->target, &t);
  text_add(&t, "%s\"stages\": [\n", LINE);
  for (int i = 0; i < plan_parts(plan); i++)
    write_stage(g, p, plan, i, &t);
  text_add(&t, "  ]");
  if (g->generation.context)
    add_number(&t, LINE, "cache_bytes_a_token", plan_cache_bytes_a_token(g, plan));
  add_number(&t, LINE, "batch_seconds", plan->batch_seconds);
  write_origin(plan, &t);
  add_text(&t, LINE, "why", plan->why ? plan->why : "");
  text_add(&t, "\n}\n");
  return t.at;
}

/* ---- checks against a model ------------------------------------------------------------------------ */

static bool sizes_fit(const Graph *g, const PlanFile *f) {
  Span where = {.file = f->file};
  const Pipeline *l = &f->plan.pipeline;
  long long batch = l->batch, microbatch = l->microbatch, microbatches = l->microbatches;
  if (l->batch != g->train.batch) {
    Diagnostic *d = error_at(where, "PD0603", "'batch' is %lld, but %s %lld", batch,
                             g->generation.context ? "the number of rows is"
                             : g->inference        ? "the model runs with"
                                                   : "the model trains with",
                             (long long)g->train.batch);
    if (g->generation.context)
      help(d, "use the --samples and --block of the plan, or a plan for these");
    else
      help(d, "use '-D batch=%lld', or a plan for this batch", batch);
    return false;
  }
  if (l->batch % l->microbatch != 0) {
    error_at(where, "PD0603", "'microbatch': a microbatch of %lld samples does not divide the batch of %lld",
             microbatch, batch);
    return false;
  }
  if (g->generation.context && microbatches > 1) {
    error_at(where, "PD0603", "'microbatch' is %lld, but '--generate' runs all %lld rows as one microbatch",
             microbatch, batch);
    return false;
  }
  if (f->microbatches && f->microbatches != l->microbatches) {
    error_at(where, "PD0603", "'microbatches' is %lld, but a batch of %lld has %lld microbatches of %lld",
             (long long)f->microbatches, batch, microbatches, microbatch);
    return false;
  }
  return statistics_suit(g, batch, microbatch, where, "'microbatch': ");
}

static bool not_for(const PlanFile *f, const char *setting) {
  error_at((Span){.file = f->file}, "PD0603", "'%s' is not for '%s'", setting, f->plan.pipeline.schedule);
  return false;
}

/* Checks settings that only some schedules or targets support. */
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
    error_at((Span){.file = f->file}, "PD0603", "'%s' are for GPUs, but the plan is for '--target %s'", of_gpus,
             backend_of(&f->plan.target)->name);
    return false;
  }
  return !l->vertical_sync || traits.every_round || not_for(f, "vertical_sync");
}

static bool parts_fit(const Pieces *p, const PlanFile *f) {
  Span where = {.file = f->file};
  if (f->parts > p->n || f->parts > MOST_STAGES) {
    error_at(where, "PD0603", "'stages' lists %d stages, but the model has only %d place%s to cut", f->parts,
             p->n - 1, p->n == 2 ? "" : "s");
    return false;
  }
  const Pipeline *l = &f->plan.pipeline;
  if (l->first_part && f->parts != pipeline_parts(l)) {
    error_at(where, "PD0603", "'stages' lists %d stages, but 'chunks' lists %d", f->parts, pipeline_parts(l));
    return false;
  }
  if (!l->first_part && f->parts % l->chunks != 0) {
    error_at(where, "PD0603", "'stages' lists %d stages, which is not a multiple of %d per rank", f->parts,
             l->chunks);
    return false;
  }
  return true;
}

/* Finds the first and end piece of each part. */
static bool find_pieces(const Graph *g, const Pieces *p, PlanFile *f) {
  Span where = {.file = f->file};
  StagePlan *s = f->plan.stage;
  for (int i = 0; i < f->parts; i++) {
    const char *start = f->part[i].starts_at, *what = format("stages[%d].starts_at", i);
    s[i].first_piece = piece_find_or_tell(g, p, start, where, what);
    if (s[i].first_piece < 0)
      return false;
    if (i == 0 && s->first_piece != 0) {
      Diagnostic *d = error_at(where, "PD0603", "'%s': stage 0 must start at the start of the model", what);
      help(d, "that is '%s'", p->at[0].name);
      return false;
    }
    if (i > 0 && s[i].first_piece <= s[i - 1].first_piece) {
      error_at(where, "PD0603", "'%s': '%s' is not after the start of the stage before", what, start);
      return false;
    }
    if (i > 0)
      s[i - 1].end_piece = s[i].first_piece;
  }
  s[f->parts - 1].end_piece = p->n;
  return true;
}

/* Sets StagePlan.again from the patterns of a part. False after a diagnostic. */
static bool read_layers(const Graph *g, const Pieces *p, const cJSON *layers, Span where, int i, StagePlan *s) {
  bool *all = alloc((size_t)p->n);
  const cJSON *pattern;
  cJSON_ArrayForEach(pattern, layers) {
    bool *found = alloc((size_t)p->n);
    if (!cJSON_IsString(pattern)) {
      error_at(where, "PD0603", "'stages[%d].recompute' must have names of layers", i);
      return false;
    }
    if (!pieces_selected(g, p, pattern->valuestring, where, format("'stages[%d].recompute'", i), found))
      return false;
    bool any = false;
    for (int k = s->first_piece; k < s->end_piece; k++)
      any |= all[k] = all[k] || found[k];
    if (!any) {
      error_at(where, "PD0603", "'stages[%d].recompute': '%s' is not in this stage", i, pattern->valuestring);
      return false;
    }
  }
  set_recomputed(s, all);
  return true;
}

static bool layers_fit(const Graph *g, const Pieces *p, const PlanFile *f) {
  const Span where = {.file = f->file};
  for (int i = 0; i < f->parts; i++) {
    if (!f->part[i].layers)
      continue;
    if (!schedule_traits(f->plan.pipeline.schedule).layers) {
      error_at(where, "PD0706", "'stages[%d].recompute': '%s' does not support recomputation by layer", i,
               f->plan.pipeline.schedule);
      return false;
    }
    if (!read_layers(g, p, f->part[i].layers, where, i, &f->plan.stage[i]))
      return false;
  }
  return true;
}

static bool recomputation_fits(const PlanFile *f) {
  const Pipeline *l = &f->plan.pipeline;
  for (int i = 0; i < l->n_stages; i++)
    if (l->recompute[i] && !schedule_traits(l->schedule).recomputes) {
      error_at((Span){.file = f->file}, "PD0706", "'stages[%d].recompute': '%s' does not support recomputation", i,
               l->schedule);
      return false;
    }
  return true;
}

/* Whether the schedule supports these ranks and microbatches. */
static bool ranks_fit(const Graph *g, const PlanFile *f) {
  Span where = {.file = f->file};
  const Pipeline *l = &f->plan.pipeline;
  bool generates = g->generation.context > 0;
  if (!form_is_plain(l) && (generates || !schedule_traits(l->schedule).replicas)) {
    error_at(where, "PD0705", "'replicas': '%s' runs each stage on one rank, not on %s",
             generates ? inference_option(g) : l->schedule, replicas_text(l));
    return false;
  }
  if (l->n_stages == 1 && l->chunks > 1 && !schedule_traits(l->schedule).spills) {
    error_at(where, "PD0708", "'chunks': '%s' needs at least two stages, but the plan has one stage of %d chunks",
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
    help(error_at(where, "PD0603", "'tensor': the plan has a tensor-parallel degree of %d rank%s, not %d",
                  f.tensor ? (int)f.tensor : 1, f.tensor ? "s" : "", g->shards ? g->shards : 1),
         f.tensor ? "use '--tensor %d'" : "leave '--tensor' out", (int)f.tensor);
    return NULL;
  }
  if (f.spread != g->spread) {
    help(error_at(where, "PD0603", "'activations_by_positions': the plan is for activations that are %s",
                  f.spread ? "split by positions" : "not split by positions"),
         "add the line 'activations: positions' to the file of '--sharding FILE'");
    return NULL;
  }
  Name schedule = f.plan.pipeline.schedule;
  if (!schedule_named(schedule, where, "'schedule': ") || !schedule_suits(g, schedule, where, "'schedule': ") ||
      !sizes_fit(g, &f) || !settings_fit(&f) || !parts_fit(p, &f) || !plan_file_stages(&f) ||
      !find_pieces(g, p, &f) || !ranks_fit(g, &f) || !recomputation_fits(&f) || !layers_fit(g, p, &f))
    return NULL;
  f.plan.model = g->name;
  return alloc_copy(&f.plan, sizeof f.plan);
}
