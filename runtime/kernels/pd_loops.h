/* Building blocks of emitted loops on a processor: partial sums, and work sharing by threads. */
#ifndef PD_KERNELS_LOOPS_H
#define PD_KERNELS_LOOPS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/pd_bf16.h"
#include "kernels/pd_lanes.h"

/* to = (first) or to += the sum of the tiles' partial sums, added in the order of tiles: each has n elements, the
 * next stands `stride` on. The first tile's are overwritten, and may be where `to` is. */
void pd_sum_tiles(bool first, float *to, float *partial, int64_t n, int64_t stride, int tiles);

/* Calls f for equal shares of n rows or elements, on all threads. */
#define PD_PARALLEL(f, n, share, ...)                                                        \
  do {                                                                                       \
    _Pragma("omp parallel for") for (int64_t pd_from = 0; pd_from < (n); pd_from += (share)) \
        f(pd_from, pd_from + (share) < (n) ? pd_from + (share) : (n), __VA_ARGS__);          \
  } while (0)

#endif
