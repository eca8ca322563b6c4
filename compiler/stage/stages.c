#include "stage/stages.h"

#include "base/table.h"
#include "stage/signature.h"

/* All that fuse() is given beside the graph. */
typedef struct PartKey {
  int64_t first_piece, end_piece, part, parts, microbatch, recompute, split, target, precision, threads;
} PartKey;

/* A rank's parts, one a chunk; the rest NULL. */
typedef struct MergedKey {
  StageKernels *part[MAX_CHUNKS];
} MergedKey;

/* Which pieces a rank holds: the rest 0. */
typedef struct HeldKey {
  PieceRange part[MAX_CHUNKS];
  int64_t chunks, precision;
} HeldKey;

/* All that decides a rank's kernels, up to names. */
typedef struct AlikeKey {
  Signature structure;
  int64_t microbatch, recompute, split, target, precision, threads;
} AlikeKey;

/* All that allocate() is given: a LoweredStage, and what it reads of a Program. Slots are by chunk, the rest 0. */
typedef struct PeakKey {
  int64_t lowered, replicas, versions, accumulators, exchanges, forward_only;
  struct {
    int64_t saved, kept, received, sent, gradients, inputs, deferred, packed;
  } slots[MAX_CHUNKS];
} PeakKey;

/* What was made: plans share most of their parts, and parts much of their structure. */
struct Stages {
  const Graph *g;
  const Pieces *p;
  Table parts;    /* of fused parts: StageKernels by PartKey */
  Table merged;   /* of several: StageKernels by MergedKey */
  Table lowered;  /* LoweredStages by their StageKernels' address */
  Signer *signer; /* NULL: no peak was asked for yet */
  Table held;     /* Signatures by HeldKey */
  Table alike;    /* by AlikeKey: the LoweredStage of the first such rank */
  Table peaks;    /* int64_t by PeakKey */
  StagesWatch watch;
};

Stages *stages_new(const Graph *g, const Pieces *p) {
  Stages *s = alloc(sizeof *s);
  *s = (Stages){.g = g,
                .p = p,
                .parts = {.key_bytes = sizeof(PartKey)},
                .merged = {.key_bytes = sizeof(MergedKey)},
                .lowered = {.key_bytes = sizeof(StageKernels *)},
                .held = {.key_bytes = sizeof(HeldKey)},
                .alike = {.key_bytes = sizeof(AlikeKey)},
                .peaks = {.key_bytes = sizeof(PeakKey)}};
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

/* ---- peaks ------------------------------------------------------------------------------------- */

static Signature sign_rank(Stages *s, const Plan *plan, int stage) {
  HeldKey key = {.chunks = plan->pipeline.chunks, .precision = plan->target.precision};
  for (int i = 0; i < key.chunks; i++) {
    const StagePlan *part = &plan->stage[plan_part_of(plan, stage, i)];
    key.part[i] = (PieceRange){part->first_piece, part->end_piece};
  }
  Signature *known = table_find(&s->held, &key);
  if (!known) {
    if (!s->signer)
      s->signer = signer_new(s->g, s->p);
    known = alloc(sizeof *known);
    *known = sign_parts(s->signer, key.part, (int)key.chunks, plan->target.precision);
    table_add(&s->held, &key, known);
  }
  return *known;
}

/* This rank's kernels, or those of another that differ in names alone. */
static LoweredStage *lower_alike(Stages *s, const Plan *plan, const Program *programs, int stage) {
  Target t = plan->target;
  double start = seconds_now();
  AlikeKey key = {.structure = sign_rank(s, plan, stage),
                  .microbatch = plan->pipeline.microbatch,
                  .recompute = plan->pipeline.recompute[stage],
                  .split = programs[stage].split_backward,
                  .target = (int64_t)(intptr_t)backend_of(&t),
                  .precision = t.precision,
                  .threads = t.threads};
  LoweredStage *l = table_find(&s->alike, &key);
  s->watch.sign.cached += l != NULL;
  watch_add(&s->watch.sign, start);
  if (!l)
    table_add(&s->alike, &key, l = stages_lower(s, stages_fuse(s, plan, programs, stage)));
  return l;
}

static PeakKey peak_key(const LoweredStage *l, const Program *p) {
  PeakKey key = {.lowered = (int64_t)(intptr_t)l,
                 .replicas = p->replicas,
                 .versions = p->versions,
                 .accumulators = p->accumulators,
                 .exchanges = p->exchanges,
                 .forward_only = p->forward_only};
  for (int i = 0; i < p->chunks; i++) {
    const Slots *slots = &p->slots[i];
    key.slots[i].saved = allocation_saved_slots(p, i);
    key.slots[i].kept = slots->saved;
    key.slots[i].received = slots->received;
    key.slots[i].sent = slots->sent;
    key.slots[i].gradients = slots->gradients;
    key.slots[i].inputs = slots->inputs;
    key.slots[i].deferred = slots->deferred;
    key.slots[i].packed = allocation_saved_packed(p, i);
  }
  return key;
}

int64_t stages_peak(void *stages, const Plan *plan, int stage) {
  Stages *s = stages;
  const Program *programs = stages_schedule(s, plan);
  if (!programs)
    return INT64_MAX;
  const LoweredStage *l = lower_alike(s, plan, programs, stage);
  PeakKey key = peak_key(l, &programs[stage]);
  int64_t *bytes = table_find(&s->peaks, &key);
  if (!bytes) {
    bytes = alloc(sizeof *bytes);
    *bytes = stages_allocate(s, l, &programs[stage])->bytes;
    table_add(&s->peaks, &key, bytes);
  }
  return *bytes;
}
