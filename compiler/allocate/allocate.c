/* Lays out a stage's arena: the structs first, then the workspace that liveness packs. */
#include "allocate/layout.h"
#include "emit/emit.h"

static const char *const section_names[SECTION_COUNT] = {
  "weights", "gradients", "moments", "exchanged", "inputs", "received", "sent", "gradients received",
  "gradients sent", "tables", "losses", "saved", "workspace", "scratch",
};

Ints layout_members(const StageKernels *k, BufferKind kind) {
  Ints members = {0};
  for (int region = 0; region <= k->regions.n; region++)
    for (int i = 0; i < k->buffers.n; i++) {
      const Buffer *b = &k->buffers.at[i];
      int owner = b->region < 0 ? k->regions.n : b->region;
      if (b->kind == kind && owner == region)
        push(&members, i);
    }
  return members;
}

void layout_life(const StageKernels *k, const Buffer *b, int *first, int *last) {
  bool first_backward = b->kind == BUFFER_TEMPORARY && b->backward;
  bool last_backward = b->kind == BUFFER_SAVED || first_backward;
  *first = b->first + (first_backward ? k->forward.n : 0);
  *last = b->last + (last_backward ? k->forward.n : 0);
}

/* Opens a section at the arena's current end. */
static void section(Layout *l, SectionKind kind, int64_t bytes, int copies) {
  if (bytes == 0)
    copies = 0;
  l->section[kind] = (Section){section_names[kind], l->bytes, bytes, copies};
  l->bytes += bytes * copies;
}

/* A section that is `copies` structs of the buffers of one kind; returns the struct's size. */
static int64_t structs(const StageKernels *k, Layout *l, SectionKind kind, BufferKind buffers, int copies) {
  Ints members = layout_members(k, buffers);
  int64_t bytes = 0;
  for (int i = 0; i < members.n; i++) {
    l->buffer[members.at[i]] = (Spot){l->bytes + bytes, 0, copies};
    bytes += buffer_bytes(&k->buffers.at[members.at[i]]);
  }
  for (int i = 0; i < members.n; i++)
    l->buffer[members.at[i]].stride = bytes;
  section(l, kind, bytes, copies);
  return bytes;
}

static bool computed_here(const StageKernels *k, int param, int use) {
  for (int i = 0; i < k->buffers.n; i++) {
    const Buffer *b = &k->buffers.at[i];
    if (b->kind == BUFFER_ACCUMULATOR && b->param == param && b->use == use)
      return true;
  }
  return false;
}

/* Room for the gradients of uses of this stage's parameters that other stages compute. */
static void exchanged(const StageKernels *k, Layout *l) {
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
  section(l, SECTION_EXCHANGED, bytes, 1);
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

/* Saved values when there is one copy: a struct a region, a place of its own for each without one. */
static int64_t *saved_in_workspace(const StageKernels *k, Layout *l, Packing *p, Ints members) {
  int64_t *start = alloc((size_t)(members.n + 1) * sizeof *start); /* by member */
  for (int i = 0, end; i < members.n; i = end) {
    int region = region_of(k, members, i);
    end = i + 1;
    while (region >= 0 && end < members.n && region_of(k, members, end) == region)
      end++;
    pack_saved(k, l, p, members, i, end, &start[i]);
    for (int j = i + 1; j < end; j++)
      start[j] = -1;
  }
  return start;
}

static void workspace(const StageKernels *k, const Program *program, Layout *l) {
  Packing p = {0};
  int n = k->forward.n;
  for (int i = 0; i < k->regions.n; i++) {
    const Region *r = &k->regions.at[i];
    packing_add(&p, region_frame(k, l, i, false), r->first_forward, r->end_forward - 1, &l->frame[i]);
    packing_add(&p, region_frame(k, l, i, true), n + r->first_backward, n + r->end_backward - 1,
                &l->frame_backward[i]);
  }
  for (int i = 0; i < k->buffers.n; i++) {
    const Buffer *b = &k->buffers.at[i];
    if (b->kind != BUFFER_TEMPORARY || b->region >= 0)
      continue;
    int first, last;
    layout_life(k, b, &first, &last);
    l->buffer[i] = (Spot){0, 0, 1};
    packing_add(&p, buffer_bytes(b), first, last, &l->buffer[i].offset);
  }
  Ints saved = {0};
  int64_t *start = NULL;
  if (program->slots[0].saved == 1) {
    saved = layout_members(k, BUFFER_SAVED);
    start = saved_in_workspace(k, l, &p, saved);
    section(l, SECTION_SAVED, 0, 0);
  } else {
    l->saved_bytes = structs(k, l, SECTION_SAVED, BUFFER_SAVED, program->slots[0].saved);
  }
  int64_t bytes = pack(p.items.at, p.items.n);
  for (int i = 0; i < p.items.n; i++)
    *p.result.at[i] = l->bytes + p.items.at[i].offset;
  for (int i = 0, at = 0; i < saved.n; i++) {
    if (start[i] >= 0)
      at = i;
    l->buffer[saved.at[i]].offset += start[at];
    l->saved_bytes += buffer_bytes(&k->buffers.at[saved.at[i]]);
  }
  section(l, SECTION_WORKSPACE, bytes, 1);
}

static int64_t largest_scratch(const StageKernels *k) {
  int64_t bytes = 0;
  for (int i = 0; i < k->setup.n + k->forward.n + k->backward.n; i++) {
    int j = i - k->setup.n;
    const Kernel *kernel = j < 0 ? &k->setup.at[i]
                           : j < k->forward.n ? &k->forward.at[j] : &k->backward.at[j - k->forward.n];
    int64_t need = kernel_scratch(k, kernel);
    if (need > bytes)
      bytes = need;
  }
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static int moments_of(const Train *train) {
  if (train->optimizer == OPTIMIZER_ADAMW)
    return 2;
  return train->momentum != 0 ? 1 : 0;
}

Layout *allocate(const StageKernels *k, const Program *p, const Train *train) {
  Layout *l = alloc(sizeof *l);
  l->buffer = alloc((size_t)(k->buffers.n + 1) * sizeof *l->buffer);
  l->frame = alloc((size_t)(k->regions.n + 1) * sizeof *l->frame);
  l->frame_backward = alloc((size_t)(k->regions.n + 1) * sizeof *l->frame_backward);
  l->weights_bytes = structs(k, l, SECTION_WEIGHTS, BUFFER_WEIGHT, p->versions);
  l->accumulators_bytes = structs(k, l, SECTION_GRADIENTS, BUFFER_ACCUMULATOR, p->accumulators);
  l->n_moments = moments_of(train);
  l->moments_bytes = l->weights_bytes;
  section(l, SECTION_MOMENTS, l->moments_bytes, l->n_moments);
  exchanged(k, l);
  structs(k, l, SECTION_INPUTS, BUFFER_INPUT, p->slots[0].inputs);
  structs(k, l, SECTION_RECEIVED, BUFFER_RECEIVED, p->slots[0].received);
  /* Recomputation writes what was sent once more, but never into a slot that a message may be using. */
  structs(k, l, SECTION_SENT, BUFFER_SENT, p->slots[0].sent + (k->recompute ? 1 : 0));
  structs(k, l, SECTION_GRADIENTS_RECEIVED, BUFFER_GRADIENT_RECEIVED, p->slots[0].gradients);
  structs(k, l, SECTION_GRADIENTS_SENT, BUFFER_GRADIENT_SENT, p->slots[0].gradients);
  structs(k, l, SECTION_TABLES, BUFFER_TABLE, 1);
  structs(k, l, SECTION_LOSSES, BUFFER_LOSS, 1);
  workspace(k, p, l);
  l->scratch_bytes = largest_scratch(k);
  l->scratch_offset = l->bytes;
  section(l, SECTION_SCRATCH, l->scratch_bytes, 1);
  return l;
}
