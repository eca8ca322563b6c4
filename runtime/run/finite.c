/* Non-finite numbers are never written: these checks end the run before they reach a file. */
#include "run/run.h"

#include <string.h>

int64_t pd_first_not_finite(const float *x, int64_t n) {
  enum { BLOCK = 4096 };
  const uint32_t exponent = 0x7f800000;
  for (int64_t first = 0; first < n; first += BLOCK) {
    int64_t end = first + BLOCK < n ? first + BLOCK : n, bad = 0;
    for (int64_t i = first; i < end; i++) {
      uint32_t bits;
      memcpy(&bits, &x[i], sizeof bits);
      bad += (bits & exponent) == exponent;
    }
    if (!bad) continue;
    for (int64_t i = first; i < end; i++)
      if (!__builtin_isfinite(x[i])) return i;
  }
  return -1;
}

void pd_check_finite(const char *name, int64_t first, const float *x, int64_t n, int64_t step, const char *path) {
  int64_t bad = pd_first_not_finite(x, n);
  if (bad < 0) return;
  pd_fail("step %lld: '%s' is non-finite (element %lld is %g): '%s' is not written", (long long)step, name,
          (long long)(first + bad), (double)x[bad], path);
}
