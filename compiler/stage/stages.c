#include "stage/stages.h"

#include <string.h>

/* All that fuse() is given beside the graph. Members of one size: keys are hashed and compared as bytes. */
typedef struct PartKey {
  int64_t first_piece, end_piece, part, parts, microbatch, recompute, split, target, precision, threads;
} PartKey;

typedef struct CachedPart {
  PartKey key;
  StageKernels *kernels; /* NULL: the slot is free */
  LoweredStage *lowered; /* NULL: not asked for */
} CachedPart;

struct Stages {
  const Graph *g;
  const Pieces *p;
  CachedPart *cached; /* open addressing, at most half full */
  size_t room, n;     /* room: a power of two */
  StagesWatch watch;
};

Stages *stages_new(const Graph *g, const Pieces *p) {
  Stages *s = alloc(sizeof *s);
  *s = (Stages){.g = g, .p = p, .room = 256};
  s->cached = alloc(s->room * sizeof *s->cached);
  return s;
}

StagesWatch stages_watch(const Stages *s) { return s->watch; }

/* ---- the cache of parts ------------------------------------------------------------------------- */

/* FNV-1a over words. */
static size_t hash(const PartKey *key) {
  uint64_t word[sizeof *key / sizeof(uint64_t)], h = 0xcbf29ce484222325u;
  memcpy(word, key, sizeof *key);
  for (size_t i = 0; i < sizeof word / sizeof *word; i++)
    h = (h ^ word[i]) * 0x100000001b3u;
  return (size_t)(h ^ h >> 32);
}

/* The key's slot, or the free one where it belongs. */
static CachedPart *find_slot(CachedPart *cached, size_t room, const PartKey *key) {
  size_t i = hash(key) & (room - 1);
  while (cached[i].kernels && memcmp(&cached[i].key, key, sizeof *key) != 0)
    i = (i + 1) & (room - 1);
  return &cached[i];
}

static void grow(Stages *s) {
  size_t room = 2 * s->room;
  CachedPart *cached = alloc(room * sizeof *cached);
  for (size_t i = 0; i < s->room; i++)
    if (s->cached[i].kernels)
      *find_slot(cached, room, &s->cached[i].key) = s->cached[i];
  s->cached = cached;
  s->room = room;
}

/* Holds until the next part is fused. */
static CachedPart *fuse_part(Stages *s, const Plan *plan, int part, bool split) {
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
  CachedPart *slot = find_slot(s->cached, s->room, &key);
  if (slot->kernels) {
    s->watch.fuse.cached++;
    watch_add(&s->watch.fuse, start);
    return slot;
  }
  StageKernels *k = fuse(s->g, s->p, of->first_piece, of->end_piece, part, parts, b, recompute, split, t);
  *slot = (CachedPart){key, k, NULL};
  if (2 * ++s->n > s->room)
    grow(s);
  watch_add(&s->watch.fuse, start);
  return find_slot(s->cached, s->room, &key);
}

/* ---- stages ------------------------------------------------------------------------------------ */

Program *stages_schedule(Stages *s, const Plan *plan) {
  double start = seconds_now();
  Program *p = schedule(&plan->pipeline, plan_exchanges(s->g, s->p, plan), s->g->train.pipeline_span);
  watch_add(&s->watch.schedule, start);
  return p;
}

StageKernels *stages_fuse(Stages *s, const Plan *plan, const Program *programs, int stage) {
  StageKernels *chunk[MAX_CHUNKS];
  for (int i = 0; i < plan->pipeline.chunks; i++)
    chunk[i] = fuse_part(s, plan, plan_part_of(plan, stage, i), programs[stage].split_backward)->kernels;
  return merge_chunks(chunk, plan->pipeline.chunks);
}

LoweredStage *stages_lower(Stages *s, const Plan *plan, const Program *programs, int stage) {
  bool split = programs[stage].split_backward, one = plan->pipeline.chunks == 1;
  CachedPart *part = one ? fuse_part(s, plan, stage, split) : NULL;
  StageKernels *k = one ? part->kernels : stages_fuse(s, plan, programs, stage);
  double start = seconds_now();
  LoweredStage *lowered = one && part->lowered ? part->lowered : lower(k);
  if (one) {
    s->watch.lower.cached += part->lowered != NULL;
    part->lowered = lowered;
  }
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
  return stages_allocate(s, stages_lower(s, plan, programs, stage), &programs[stage])->bytes;
}
