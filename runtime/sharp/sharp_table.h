/* The memory that the processes of a launch of several models share: ranks (sharp_ranks.c) and models
 * (sharp_turn.c). */
#ifndef PD_SHARP_TABLE_H
#define PD_SHARP_TABLE_H

#include "sharp/sharp.h"

#include <pthread.h>
#include <sched.h>
#include <sys/types.h>

enum { PD_SHARP_FD = 3 }; /* a model finds the memory here: it is started with nothing else open */

struct pd_sharp_result { /* of a model, for the launch's last lines */
  int64_t step, steps;
  double loss, validation_loss; /* NaN: none yet */
  int status;                   /* as waitpid has it, once it has ended */
};

struct pd_sharp_table {
  pthread_mutex_t lock;
  pid_t pid[PD_SHARP_RANKS];       /* 0: not there yet */
  bool leaves[PD_SHARP_RANKS];     /* the rank has seen all models end */
  cpu_set_t cores[PD_SHARP_RANKS]; /* what the launcher bound it to */
  bool bound;                      /* and no two share one: a model moves to its rank's */
  struct pd_sharp_result result[PD_SHARP_MODELS];
  struct pd_sharp s;
};

/* NULL with errno. */
struct pd_sharp_table *pd_sharp_map(int fd);
/* By the process that made the memory, which is zero. */
void pd_sharp_table_start(struct pd_sharp_table *t, int models, int ranks, double slice);
/* Around every look at `s`, and every change, of which those are told that wait for it. A process that was killed
 * with the lock in its hands does not keep it. */
struct pd_sharp *pd_sharp_lock(struct pd_sharp_table *t);
void pd_sharp_unlock(struct pd_sharp_table *t);
/* Waits until model's `changes` are no longer `seen`; a signal may end it earlier. */
void pd_sharp_await_change(struct pd_sharp_table *t, int model, uint32_t seen);

#endif
