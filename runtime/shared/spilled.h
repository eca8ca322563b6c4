/* Spilled execution (docs/guide/offload.md): which blocks of memory each step of a batch works with. One formula, of
 * which pdc plans the memory, by which it verifies the schedule, and by which a program promotes and demotes. A
 * model in parts goes forward part after part, each with all microbatches of the batch, but for the last part: that
 * takes each microbatch forward and at once backward. The others go backward likewise, from the last to the first. Behind
 * the backward pass that completes them, groups of gradients are added up and squared; in the end they are updated, group
 * after group: in memory, or by a GPU's host where blocks are at home. Of a pipeline's stages each does so with the parts it
 * has, and only the last stage's last one is the model's. */
#ifndef PD_SPILLED_H
#define PD_SPILLED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PD_MAX_PARTS = 64 };

enum pd_block_kind {
  PD_BLOCK_WEIGHTS,     /* of a parameter, as passes read them */
  PD_BLOCK_GRADIENT,    /* of one use of a parameter, summed over a batch */
  PD_BLOCK_STATE,       /* of a parameter, which only its update reads: moments, master, average */
  PD_BLOCK_ACTIVATIONS, /* of a microbatch, between the part that makes them and the next */
  PD_BLOCK_RETURNED,    /* their gradients */
  PD_BLOCK_SAVED /* what a part's forward pass saves of a microbatch, where backward does not recompute it */
};

struct pd_block { /* contiguous bytes that come and go together */
  enum pd_block_kind kind;
  size_t offset, bytes; /* in the arena */
  uint64_t parts; /* bit p: passes of part p read it (weights; validating, averages), or add to it (a gradient) */
  bool sums;      /* a gradient to which those of the parameter's other uses are added in the end */
  bool added;     /* one of these others */
  bool rereads;   /* ACTIVATIONS: the part that makes them does not recompute, and its backward pass reads them */
  bool shared;    /* WEIGHTS: of a parameter of whose gradients some are made by other stages */
  int part;       /* of what is between two parts the later one; of SAVED that part */
  int slot;       /* likewise: of microbatches k with k % microbatches == slot */
  int group;      /* of a parameter's: when it is updated; -1: never */
};

/* Whether a block that begins where another ends, but for padding, comes and goes whenever that does. */
static inline bool pd_block_joins(const struct pd_block *a, const struct pd_block *b) {
  const size_t padding = 64;
  return a->kind == b->kind && a->kind <= PD_BLOCK_STATE && a->parts == b->parts && a->group == b->group &&
         a->sums == b->sums && a->added == b->added && a->shared == b->shared &&
         b->offset - (a->offset + a->bytes) < padding;
}
/* Pages are shared by what is small beside them: such blocks are one. */
static inline int pd_join_blocks(struct pd_block *block, int n, size_t page) {
  enum { SMALL = 4096 };
  int joined = 0;
  for (int i = 0; i < n; i++)
    if (page > SMALL && joined && pd_block_joins(&block[joined - 1], &block[i]))
      block[joined - 1].bytes = block[i].offset + block[i].bytes - block[joined - 1].offset;
    else
      block[joined++] = block[i];
  return joined;
}

enum pd_step_kind { PD_STEP_FORWARD, PD_STEP_BACKWARD, PD_STEP_SQUARE, PD_STEP_UPDATE, PD_STEP_VALIDATE };

struct pd_step {
  enum pd_step_kind kind;
  int part;     /* of SQUARE: its gradients are complete behind that part's BACKWARD; -1: behind all messages */
  int slot;     /* of the first two; VALIDATE: 0 */
  bool first;   /* BACKWARD: the batch's first microbatch, which finds no gradient */
  int group;    /* of SQUARE and UPDATE ... */
  bool at_home; /* ... which the host does, where blocks are at home */
};

/* How a step uses a block. */
enum {
  PD_USES = 1,   /* it must be in memory */
  PD_READS = 2,  /* and hold what was there before */
  PD_WRITES = 4, /* and is not the same afterwards */
  PD_ENDS = 8,   /* nobody reads it after this step: it need not be kept */
  PD_HOME =
      16 /* instead of PD_USES: it must be at home, and not in memory, for what is there would be another version */
};

static inline bool pd_block_of(const struct pd_block *b, int part) { return b->parts >> part & 1; }

static inline int pd_forward_use(const struct pd_step *s, const struct pd_block *b) {
  if (b->kind == PD_BLOCK_WEIGHTS) return pd_block_of(b, s->part) ? PD_USES | PD_READS : 0;
  if (b->kind == PD_BLOCK_STATE)
    return s->kind == PD_STEP_VALIDATE && pd_block_of(b, s->part) ? PD_USES | PD_READS : 0;
  if (b->slot != s->slot) return 0;
  if (b->kind == PD_BLOCK_SAVED) return b->part == s->part ? PD_USES | PD_WRITES : 0;
  if (b->kind != PD_BLOCK_ACTIVATIONS) return 0;
  return b->part == s->part ? PD_USES | PD_READS : b->part == s->part + 1 ? PD_USES | PD_WRITES : 0;
}

/* With the forward pass before it: the last part's only one, and of others once more where what it saved is not kept. */
static inline int pd_activations_use(const struct pd_step *s, const struct pd_block *b) {
  if (b->part == s->part) return PD_USES | PD_READS | (b->rereads ? 0 : PD_ENDS);
  if (b->part != s->part + 1) return 0;
  return PD_USES | PD_ENDS | (b->rereads ? PD_READS : PD_WRITES);
}

static inline int pd_backward_use(const struct pd_step *s, const struct pd_block *b) {
  switch (b->kind) {
  case PD_BLOCK_WEIGHTS: return pd_block_of(b, s->part) ? PD_USES | PD_READS : 0;
  case PD_BLOCK_GRADIENT: return pd_block_of(b, s->part) ? PD_USES | PD_WRITES | (s->first ? 0 : PD_READS) : 0;
  case PD_BLOCK_ACTIVATIONS: return b->slot == s->slot ? pd_activations_use(s, b) : 0;
  case PD_BLOCK_SAVED: return b->slot == s->slot && b->part == s->part ? PD_USES | PD_READS | PD_ENDS : 0;
  case PD_BLOCK_RETURNED:
    if (b->slot != s->slot) return 0;
    return b->part == s->part + 1 ? PD_USES | PD_READS | PD_ENDS : b->part == s->part ? PD_USES | PD_WRITES : 0;
  default: return 0;
  }
}

/* At home a gradient that has been added to another is not looked at again. */
static inline int pd_square_use(const struct pd_step *s, const struct pd_block *b) {
  if (b->kind != PD_BLOCK_GRADIENT || b->group != s->group) return 0;
  if (s->at_home) return PD_HOME | PD_READS | (b->sums ? PD_WRITES : b->added ? PD_ENDS : 0);
  return PD_USES | PD_READS | (b->sums ? PD_WRITES : 0);
}

static inline int pd_update_use(const struct pd_step *s, const struct pd_block *b) {
  const int where = s->at_home ? PD_HOME : PD_USES;
  if (b->kind > PD_BLOCK_STATE || b->group != s->group || (s->at_home && b->added)) return 0;
  return where | PD_READS | (b->kind == PD_BLOCK_GRADIENT ? PD_ENDS : PD_WRITES);
}

static inline int pd_use_of(const struct pd_step *s, const struct pd_block *b) {
  switch (s->kind) {
  case PD_STEP_FORWARD:
  case PD_STEP_VALIDATE: return pd_forward_use(s, b);
  case PD_STEP_BACKWARD: return pd_backward_use(s, b);
  case PD_STEP_SQUARE: return pd_square_use(s, b);
  default: return pd_update_use(s, b);
  }
}

/* A rank's batch. */
struct pd_batch {
  int parts;
  bool turns; /* its last part is the model's: each microbatch turns round there */
  int64_t microbatches;
  int groups;   /* of parameters */
  bool at_home; /* the host squares and updates them */
  /* What pd_batch_order finds: */
  struct pd_step *step; /* in their order */
  int64_t steps;
  int64_t *unit, *square; /* a unit's first step; a group's step of squares */
};

/* Parts have units of steps, a step a microbatch: unit p is part p's forward pass, and of the model's last part all; then
 * come the others' backward passes. */
static inline int pd_batch_units(const struct pd_batch *b) { return 2 * b->parts - b->turns; }
static inline int pd_forward_units(const struct pd_batch *b) { return b->parts - b->turns; }

/* Puts the batch's steps into their order, from the blocks' parts and groups. `take` gives zeroed memory, which nobody gives
 * back. */
void pd_batch_order(struct pd_batch *b, const struct pd_block *block, int n, void *(*take)(size_t bytes));
/* Step i, from 0; the one behind the last is the next batch's first. */
static inline struct pd_step pd_batch_step(const struct pd_batch *b, int64_t i) { return b->step[i % b->steps]; }
static inline int64_t pd_update_step(const struct pd_batch *b, int group) { return b->steps - b->groups + group; }

/* Parameters are squared and updated in groups, in their order: one more joins while the group's elements then are no more
 * than `most`, those of the largest parameter, and its gradient is complete behind the same part. */
struct pd_grouping {
  int64_t most, elements;
  int groups, part;
};

/* The group of a parameter that trains; part: the first that has one of its gradients, -1 where other stages have. */
static inline int pd_group_of(struct pd_grouping *g, int64_t elements, int part) {
  if (g->groups == 0 || part != g->part || g->elements + elements > g->most) {
    g->groups++;
    g->elements = 0;
    g->part = part;
  }
  g->elements += elements;
  return g->groups - 1;
}

#endif
