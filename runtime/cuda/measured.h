/* Timing of alternative implementations for `pdc profile`, whose results plans keep (measured.cu). */
#ifndef PD_MEASURED_H
#define PD_MEASURED_H

#include "pd_cuda.h"

#include <functional>
#include <string>
#include <vector>

/* CUDA's name of the device, which plans record. */
std::string pd_this_device(void);

/* Seconds per run of each function, which enqueues work on pd_stream: the median over interleaved rounds, so that
 * a falling clock affects all alike. One warm-up run loads the kernels. */
std::vector<double> pd_time_in_turns(const std::vector<std::function<void()>> &runs);

/* A later alternative replaces an earlier one only if its time is at most this fraction, beyond the noise of
 * measurements. */
#define PD_FASTER 0.98

#endif
