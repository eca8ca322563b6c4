/* The rate of one core's f32 matrix products: dnnl_sgemm at 1024 cubed, in operations a second; the median of
 * several dozen calls after a warm-up. */
#include <dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { N = 1024, WARM_UP = 10, CALLS = 41 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

int main(void) {
  float *a = aligned_alloc(64, sizeof(float) * N * N), *b = aligned_alloc(64, sizeof(float) * N * N);
  float *c = aligned_alloc(64, sizeof(float) * N * N);
  if (!a || !b || !c) return 1;
  for (int i = 0; i < N * N; i++) {
    a[i] = (float)(i % 7) - 3;
    b[i] = (float)(i % 5) - 2;
  }
  double seconds[WARM_UP + CALLS];
  for (int i = 0; i < WARM_UP + CALLS; i++) {
    double start = now();
    if (dnnl_sgemm('N', 'N', N, N, N, 1, a, N, b, N, 0, c, N) != dnnl_success) return 1;
    seconds[i] = now() - start;
  }
  qsort(seconds + WARM_UP, CALLS, sizeof *seconds, by_value);
  printf("%.6g\n", 2.0 * N * N * N / seconds[WARM_UP + CALLS / 2]);
  return 0;
}
