/* Functions of emitted loops. Inlined with each loop's constants they would be unrolled to thousands of
 * instructions, which take clang seconds to schedule and run no faster. */
#include "kernels/pd_loops.h"

void pd_sum_tiles(bool first, float *to, float *partial, int64_t n, int64_t stride, int tiles) {
  for (int64_t tile = 1; tile < tiles; tile++)
    for (int64_t j = 0; j < n; j++) partial[j] += partial[tile * stride + j];
  for (int64_t j = 0; j < n; j++) to[j] = first ? partial[j] : to[j] + partial[j];
}
