/* The interface of kernels/tiles.c for kernels/matmul.c: c[m][n] = a[m][k] b[k][n] (+ bias), or added to c, in
 * floats. a and b may have any strides. */
#ifndef PD_TILES_H
#define PD_TILES_H

#include "pd_kernels.h"

struct pd_tiled {
  int64_t m, n, k, a_row, a_column, b_row, b_column, c_row;
  bool add;
};
size_t pd_tiled_scratch(const struct pd_tiled *t); /* bytes; for any processor and number of threads */
/* bias may be NULL. scratch is aligned to 64 bytes. */
void pd_tiled_multiply(const struct pd_tiled *t, const float *a, const float *b, const float *bias, float *c,
                       void *scratch);

#endif
