/* What emitted loops call. Inlined with the constants of each loop it would be unrolled into blocks of thousands of
 * instructions, which clang takes seconds to put in order and which are no faster. */
#include "kernels/pd_loops.h"

void pd_sum_tiles(bool first, float *to, float *partial, int64_t n, int64_t stride, int tiles) {
  for (int64_t tile = 1; tile < tiles; tile++)
    for (int64_t j = 0; j < n; j++) partial[j] += partial[tile * stride + j];
  for (int64_t j = 0; j < n; j++) to[j] = first ? partial[j] : to[j] + partial[j];
}
