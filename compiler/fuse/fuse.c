/* fuse: a stage's part of the Graph -> Kernels, by the passes below. Each pass's result is const for later
 * passes. */
#include "fuse/internal.h"

static StageKernels *stage_kernels(const Graph *g, int stage, int n_stages, int64_t microbatch, bool recompute,
                                   bool split, Target target, bool named) {
  StageKernels *k = alloc(sizeof *k);
  *k = (StageKernels){.graph = g,
                      .stage = stage,
                      .n_stages = n_stages,
                      .microbatch = microbatch,
                      .recompute = recompute,
                      .split = split,
                      .named = named,
                      .target = target};
  return k;
}

static Built *nothing_built(const Graph *g) {
  Built *b = alloc(sizeof *b);
  b->term = alloc(sizeof(int) * (size_t)g->nodes.n);
  return b;
}

/* From the stage's survey to its kernels, in setup, forward and backward. */
static void make_kernels(Fuse *f) {
  /* Nodes and regions of this stage, readers of values, tables. */
  f->survey = survey(f);
  /* Additions that become the bias of a call. */
  f->biases = merge_biases(f);
  /* Values that each loop computes for itself. Requires that no value is placed: views have no memory yet. */
  f->remat[SETUP] = f->remat[FORWARD] = rematerialise(f);
  /* Buffers for values of other stages, parameters, inputs, accumulators, figures; the producers that write them
   * directly. */
  f->destinations = place_destined(f);
  /* The items of work, in order. Views and generated values that need memory get buffers. */
  f->items = list_items(f);
  for (Direction d = SETUP; d <= FORWARD; d++) {
    /* The items that share a loop. */
    f->groups[d] = group_items(f, d);
    /* A kernel per group, without stores for other groups; operands in memory get buffers. */
    build_kernels(f, d);
  }
  /* Values that forward saves or backward loops rematerialise. Requires forward's kernels: saving a value that
   * they write anyway is free. */
  f->remat[BACKWARD] = save_values(f);
  f->groups[BACKWARD] = group_items(f, BACKWARD);
  build_kernels(f, BACKWARD);
  /* Stores, phases and dims of loops; loops without stores are dropped. Requires all kernels, because they decide
   * which values are read from memory. */
  for (Direction d = SETUP; d < N_DIRECTIONS; d++)
    store_needed(f, d);
  /* Forward kernels of recomputed pieces, repeated in the backward pass. Requires all stores. */
  if (f->again)
    recompute_pieces(f);
  for (Direction d = SETUP; d < N_DIRECTIONS; d++)
    finish_loops(f, d);
}

/* The single chunk of a stage: all kernels. */
static Chunk whole_chunk(const Fuse *f) {
  Chunk c = {.first_piece = f->first_piece, .end_piece = f->end_piece};
  c.first_node = f->p->at[f->first_piece].first;
  c.end_node = f->p->at[f->end_piece - 1].end;
  for (PassKind pass = 0; pass < PASS_KINDS; pass++)
    c.end[pass] = pass_kernels(f->k, pass)->n;
  return c;
}

StageKernels *fuse_part(const FuseFacts *facts, const Pieces *p, int first_piece, int end_piece, int stage,
                        int n_stages, int64_t microbatch, bool recompute, Name again, bool split, Target target,
                        bool named) {
  const Graph *g = facts->g;
  StageKernels *k = stage_kernels(g, stage, n_stages, microbatch, recompute, split, target, named);
  Fuse f = {.g = g,
            .facts = facts,
            .p = p,
            .first_piece = first_piece,
            .end_piece = end_piece,
            .again = again,
            .k = k,
            .built = nothing_built(g)};
  f.places = placement(&f);
  make_kernels(&f);
  /* Buffers in bf16. */
  choose_precision(&f);
  /* Results that reuse an operand's memory. Requires all kernels, and precision. */
  reuse_buffers(&f);
  /* Names and signatures of kernels. Requires precision, which is part of signatures, and the unsplit backward
   * pass. */
  if (named)
    name_kernels(&f);
  else
    sign_asking(k);
  /* Calls whose results only the update reads move to the weights pass. */
  if (split)
    split_backward(k);
  /* Collectives that can overlap computation are split into begin and end. Requires the final lists. */
  if (g->shards)
    overlap_collectives(k);
  /* Kinds, lifetimes and regions of the stage's own buffers. Requires the final lists of kernels. */
  find_lifetimes(k);
  /* Names of buffers, unique within their kind and region. */
  if (named)
    name_buffers(&f);
  /* The kernels of each region, and equal regions. Requires the names of buffers. */
  find_region_ranges(k);
  if (named)
    find_like_regions(k);
  /* The kernels at which backward completes gradients. Requires regions. */
  find_completions(k);
  push(&k->chunks, whole_chunk(&f));
  return k;
}

StageKernels *fuse(const Graph *g, const Pieces *p, int first_piece, int end_piece, int stage, int n_stages,
                   int64_t microbatch, bool recompute, bool split, Target target) {
  return fuse_part(fuse_facts(g), p, first_piece, end_piece, stage, n_stages, microbatch, recompute, NULL, split,
                   target, true);
}
