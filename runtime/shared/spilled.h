/* Offload (docs/guide/offload.md): the blocks of memory that each step of a batch uses. pdc plans memory and
 * verifies the schedule with these functions, and programs move blocks by them. A model in parts runs forward part
 * by part, each with all microbatches of the batch; the last part runs each microbatch forward and then backward.
 * The remaining parts then run backward, from last to first. After the backward pass that completes them, groups
 * of gradients are added up and squared. At the end the groups are updated, in memory or by a GPU's host in the
 * offload place. In a pipeline each stage does this with its own parts; only the last part of the last stage runs
 * forward and backward together. */
#ifndef PD_SPILLED_H
#define PD_SPILLED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PD_MAX_PARTS = 64 };

enum pd_block_kind {
  PD_BLOCK_WEIGHTS,     /* weights of a parameter, as passes read them */
  PD_BLOCK_GRADIENT,    /* gradient of one use of a parameter, summed over a batch */
  PD_BLOCK_STATE,       /* moments, master or average of a parameter, which only its update reads */
  PD_BLOCK_ACTIVATIONS, /* activations of a microbatch between two parts */
  PD_BLOCK_RETURNED,    /* gradients of these activations */
  PD_BLOCK_SAVED        /* values of a microbatch that a part's forward pass saves, without recomputation */
};

struct pd_block { /* contiguous bytes that are moved together */
  enum pd_block_kind kind;
  size_t offset, bytes; /* in the arena */
  uint64_t parts; /* bit p: part p reads the block (weights; averages in validation) or adds to it (a gradient) */
  bool sums;      /* GRADIENT: receives the sum over all uses of the parameter */
  bool added;     /* GRADIENT: is added to the one with `sums` */
  bool rereads;   /* ACTIVATIONS: the producing part does not recompute, and its backward pass reads them */
  bool shared;    /* WEIGHTS: other stages compute some gradients of the parameter */
  int part;       /* ACTIVATIONS, RETURNED: the later part; SAVED: the part */
  int slot;       /* of these kinds: microbatches k with k % microbatches == slot */
  int group;      /* of parameters: the group of the update; -1: never updated */
};

/* True if block b directly follows block a, except for padding, and always moves with it. */
static inline bool pd_block_joins(const struct pd_block *a, const struct pd_block *b) {
  const size_t padding = 64;
  return a->kind == b->kind && a->kind <= PD_BLOCK_STATE && a->parts == b->parts && a->group == b->group &&
         a->sums == b->sums && a->added == b->added && a->shared == b->shared &&
         b->offset - (a->offset + a->bytes) < padding;
}
/* Joins blocks that always move together, if pages are large. */
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
  int part;     /* SQUARE: gradients are complete after this part's BACKWARD; -1: after all messages */
  int slot;     /* FORWARD, BACKWARD: the microbatch's slot; VALIDATE: 0 */
  bool first;   /* BACKWARD: the first microbatch of the batch, which overwrites gradients */
  int group;    /* SQUARE, UPDATE: the group of parameters */
  bool at_home; /* SQUARE, UPDATE: done by the host in the offload place */
};

/* The use of a block by a step. */
enum {
  PD_USES = 1,   /* the block must be resident */
  PD_READS = 2,  /* with its contents */
  PD_WRITES = 4, /* the step changes the block */
  PD_ENDS = 8,   /* no later step reads the block: it can be dropped */
  PD_HOME = 16   /* instead of PD_USES: use the offloaded copy; a resident copy would be stale */
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

/* A backward step includes its forward pass: the only one of the last part, a recomputation of parts that did not
 * save. */
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

/* In the offload place, a gradient that was added to another is not used again. */
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
  bool turns; /* the last part is the model's last, which runs forward and backward together */
  int64_t microbatches;
  int groups;   /* of parameters */
  bool at_home; /* the host computes squares and updates */
  /* Set by pd_batch_order: */
  struct pd_step *step; /* in order */
  int64_t steps;
  int64_t *unit, *square; /* first step of each unit; SQUARE step of each group */
};

/* Steps are in units, one step per microbatch: unit p is the forward pass of part p, including backward for the
 * model's last part; the units of the remaining backward passes follow. */
static inline int pd_batch_units(const struct pd_batch *b) { return 2 * b->parts - b->turns; }
static inline int pd_forward_units(const struct pd_batch *b) { return b->parts - b->turns; }

/* Orders the steps of the batch, from the blocks' parts and groups. `take` returns zeroed memory, which is never
 * freed. */
void pd_batch_order(struct pd_batch *b, const struct pd_block *block, int n, void *(*take)(size_t bytes));
/* Step i, from 0; the steps of the next batch follow. */
static inline struct pd_step pd_batch_step(const struct pd_batch *b, int64_t i) { return b->step[i % b->steps]; }
static inline int64_t pd_update_step(const struct pd_batch *b, int group) { return b->steps - b->groups + group; }

/* Parameters are squared and updated in groups of consecutive parameters. A group has at most `most` elements,
 * those of the largest parameter, and all its gradients are complete after the same part. */
struct pd_grouping {
  int64_t most, elements;
  int groups, part;
};

/* The group of a trained parameter; part: the first part with a gradient of it, -1 if other stages have one. */
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
