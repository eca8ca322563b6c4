/* Of a model that spills: the blocks of a rank's arena that come and go, and how much of it is in memory at
 * once, by runtime/moves.h. */
#include "allocate/allocation.h"
#include "moves.h"

typedef Vec(struct pd_block) Blocks;

static void add(Blocks *blocks, struct pd_block b, int64_t bytes) {
  b.bytes = (size_t)bytes;
  if (bytes > 0)
    push(blocks, b);
}

/* By parameter of the graph: its group; -1: it is not updated. */
static int *groups(const StageKernels *k, int *n) {
  int *group = alloc((size_t)(k->graph->params.n + 1) * sizeof *group);
  int64_t most = 0, elements = 0;
  *n = 0;
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < k->params.n; i++) {
      const Param *p = &k->graph->params.at[k->params.at[i]];
      int64_t own = shape_elements(&p->shape);
      group[k->params.at[i]] = -1;
      if (p->frozen)
        continue;
      if (pass == 0) {
        most = own > most ? own : most;
        continue;
      }
      if (*n == 0 || pd_group_ends(elements, own, most))
        ++*n, elements = 0;
      elements += own;
      group[k->params.at[i]] = *n - 1;
    }
  return group;
}

static void add_parameters(const StageKernels *k, const Allocation *a, const int *group, Blocks *blocks) {
  int in_f32 = a->n_moments + a->section[SECTION_MASTERS].copies + a->section[SECTION_AVERAGES].copies;
  for (int i = 0; i < k->buffers.n; i++) {
    const Buffer *b = &k->buffers.at[i];
    struct pd_block block = {.parts = b->chunks, .group = b->param >= 0 ? group[b->param] : -1};
    if (is_parameter(b->kind))
      add(blocks, block, b->elements * element_bytes(b));
    block.kind = PD_BLOCK_STATE;
    for (int j = 0; j < in_f32 && b->kind == BUFFER_WEIGHT; j++)
      add(blocks, block, b->elements * 4);
    if (b->kind != BUFFER_ACCUMULATOR)
      continue;
    block.kind = PD_BLOCK_GRADIENT;
    block.parts = (uint64_t)1 << b->chunk;
    add(blocks, block, b->elements * 4);
  }
  for (int i = 0; i < a->own_moments.n; i++) {
    const OwnMoment *m = &a->own_moments.at[i];
    struct pd_block block = {.kind = PD_BLOCK_STATE, .group = group[m->param]};
    add(blocks, block, shape_elements(&m->shape) * 4);
  }
}

static void add_between(const StageKernels *k, const Allocation *a, int slots, Blocks *blocks) {
  for (int part = 1; part < k->chunks.n; part++)
    for (int slot = 0; slot < slots; slot++) {
      struct pd_block block = {.kind = PD_BLOCK_ACTIVATIONS, .part = part, .slot = slot, .group = -1};
      add(blocks, block, a->chunk_section[SECTION_RECEIVED][part].bytes);
      block.kind = PD_BLOCK_RETURNED;
      add(blocks, block, a->chunk_section[SECTION_GRADIENTS_RECEIVED][part - 1].bytes);
    }
}

void allocate_spilled(const StageKernels *k, const Program *p, Allocation *a) {
  Blocks blocks = {0};
  const int *group = groups(k, &a->groups);
  add_parameters(k, a, group, &blocks);
  add_between(k, a, (int)p->period, &blocks);
  for (SectionKind kind = SECTION_WEIGHTS; kind <= SECTION_AVERAGES; kind++)
    a->spilled_bytes += a->section[kind].bytes * a->section[kind].copies;
  a->spilled_bytes += a->section[SECTION_RECEIVED].bytes + a->section[SECTION_GRADIENTS_RECEIVED].bytes;
  int64_t beside = a->bytes - a->spilled_bytes;
  a->room = p->memory > beside ? p->memory - beside : 0;
  struct pd_holding of = {.block = blocks.at,
                          .n = blocks.n,
                          .parts = p->chunks,
                          .microbatches = p->period,
                          .groups = a->groups,
                          .room = (size_t)a->room,
                          .kept = p->kept};
  struct pd_moves moves;
  pd_moves_make(&of, alloc, &moves);
  int64_t most = (int64_t)moves.most;
  a->resident_bytes = beside + (most < a->spilled_bytes ? most : a->spilled_bytes);
}
