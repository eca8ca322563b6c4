/* The memory that the processes of a launch of several models share: ranks (sharp_ranks.c) and models
 * (sharp_turn.c). */
#ifndef PD_SHARP_TABLE_H
#define PD_SHARP_TABLE_H

#include "sharp/sharp.h"

#include <pthread.h>
#include <sched.h>
#include <sys/types.h>

enum {
  PD_SHARP_FD = 3
}; /* the shared memory's descriptor in a model's process, which starts without any other open files */

struct pd_sharp_result { /* a model's result, for the summary */
  int64_t step, steps;
  double loss, validation_loss; /* NaN: none yet */
  int status;                   /* status of waitpid, after the end */
};

struct pd_sharp_table {
  pthread_mutex_t lock;
  pid_t pid[PD_SHARP_RANKS];       /* 0: not started */
  bool leaves[PD_SHARP_RANKS];     /* the rank knows that all models ended */
  cpu_set_t cores[PD_SHARP_RANKS]; /* processors that the launcher bound the rank to */
  bool bound;                      /* the ranks' processors are disjoint: a model moves to its rank's processors */
  struct pd_sharp_result result[PD_SHARP_MODELS];
  struct pd_sharp s;
};

/* NULL with errno. */
struct pd_sharp_table *pd_sharp_map(int fd);
/* Initialises zeroed memory; called by the process that created it. */
void pd_sharp_table_start(struct pd_sharp_table *t, int models, int ranks, double slice);
/* Bracket each access to `s`; unlocking wakes models that wait for a change. The lock of a killed process is
 * released. */
struct pd_sharp *pd_sharp_lock(struct pd_sharp_table *t);
void pd_sharp_unlock(struct pd_sharp_table *t);
/* Waits until the model's `changes` differ from `seen`; a signal may end the wait earlier. */
void pd_sharp_await_change(struct pd_sharp_table *t, int model, uint32_t seen);

#endif
