/* Embedding rows. The gradient adds rows in order; threads share the columns, so that each sum has one
 * order for any number of threads. */
#define PD_KERNELS
#include "kernels/pd_bf16.h"
#include "pd_kernels.h"

#include <omp.h>
#include <string.h>

/* Converts a row between types, or copies it between equal types. */
static void copy_row(pd_out to, pd_in from, int64_t n) {
  if (to.type == from.type)
    memcpy(to.at, from.at, (size_t)n * (to.type == PD_BF16 ? sizeof(pd_bf16) : sizeof(float)));
  else if (to.type == PD_F32)
    pd_read(to.at, from, 0, n);
  else
    pd_write(to, 0, from.at, n);
}

void pd_gather_part(pd_in table, const int32_t *index, int64_t rows, int64_t width, pd_out out, int64_t stride,
                    int64_t own, int64_t first_row) {
#pragma omp parallel for
  for (int64_t r = 0; r < rows; r++) {
    int64_t row = index[r] - first_row;
    pd_out to = pd_out_from(out, r * stride);
    if (row >= 0 && row < own)
      copy_row(to, pd_in_from(table, row * width), width);
    else
      memset(to.at, 0, (size_t)width * (to.type == PD_BF16 ? sizeof(pd_bf16) : sizeof(float)));
  }
}

void pd_gather(pd_in table, const int32_t *index, int64_t rows, int64_t width, pd_out out, int64_t stride) {
  pd_gather_part(table, index, rows, width, out, stride, INT32_MAX, 0);
}

/* The accumulator holds floats, as all sums over a batch. */
void pd_gather_gradient_part(pd_out accumulator, const int32_t *index, pd_in gradient, int64_t rows, int64_t width,
                             int64_t stride, int64_t own, bool first, int64_t first_row) {
  float *sums = accumulator.at;
#pragma omp parallel
  {
    enum { UNIT = 16 };
    int64_t units = (width + UNIT - 1) / UNIT, threads = omp_get_num_threads(), thread = omp_get_thread_num();
    int64_t begin = units * thread / threads * UNIT, end = units * (thread + 1) / threads * UNIT;
    if (end > width) end = width;
    size_t bytes = end > begin ? (size_t)(end - begin) * sizeof *sums : 0;
    if (first && bytes)
      for (int64_t c = 0; c < own; c++) memset(sums + c * width + begin, 0, bytes);
    for (int64_t r = 0; r < rows; r++) {
      int64_t row = index[r] - first_row;
      if (row < 0 || row >= own) continue;
      float *sum = sums + row * width;
      const float *g = (const float *)gradient.at + r * stride;
      const pd_bf16 *h = (const pd_bf16 *)gradient.at + r * stride;
      if (gradient.type == PD_F32)
        for (int64_t j = begin; j < end; j++) sum[j] += g[j];
      else
        for (int64_t j = begin; j < end; j++) sum[j] += pd_from_bf16(h[j]);
    }
  }
}

void pd_gather_gradient(pd_out accumulator, const int32_t *index, pd_in gradient, int64_t rows, int64_t width,
                        int64_t stride, int64_t classes, bool first) {
  pd_gather_gradient_part(accumulator, index, gradient, rows, width, stride, classes, first, 0);
}
