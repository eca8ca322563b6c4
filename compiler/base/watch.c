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

void watch_print_runs(FILE *out, int64_t runs, const char *of, int64_t cached) {
  fprintf(out, "  %lld %s%s", (long long)runs, of, runs == 1 ? "" : "s");
  if (cached)
    fprintf(out, ", of which %lld cached", (long long)cached);
}

void watch_print(FILE *out, const char *name, Watch w, const char *of) {
  fprintf(out, "  %-8s %8.3f ms", name, 1e3 * w.seconds);
  watch_print_runs(out, w.runs, of, w.cached);
  fprintf(out, "\n");
}
