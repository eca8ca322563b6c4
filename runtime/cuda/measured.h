/* What `pdc profile` measures of ways to do the same, for plans to keep (measured.cu). */
#ifndef PD_MEASURED_H
#define PD_MEASURED_H

#include "pd_cuda.h"

#include <functional>
#include <string>
#include <vector>

/* The device's name, as CUDA has it: of whose plans are. */
std::string pd_this_device(void);

/* Seconds of one run of each, which enqueues it on pd_stream: the median of rounds in which they take turns, so that a
 * clock that falls slows all of them. Each is run once before, which loads its kernels. */
std::vector<double> pd_time_in_turns(const std::vector<std::function<void()>> &runs);

/* One is taken in place of another that is listed before it where it takes no more than this of its time: measurements
 * differ by less. */
#define PD_FASTER 0.98

#endif
