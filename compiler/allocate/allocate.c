/* Places all data of a stage in the arena: first the structs, then the workspace, packed by live ranges. */
#include "allocate/allocation.h"
#include "optimizers/optimizer.h"

static const char *const section_names[SECTION_COUNT] = {
    "weights",        "frozen",    "gradients", "moments",  "own moments", "masters",
    "averages",       "exchanged", "inputs",    "received", "sent",        "gradients received",
    "gradients sent", "tables",    "caches",    "figures",  "saved",       "kept",
    "deferred",       "workspace", "scratch",   "meeting",
};

Ints allocation_members(const StageKernels *k, BufferKind kind, int chunk) {
  Ints members = {0};
  for (int region = 0; region <= k->regions.n; region++)
    for (int i = 0; i < k->buffers.n; i++) {
      const Buffer *b = &k->buffers.at[i];
      int owner = b->region < 0 ? k->regions.n : b->region;
      if (b->kind == kind && owner == region && (chunk < 0 || b->chunk == chunk))
        push(&members, i);
    }
  return members;
}

bool allocation_saved_packed(const Program *p, int chunk) {
  return allocation_saved_slots(p, chunk) == 1 &&
         (p->chunks == 1 || (p->offload.on ? !program_keeps(p, chunk) : program_recomputes(p)));
}

/* The time of a pass's kernel: chunk after chunk, each with its passes in order. */
static int time_of(const Chunk *c, PassKind pass, int kernel) {
  for (PassKind other = 0; other < PASS_KINDS; other++)
    kernel += other < pass ? c->end[other] : other > pass ? c->first[other] : 0;
  return kernel;
}

void allocation_live_range(const StageKernels *k, const Buffer *b, int *first, int *last) {
  const Chunk *c = &k->chunks.at[b->chunk];
  *first = time_of(c, buffer_made(b), b->first);
  *last = time_of(c, buffer_read_last(b), b->last);
}

/* Opens a section at the arena's current end. */
static Section section(Allocation *a, SectionKind kind, int64_t bytes, int copies) {
  Section s = {section_names[kind], a->bytes, bytes, bytes == 0 ? 0 : copies};
  a->bytes += s.bytes * s.copies;
  a->section[kind] = s;
  return s;
}

/* A section that is `copies` structs of the buffers of one kind; returns it. */
static Section structs(const StageKernels *k, Allocation *a, SectionKind kind, BufferKind buffers, int chunk,
                       int copies) {
  Ints members = allocation_members(k, buffers, chunk);
  int64_t bytes = 0;
  for (int i = 0; i < members.n; i++) {
    a->buffer[members.at[i]] = (Location){a->bytes + bytes, 0, copies};
    bytes += buffer_bytes(&k->buffers.at[members.at[i]]);
  }
  for (int i = 0; i < members.n; i++)
    a->buffer[members.at[i]].stride = bytes;
  return section(a, kind, bytes, copies);
}

/* Copies of a kind's struct that a chunk has. */
static int copies_of(const StageKernels *k, const Program *p, SectionKind kind, int chunk) {
  const Slots *s = &p->slots[chunk];
  switch (kind) {
  case SECTION_INPUTS: return s->inputs;
  case SECTION_RECEIVED: return s->received;
  /* Under offload, values are sent into the slot of the rank's next part, and gradients into that of the previous
   * part. A recomputation writes sent values to an extra slot, because a message may be using the original one. */
  case SECTION_SENT:
    if (p->offload.on)
      return program_sends(p, chunk) ? s->sent + program_reruns(p, chunk) : 0;
    return s->sent + (k->recompute ? 1 : 0);
  case SECTION_GRADIENTS_RECEIVED: return s->gradients;
  case SECTION_GRADIENTS_SENT: return p->offload.on && !program_receives(p, chunk) ? 0 : s->returned;
  case SECTION_SAVED: return allocation_saved_packed(p, chunk) ? 0 : allocation_saved_slots(p, chunk);
  case SECTION_KEPT: return s->saved;
  case SECTION_DEFERRED: return s->deferred;
  default: BUG("section %d is not divided by chunk", kind);
  }
}

static void chunk_structs(const StageKernels *k, const Program *p, Allocation *a, SectionKind kind,
                          BufferKind buffers) {
  int64_t from = a->bytes;
  for (int chunk = 0; chunk < k->chunks.n; chunk++) {
    int copies = copies_of(k, p, kind, chunk);
    if (copies > 0)
      a->chunk_section[kind][chunk] = structs(k, a, kind, buffers, chunk, copies);
    else
      a->chunk_section[kind][chunk] = section(a, kind, 0, 0);
  }
  if (k->chunks.n > 1)
    a->section[kind] = (Section){section_names[kind], from, a->bytes - from, a->bytes > from};
}

static bool computed_here(const StageKernels *k, int param, int use) {
  for (int i = 0; i < k->buffers.n; i++) {
    const Buffer *b = &k->buffers.at[i];
    if (b->kind == BUFFER_ACCUMULATOR && b->param == param && b->use == use)
      return true;
  }
  return false;
}

/* Space for gradients of this stage's parameters that other stages or replicas compute. */
static void exchanged(const StageKernels *k, const Program *program, Allocation *a) {
  int64_t bytes = 0;
  for (int i = 0; i < k->params.n; i++) {
    int param = k->params.at[i];
    const Param *p = &k->graph->params.at[param];
    for (int use = 0; use < p->uses.n; use++)
      if (use < p->gradients.n && p->gradients.at[use] >= 0 && !computed_here(k, param, use)) {
        int64_t elements = shape_elements(&p->shape);
        push(&a->exchanged, (Exchanged){param, use, a->bytes + bytes, elements});
        bytes += (elements * 4 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
      }
  }
  int replicas = program->replicas;
  a->reduced_offset = a->bytes + bytes;
  a->reduced_bytes = (replicas - 1) *
                     (a->shard ? shard_gradient_bytes(k, a->shard) : shard_bytes(a->accumulators_bytes, replicas));
  section(a, SECTION_EXCHANGED, bytes + a->reduced_bytes, program->exchanges);
}

/* The frame of a region's temporaries in one direction; the buffers' offsets are relative to it. */
static int64_t region_frame(const StageKernels *k, Allocation *a, int region, bool backward) {
  Vec(LiveRange) ranges = {0};
  Ints buffers = {0};
  for (int i = 0; i < k->buffers.n; i++) {
    const Buffer *b = &k->buffers.at[i];
    if (b->kind == BUFFER_TEMPORARY && b->region == region && b->backward == backward) {
      push(&ranges, (LiveRange){buffer_bytes(b), b->first, b->last, 0});
      push(&buffers, i);
    }
  }
  int64_t bytes = pack(ranges.at, ranges.n);
  for (int i = 0; i < buffers.n; i++)
    a->buffer[buffers.at[i]] = (Location){ranges.at[i].offset, 0, 1};
  return bytes;
}

/* The ranges of the workspace, and the offsets to fill. */
typedef struct Packing {
  Vec(LiveRange) ranges;
  Vec(int64_t *) result; /* parallel to ranges: the offset to set */
} Packing;

static void packing_add(Packing *p, int64_t bytes, int first, int last, int64_t *result) {
  *result = -1;
  if (bytes == 0)
    return;
  push(&p->ranges, (LiveRange){bytes, first, last, 0});
  push(&p->result, result);
}

/* A region's saved struct as one range, live from the first write to the last use of any member. */
static void pack_saved(const StageKernels *k, Allocation *a, Packing *p, Ints members, int from, int end,
                       int64_t *start) {
  int64_t bytes = 0;
  int first = 0, last = 0;
  for (int i = from; i < end; i++) {
    const Buffer *b = &k->buffers.at[members.at[i]];
    int f, e;
    allocation_live_range(k, b, &f, &e);
    if (i == from || f < first)
      first = f;
    if (i == from || e > last)
      last = e;
    a->buffer[members.at[i]] = (Location){bytes, 0, 1};
    bytes += buffer_bytes(b);
  }
  packing_add(p, bytes, first, last, start);
}

static int region_of(const StageKernels *k, Ints members, int i) { return k->buffers.at[members.at[i]].region; }

/* A chunk's saved values: a struct per region, and separate places for values outside regions. */
typedef struct SavedStarts {
  Ints members;
  int64_t *start; /* by member; -1: directly after the previous member */
} SavedStarts;

static SavedStarts saved_in_workspace(const StageKernels *k, Allocation *a, Packing *p, int chunk) {
  Ints members = allocation_members(k, BUFFER_SAVED, chunk);
  int64_t *start = alloc((size_t)(members.n + 1) * sizeof *start);
  for (int i = 0, end; i < members.n; i = end) {
    int region = region_of(k, members, i);
    end = i + 1;
    while (region >= 0 && end < members.n && region_of(k, members, end) == region)
      end++;
    pack_saved(k, a, p, members, i, end, &start[i]);
    for (int j = i + 1; j < end; j++)
      start[j] = -1;
  }
  return (SavedStarts){members, start};
}

static void settle_saved(const StageKernels *k, Allocation *a, const SavedStarts *saved) {
  for (int i = 0, at = 0; i < saved->members.n; i++) {
    if (saved->start[i] >= 0)
      at = i;
    a->buffer[saved->members.at[i]].offset += saved->start[at];
    a->saved_bytes += buffer_bytes(&k->buffers.at[saved->members.at[i]]);
  }
}

static void pack_frames(const StageKernels *k, Allocation *a, Packing *p) {
  for (int i = 0; i < k->regions.n; i++) {
    const Region *r = &k->regions.at[i];
    const Chunk *c = &k->chunks.at[r->chunk];
    packing_add(p, region_frame(k, a, i, false), time_of(c, PASS_FORWARD, r->first[PASS_FORWARD]),
                time_of(c, PASS_FORWARD, r->end[PASS_FORWARD] - 1), &a->frame[i]);
    packing_add(p, region_frame(k, a, i, true), time_of(c, PASS_BACKWARD, r->first[PASS_BACKWARD]),
                time_of(c, PASS_BACKWARD, r->end[PASS_BACKWARD] - 1), &a->frame_backward[i]);
  }
}

static void pack_between_regions(const StageKernels *k, Allocation *a, Packing *p) {
  for (int i = 0; i < k->buffers.n; i++) {
    const Buffer *b = &k->buffers.at[i];
    if (b->kind != BUFFER_TEMPORARY || b->region >= 0)
      continue;
    int first, last;
    allocation_live_range(k, b, &first, &last);
    a->buffer[i] = (Location){0, 0, 1};
    packing_add(p, buffer_bytes(b), first, last, &a->buffer[i].offset);
  }
}

static void workspace(const StageKernels *k, const Program *program, Allocation *a) {
  Packing p = {0};
  SavedStarts saved[MAX_CHUNKS] = {{.start = NULL}};
  pack_frames(k, a, &p);
  pack_between_regions(k, a, &p);
  for (int chunk = 0; chunk < k->chunks.n; chunk++) {
    if (allocation_saved_packed(program, chunk))
      saved[chunk] = saved_in_workspace(k, a, &p, chunk);
    a->saved_bytes += a->chunk_section[SECTION_SAVED][chunk].bytes;
  }
  int64_t bytes = pack(p.ranges.at, p.ranges.n);
  for (int i = 0; i < p.ranges.n; i++)
    *p.result.at[i] = a->bytes + p.ranges.at[i].offset;
  for (int chunk = 0; chunk < k->chunks.n; chunk++)
    settle_saved(k, a, &saved[chunk]);
  section(a, SECTION_WORKSPACE, bytes, 1);
}

static int64_t largest_meeting(const LoweredStage *s) {
  int64_t bytes = 0;
  for (int list = 0; list < N_LISTS; list++)
    for (int i = 0; i < s->list[list].n; i++)
      if (s->list[list].at[i].meeting_bytes > bytes)
        bytes = s->list[list].at[i].meeting_bytes;
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static int64_t largest_scratch(const LoweredStage *s, const UpdateRule *rule) {
  const StageKernels *k = s->kernels;
  int64_t bytes = 0;
  for (int i = 0; i < k->params.n && rule->scratch; i++) {
    const Param *p = &k->graph->params.at[k->params.at[i]];
    int64_t need = is_trained(p) ? update_scratch_bytes(k, rule, p) : 0;
    bytes = need > bytes ? need : bytes;
  }
  for (int list = 0; list < N_LISTS; list++)
    for (int i = 0; i < s->list[list].n; i++) {
      int64_t need = s->list[list].at[i].scratch_bytes;
      bytes = need > bytes ? need : bytes;
    }
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Whether some weights are stored in bf16: the optimizer needs f32 masters of them. */
static bool has_rounded_weights(const StageKernels *k) {
  bool rounded = false;
  for (int i = 0; i < k->buffers.n; i++)
    rounded |= k->buffers.at[i].kind == BUFFER_WEIGHT && k->buffers.at[i].bf16;
  return rounded;
}

/* Sizes a struct of all updated weights in f32, or a replica's largest shard of it. */
static void size_state(const StageKernels *k, const Program *p, const UpdateRule *rule, Allocation *a) {
  a->part_bytes = a->moments_bytes = state_offsets(k)[k->buffers.n];
  if (!p->sharded)
    return;
  a->shard = shard_state(k, p, rule, a);
  a->part_bytes = 0;
  for (int r = 0; r < p->replicas; r++)
    a->part_bytes = shard_part(a->shard, r) > a->part_bytes ? shard_part(a->shard, r) : a->part_bytes;
}

/* The replica that keeps a parameter's moments; without sharding 0, because all replicas keep them. */
static int keeper(const StageKernels *k, const Allocation *a, int param) {
  const int64_t *offset = a->shard ? state_offsets(k) : NULL;
  for (int i = 0; i < k->buffers.n && offset; i++)
    if (k->buffers.at[i].kind == BUFFER_WEIGHT && k->buffers.at[i].param == param)
      return shard_of(a->shard, offset[i], 0);
  return 0;
}

/* Moments with their own shapes are consecutive; those of different replicas overlap. */
static void own_moments(const StageKernels *k, const UpdateRule *rule, int replicas, Allocation *a) {
  int64_t *bytes = alloc((size_t)replicas * sizeof *bytes), most = 0;
  for (int i = 0; i < k->params.n; i++)
    for (int m = 0; m < rule->n_moments; m++) {
      const Param *p = &k->graph->params.at[k->params.at[i]];
      if (!rule->moment_shape[m] || !is_trained(p))
        continue;
      int replica = keeper(k, a, k->params.at[i]);
      OwnMoment own = {k->params.at[i], m, replica, a->bytes + bytes[replica], moment_shape(rule, m, p)};
      if (!shape_elements(&own.shape))
        continue;
      push(&a->own_moments, own);
      bytes[replica] += (shape_elements(&own.shape) * 4 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
      most = bytes[replica] > most ? bytes[replica] : most;
    }
  section(a, SECTION_OWN_MOMENTS, most, 1);
}

/* Moments in the parameters' shapes are structs of all parameters. */
static void moments(const StageKernels *k, const Program *p, const UpdateRule *rule, Allocation *a) {
  for (int m = 0; m < rule->n_moments; m++)
    a->n_moments += !rule->moment_shape[m];
  section(a, SECTION_MOMENTS, a->part_bytes, a->n_moments);
  own_moments(k, rule, p->replicas, a);
}

Allocation *allocate(const LoweredStage *stage, const Program *p, const Train *train) {
  static const UpdateRule no_updates;
  const StageKernels *k = stage->kernels;
  const UpdateRule *rule = p->forward_only ? &no_updates : update_rule(train);
  Allocation *a = alloc(sizeof *a);
  ensure(k->chunks.n == p->chunks);
  a->buffer = alloc((size_t)(k->buffers.n + 1) * sizeof *a->buffer);
  a->frame = alloc((size_t)(k->regions.n + 1) * sizeof *a->frame);
  a->frame_backward = alloc((size_t)(k->regions.n + 1) * sizeof *a->frame_backward);
  a->weights_bytes = structs(k, a, SECTION_WEIGHTS, BUFFER_WEIGHT, -1, p->versions).bytes;
  structs(k, a, SECTION_FROZEN, BUFFER_FROZEN, -1, 1);
  a->accumulators_bytes = structs(k, a, SECTION_GRADIENTS, BUFFER_ACCUMULATOR, -1, p->accumulators).bytes;
  find_buckets(k, p, rule, a);
  size_state(k, p, rule, a);
  moments(k, p, rule, a);
  section(a, SECTION_MASTERS, a->part_bytes, has_rounded_weights(k) && !p->forward_only);
  section(a, SECTION_AVERAGES, a->part_bytes, train->ema > 0 && !p->forward_only);
  exchanged(k, p, a);
  chunk_structs(k, p, a, SECTION_INPUTS, BUFFER_INPUT);
  chunk_structs(k, p, a, SECTION_RECEIVED, BUFFER_RECEIVED);
  chunk_structs(k, p, a, SECTION_SENT, BUFFER_SENT);
  chunk_structs(k, p, a, SECTION_GRADIENTS_RECEIVED, BUFFER_GRADIENT_RECEIVED);
  chunk_structs(k, p, a, SECTION_GRADIENTS_SENT, BUFFER_GRADIENT_SENT);
  structs(k, a, SECTION_TABLES, BUFFER_TABLE, -1, 1);
  structs(k, a, SECTION_CACHES, BUFFER_CACHE, -1, 1);
  structs(k, a, SECTION_FIGURES, BUFFER_FIGURE, -1, 1);
  chunk_structs(k, p, a, SECTION_SAVED, BUFFER_SAVED);
  chunk_structs(k, p, a, SECTION_KEPT, BUFFER_KEPT);
  chunk_structs(k, p, a, SECTION_DEFERRED, BUFFER_DEFERRED);
  workspace(k, p, a);
  a->scratch_bytes = largest_scratch(stage, rule);
  a->scratch_offset = a->bytes;
  section(a, SECTION_SCRATCH, a->scratch_bytes, 1);
  a->meeting_bytes = largest_meeting(stage);
  section(a, SECTION_MEETING, a->meeting_bytes, 1);
  a->resident_bytes = a->bytes;
  if (p->offload.on)
    allocate_spilled(k, p, a);
  return a;
}
