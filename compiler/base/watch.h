/* Times for --time-passes. */
#ifndef PDC_WATCH_H
#define PDC_WATCH_H

#include <stdint.h>
#include <stdio.h>

double seconds_now(void); /* of a monotonic clock */

/* Time of all runs of one step. */
typedef struct Watch {
  int64_t runs;
  int64_t cached; /* runs answered from a cache */
  double seconds;
} Watch;

void watch_add(Watch *w, double start); /* adds a run from `start`, a result of seconds_now(), until now */

/* "  131 parts, of which 32 cached"; `of`: the unit of a run, here "parts". */
void watch_print_runs(FILE *out, int64_t runs, const char *of, int64_t cached);
void watch_print(FILE *out, const char *name, Watch w, const char *of); /* one line */

#endif
