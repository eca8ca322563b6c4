#include "stage/stages.h"

#include "base/table.h"

/* All that fuse() is given beside the graph. */
typedef struct PartKey {
  int64_t first_piece, end_piece, part, parts, microbatch, recompute, split, target, precision, threads;
} PartKey;

/* A rank's parts, one a chunk; the rest NULL. */
typedef struct MergedKey {
  StageKernels *part[MAX_CHUNKS];
} MergedKey;

/* What was made: plans share most of their parts. */
struct Stages {
  const Graph *g;
  const Pieces *p;
  Table parts;   /* of fused parts: StageKernels by PartKey */
  Table merged;  /* of several: StageKernels by MergedKey */
  Table lowered; /* LoweredStages by their StageKernels' address */
  StagesWatch watch;
};

Stages *stages_new(const Graph *g, const Pieces *p) {
  Stages *s = alloc(sizeof *s);
  *s = (Stages){.g = g,
                .p = p,
                .parts = {.key_bytes = sizeof(PartKey)},
                .merged = {.key_bytes = sizeof(MergedKey)},
                .lowered = {.key_bytes = sizeof(StageKernels *)}};
  return s;
}

StagesWatch stages_watch(const Stages *s) { return s->watch; }

/* ---- stages ------------------------------------------------------------------------------------ */

static StageKernels *fuse_part(Stages *s, const Plan *plan, int part, bool split) {
  const StagePlan *of = &plan->stage[part];
  Target t = plan->target;
  bool recompute = plan_recomputes(plan, part);
  int parts = plan_parts(plan);
  int64_t b = plan->pipeline.microbatch;
  PartKey key = {.first_piece = of->first_piece,
                 .end_piece = of->end_piece,
                 .part = part,
                 .parts = parts,
                 .microbatch = b,
                 .recompute = recompute,
                 .split = split,
                 .target = (int64_t)(intptr_t)backend_of(&t),
                 .precision = t.precision,
                 .threads = t.threads};
  double start = seconds_now();
  StageKernels *k = table_find(&s->parts, &key);
  s->watch.fuse.cached += k != NULL;
  if (!k) {
    k = fuse(s->g, s->p, of->first_piece, of->end_piece, part, parts, b, recompute, split, t);
    table_add(&s->parts, &key, k);
  }
  watch_add(&s->watch.fuse, start);
  return k;
}

Program *stages_schedule(Stages *s, const Plan *plan) {
  double start = seconds_now();
  Program *p = schedule(&plan->pipeline, plan_exchanges(s->g, s->p, plan), s->g->train.pipeline_span);
  watch_add(&s->watch.schedule, start);
  return p;
}

StageKernels *stages_fuse(Stages *s, const Plan *plan, const Program *programs, int stage) {
  MergedKey key = {{NULL}};
  int n = plan->pipeline.chunks;
  for (int i = 0; i < n; i++)
    key.part[i] = fuse_part(s, plan, plan_part_of(plan, stage, i), programs[stage].split_backward);
  if (n == 1)
    return key.part[0];
  StageKernels *k = table_find(&s->merged, &key);
  if (!k)
    table_add(&s->merged, &key, k = merge_chunks(key.part, n));
  return k;
}

LoweredStage *stages_lower(Stages *s, const StageKernels *k) {
  double start = seconds_now();
  LoweredStage *lowered = table_find(&s->lowered, &k);
  s->watch.lower.cached += lowered != NULL;
  if (!lowered)
    table_add(&s->lowered, &k, lowered = lower(k));
  watch_add(&s->watch.lower, start);
  return lowered;
}

Allocation *stages_allocate(Stages *s, const LoweredStage *stage, const Program *program) {
  double start = seconds_now();
  Allocation *l = allocate(stage, program, &s->g->train);
  watch_add(&s->watch.allocate, start);
  return l;
}

int64_t stages_peak(void *stages, const Plan *plan, int stage) {
  Stages *s = stages;
  const Program *programs = stages_schedule(s, plan);
  if (!programs)
    return INT64_MAX;
  return stages_allocate(s, stages_lower(s, stages_fuse(s, plan, programs, stage)), &programs[stage])->bytes;
}
