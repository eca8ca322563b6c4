/* Time taken, for --time-passes. */
#ifndef PDC_WATCH_H
#define PDC_WATCH_H

#include <stdint.h>
#include <stdio.h>

double seconds_now(void); /* of a monotonic clock */

/* What one step took, all its runs together. */
typedef struct Watch {
  int64_t runs;
  int64_t cached; /* of these runs: answered from a cache */
  double seconds;
} Watch;

void watch_add(Watch *w, double start); /* one run from `start`, seconds_now() then, until now */

/* "  131 parts, of which 32 cached"; `of`: of one run. */
void watch_print_runs(FILE *out, int64_t runs, const char *of, int64_t cached);
void watch_print(FILE *out, const char *name, Watch w, const char *of); /* a line */

#endif
