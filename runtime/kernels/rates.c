/* Peak rates of a processor, as a reference for `pdc profile --table`: large matrix products by the stages' calls,
 * and memory reads. The best of several rounds, to exclude background load. */
#define PD_KERNELS
#include "kernels/pd_vector.h"
#include "pd_runtime.h"

#include <omp.h>
#include <stdlib.h>

enum { SIDE = 1024, ROUNDS = 15, ALIGNMENT = 64 };
static const int64_t READ = INT64_C(256) << 20; /* bytes: more than caches hold */

static float *numbers(size_t bytes) {
  float *x = aligned_alloc(ALIGNMENT, bytes);
  if (!x) pd_fail("out of memory: cannot get %zu bytes to measure rates", bytes);
#pragma omp parallel for schedule(static)
  for (size_t i = 0; i < bytes / sizeof *x; i++) x[i] = 0;
  return x;
}

static double best_of(double best, double start) {
  const double seconds = omp_get_wtime() - start;
  return seconds < best ? seconds : best;
}

double pd_product_rate(enum pd_type type) {
  const int64_t n = SIDE;
  struct pd_matmul *m = pd_matmul_new((struct pd_matmul_shape){.batch = 1,
                                                               .m = n,
                                                               .n = n,
                                                               .k = n,
                                                               .a_row = n,
                                                               .a_column = 1,
                                                               .b_row = n,
                                                               .b_column = 1,
                                                               .c_row = n,
                                                               .a_type = type,
                                                               .b_type = type,
                                                               .bias_type = type,
                                                               .c_type = type});
  const size_t bytes = sizeof(float) * SIDE * SIDE; /* enough of either type */
  float *a = numbers(bytes), *b = numbers(bytes), *c = numbers(bytes);
  float *scratch = numbers((pd_matmul_scratch(m) + ALIGNMENT) / ALIGNMENT * ALIGNMENT);
  double best = 1e9;
  for (int i = 0; i < ROUNDS; i++) {
    const double start = omp_get_wtime();
    pd_matmul(m, (pd_in){a, type}, (pd_in){b, type}, (pd_in){0}, (pd_out){c, type}, scratch);
    best = best_of(best, start);
  }
  free(a), free(b), free(c), free(scratch);
  return 2.0 * SIDE * SIDE * SIDE / best;
}

static float sum_of(const vector *x, int64_t n) {
  vector sum[4] = {{0}};
  for (int64_t i = 0; i + 4 <= n; i += 4)
    for (int j = 0; j < 4; j++) sum[j] += x[i + j];
  sum[0] += sum[1] + sum[2] + sum[3];
  return sum[0][0];
}

double pd_memory_rate(void) {
  enum { BLOCK = 4096 }; /* vectors */
  float *x = numbers((size_t)READ);
  double best = 1e9;
  volatile float total = 0; /* uses the result, so that reads are not optimised away */
  for (int i = 0; i < ROUNDS; i++) {
    const double start = omp_get_wtime();
    float sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum)
    for (int64_t at = 0; at < READ / (int64_t)sizeof(vector); at += BLOCK) sum += sum_of((vector *)x + at, BLOCK);
    best = best_of(best, start);
    total = total + sum;
  }
  free(x);
  return (double)READ / best;
}
