/* Private to compiler/schedule: times of Programs that are known to be right. */
#ifndef PDC_TIMING_H
#define PDC_TIMING_H

#include "schedule/tape.h"

/* So many batches of Programs that run_schedule() finds right: in which order ranks do what, and who waits for whom. It is
 * found out while it is timed first, and grows in the arena in use when it was made; Programs must last. */
typedef struct Run Run;
Run *run_new(const Program *programs, int n_stages, int sets,
             int64_t batches); /* sets: there are so many like it */

/* Ranks whose messages stay among themselves: microbatches k, k + sets, k + 2 sets ... come by the same ones. How many such
 * sets there are; Programs of one of them, whose replicas exchange gradients with those of the others. */
int programs_sets(const Program *programs, int n_stages);
Program *programs_of_set(const Program *programs, int n_stages, int sets);
int64_t run_bytes(const Run *c); /* that it has taken, about */

/* When batches end, as run_schedule() has it to the bit. False: no rank could go on. */
bool time_batches(Run *run, const StageTimes *times, BatchEnded *ended, void *context);

/* Of a run of one batch of a schedule that drains (per_batch): seconds of every batch, for where no rank of a later stage
 * ends the first so late that it is not ready when the next one reaches it, each batch follows as the first did. INFINITY: it takes
 * longer than `most`, which is known before its end. 0: the next batch may follow in another way, as after updates of
 * parts of the weights, or no rank could go on. */
double time_drained(Run *run, const StageTimes *times, double most);

/* Seconds of work on a turn that takes so many on average: a little more or less each time where the rank's times say
 * so, by numbers that the step alone decides. */
double turn_seconds(const Program *p, const StageTimes *times, int replica, Step step, double seconds);

#endif
