/* When the blocks of a model that spills come and go (spilled.h): decided from their sizes and the memory that there is,
 * once, by one function, of which pdc plans memory and time, and which a program follows. */
#ifndef PD_MOVES_H
#define PD_MOVES_H

#include "shared/spilled.h"

/* What is to be decided. */
struct pd_holding {
  const struct pd_block *block;
  int n;
  struct pd_batch batch; /* whose order pd_moves_make finds */
  size_t page; /* bytes: memory comes and goes in whole pages of so many, which begin at multiples of it */
  size_t room; /* bytes of blocks that may be in memory at once */
  int kept; /* percent of it that blocks may fill which stay until they are used again; the rest is for reading ahead */
  bool must_fit; /* where a step's blocks alone take more than `room`, `most` alone is wanted of the moves */
};

enum pd_move {
  PD_ASKED,  /* as the step begins: from now on the block is read */
  PD_LEAVES, /* as it ends: the block is written, if it has changed, and its memory given back */
  PD_DUE,    /* before it begins: the block has been written, for its memory is needed */
  PD_N_MOVES
};

struct pd_moves {
  int64_t steps;              /* of a batch; the next batch does the same again */
  int64_t *first[PD_N_MOVES]; /* by step, and one more: the first of its in `block` */
  int *block[PD_N_MOVES];     /* in the order of the next use */
  int64_t *needed;            /* by PD_ASKED's: the step that uses it */
  bool *changed;              /* by PD_LEAVES's: it is written */
  size_t most;                /* bytes of blocks in memory at once, at most */
};

/* `take` gives zeroed memory, which nobody gives back. Where `room` is less than the largest step needs, `most` is what
 * that needs. */
void pd_moves_make(struct pd_holding *of, void *(*take)(size_t bytes), struct pd_moves *moves);
/* The blocks that come in as a step begins, or go, and how many. */
static inline int pd_moves_at(const struct pd_moves *m, enum pd_move what, int64_t step, const int **block) {
  *block = m->block[what] + m->first[what][step];
  return (int)(m->first[what][step + 1] - m->first[what][step]);
}
/* Marks by block what has been asked for and has not left as step `step` begins, of what comes and goes within a batch:
 * what is to be read again where something else has had the memory. */
void pd_moves_there(const struct pd_moves *m, int64_t step, bool *there);
/* Of a block the pages that it may have a part of. */
static inline size_t pd_paged(size_t page, size_t bytes) { return (bytes + 2 * page - 1) / page * page; }

#endif
