/* Private to host/: the file of what is not in memory, and the thread that reads and writes it. */
#ifndef PD_SPILL_H
#define PD_SPILL_H

#include "spilled.h"

/* A block, in memory and at home in the file. All but `block`, `home` and `parameter` is changed under the
 * lock. */
struct pd_spill_block {
  struct pd_block block;
  int64_t home;      /* bytes into the file */
  int parameter;     /* -1: what is between two parts */
  bool here;         /* in memory, or on its way there */
  bool dirty;        /* and not what is at home */
  bool written;      /* there is something at home; before that it is all zeros */
  bool held;         /* in memory for steps */
  int pending[2];    /* requests that the thread has not done yet: of writing, and of reading */
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

/* Makes the file, of so many bytes, in a directory, and starts the thread. The file has no name: nobody else
 * finds it, and it is gone with the process. False after filling `why`. */
bool pd_spill_file_start(const char *place, int64_t bytes, char *why);
/* Ask the thread. It writes before it reads; of a block it does one thing after the other. */
void pd_spill_request(struct pd_spill_block *b, enum pd_spill_request what);
/* Wait until the thread has done all that it was asked of a block, or has written it. What it could not do ends the
 * launch, and so does a place that gives no sign for --timeout. */
void pd_spill_await(const struct pd_spill_block *b);
void pd_spill_await_written(const struct pd_spill_block *b);

void pd_spill_file_finish(void); /* at the end: the thread touches memory no more */

/* ---- spill.c ----------------------------------------------------------------------------------- */

/* Of a program whose model spills: its blocks, and the file. False after filling `why`. */
bool pd_spill_start(char *why);
bool pd_spills(void);
/* Before the host reads an address of the arena, or `changes` what is there: has its block in memory, until two
 * others have been looked at. */
void pd_spill_look(const void *at, bool changes);
/* Groups of parameters, from 0, whose gradients are to be added up and squared, or which are to be updated: has
 * them in memory, one group after the other. False behind the last. */
bool pd_spill_next_squared(int group, int *first, int *end);
bool pd_spill_next_updated(int group, int *first, int *end);

#endif
