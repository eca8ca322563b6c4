/* The rate at which all threads together read memory, in bytes a second, the best of ten passes over 512 MiB. */
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef float vector __attribute__((vector_size(64)));

static double pass(const vector *x, int64_t n) {
  double start = omp_get_wtime();
  float total = 0;
#pragma omp parallel for schedule(static) reduction(+ : total)
  for (int64_t block = 0; block < n / 64; block++) {
    vector sum[4] = {{0}};
    for (int64_t i = block * 64; i < block * 64 + 64; i += 4)
      for (int j = 0; j < 4; j++) sum[j] += x[i + j];
    sum[0] += sum[1] + sum[2] + sum[3];
    for (int l = 0; l < 16; l++) total += sum[0][l];
  }
  double seconds = omp_get_wtime() - start;
  return total == 1 ? 0 : seconds; /* what is read is used */
}

int main(void) {
  int64_t n = (512 << 20) / (int64_t)sizeof(vector);
  vector *x = aligned_alloc(64, (size_t)n * sizeof *x);
  if (!x) return 1;
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < n; i++) x[i] = (vector){0};
  double best = 1e9;
  for (int i = 0; i < 10; i++) {
    double seconds = pass(x, n);
    best = seconds < best ? seconds : best;
  }
  printf("%.6g\n", (double)n * (double)sizeof *x / best);
  free(x);
  return 0;
}
