/* Private to compiler/schedule: times of Programs that are known to be correct. */
#ifndef PDC_TIMING_H
#define PDC_TIMING_H

#include "schedule/tape.h"

/* A number of batches of Programs that run_schedule() accepts: the order of actions and the waits between ranks.
 * It is computed during the first timing and grows in the arena that was in use at its creation. Programs must
 * outlive it. */
typedef struct Run Run;
Run *run_new(const Program *programs, int n_stages, int sets, int64_t batches); /* sets: number of equal sets */

/* Sets of ranks that exchange messages only among themselves: a set has microbatches k, k + sets, k + 2 sets ...
 * programs_sets returns their number, programs_of_set one set's Programs; replicas of different sets exchange
 * gradients. */
int programs_sets(const Program *programs, int n_stages);
Program *programs_of_set(const Program *programs, int n_stages, int sets);
int64_t run_bytes(const Run *c); /* approximate memory */

/* Times the ends of batches, bit-identical to run_schedule(). False: deadlock. */
bool time_batches(Run *run, const StageTimes *times, BatchEnded *ended, void *context);

/* Seconds of every batch of a draining schedule (per_batch), from a run of one batch. It applies if each batch
 * follows the previous one alike: no rank of a later stage ends a batch too late for the next one. INFINITY:
 * longer than `most`, which is known before the end of the run. 0: the next batch may differ, as with sharded
 * updates, or deadlock. */
double time_drained(Run *run, const StageTimes *times, double most);

/* Seconds of a turn with a mean of `seconds`: varied by the rank's jitter, by numbers that depend on the step
 * alone. */
double turn_seconds(const Program *p, const StageTimes *times, int replica, Step step, double seconds);

#endif
