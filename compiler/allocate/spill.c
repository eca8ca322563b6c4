/* Of a model that spills: the blocks of a rank's arena that come and go, and how much of it is in memory at
 * once. While a step of the batch computes, its blocks are there and those of the next one arrive, into memory
 * that the step before has given back: so the most is the largest pair of neighbouring steps
 * (runtime/spilled.h). */
#include "allocate/allocation.h"

enum { PAGE = 4096 };

typedef Vec(struct pd_block) Blocks;

/* In whole pages, which is how memory comes and goes. */
static int64_t paged(int64_t bytes) { return (bytes + 2 * PAGE - 1) / PAGE * PAGE; }

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

static int64_t bytes_of_both(const Blocks *blocks, const struct pd_step *one, const struct pd_step *other) {
  int64_t bytes = 0;
  for (int i = 0; i < blocks->n; i++)
    if ((pd_use_of(one, &blocks->at[i]) | pd_use_of(other, &blocks->at[i])) & PD_USES)
      bytes += paged((int64_t)blocks->at[i].bytes);
  return bytes;
}

/* Between batches the host may look at two parameters, beside what the first step has promoted. */
static int64_t most_at_once(const Blocks *blocks, int parts, int64_t microbatches, int n_groups) {
  int64_t most = 0, largest = 0;
  struct pd_step first = pd_batch_step(parts, microbatches, n_groups, 0);
  for (int64_t i = 0; i < pd_batch_steps(parts, microbatches, n_groups); i++) {
    struct pd_step now = pd_batch_step(parts, microbatches, n_groups, i),
                   next = pd_batch_step(parts, microbatches, n_groups, i + 1);
    int64_t bytes = bytes_of_both(blocks, &now, &next);
    most = bytes > most ? bytes : most;
  }
  for (int i = 0; i < blocks->n; i++)
    largest = paged((int64_t)blocks->at[i].bytes) > largest ? paged((int64_t)blocks->at[i].bytes) : largest;
  int64_t looked_at = bytes_of_both(blocks, &first, &first) + 2 * largest;
  return looked_at > most ? looked_at : most;
}

/* Of many microbatches the first three stand for all. */
void allocate_spilled(const StageKernels *k, const Program *p, Allocation *a) {
  enum { FEW = 3 };
  Blocks blocks = {0};
  int slots = p->period < FEW ? (int)p->period : FEW, n_groups;
  const int *group = groups(k, &n_groups);
  add_parameters(k, a, group, &blocks);
  add_between(k, a, slots, &blocks);
  a->groups = n_groups;
  for (SectionKind kind = SECTION_WEIGHTS; kind <= SECTION_AVERAGES; kind++)
    a->spilled_bytes += a->section[kind].bytes * a->section[kind].copies;
  a->spilled_bytes += a->section[SECTION_RECEIVED].bytes + a->section[SECTION_GRADIENTS_RECEIVED].bytes;
  int64_t most = most_at_once(&blocks, p->chunks, slots, n_groups);
  a->resident_bytes = a->bytes - a->spilled_bytes + (most < a->spilled_bytes ? most : a->spilled_bytes);
}
