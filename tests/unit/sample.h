/* Sampling of test cases, as tests/sample.sh: taken() is true for every EVERY-th case, with an offset by SEED and
 * the day of the commit (PDC_DAY). Without EVERY, it is true for all. */
#pragma once
#include <stdbool.h>
#include <stdlib.h>

static inline long sample_setting(const char *name, long otherwise) {
  const char *text = getenv(name);
  return text ? strtol(text, NULL, 10) : otherwise;
}

static inline bool taken(void) {
  static long at = -1;
  long every = sample_setting("EVERY", 1);
  if (at < 0)
    at = sample_setting("SEED", 0) + sample_setting("PDC_DAY", 0);
  return ++at % every == 0;
}
