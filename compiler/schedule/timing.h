/* Private to compiler/schedule: times of Programs that are known to be right. */
#ifndef PDC_TIMING_H
#define PDC_TIMING_H

#include "schedule/program.h"

/* A rank has ended a batch: made its update or, where nothing goes backward, sent its last microbatch of it. False:
 * enough, the run ends here. */
typedef bool BatchEnded(void *context, int stage, int replica, int64_t batch, double seconds);

/* When batches end, as run_schedule() has it to the bit; of Programs that it finds right. False: no rank could go on. */
bool time_batches(const Program *programs, const StageTimes *times, int n_stages, int64_t batches,
                  BatchEnded *ended, void *context);

/* Seconds of every batch of a schedule that drains (per_batch), from timing the first alone: where no rank of a later stage
 * ends it so late that it is not ready when the next one reaches it, each batch follows as the first did. INFINITY: it takes
 * longer than `most`, which is known before its end. 0: the next batch may follow in another way, as after updates of
 * parts of the weights, or no rank could go on. */
double time_drained(const Program *programs, const StageTimes *times, int n_stages, double most);

/* Seconds of work on a turn that takes so many on average: a little more or less each time where the rank's times say
 * so, by numbers that the step alone decides. */
double turn_seconds(const Program *p, const StageTimes *times, int replica, Step step, double seconds);

#endif
