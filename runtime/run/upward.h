/* All calls from a folder to a folder above it, each with its reason. pd_figure() of pd_runtime.h is one more:
 * watch/twice.c counts the figures of a pass that ran twice once both runs agree. */
#ifndef PD_RUN_UPWARD_H
#define PD_RUN_UPWARD_H

#include "run/run.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- messages/signals.c: ranks learn of a failure before the process ends (run/failure.c) ---- */

/* Waits this many seconds before a report; if another rank reports a failure first, the process ends. */
void pd_signals_await_turn(double seconds);
void pd_signals_failed(void); /* informs all ranks that this rank has reported the cause */

/* ---- data/file_list.c: options contain file name patterns (run/options.c) ---- */

/* Replaces patterns among this option's arguments by the matching files, sorted by name. */
bool pd_expand_files(const char *option, char ***list, int *n, char *why);

/* ---- data/tokenized.c: the same, with --tokenizer ---- */

/* Replaces texts and chats by patterns of the files of their tokens in --token-cache. */
bool pd_tokenize_files(const char *option, char **list, int *n, char *why);

/* ---- update/exchange.c: a rank that waits for a message also advances exchanges (messages/comm.c) ---- */

/* Advances exchanges as far as the arrived messages allow. */
void pd_exchange_progress(void);

/* ---- watch/trace.c: work is recorded where it is done, including messages and updates ---- */

/* Records work of the runtime from `start` to `end` (pd_seconds), with rank `peer` (-1: all or none); no effect
 * without --trace. `number`: k of the message (PD_WAIT: of its slot), else the update, from 0. PD_SEND_... lasts
 * during the post, PD_RECEIVE_... and PD_DATA during the wait; PD_REDUCE, PD_EXCHANGE and PD_GATHER last from the post to
 * completion. */
void pd_trace(enum pd_work work, int64_t number, int peer, double start, double end);

void pd_trace_collective(double start); /* a collective of the current pass, from `start` until now */
void pd_trace_data(double start);       /* a wait of the current pass for its samples */

/* pd_last_work: the stage program's most recent work, for messages: "backward of microbatch 3". */
int64_t pd_batch_ending(void); /* returns, once, the batch whose last backward pass runs; -1: none */
const char *pd_last_work(void);

/* Names the host's work until pd_range_end for an attached profiler, as in a trace. `number`: the pipeline's
 * microbatch, or the update, from 1. */
void pd_range_begin(enum pd_work work, int64_t number);
void pd_range_end(void);

/* ---- offload/spill.c: with offload, updates run by groups of parameters (update/optimizer.c) ---- */

bool pd_spills(void);
/* Makes the next group of parameters resident for the update, after `done` groups, and returns its range. False
 * after the last group. */
bool pd_spill_next_updated(int done, int *first, int *end);

/* ---- train/train.c, evaluate.c: an exchange (update/exchange.c); pauses of clocks (sharp/sharp_turn.c) ---- */

double pd_loss_elements(void); /* train.c: elements of the losses in a batch; gradients are sums over them */
void pd_log_known(void);       /* logs all updates whose figures have arrived */
/* Subtracts this time from the evaluation's. */
void pd_evaluation_pause(double paused);
/* Subtracts this time from the updates'. */
void pd_clock_pause(double paused);

#ifdef __cplusplus
}
#endif

#endif
