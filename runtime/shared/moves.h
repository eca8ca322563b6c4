/* The schedule of offload: when blocks (spilled.h) are read and written. One function computes it from the blocks'
 * sizes and the memory limit; pdc plans memory and time with it, and programs follow it. */
#ifndef PD_MOVES_H
#define PD_MOVES_H

#include "shared/spilled.h"

/* The input. */
struct pd_holding {
  const struct pd_block *block;
  int n;
  struct pd_batch batch; /* pd_moves_make fills in the order */
  size_t page;           /* bytes of a page, aligned to its size; memory is allocated in whole pages */
  size_t room;           /* bytes of blocks that may be resident at once */
  int kept;      /* percent of the room for blocks pinned until their next use; the remainder is for prefetch */
  bool must_fit; /* if a single step needs more than `room`, only `most` of the result is used */
};

enum pd_move {
  PD_ASKED,  /* when the step begins: the block is read */
  PD_LEAVES, /* when the step ends: the block is written if it changed, and its memory is freed */
  PD_DUE,    /* before the step begins: the write is complete, because the memory is needed */
  PD_N_MOVES
};

struct pd_moves {
  int64_t steps;              /* of a batch; all batches are alike */
  int64_t *first[PD_N_MOVES]; /* by step: index of the step's first entry in `block`; steps + 1 entries */
  int *block[PD_N_MOVES];     /* in order of the next use */
  int64_t *needed;            /* by PD_ASKED entry: the step that uses the block */
  bool *changed;              /* by PD_LEAVES entry: the block is written */
  size_t most;                /* largest number of bytes of resident blocks */
};

/* `take` returns zeroed memory, which is never freed. If the largest step needs more than `room`, `most` is its
 * need. */
void pd_moves_make(struct pd_holding *of, void *(*take)(size_t bytes), struct pd_moves *moves);
/* The blocks of a kind of move at a step; returns their number. */
static inline int pd_moves_at(const struct pd_moves *m, enum pd_move what, int64_t step, const int **block) {
  *block = m->block[what] + m->first[what][step];
  return (int)(m->first[what][step + 1] - m->first[what][step]);
}
/* Marks, by block, the blocks that were read and are still resident when step `step` begins. They must be read
 * again if other work used the memory. */
void pd_moves_there(const struct pd_moves *m, int64_t step, bool *there);
/* Bytes of all pages that a block may touch. */
static inline size_t pd_paged(size_t page, size_t bytes) { return (bytes + 2 * page - 1) / page * page; }

#endif
