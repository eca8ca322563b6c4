/* Reads plan.json without a model: members and types. */
#include <math.h>
#include <string.h>

#include "plan/plan.h"
#include "schedule/program.h"

enum { MOST_THREADS = 4096, MOST_REPLICAS = 4096 };
static const int64_t MOST_BYTES = (int64_t)1 << 50; /* 1 PiB: more than any rank has */

static bool is_there(const JsonPlace *at, const char *key) {
  return cJSON_GetObjectItemCaseSensitive(at->object, key) != NULL;
}

/* Planned times are optional, because the planner computes them again. */
static bool read_times(const JsonPlace *at, StagePlan *s) {
  const struct {
    const char *key;
    double *to;
  } seconds[] = {
      {"forward_seconds", &s->forward_seconds},
      {"backward_seconds", &s->backward_seconds},
      {"weights_seconds", &s->weights_seconds},
      {"update_seconds", &s->update_seconds},
  };
  bool good = true;
  for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++)
    if (is_there(at, seconds[i].key))
      good &= json_get_seconds(at, seconds[i].key, seconds[i].to);
  return good;
}

static bool read_bytes(const JsonPlace *at, StagePlan *s) {
  const struct {
    const char *key;
    int64_t *to;
  } bytes[] = {
      {"peak_bytes", &s->peak_bytes},         {"weight_bytes", &s->weight_bytes},
      {"gradient_bytes", &s->gradient_bytes}, {"optimizer_bytes", &s->optimizer_bytes},
      {"cache_bytes", &s->cache_bytes},
  };
  bool good = !is_there(at, "send_bytes") || json_get_seconds(at, "send_bytes", &s->send_bytes);
  for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
    if (is_there(at, bytes[i].key))
      good &= json_get_int(at, bytes[i].key, 0, MOST_BYTES, bytes[i].to);
  return good;
}

/* Plans of older versions have one rank per stage and no `ahead`. */
static bool read_ranks(const JsonPlace *at, PartInFile *part) {
  int64_t replicas = 1, ahead = 1;
  bool good = true;
  if (is_there(at, "replicas"))
    good &= json_get_int(at, "replicas", 1, MOST_REPLICAS, &replicas);
  if (is_there(at, "ahead"))
    good &= json_get_int(at, "ahead", 1, 2, &ahead);
  part->replicas = (int)replicas;
  part->ahead = (int)ahead;
  return good;
}

/* Notes of the planner: the worth of the recomputation. The forward seconds are known. */
static bool read_worth(const JsonPlace *inside, const PartInFile *part, StagePlan *s) {
  if (is_there(inside, "saves_bytes") && !json_get_int(inside, "saves_bytes", 0, MOST_BYTES, &s->again_bytes))
    return false;
  if (is_there(inside, "adds_seconds") && !json_get_seconds(inside, "adds_seconds", &s->again_seconds))
    return false;
  s->again_seconds = fmax(0, s->again_seconds - (part->recompute ? s->forward_seconds : 0));
  return true;
}

/* "recompute": { "layers": [...], "whole": true, .. } */
static bool read_recomputed(const JsonPlace *at, const cJSON *object, PlanUse use, PartInFile *part,
                            StagePlan *s) {
  static const char *const keys[] = {"layers", "whole", "saves_bytes", "adds_seconds", NULL};
  const JsonPlace inside = {at->file, format("%s.recompute", at->path), object};
  if (use == PLAN_TO_FOLLOW && !json_only(&inside, keys))
    return false;
  if (is_there(&inside, "whole") && !json_get_bool(&inside, "whole", &part->recompute))
    return false;
  if (!read_worth(&inside, part, s))
    return false;
  if (!is_there(&inside, "layers"))
    return true;
  part->layers = json_get_array(&inside, "layers", 0);
  if (part->layers && cJSON_GetArraySize(part->layers) == 0) {
    part->layers = NULL;
    return true;
  }
  return part->layers != NULL;
}

/* An object, or short: true for the whole stage, false, or a list of layers. */
static bool read_recompute(const JsonPlace *at, PlanUse use, PartInFile *part, StagePlan *s) {
  const cJSON *value = cJSON_GetObjectItemCaseSensitive(at->object, "recompute");
  if (cJSON_IsObject(value))
    return read_recomputed(at, value, use, part, s);
  if (cJSON_IsArray(value))
    return (part->layers = json_get_array(at, "recompute", 1)) != NULL;
  return json_get_bool(at, "recompute", &part->recompute);
}

static bool read_part(const JsonPlace *at, PlanUse use, StagePlan *s, PartInFile *part) {
  static const char *const keys[] = {"starts_at",
                                     "recompute",
                                     "replicas",
                                     "ahead",
                                     "ends_with",
                                     "parameters",
                                     "forward_seconds",
                                     "backward_seconds",
                                     "weights_seconds",
                                     "update_seconds",
                                     "send_bytes",
                                     "peak_bytes",
                                     "weight_bytes",
                                     "gradient_bytes",
                                     "optimizer_bytes",
                                     "cache_bytes",
                                     "spans",
                                     "crosses",
                                     NULL};
  if (use == PLAN_TO_FOLLOW && !json_only(at, keys))
    return false;
  if (use == PLAN_TO_DRAW && (!json_member(at, "forward_seconds") || !json_member(at, "backward_seconds")))
    return false;
  bool good = read_times(at, s) && read_ranks(at, part);
  if (use == PLAN_TO_FOLLOW || is_there(at, "recompute"))
    good &= read_recompute(at, use, part, s);
  if (use == PLAN_TO_FOLLOW)
    good &= read_bytes(at, s) && (part->starts_at = json_get_string(at, "starts_at")) != NULL;
  return good;
}

static bool read_parts(const JsonPlace *top, PlanUse use, PlanFile *out) {
  const cJSON *stages = json_get_array(top, "stages", 1);
  if (!stages)
    return false;
  out->parts = cJSON_GetArraySize(stages);
  if (out->parts > MOST_STAGES)
    return true;
  out->part = alloc((size_t)out->parts * sizeof *out->part);
  out->plan.stage = alloc((size_t)out->parts * sizeof *out->plan.stage);
  for (int i = 0; i < out->parts; i++) {
    JsonPlace at = json_element(top, "stages", stages, i);
    if (!read_part(&at, use, &out->plan.stage[i], &out->part[i]))
      return false;
  }
  return true;
}

static bool read_batch(const JsonPlace *top, Pipeline *p) {
  if (!json_get_int(top, "batch", 1, (int64_t)1 << 53, &p->batch) ||
      !json_get_int(top, "microbatch", 1, p->batch, &p->microbatch))
    return false;
  p->microbatches = p->batch / p->microbatch;
  return true;
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

/* Plans of older versions are for CPUs. */
static bool read_target(const JsonPlace *top, Target *out) {
  enum { MOST_TARGETS = 8 };
  int64_t threads;
  const char *targets[MOST_TARGETS], *precisions[N_PRECISIONS], *residuals[N_RESIDUALS];
  int n = 0, target, precision, residual;
  for (; all_backends[n]; n++) {
    ensure(n < MOST_TARGETS);
    targets[n] = all_backends[n]->name;
  }
  for (int i = 0; i < N_PRECISIONS; i++)
    precisions[i] = precision_name((Precision)i);
  for (int i = 0; i < N_RESIDUALS; i++)
    residuals[i] = residual_name((Residual)i);
  if (!read_name(top, "target", targets, n, &target) ||
      !read_name(top, "precision", precisions, N_PRECISIONS, &precision) ||
      !read_name(top, "residual", residuals, N_RESIDUALS, &residual))
    return false;
  out->backend = all_backends[target];
  out->precision = (Precision)precision;
  out->residual = (Residual)residual;
  if (!json_get_int(top, "threads", 1, MOST_THREADS, &threads))
    return false;
  out->threads = (int)threads;
  return true;
}

static bool read_page(const JsonPlace *top, int64_t *page) {
  if (!json_get_int(top, "page_bytes", 4096, (int64_t)1 << 30, page))
    return false;
  if ((*page & (*page - 1)) == 0)
    return true;
  error_at((Span){.file = top->file}, "PD0603", "'page_bytes' is %lld, but must be a power of two",
           (long long)*page);
  return false;
}

static bool read_update(const JsonPlace *top, bool *at_home) {
  static const char *const names[] = {"device", "host"};
  int where = 0;
  if (!read_name(top, "update", names, 2, &where))
    return false;
  *at_home = where == 1;
  return true;
}

/* A number, or a list by stage. Missing: `least`. */
static bool read_by_stage(const JsonPlace *top, const char *key, int64_t least, int64_t most, Ints *to) {
  const cJSON *there = cJSON_GetObjectItemCaseSensitive(top->object, key);
  const int n = cJSON_IsArray(there) ? cJSON_GetArraySize(there) : 1;
  if (n < 1 || n > MAX_CHUNKS) {
    error_at((Span){.file = top->file}, "PD0603", "'%s' lists %d stages, but at most %d can offload", key, n,
             MAX_CHUNKS);
    return false;
  }
  for (int i = 0; i < n; i++) {
    const cJSON *item = cJSON_IsArray(there) ? cJSON_GetArrayItem(there, i) : there;
    if (item && (!cJSON_IsNumber(item) || item->valuedouble < (double)least || item->valuedouble > (double)most ||
                 item->valuedouble != (double)(int)item->valuedouble)) {
      error_at((Span){.file = top->file}, "PD0603",
               "'%s' must be a whole number from %lld to %lld, or one per stage", key, (long long)least,
               (long long)most);
      return false;
    }
    push(to, item ? (int)item->valuedouble : (int)least);
  }
  return true;
}

/* Parts and resident shares of offloaded stages. */
static bool read_chunks(const JsonPlace *top, Pipeline *p) {
  const bool listed = cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(top->object, "chunks"));
  Ints chunks = {0}, kept = {0};
  if (!read_by_stage(top, "chunks", 1, MAX_CHUNKS, &chunks) || !read_by_stage(top, "kept_percent", 0, 100, &kept))
    return false;
  if (kept.n != 1 && kept.n != chunks.n) {
    error_at((Span){.file = top->file}, "PD0603", "'kept_percent' lists %d stages, but 'chunks' lists %d", kept.n,
             chunks.n);
    return false;
  }
  p->chunks = chunks.at[0];
  p->n_stages = chunks.n;
  if (listed)
    pipeline_set_parts(p, chunks.at);
  while (kept.n < chunks.n)
    push(&kept, kept.at[0]);
  p->kept = kept.at;
  return true;
}

static bool read_settings(const JsonPlace *top, Pipeline *p) {
  if (!read_chunks(top, p))
    return false;
  if (is_there(top, "memory_bytes") && !json_get_int(top, "memory_bytes", 0, (int64_t)1 << 53, &p->memory))
    return false;
  if (is_there(top, "page_bytes") && !read_page(top, &p->page))
    return false;
  if (!read_update(top, &p->at_home))
    return false;
  if (is_there(top, "shard_optimizer") && !json_get_bool(top, "shard_optimizer", &p->shard_optimizer))
    return false;
  if (is_there(top, "bucket_bytes") && !json_get_int(top, "bucket_bytes", 1, (int64_t)1 << 53, &p->bucket))
    return false;
  return !is_there(top, "vertical_sync") || json_get_bool(top, "vertical_sync", &p->vertical_sync);
}

/* Placement of ranks: `adjacent` ranks of each stage are neighbours; all stages have equal ranks. */
static bool read_placement(const JsonPlace *top, const PlanFile *f, Placement *out) {
  int64_t adjacent = 0;
  if (is_there(top, "adjacent") && !json_get_int(top, "adjacent", 1, MOST_REPLICAS, &adjacent))
    return false;
  if (is_there(top, "backward") && !json_get_bool(top, "backward", &out->backward))
    return false;
  out->adjacent = (int)adjacent;
  for (int i = 0; adjacent && i < f->parts; i++)
    if (f->part[i].replicas != f->part[0].replicas || f->part[i].replicas % adjacent != 0) {
      error_at((Span){.file = top->file}, "PD0603",
               "'adjacent' is %d, but stage %d has %d ranks and stage 0 has %d", (int)adjacent, i,
               f->part[i].replicas, f->part[0].replicas);
      return false;
    }
  return true;
}

/* Algorithms require the library's version, and the reverse. */
static bool read_algorithms(const JsonPlace *top, Plan *plan) {
  Algorithms all = {0};
  if (!is_there(top, "algorithms") && !is_there(top, "cublaslt"))
    return true;
  if (!product_library_read(top, "cublaslt", &all.library) || !algorithms_read(top, false, &all.of))
    return false;
  plan->algorithms = alloc_copy(&all, sizeof all);
  return true;
}

static bool read_attentions(const JsonPlace *top, Plan *plan) {
  Attentions all = {0};
  if (!is_there(top, "attentions") && !is_there(top, "cudnn"))
    return true;
  if (!product_library_read(top, "cudnn", &all.library) || !attentions_read(top, false, &all.of))
    return false;
  plan->attentions = alloc_copy(&all, sizeof all);
  return true;
}

/* Members that only PLAN_TO_FOLLOW needs. */
static bool read_rest(const JsonPlace *top, PlanFile *out) {
  Plan *plan = &out->plan;
  if (is_there(top, "microbatches") &&
      !json_get_int(top, "microbatches", 1, plan->pipeline.batch, &out->microbatches))
    return false;
  if (is_there(top, "batch_seconds") && !json_get_seconds(top, "batch_seconds", &plan->batch_seconds))
    return false;
  if (is_there(top, "tensor") && !json_get_int(top, "tensor", 2, MOST_REPLICAS, &out->tensor))
    return false;
  if (is_there(top, "activations_by_positions") && !json_get_bool(top, "activations_by_positions", &out->spread))
    return false;
  const char *costs = is_there(top, "costs") ? json_get_string(top, "costs") : "";
  const char *why = is_there(top, "why") ? json_get_string(top, "why") : "";
  const char *device = is_there(top, "device") ? json_get_string(top, "device") : NULL;
  const char *cluster = is_there(top, "cluster") ? json_get_string(top, "cluster") : NULL;
  if (!costs || !why || (is_there(top, "device") && !device) || (is_there(top, "cluster") && !cluster) ||
      (is_there(top, "assumed") && !json_get_bool(top, "assumed", &plan->assumed)))
    return false;
  plan->device = device ? intern(device) : NULL;
  plan->cluster = cluster ? intern(cluster) : NULL;
  plan->costs = intern(costs);
  plan->why = format("%s", why);
  return true;
}

bool plan_file_read(const char *path, PlanUse use, PlanFile *out) {
  static const char *const keys[] = {"model",
                                     "schedule",
                                     "vertical_sync",
                                     "chunks",
                                     "batch",
                                     "microbatch",
                                     "microbatches",
                                     "target",
                                     "precision",
                                     "residual",
                                     "threads",
                                     "stages",
                                     "batch_seconds",
                                     "costs",
                                     "why",
                                     "cache_bytes_a_token",
                                     "device",
                                     "cluster",
                                     "adjacent",
                                     "backward",
                                     "shard_optimizer",
                                     "bucket_bytes",
                                     "memory_bytes",
                                     "kept_percent",
                                     "page_bytes",
                                     "update",
                                     "tensor",
                                     "activations_by_positions",
                                     "assumed",
                                     "cublaslt",
                                     "algorithms",
                                     "cudnn",
                                     "attentions",
                                     NULL};
  *out = (PlanFile){0};
  JsonPlace top = {.path = ""};
  top.object = out->json = json_load(path, &top.file);
  out->file = top.file;
  if (!top.object || (use == PLAN_TO_FOLLOW && !json_only(&top, keys)))
    return false;
  const char *model = json_get_string(&top, "model"), *schedule = json_get_string(&top, "schedule");
  if (!model || !schedule)
    return false;
  out->plan.model = intern(model);
  out->plan.pipeline.schedule = intern(schedule);
  Plan *plan = &out->plan;
  if (!read_batch(&top, &plan->pipeline) || !read_settings(&top, &plan->pipeline) || !read_parts(&top, use, out))
    return false;
  return use == PLAN_TO_DRAW ||
         (read_target(&top, &plan->target) && read_placement(&top, out, &plan->placement) &&
          read_algorithms(&top, plan) && read_attentions(&top, plan) && read_rest(&top, out));
}

bool plan_file_stages(PlanFile *f) {
  Pipeline *to = &f->plan.pipeline;
  const int n_stages = to->first_part ? to->n_stages : f->parts / to->chunks, *kept = to->kept;
  Pipeline by_stage = pipeline_make(to->schedule, n_stages, to->chunks);
  Span where = {.file = f->file};
  bool spills = schedule_known(to->schedule) && schedule_traits(to->schedule).spills;
  to->n_stages = by_stage.n_stages;
  to->replicas = by_stage.replicas;
  to->ahead = by_stage.ahead;
  to->recompute = by_stage.recompute;
  to->kept = by_stage.kept;
  for (int i = 0; i < n_stages; i++)
    to->kept[i] = kept[to->first_part ? i : 0];
  for (int i = 0; i < f->parts; i++) {
    int stage = plan_stage_of(&f->plan, i);
    const int first_part = plan_part_of(&f->plan, stage, 0);
    const PartInFile *part = &f->part[i], *first = &f->part[first_part];
    if (part->replicas != first->replicas || part->ahead != first->ahead) {
      error_at(where, "PD0603", "'stages[%d]': part %d is on the ranks of part %d and must have the same number",
               i, i, first_part);
      return false;
    }
    if (spills && i < MAX_CHUNKS && to->chunks > 1 && (!part->recompute || i + 1 == f->parts))
      to->keeps |= (uint64_t)1 << i; /* the last part never recomputes */
    if (part->recompute != first->recompute && !spills) {
      error_at(where, "PD0706", "'stages[%d].recompute': part %d is on the rank of part %d, which does%s", i, i,
               stage, first->recompute ? "" : " not");
      return false;
    }
    to->replicas[stage] = part->replicas;
    to->ahead[stage] = part->ahead;
    to->recompute[stage] |= part->recompute;
  }
  return true;
}
