/* Functions that folders call although folders above them have them: all calls that run up, each with its reason. Nothing else
 * makes circles among folders. */
#ifndef PD_RUN_UPWARD_H
#define PD_RUN_UPWARD_H

#include "run/run.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- messages/signals.c: a failure is told to the other ranks before the process ends (run/failure.c) ---- */

/* Before a failure is told: for so many seconds, or until another rank has told of one, and the launch ends. */
void pd_signals_await_turn(double seconds);
void pd_signals_failed(void); /* tells the other ranks that this one has said why the launch ends */

/* ---- data/file_list.c: options name files by patterns (run/options.c) ---- */

/* Puts the files that arguments of this option match, in order of their names, in the place of patterns. */
bool pd_expand_files(const char *option, char ***list, int *n, char *why);

/* ---- update/exchange.c: who waits for a message moves all others on, too (messages/comm.c) ---- */

/* Moves the exchanges on as far as messages that have arrived allow. */
void pd_exchange_progress(void);

/* ---- watch/trace.c: work is noted where it is done, messages and updates among it ---- */

/* Notes work of the runtime itself that lasted from `start` to `end` (pd_seconds), with rank `peer` (-1: all or
 * none); nothing without --trace. `number`: of a message the k that pd_send_... or pd_receive_... was called with
 * (PD_WAIT: for whose slot), else the update's, from 0. PD_SEND_... lasts while it is posted, PD_RECEIVE_...
 * while it is awaited, PD_REDUCE, PD_EXCHANGE and PD_GATHER from being posted until complete. */
void pd_trace(enum pd_work work, int64_t number, int peer, double start, double end);

void pd_trace_collective(double start); /* of the pass that runs, from then until now */

/* The work that the stage program began last, for a failure's message: "backward of microbatch 3". */
int64_t pd_batch_ending(void); /* the batch whose last backward pass goes on, once; -1: none */
const char *pd_last_work(void);

/* ---- offload/spill.c: updates go by groups where the model spills (update/optimizer.c) ---- */

bool pd_spills(void);
/* Groups of parameters that are to be updated next: has them in memory, one group after the other, of which so many are
 * done. False behind the last. */
bool pd_spill_next_updated(int done, int *first, int *end);

/* ---- train/train.c, evaluate.c: what an exchange is a sum over, and what of it is logged (update/exchange.c); clocks stop while
 * another model has the rank (sharp/sharp_turn.c) ---- */

double pd_loss_elements(void); /* train.c: of a batch, over which the gradients are sums */
void pd_log_known(void);       /* the lines of all updates done whose figures have come */
/* Leaves this time out of the evaluation's. */
void pd_evaluation_pause(double paused);
/* Leaves this time out of updates' times. */
void pd_clock_pause(double paused);

#ifdef __cplusplus
}
#endif

#endif
