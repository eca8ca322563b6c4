#include "measured.h"

#include <algorithm>

std::string pd_this_device(void) {
  cudaDeviceProp device;
  int number;
  pd_cuda_check(cudaGetDevice(&number), "ask for the device");
  pd_cuda_check(cudaGetDeviceProperties(&device, number), "ask for the device");
  return device.name;
}

/* Seconds of one run, from event to event over `times`. */
static double seconds_of(const std::function<void()> &run, int times) {
  static cudaEvent_t start, end;
  float milliseconds;
  if (!start) {
    pd_cuda_check(cudaEventCreate(&start), "make an event");
    pd_cuda_check(cudaEventCreate(&end), "make an event");
  }
  pd_cuda_check(cudaEventRecord(start, pd_stream), "record an event");
  for (int i = 0; i < times; i++) run();
  pd_cuda_check(cudaEventRecord(end, pd_stream), "record an event");
  pd_cuda_check(cudaEventSynchronize(end), "time a library's call");
  pd_cuda_check(cudaEventElapsedTime(&milliseconds, start, end), "time a library's call");
  return 1e-3 * static_cast<double>(milliseconds) / times;
}

std::vector<double> pd_time_in_turns(const std::vector<std::function<void()>> &runs) {
  enum { ROUNDS = 7 };
  const double ROUND_SECONDS = 1e-3, LEAST_SECONDS = 5e-6; /* of a run: what takes less is a launch alone */
  const size_t n = runs.size();
  std::vector<double> rounds, medians;
  for (const auto &run : runs) seconds_of(run, 1);
  double once = std::max(seconds_of(runs.front(), 1), LEAST_SECONDS);
  int times = static_cast<int>(ROUND_SECONDS / once) + 1;
  for (int r = 0; r < ROUNDS; r++)
    for (const auto &run : runs) rounds.push_back(seconds_of(run, times));
  for (size_t i = 0; i < n; i++) {
    double of_round[ROUNDS];
    for (size_t r = 0; r < ROUNDS; r++) of_round[r] = rounds[r * n + i];
    std::nth_element(of_round, of_round + ROUNDS / 2, of_round + ROUNDS);
    medians.push_back(of_round[ROUNDS / 2]);
  }
  return medians;
}
