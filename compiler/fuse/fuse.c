/* fuse: a stage's part of the Graph -> Kernels, by the passes below. What a pass makes is const for those after
 * it. */
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
  /* What runs here, which regions there are, who reads a value how, what is made once. */
  f->survey = survey(f);
  /* Which additions a call does as its bias. */
  f->biases = merge_biases(f);
  /* Values that each loop computes for itself. Requires that nothing is placed yet: views have no memory. */
  f->remat[SETUP] = f->remat[FORWARD] = rematerialise(f);
  /* Buffers for what crosses, parameters, inputs, accumulators, figures; who writes straight to them. */
  f->destinations = place_destined(f);
  /* All that is to be done, in order. Views and made-up values that must stand in memory get buffers. */
  f->items = list_items(f);
  for (Direction d = SETUP; d <= FORWARD; d++) {
    /* Which items share a loop. */
    f->groups[d] = group_items(f, d);
    /* A kernel a group, without the stores of what others read; what is read from memory gets a buffer. */
    build_kernels(f, d);
  }
  /* What forward saves and what backward loops rematerialise. Requires forward's kernels: what they write to
   * memory anyway costs nothing more. */
  f->remat[BACKWARD] = save_values(f);
  f->groups[BACKWARD] = group_items(f, BACKWARD);
  build_kernels(f, BACKWARD);
  /* Stores, phases and dims of loops; those without a store are dropped. Requires that all kernels are built, for
   * only then is known what others read. */
  for (Direction d = SETUP; d < N_DIRECTIONS; d++)
    finish_loops(f, d);
}

/* Of the one chunk there is: all kernels. */
static Chunk whole_chunk(const Fuse *f) {
  Chunk c = {.first_piece = f->first_piece, .end_piece = f->end_piece};
  c.first_node = f->p->at[f->first_piece].first;
  c.end_node = f->p->at[f->end_piece - 1].end;
  for (PassKind pass = 0; pass < PASS_KINDS; pass++)
    c.end[pass] = pass_kernels(f->k, pass)->n;
  return c;
}

StageKernels *fuse_part(const FuseFacts *facts, const Pieces *p, int first_piece, int end_piece, int stage,
                        int n_stages, int64_t microbatch, bool recompute, bool split, Target target, bool named) {
  const Graph *g = facts->g;
  StageKernels *k = stage_kernels(g, stage, n_stages, microbatch, recompute, split, target, named);
  Fuse f = {.g = g,
            .facts = facts,
            .p = p,
            .first_piece = first_piece,
            .end_piece = end_piece,
            .k = k,
            .built = nothing_built(g)};
  f.places = placement(&f);
  make_kernels(&f);
  /* Which buffers are in bf16. */
  choose_precision(&f);
  /* Which results stand where an operand did. Requires all kernels, and precision. */
  reuse_buffers(&f);
  /* Names and signatures of kernels. Requires precision, which signatures tell, and the backward pass whole. */
  if (named)
    name_kernels(&f);
  else
    sign_asking(k);
  /* Calls whose results only the update reads move to the weights pass. */
  if (split)
    split_backward(k);
  /* Collectives beside which something can be computed are begun and ended apart. Requires the final lists. */
  if (g->shards)
    overlap_collectives(k);
  /* The kinds of the stage's own buffers, when and in which region they are used. Requires the final lists of
   * kernels. */
  find_lifetimes(k);
  /* Names of buffers, unique within their kind and region. */
  if (named)
    name_buffers(&f);
  /* The kernels of each region, and which regions are alike: by the names of their buffers, too. */
  find_region_ranges(k);
  if (named)
    find_like_regions(k);
  /* Where the backward pass completes gradients. Requires regions. */
  find_completions(k);
  push(&k->chunks, whole_chunk(&f));
  return k;
}

StageKernels *fuse(const Graph *g, const Pieces *p, int first_piece, int end_piece, int stage, int n_stages,
                   int64_t microbatch, bool recompute, bool split, Target target) {
  return fuse_part(fuse_facts(g), p, first_piece, end_piece, stage, n_stages, microbatch, recompute, split, target,
                   true);
}
