#include "base/watch.h"

#include <time.h>

double seconds_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void watch_add(Watch *w, double start) {
  w->runs++;
  w->seconds += seconds_now() - start;
}
