/* Embedding rows. The gradient adds rows in order; threads share the columns, so that each sum has one
 * order for any number of threads. */
#include "pd_runtime.h"

#include <omp.h>
#include <string.h>

void pd_gather(const float *table, const int32_t *index, int64_t rows, int64_t width, float *out, int64_t stride) {
#pragma omp parallel for
  for (int64_t r = 0; r < rows; r++)
    memcpy(out + r * stride, table + index[r] * width, (size_t)width * sizeof *out);
}

void pd_gather_gradient(float *accumulator, const int32_t *index, const float *gradient, int64_t rows,
                        int64_t width, int64_t stride, int64_t classes, bool first) {
#pragma omp parallel
  {
    enum { UNIT = 16 };
    int64_t units = (width + UNIT - 1) / UNIT, threads = omp_get_num_threads(), thread = omp_get_thread_num();
    int64_t begin = units * thread / threads * UNIT, end = units * (thread + 1) / threads * UNIT;
    if (end > width) end = width;
    size_t bytes = end > begin ? (size_t)(end - begin) * sizeof *accumulator : 0;
    if (first && bytes)
      for (int64_t c = 0; c < classes; c++) memset(accumulator + c * width + begin, 0, bytes);
    for (int64_t r = 0; r < rows; r++) {
      float *sum = accumulator + index[r] * width;
      const float *g = gradient + r * stride;
      for (int64_t j = begin; j < end; j++) sum[j] += g[j];
    }
  }
}
