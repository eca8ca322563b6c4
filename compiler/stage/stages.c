#include "stage/stages.h"

#include "base/table.h"
#include "fuse/facts.h"
#include "stage/repeats.h"

/* Arguments of fuse() except the graph. */
typedef struct PartKey {
  int64_t first_piece, end_piece, part, parts, microbatch, recompute, split, target, precision, threads;
  Name again;
} PartKey;

/* By chunk: parts of a rank; unused entries are NULL. */
typedef struct MergedKey {
  StageKernels *part[MAX_CHUNKS];
} MergedKey;

/* By chunk: pieces of a rank; unused entries are 0. */
typedef struct HeldKey {
  PieceRange part[MAX_CHUNKS];
  int64_t chunks, precision;
} HeldKey;

/* Everything that decides a rank's kernels, except names. */
typedef struct AlikeKey {
  Signature structure;
  int64_t microbatch, recompute, split, target, precision, threads;
  Name again[MAX_CHUNKS];
  int64_t first,
      end; /* its pieces if names matter, else 0: with sharded state, buckets of gradients end at indexed blocks */
} AlikeKey;

/* Arguments of allocate(): a LoweredStage, and the fields of a Program that it reads. Slots are by chunk; unused
 * entries are 0. */
typedef struct PeakKey {
  int64_t lowered, replicas, versions, accumulators, exchanges, forward_only, sharded, bucket;
  int64_t spilled; /* microbatches; 0: no offload */
  int64_t memory, kept, page, at_home;
  int64_t receives, sends; /* under offload: messages into the first part and out of the last one */
  struct {
    int64_t saved, kept, received, sent, gradients, returned, inputs, deferred, packed;
  } slots[MAX_CHUNKS];
} PeakKey;

/* Memory of a rank without its replicas' exchange buffers. These take a share of its accumulators, or `parts` with
 * sharded optimizer state. */
typedef struct Room {
  int64_t bytes, accumulators, parts;
} Room;

/* Caches: plans share most parts, and parts share structure. */
struct Stages {
  const Graph *g;
  const Pieces *p;
  FuseFacts *facts; /* NULL: not computed yet */
  Table parts;      /* fused parts: StageKernels by PartKey */
  Table merged;     /* merged parts: StageKernels by MergedKey */
  Table lowered;    /* LoweredStages by address of their StageKernels */
  Signer *signer;   /* NULL: not computed yet */
  Table held;       /* Signatures by HeldKey */
  Table alike;      /* by AlikeKey: a LoweredStage of the first such rank, without kernels */
  Table rooms;      /* by PeakKey */
  Arena *scratch;   /* for layouts of ranks */
  Arena *programs;  /* for programs of the current plan */
  Repeats *repeats[N_PRECISIONS];
  bool lays_out_all; /* disables extrapolation from shorter parts */
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
                .rooms = {.key_bytes = sizeof(PeakKey)},
                .scratch = arena_new(),
                .programs = arena_new()};
  return s;
}

StagesWatch stages_watch(const Stages *s) { return s->watch; }

/* ---- stages ------------------------------------------------------------------------------------ */

static const FuseFacts *facts_of(Stages *s) {
  if (!s->facts)
    s->facts = fuse_facts(s->g);
  return s->facts;
}

static StageKernels *fuse_named(Stages *s, const Plan *plan, int part, bool split) {
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
                 .threads = t.threads,
                 .again = of->again};
  double start = seconds_now();
  StageKernels *k = table_find(&s->parts, &key);
  s->watch.fuse.cached += k != NULL;
  if (!k) {
    k = fuse_part(facts_of(s), s->p, of->first_piece, of->end_piece, part, parts, b, recompute, of->again, split,
                  t, true);
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
  int n = pipeline_chunks(&plan->pipeline, stage);
  for (int i = 0; i < n; i++)
    key.part[i] = fuse_named(s, plan, plan_part_of(plan, stage, i), programs[stage].split_backward);
  if (n == 1)
    return key.part[0];
  StageKernels *k = table_find(&s->merged, &key);
  if (!k) {
    table_add(&s->merged, &key, k = merge_chunks(key.part, n));
    k->stage = stage;
    k->n_stages = plan->pipeline.n_stages;
  }
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

/* A rank of a plan, possibly with replaced parts. */
typedef struct Rank {
  const Plan *plan;
  const Program *program;
  PieceRange part[MAX_CHUNKS];
  Name again[MAX_CHUNKS]; /* StagePlan.again */
} Rank;

static Rank rank_of(const Plan *plan, const Program *programs, int stage) {
  Rank r = {.plan = plan, .program = &programs[stage]};
  for (int i = 0; i < r.program->chunks; i++) {
    const StagePlan *part = &plan->stage[plan_part_of(plan, stage, i)];
    r.part[i] = (PieceRange){part->first_piece, part->end_piece};
    r.again[i] = part->again;
  }
  return r;
}

static Signer *signer_of(Stages *s) {
  if (!s->signer)
    s->signer = signer_new(s->g, s->p);
  return s->signer;
}

static Signature sign_rank(Stages *s, const Rank *r) {
  HeldKey key = {.chunks = r->program->chunks, .precision = r->plan->target.precision};
  for (int i = 0; i < key.chunks; i++)
    key.part[i] = r->part[i];
  Signature *known = table_find(&s->held, &key);
  if (!known) {
    known = alloc(sizeof *known);
    *known = sign_parts(signer_of(s), key.part, (int)key.chunks, r->plan->target.precision);
    table_add(&s->held, &key, known);
  }
  return *known;
}

#define COPY(v) ((v)->at = alloc_copy((v)->at, (size_t)(v)->n * sizeof *(v)->at), (v)->room = (v)->n)

/* Copies the fields that allocate() reads. */
static LoweredStage *sizes_of(const LoweredStage *from) {
  StageKernels *k = alloc_copy(from->kernels, sizeof *k);
  LoweredStage *l = alloc(sizeof *l);
  Lowered most = {0};
  for (int list = 0; list < N_LISTS; list++)
    for (int i = 0; i < from->list[list].n; i++) {
      const Lowered *x = &from->list[list].at[i];
      if (x->scratch_bytes > most.scratch_bytes)
        most.scratch_bytes = x->scratch_bytes;
      if (x->meeting_bytes > most.meeting_bytes)
        most.meeting_bytes = x->meeting_bytes;
    }
  push(&l->list[0], most);
  l->kernels = k;
  k->setup = k->forward = k->backward = k->weights = (Kernels){0};
  k->received = k->sent = k->gradients_received = k->gradients_sent = (Ints){0};
  COPY(&k->buffers);
  COPY(&k->regions);
  COPY(&k->params);
  COPY(&k->chunks);
  return l;
}

static LoweredStage *lay_out(Stages *s, const Rank *r) {
  const Pipeline *p = &r->plan->pipeline;
  const FuseFacts *facts = facts_of(s);
  int stage = r->program->stage, n = r->program->chunks;
  StageKernels *part[MAX_CHUNKS];
  Arena *lasting = arena_use(s->scratch);
  ArenaMark mark = arena_mark();
  double start = seconds_now();
  for (int i = 0; i < n; i++)
    part[i] = fuse_part(facts, s->p, r->part[i].first, r->part[i].end, plan_part_of(r->plan, stage, i),
                        plan_parts(r->plan), p->microbatch, p->recompute[stage], r->again[i],
                        r->program->split_backward, r->plan->target, false);
  StageKernels *k = merge_chunks(part, n);
  watch_add(&s->watch.fuse, start);
  s->watch.fuse.runs += n - 1;
  start = seconds_now();
  LoweredStage *made = lower(k);
  watch_add(&s->watch.lower, start);
  arena_use(lasting);
  LoweredStage *l = sizes_of(made);
  arena_use(s->scratch);
  arena_release(mark);
  arena_use(lasting);
  return l;
}

/* The layout of all ranks that differ from this one only in names. */
static const LoweredStage *lay_out_alike(Stages *s, const Rank *r) {
  Target t = r->plan->target;
  AlikeKey key = {.structure = sign_rank(s, r),
                  .microbatch = r->plan->pipeline.microbatch,
                  .recompute = r->plan->pipeline.recompute[r->program->stage],
                  .split = r->program->split_backward,
                  .target = (int64_t)(intptr_t)backend_of(&t),
                  .precision = t.precision,
                  .threads = t.threads};
  for (int i = 0; i < r->program->chunks; i++)
    key.again[i] = r->again[i];
  if (r->program->sharded && r->program->bucket)
    key.first = r->part->first, key.end = r->part->end;
  LoweredStage *l = table_find(&s->alike, &key);
  if (!l)
    table_add(&s->alike, &key, l = lay_out(s, r));
  return l;
}

static PeakKey peak_key(const LoweredStage *l, const Program *p) {
  PeakKey key = {.lowered = (int64_t)(intptr_t)l,
                 .replicas = p->replicas,
                 .versions = p->versions,
                 .accumulators = p->accumulators,
                 .exchanges = p->exchanges,
                 .forward_only = p->forward_only,
                 .sharded = p->sharded,
                 .bucket = p->sharded ? p->bucket : 0, /* otherwise memory does not depend on it */
                 .spilled = p->offload.on ? p->period : 0,
                 .memory = p->offload.memory,
                 .kept = p->offload.pinned,
                 .page = p->offload.page,
                 .at_home = p->offload.host_updates,
                 .receives = p->offload.on && program_receives(p, 0),
                 .sends = p->offload.on && program_sends(p, p->chunks - 1)};
  for (int i = 0; i < p->chunks; i++) {
    const Slots *slots = &p->slots[i];
    key.slots[i].saved = allocation_saved_slots(p, i);
    key.slots[i].kept = slots->saved;
    key.slots[i].received = slots->received;
    key.slots[i].sent = slots->sent;
    key.slots[i].gradients = slots->gradients;
    key.slots[i].returned = slots->returned;
    key.slots[i].inputs = slots->inputs;
    key.slots[i].deferred = slots->deferred;
    key.slots[i].packed = allocation_saved_packed(p, i);
  }
  return key;
}

static Room room_of(Stages *s, const Rank *r) {
  const LoweredStage *l = lay_out_alike(s, r);
  PeakKey key = peak_key(l, r->program);
  Room *room = table_find(&s->rooms, &key);
  if (!room) {
    room = alloc(sizeof *room);
    Arena *lasting = arena_use(s->scratch);
    ArenaMark mark = arena_mark();
    const Allocation *a = stages_allocate(s, l, r->program);
    *room = (Room){a->resident_bytes - r->program->exchanges * a->reduced_bytes, a->accumulators_bytes,
                   a->shard ? a->reduced_bytes : 0};
    arena_release(mark);
    arena_use(lasting);
    table_add(&s->rooms, &key, room);
  }
  return *room;
}

/* ---- repeated blocks ------------------------------------------------------------------------------ */

static const Repeats *repeats_of(Stages *s, Precision precision) {
  if (!s->repeats[precision]) {
    s->repeats[precision] = alloc(sizeof(Repeats));
    *s->repeats[precision] = repeats_find(signer_of(s), s->g, s->p, precision);
  }
  return s->repeats[precision];
}

static bool grows_evenly(const Room *room, int n, Room *by) {
  *by = (Room){room[n - 1].bytes - room[n - 2].bytes, room[n - 1].accumulators - room[n - 2].accumulators, 0};
  for (int i = 1; i < n - 1; i++)
    if (room[i].bytes - room[i - 1].bytes != by->bytes ||
        room[i].accumulators - room[i - 1].accumulators != by->accumulators)
      return false;
  return true;
}

/* Extrapolates a part with many repeated blocks from three, four and five blocks, if each adds the same. Needs
 * more than nine, because fewer are laid out as fast. Sharded optimizer state is excluded: whole tiles make parts
 * uneven. */
static bool room_from_few(Stages *s, const Rank *r, Room *room) {
  enum { FEWEST = 3, N = 3, MANY = 10 };
  if (s->lays_out_all || r->program->chunks > 1 || r->program->sharded || r->again[0])
    return false;
  const Repeats *repeats = repeats_of(s, r->plan->target.precision);
  Rank shorter = *r;
  Room few[N], by;
  int count;
  if (!repeats_shorten(repeats, r->part[0], MANY - 1, &shorter.part[0], &count))
    return false;
  for (int i = 0; i < N; i++) {
    repeats_shorten(repeats, r->part[0], FEWEST + i, &shorter.part[0], &count);
    few[i] = room_of(s, &shorter);
  }
  if (!grows_evenly(few, N, &by))
    return false;
  int64_t more = count - (FEWEST + N - 1);
  *room = (Room){few[N - 1].bytes + more * by.bytes, few[N - 1].accumulators + more * by.accumulators, 0};
  return true;
}

static int64_t peak_of(const Room *room, const Program *p) {
  int64_t shards = (p->replicas - 1) * shard_bytes(room->accumulators, p->replicas);
  return room->bytes + p->exchanges * (p->sharded ? room->parts : shards);
}

static int64_t peak_in(Stages *s, const Plan *plan, const Program *programs, int stage) {
  double start = seconds_now();
  int64_t fused = s->watch.fuse.runs;
  double beside = s->watch.fuse.seconds + s->watch.lower.seconds + s->watch.allocate.seconds;
  Rank r = rank_of(plan, programs, stage);
  Room room;
  if (!room_from_few(s, &r, &room))
    room = room_of(s, &r);
  watch_add(&s->watch.sign, start);
  s->watch.sign.seconds -= s->watch.fuse.seconds + s->watch.lower.seconds + s->watch.allocate.seconds - beside;
  s->watch.sign.cached += s->watch.fuse.runs == fused;
  return peak_of(&room, r.program);
}

int64_t stages_peak(void *stages, const Plan *plan, int stage) {
  Stages *s = stages;
  Arena *lasting = arena_use(s->programs);
  ArenaMark mark = arena_mark();
  const Program *programs = stages_schedule(s, plan);
  arena_use(lasting);
  if (!programs) /* its diagnostics are after the caller's mark */
    return INT64_MAX;
  int64_t peak = peak_in(s, plan, programs, stage);
  arena_use(s->programs);
  arena_release(mark);
  arena_use(lasting);
  return peak;
}

bool stages_confirm(Stages *s, const Plan *plan) {
  if (s->lays_out_all) /* peaks already come from full layouts */
    return true;
  const Program *programs = stages_schedule(s, plan);
  for (int stage = 0; stage < plan->pipeline.n_stages; stage++) {
    Rank r = rank_of(plan, programs, stage);
    Room room = room_of(s, &r);
    s->lays_out_all |= peak_of(&room, r.program) != stages_peak(s, plan, stage);
  }
  return !s->lays_out_all;
}
