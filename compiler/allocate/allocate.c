/* Lays out a stage's arena: the structs first, then the workspace that liveness packs. */
#include "allocate/layout.h"
#include "optimizers/optimizer.h"

static const char *const section_names[SECTION_COUNT] = {
  "weights", "gradients", "moments", "own moments", "masters", "exchanged", "inputs", "received", "sent",
  "gradients received", "gradients sent", "tables", "figures", "saved", "kept", "deferred", "workspace", "scratch",
};

Ints layout_members(const StageKernels *k, BufferKind kind, int chunk) {
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

bool layout_saved_packed(const Program *p, int chunk) {
  return layout_saved_slots(p, chunk) == 1 && (p->chunks == 1 || program_recomputes(p));
}

/* The passes of one chunk follow one another, and chunks do. */
static int moment(const Chunk *c, PassKind pass, int kernel) {
  for (PassKind other = 0; other < PASS_KINDS; other++)
    kernel += other < pass ? c->end[other] : other > pass ? c->first[other] : 0;
  return kernel;
}

void layout_life(const StageKernels *k, const Buffer *b, int *first, int *last) {
  const Chunk *c = &k->chunks.at[b->chunk];
  *first = moment(c, buffer_made(b), b->first);
  *last = moment(c, buffer_read_last(b), b->last);
}

/* Opens a section at the arena's current end. */
static Section section(Layout *l, SectionKind kind, int64_t bytes, int copies) {
  Section s = {section_names[kind], l->bytes, bytes, bytes == 0 ? 0 : copies};
  l->bytes += s.bytes * s.copies;
  l->section[kind] = s;
  return s;
}

/* A section that is `copies` structs of the buffers of one kind; returns it. */
static Section structs(const StageKernels *k, Layout *l, SectionKind kind, BufferKind buffers, int chunk,
                       int copies) {
  Ints members = layout_members(k, buffers, chunk);
  int64_t bytes = 0;
  for (int i = 0; i < members.n; i++) {
    l->buffer[members.at[i]] = (Spot){l->bytes + bytes, 0, copies};
    bytes += buffer_bytes(&k->buffers.at[members.at[i]]);
  }
  for (int i = 0; i < members.n; i++)
    l->buffer[members.at[i]].stride = bytes;
  return section(l, kind, bytes, copies);
}

/* Copies of a kind's struct that a chunk has. */
static int copies_of(const StageKernels *k, const Program *p, SectionKind kind, int chunk) {
  const Slots *s = &p->slots[chunk];
  switch (kind) {
  case SECTION_INPUTS: return s->inputs;
  case SECTION_RECEIVED: return s->received;
  /* Recomputation writes what was sent once more, but never into a slot that a message may be using. */
  case SECTION_SENT: return s->sent + (k->recompute ? 1 : 0);
  case SECTION_GRADIENTS_RECEIVED: return s->gradients;
  case SECTION_GRADIENTS_SENT: return s->gradients;
  case SECTION_SAVED: return layout_saved_packed(p, chunk) ? 0 : layout_saved_slots(p, chunk);
  case SECTION_KEPT: return s->saved;
  case SECTION_DEFERRED: return s->deferred;
  default: BUG("section %d is not divided by chunk", kind);
  }
}

static void chunk_structs(const StageKernels *k, const Program *p, Layout *l, SectionKind kind,
                          BufferKind buffers) {
  int64_t from = l->bytes;
  for (int chunk = 0; chunk < k->chunks.n; chunk++) {
    int copies = copies_of(k, p, kind, chunk);
    if (copies > 0)
      l->part[kind][chunk] = structs(k, l, kind, buffers, chunk, copies);
    else
      l->part[kind][chunk] = section(l, kind, 0, 0);
  }
  if (k->chunks.n > 1)
    l->section[kind] = (Section){section_names[kind], from, l->bytes - from, l->bytes > from};
}

static bool computed_here(const StageKernels *k, int param, int use) {
  for (int i = 0; i < k->buffers.n; i++) {
    const Buffer *b = &k->buffers.at[i];
    if (b->kind == BUFFER_ACCUMULATOR && b->param == param && b->use == use)
      return true;
  }
  return false;
}

/* Room for the gradients of uses of this stage's parameters that other stages compute, and for other replicas'. */
static void exchanged(const StageKernels *k, const Program *program, Layout *l) {
  int64_t bytes = 0;
  for (int i = 0; i < k->params.n; i++) {
    int param = k->params.at[i];
    const Param *p = &k->graph->params.at[param];
    for (int use = 0; use < p->uses.n; use++)
      if (use < p->gradients.n && p->gradients.at[use] >= 0 && !computed_here(k, param, use)) {
        int64_t elements = shape_elements(&p->shape);
        push(&l->exchanged, (Exchanged){param, use, l->bytes + bytes, elements});
        bytes += (elements * 4 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
      }
  }
  l->reduced_offset = l->bytes + bytes;
  l->reduced_bytes = (program->replicas - 1) * shard_bytes(l->accumulators_bytes, program->replicas);
  section(l, SECTION_EXCHANGED, bytes + l->reduced_bytes, program->exchanges);
}

/* The frame of a region's temporaries in one direction; buffers get offsets from its start. */
static int64_t region_frame(const StageKernels *k, Layout *l, int region, bool backward) {
  Vec(Item) items = {0};
  Ints buffers = {0};
  for (int i = 0; i < k->buffers.n; i++) {
    const Buffer *b = &k->buffers.at[i];
    if (b->kind == BUFFER_TEMPORARY && b->region == region && b->backward == backward) {
      push(&items, (Item){buffer_bytes(b), b->first, b->last, 0});
      push(&buffers, i);
    }
  }
  int64_t bytes = pack(items.at, items.n);
  for (int i = 0; i < buffers.n; i++)
    l->buffer[buffers.at[i]] = (Spot){items.at[i].offset, 0, 1};
  return bytes;
}

/* What takes part in the workspace's packing, and where the result goes. */
typedef struct Packing {
  Vec(Item) items;
  Vec(int64_t *) result; /* parallel to items: the offset to set */
} Packing;

static void packing_add(Packing *p, int64_t bytes, int first, int last, int64_t *result) {
  *result = -1;
  if (bytes == 0)
    return;
  push(&p->items, (Item){bytes, first, last, 0});
  push(&p->result, result);
}

/* A region's saved struct as one item, alive from its first member's making to its last member's use. */
static void pack_saved(const StageKernels *k, Layout *l, Packing *p, Ints members, int from, int end,
                       int64_t *start) {
  int64_t bytes = 0;
  int first = 0, last = 0;
  for (int i = from; i < end; i++) {
    const Buffer *b = &k->buffers.at[members.at[i]];
    int f, e;
    layout_life(k, b, &f, &e);
    if (i == from || f < first)
      first = f;
    if (i == from || e > last)
      last = e;
    l->buffer[members.at[i]] = (Spot){bytes, 0, 1};
    bytes += buffer_bytes(b);
  }
  packing_add(p, bytes, first, last, start);
}

static int region_of(const StageKernels *k, Ints members, int i) {
  return k->buffers.at[members.at[i]].region;
}

/* A chunk's saved values: a struct a region, a place of its own for each without one. */
typedef struct SavedStarts {
  Ints members;
  int64_t *start; /* by member; -1: it follows the one before it */
} SavedStarts;

static SavedStarts saved_in_workspace(const StageKernels *k, Layout *l, Packing *p, int chunk) {
  Ints members = layout_members(k, BUFFER_SAVED, chunk);
  int64_t *start = alloc((size_t)(members.n + 1) * sizeof *start);
  for (int i = 0, end; i < members.n; i = end) {
    int region = region_of(k, members, i);
    end = i + 1;
    while (region >= 0 && end < members.n && region_of(k, members, end) == region)
      end++;
    pack_saved(k, l, p, members, i, end, &start[i]);
    for (int j = i + 1; j < end; j++)
      start[j] = -1;
  }
  return (SavedStarts){members, start};
}

static void settle_saved(const StageKernels *k, Layout *l, const SavedStarts *saved) {
  for (int i = 0, at = 0; i < saved->members.n; i++) {
    if (saved->start[i] >= 0)
      at = i;
    l->buffer[saved->members.at[i]].offset += saved->start[at];
    l->saved_bytes += buffer_bytes(&k->buffers.at[saved->members.at[i]]);
  }
}

static void pack_frames(const StageKernels *k, Layout *l, Packing *p) {
  for (int i = 0; i < k->regions.n; i++) {
    const Region *r = &k->regions.at[i];
    const Chunk *c = &k->chunks.at[r->chunk];
    packing_add(p, region_frame(k, l, i, false), moment(c, PASS_FORWARD, r->first[PASS_FORWARD]),
                moment(c, PASS_FORWARD, r->end[PASS_FORWARD] - 1), &l->frame[i]);
    packing_add(p, region_frame(k, l, i, true), moment(c, PASS_BACKWARD, r->first[PASS_BACKWARD]),
                moment(c, PASS_BACKWARD, r->end[PASS_BACKWARD] - 1), &l->frame_backward[i]);
  }
}

static void pack_between_regions(const StageKernels *k, Layout *l, Packing *p) {
  for (int i = 0; i < k->buffers.n; i++) {
    const Buffer *b = &k->buffers.at[i];
    if (b->kind != BUFFER_TEMPORARY || b->region >= 0)
      continue;
    int first, last;
    layout_life(k, b, &first, &last);
    l->buffer[i] = (Spot){0, 0, 1};
    packing_add(p, buffer_bytes(b), first, last, &l->buffer[i].offset);
  }
}

static void workspace(const StageKernels *k, const Program *program, Layout *l) {
  Packing p = {0};
  SavedStarts saved[MAX_CHUNKS] = {{.start = NULL}};
  pack_frames(k, l, &p);
  pack_between_regions(k, l, &p);
  for (int chunk = 0; chunk < k->chunks.n; chunk++) {
    if (layout_saved_packed(program, chunk))
      saved[chunk] = saved_in_workspace(k, l, &p, chunk);
    l->saved_bytes += l->part[SECTION_SAVED][chunk].bytes;
  }
  int64_t bytes = pack(p.items.at, p.items.n);
  for (int i = 0; i < p.items.n; i++)
    *p.result.at[i] = l->bytes + p.items.at[i].offset;
  for (int chunk = 0; chunk < k->chunks.n; chunk++)
    settle_saved(k, l, &saved[chunk]);
  section(l, SECTION_WORKSPACE, bytes, 1);
}

static int64_t largest_scratch(const LoweredStage *s) {
  int64_t bytes = 0;
  for (int list = 0; list < N_LISTS; list++)
    for (int i = 0; i < s->list[list].n; i++) {
      int64_t need = s->list[list].at[i].scratch_bytes;
      bytes = need > bytes ? need : bytes;
    }
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* A struct of all weights in f32. */
static int64_t state_bytes(const StageKernels *k, bool *rounded) {
  Ints members = layout_members(k, BUFFER_WEIGHT, -1);
  int64_t bytes = 0;
  *rounded = false;
  for (int i = 0; i < members.n; i++) {
    Buffer b = k->buffers.at[members.at[i]];
    *rounded |= b.bf16;
    b.bf16 = false;
    bytes += buffer_bytes(&b);
  }
  return bytes;
}

/* Those like the parameters are structs of all, the others stand behind one another. */
static void moments(const StageKernels *k, const UpdateRule *rule, Layout *l) {
  int64_t bytes = 0;
  for (int m = 0; m < rule->n_moments; m++)
    l->n_moments += !rule->moment_shape[m];
  section(l, SECTION_MOMENTS, l->moments_bytes, l->n_moments);
  for (int i = 0; i < k->params.n; i++)
    for (int m = 0; m < rule->n_moments; m++) {
      const Param *p = &k->graph->params.at[k->params.at[i]];
      if (!rule->moment_shape[m] || p->buffer)
        continue;
      OwnMoment own = {k->params.at[i], m, l->bytes + bytes, moment_shape(rule, m, &p->shape)};
      push(&l->own_moments, own);
      bytes += (shape_elements(&own.shape) * 4 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
  section(l, SECTION_OWN_MOMENTS, bytes, 1);
}

Layout *allocate(const LoweredStage *stage, const Program *p, const Train *train) {
  const StageKernels *k = stage->kernels;
  Layout *l = alloc(sizeof *l);
  ensure(k->chunks.n == p->chunks);
  l->buffer = alloc((size_t)(k->buffers.n + 1) * sizeof *l->buffer);
  l->frame = alloc((size_t)(k->regions.n + 1) * sizeof *l->frame);
  l->frame_backward = alloc((size_t)(k->regions.n + 1) * sizeof *l->frame_backward);
  l->weights_bytes = structs(k, l, SECTION_WEIGHTS, BUFFER_WEIGHT, -1, p->versions).bytes;
  l->accumulators_bytes = structs(k, l, SECTION_GRADIENTS, BUFFER_ACCUMULATOR, -1, p->accumulators).bytes;
  bool rounded; /* some working copies: the optimizer needs what they are copies of */
  l->moments_bytes = state_bytes(k, &rounded);
  moments(k, update_rule(train), l);
  section(l, SECTION_MASTERS, l->moments_bytes, rounded);
  exchanged(k, p, l);
  chunk_structs(k, p, l, SECTION_INPUTS, BUFFER_INPUT);
  chunk_structs(k, p, l, SECTION_RECEIVED, BUFFER_RECEIVED);
  chunk_structs(k, p, l, SECTION_SENT, BUFFER_SENT);
  chunk_structs(k, p, l, SECTION_GRADIENTS_RECEIVED, BUFFER_GRADIENT_RECEIVED);
  chunk_structs(k, p, l, SECTION_GRADIENTS_SENT, BUFFER_GRADIENT_SENT);
  structs(k, l, SECTION_TABLES, BUFFER_TABLE, -1, 1);
  structs(k, l, SECTION_FIGURES, BUFFER_FIGURE, -1, 1);
  chunk_structs(k, p, l, SECTION_SAVED, BUFFER_SAVED);
  chunk_structs(k, p, l, SECTION_KEPT, BUFFER_KEPT);
  chunk_structs(k, p, l, SECTION_DEFERRED, BUFFER_DEFERRED);
  workspace(k, p, l);
  l->scratch_bytes = largest_scratch(stage);
  l->scratch_offset = l->bytes;
  section(l, SECTION_SCRATCH, l->scratch_bytes, 1);
  return l;
}
