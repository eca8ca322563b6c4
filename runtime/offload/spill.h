/* Offload: the blocks (spill.c), and their moves, which each target implements: host/spill_moves.c,
 * cuda/spill.cu. */
#ifndef PD_SPILL_H
#define PD_SPILL_H

#include "run/upward.h"
#include "shared/spilled.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A block, with its copy in the offload place. On processors a lock guards all members except `block`, `home` and
 * `parameter`. */
struct pd_spill_block {
  struct pd_block block;
  int64_t home;      /* bytes into the offload place */
  int parameter;     /* first parameter in the block; -1: values between two parts */
  bool here;         /* resident, or being read */
  bool dirty;        /* resident and changed since it was read or written */
  bool written;      /* the offload place has a copy; before, the block is all zeros */
  bool held;         /* pinned for current steps */
  int pending[2];    /* pending requests: writes, reads */
  uint64_t checksum; /* of the offloaded copy */
};

struct pd_spill_blocks {
  struct pd_spill_block *at; /* by offset in the arena */
  int n;
};
extern struct pd_spill_blocks pd_spill_blocks;

enum pd_spill_request {
  PD_SPILL_READ,  /* reads the offloaded copy into memory */
  PD_SPILL_ROOM,  /* allocates memory without reading, for a block that will be overwritten */
  PD_SPILL_WRITE, /* writes the block and frees its memory */
  PD_SPILL_DROP   /* frees the block's memory */
};

/* The default offload place; NULL: --spill is required. */
const char *pd_spill_usual_place(void);
/* Allocates `bytes` in the place and starts its mover. A file has no name and disappears with the process. False
 * after filling `why`. */
bool pd_spill_place_start(const char *place, int64_t bytes, char *why);
/* Requests a move. Writes have priority over reads; requests of one block run in order. */
void pd_spill_request(struct pd_spill_block *b, enum pd_spill_request what);
/* Wait until all requests of a block are done, for work enqueued next, or until the block is written. A failed
 * request, or a place without progress for --timeout, ends the launch. */
void pd_spill_await(struct pd_spill_block *b);
void pd_spill_await_written(struct pd_spill_block *b);
/* Declares bytes of the arena unused until they are written again, so that their memory can be reused. */
void pd_spill_unused(size_t from, size_t to);

void pd_spill_place_finish(void); /* at the end: stops the mover */

/* ---- spill.c ----------------------------------------------------------------------------------- */

/* Starts offload, if the program offloads: blocks and file. False after filling `why`. */
bool pd_spill_start(char *why);
bool pd_updates_at_home(void); /* the device's host computes squares and updates, on the offloaded copies */
/* Writes a block's name, such as "the weights of 'wte.weight'", to `to` and returns it. */
const char *pd_spill_name(const struct pd_spill_block *b, char *to, size_t n);
/* The block at an address of the arena; NULL: none. */
struct pd_spill_block *pd_spill_block_at(const void *at);
/* Makes the block at an address of the arena resident before the host reads it or, with `changes`, writes it.
 * Valid until two other blocks have been requested this way. */
void pd_spill_look(const void *at, bool changes);
/* Makes the gradients of the next group of parameters resident, after `done` groups, and returns the group's
 * range. False after the last group; without `all`, after the last group whose gradients are complete before the
 * ranks' messages. */
bool pd_spill_next_squared(int done, bool all, int *first, int *end);

#ifdef __cplusplus
}
#endif

#endif
