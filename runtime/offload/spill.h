/* What comes and goes (spill.c), and who moves it, which each target has its own of: host/spill_moves.c, cuda/spill.cu. */
#ifndef PD_SPILL_H
#define PD_SPILL_H

#include "run/upward.h"
#include "shared/spilled.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A block, in memory and at home in the place. On processors all but `block`, `home` and `parameter` is changed under a
 * lock. */
struct pd_spill_block {
  struct pd_block block;
  int64_t home;      /* bytes into the place */
  int parameter;     /* the first in it; -1: what is between two parts */
  bool here;         /* in memory, or on its way there */
  bool dirty;        /* and not what is at home */
  bool written;      /* there is something at home; before that it is all zeros */
  bool held;         /* in memory for steps */
  int pending[2];    /* requests that are not done yet: of writing, and of reading */
  uint64_t checksum; /* of what is at home */
};

struct pd_spill_blocks {
  struct pd_spill_block *at; /* by offset in the arena */
  int n;
};
extern struct pd_spill_blocks pd_spill_blocks;

enum pd_spill_request {
  PD_SPILL_READ,  /* into memory what is at home */
  PD_SPILL_ROOM,  /* into memory nothing yet: what is there is going to be overwritten */
  PD_SPILL_WRITE, /* home, and out of memory */
  PD_SPILL_DROP   /* out of memory */
};

/* Where blocks go that no place is named for; NULL: one must be. */
const char *pd_spill_usual_place(void);
/* Makes room for so many bytes in the place, and starts whoever moves them. A file has no name: nobody else finds it, and
 * it is gone with the process. False after filling `why`. */
bool pd_spill_place_start(const char *place, int64_t bytes, char *why);
/* Asks for a move. Writing comes before reading; of a block one thing after the other. */
void pd_spill_request(struct pd_spill_block *b, enum pd_spill_request what);
/* Wait until all that was asked of a block is done, for the work that is asked for next, or until it is written. What
 * cannot be done ends the launch, and so does a place that gives no sign for --timeout. */
void pd_spill_await(struct pd_spill_block *b);
void pd_spill_await_written(struct pd_spill_block *b);
/* Bytes of the arena of which nothing is needed until they are written again: their memory may be had. */
void pd_spill_unused(size_t from, size_t to);

void pd_spill_place_finish(void); /* at the end: nothing is moved any more */

/* ---- spill.c ----------------------------------------------------------------------------------- */

/* Of a program whose model spills: its blocks, and the file. False after filling `why`. */
bool pd_spill_start(char *why);
bool pd_updates_at_home(void); /* groups are squared and updated by the device's host, where blocks are at home */
/* Writes a block's name for messages to `to`, and returns it: "the weights of 'wte.weight'". */
const char *pd_spill_name(const struct pd_spill_block *b, char *to, size_t n);
/* The block in which an address of the arena is; NULL: none. */
struct pd_spill_block *pd_spill_block_at(const void *at);
/* Before the host reads an address of the arena, or `changes` what is there: has its block in memory, until two
 * others have been looked at. */
void pd_spill_look(const void *at, bool changes);
/* Groups of parameters whose gradients are to be added up and squared next: has them in memory, one group after the
 * other, of which so many are done. False behind the last; not all: behind the last whose gradients
 * are complete before the ranks' messages. */
bool pd_spill_next_squared(int done, bool all, int *first, int *end);

#ifdef __cplusplus
}
#endif

#endif
