/* Offload: the blocks of a rank's arena that are transferred, and the resident bytes, according to
 * runtime/shared/moves.h. */
#include "allocate/allocation.h"
#include "shared/moves.h"

#include <stdlib.h>

typedef Vec(struct pd_block) Blocks;

static void add(Blocks *blocks, struct pd_block b, int64_t bytes) {
  b.bytes = (size_t)bytes;
  if (bytes > 0)
    push(blocks, b);
}

bool gradients_stay(const StageKernels *k, int param) {
  const Param *p = &k->graph->params.at[param];
  int here = 0;
  for (int use = 0; use < p->uses.n; use++)
    for (int c = 0; c < k->chunks.n; c++)
      here += p->uses.at[use] >= k->chunks.at[c].first_node && p->uses.at[use] < k->chunks.at[c].end_node;
  return here < p->uses.n;
}

/* By parameter of the graph: the first part with one of its gradients; -1: none on this stage. */
static int *first_parts(const StageKernels *k) {
  int *part = alloc((size_t)(k->graph->params.n + 1) * sizeof *part);
  for (int i = 0; i < k->params.n; i++)
    part[k->params.at[i]] = -1;
  for (int i = 0; i < k->buffers.n; i++) {
    const Buffer *b = &k->buffers.at[i];
    if (b->kind == BUFFER_ACCUMULATOR && !gradients_stay(k, b->param))
      part[b->param] = part[b->param] < 0 || b->chunk < part[b->param] ? b->chunk : part[b->param];
  }
  return part;
}

/* By parameter of the graph: its group; -1: it is not updated. */
static int *groups(const StageKernels *k, int *n) {
  int *group = alloc((size_t)(k->graph->params.n + 1) * sizeof *group);
  const int *part = first_parts(k);
  struct pd_grouping g = {0};
  for (int i = 0; i < k->params.n; i++) {
    const Param *p = &k->graph->params.at[k->params.at[i]];
    if (!p->frozen && shape_elements(&p->shape) > g.most)
      g.most = shape_elements(&p->shape);
  }
  for (int i = 0; i < k->params.n; i++) {
    const int at = k->params.at[i];
    const Param *p = &k->graph->params.at[at];
    group[at] = p->frozen ? -1 : pd_group_of(&g, shape_elements(&p->shape), part[at]);
  }
  *n = g.groups;
  return group;
}

/* Adds the state in the parameters' shapes, copy after copy: moments, masters, averages. */
static void add_state(const Allocation *a, const Buffer *b, int64_t state, const struct pd_block *of, bool trained,
                      Blocks *blocks) {
  static const SectionKind kinds[] = {SECTION_MOMENTS, SECTION_MASTERS, SECTION_AVERAGES};
  for (int i = 0; i < 3; i++) {
    const Section *s = &a->section[kinds[i]];
    struct pd_block block = {.kind = PD_BLOCK_STATE, .group = of->group};
    block.parts = kinds[i] == SECTION_AVERAGES ? of->parts : 0;
    for (int copy = 0; copy < s->copies && (trained || kinds[i] != SECTION_MOMENTS); copy++) {
      block.offset = (size_t)(s->offset + copy * s->bytes + state);
      add(blocks, block, b->elements * 4);
    }
  }
}

/* Whether the parameter has a gradient of a later use. */
static bool is_added(const StageKernels *k, const Buffer *b) {
  for (int i = 0; i < k->buffers.n; i++) {
    const Buffer *other = &k->buffers.at[i];
    if (other->kind == BUFFER_ACCUMULATOR && other->param == b->param && other->use > b->use)
      return true;
  }
  return false;
}

static void add_parameters(const StageKernels *k, const Allocation *a, const int *group, Blocks *blocks) {
  const int64_t *state = state_offsets(k);
  for (int i = 0; i < k->buffers.n; i++) {
    const Buffer *b = &k->buffers.at[i];
    if (!is_parameter(b->kind) && b->kind != BUFFER_ACCUMULATOR)
      continue;
    const bool gradient = b->kind == BUFFER_ACCUMULATOR;
    if (gradient && gradients_stay(k, b->param))
      continue;
    struct pd_block block = {.kind = gradient ? PD_BLOCK_GRADIENT : PD_BLOCK_WEIGHTS,
                             .offset = (size_t)a->buffer[i].offset,
                             .parts = gradient ? (uint64_t)1 << b->chunk : b->chunks,
                             .sums = gradient && b->use > 0 && !is_added(k, b),
                             .added = gradient && is_added(k, b),
                             .shared = !gradient && gradients_stay(k, b->param),
                             .group = group[b->param]};
    add(blocks, block, b->elements * element_bytes(b));
    if (b->kind == BUFFER_WEIGHT)
      add_state(a, b, state[i], &block, !k->graph->params.at[b->param].buffer, blocks);
  }
  for (int i = 0; i < a->own_moments.n; i++) {
    const OwnMoment *m = &a->own_moments.at[i];
    struct pd_block block = {.kind = PD_BLOCK_STATE, .offset = (size_t)m->offset, .group = group[m->param]};
    add(blocks, block, shape_elements(&m->shape) * 4);
  }
}

static void add_between(const StageKernels *k, const Program *p, const Allocation *a, Blocks *blocks) {
  for (int part = 1; part < k->chunks.n; part++)
    for (int slot = 0; slot < p->period; slot++) {
      const Section *sent = &a->chunk_section[SECTION_RECEIVED][part],
                    *returned = &a->chunk_section[SECTION_GRADIENTS_RECEIVED][part - 1];
      struct pd_block block = {.kind = PD_BLOCK_ACTIVATIONS, .part = part, .slot = slot, .group = -1};
      block.rereads = program_keeps(p, part - 1);
      block.offset = (size_t)(sent->offset + slot * sent->bytes);
      add(blocks, block, sent->bytes);
      block.kind = PD_BLOCK_RETURNED;
      block.offset = (size_t)(returned->offset + slot * returned->bytes);
      add(blocks, block, returned->bytes);
    }
}

static void add_saved(const StageKernels *k, const Program *p, const Allocation *a, Blocks *blocks) {
  for (int part = 0; part < k->chunks.n; part++)
    for (int slot = 0; slot < p->period && program_keeps(p, part); slot++) {
      const Section *saved = &a->chunk_section[SECTION_SAVED][part];
      struct pd_block block = {.kind = PD_BLOCK_SAVED, .part = part, .slot = slot, .group = -1};
      block.offset = (size_t)(saved->offset + slot * saved->bytes);
      add(blocks, block, saved->bytes);
    }
}

static int by_offset(const void *a, const void *b) {
  const struct pd_block *x = a, *y = b;
  return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Bytes of the pages with data that is always resident. */
static int64_t bytes_beside(const Blocks *blocks, int64_t arena, int64_t page) {
  int64_t pages = (arena + page - 1) / page, from = -1, to = 0;
  for (int i = 0; i <= blocks->n; i++) {
    const struct pd_block *b = i < blocks->n ? &blocks->at[i] : NULL;
    if (from >= 0 && (!b || (int64_t)b->offset - to >= ALIGNMENT)) { /* the end of consecutive blocks */
      const int64_t first = (from + page - 1) / page, end = to / page;
      pages -= end > first ? end - first : 0;
      from = -1;
    }
    if (!b)
      break;
    from = from < 0 ? (int64_t)b->offset : from;
    to = (int64_t)(b->offset + b->bytes);
  }
  return pages * page;
}

void allocate_spilled(const StageKernels *k, const Program *p, Allocation *a) {
  Blocks blocks = {0};
  const int *group = groups(k, &a->groups);
  add_parameters(k, a, group, &blocks);
  add_between(k, p, a, &blocks);
  add_saved(k, p, a, &blocks);
  qsort(blocks.at, (size_t)blocks.n, sizeof *blocks.at, by_offset);
  blocks.n = pd_join_blocks(blocks.at, blocks.n, (size_t)p->offload.page);
  for (SectionKind kind = SECTION_WEIGHTS; kind <= SECTION_AVERAGES; kind++)
    a->spilled_bytes += a->section[kind].bytes * a->section[kind].copies;
  for (int part = 0; part < k->chunks.n; part++) {
    const Section *received = &a->chunk_section[SECTION_RECEIVED][part],
                  *returned = &a->chunk_section[SECTION_GRADIENTS_RECEIVED][part];
    a->spilled_bytes += part > 0 ? received->bytes * received->copies : 0;
    a->spilled_bytes += part + 1 < k->chunks.n ? returned->bytes * returned->copies : 0;
  }
  a->spilled_bytes += a->section[SECTION_SAVED].bytes;
  int64_t beside = bytes_beside(&blocks, a->bytes, p->offload.page);
  a->room = p->offload.memory > beside ? p->offload.memory - beside : 0;
  struct pd_holding of = {.block = blocks.at,
                          .n = blocks.n,
                          .batch = {.parts = p->chunks,
                                    .turns = program_ends_model(p),
                                    .microbatches = p->period,
                                    .groups = a->groups,
                                    .at_home = p->offload.host_updates},
                          .page = (size_t)p->offload.page,
                          .room = (size_t)a->room,
                          .kept = p->offload.pinned};
  struct pd_moves moves;
  pd_moves_make(&of, alloc, &moves);
  int64_t all = (a->bytes + p->offload.page - 1) / p->offload.page * p->offload.page,
          most = beside + (int64_t)moves.most;
  a->resident_bytes = most < all ? most : all;
}
