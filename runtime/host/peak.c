/* The rate that "mfu" compares with: the library's matmul at 1024 cubed, on this rank's threads while
 * all other ranks measure too. */
#include "run/run.h"

#include <sys/mman.h>

double pd_measure_peak(void) {
  enum { N = 1024, WARM = 2, RUNS = 5 };
  size_t planned = pd_scratch_planned;
  pd_scratch_planned = 0; /* this product uses separate memory */
  struct pd_matmul *m = pd_matmul_new((struct pd_matmul_shape){
      .batch = 1, .m = N, .n = N, .k = N, .a_row = N, .a_column = 1, .b_row = N, .b_column = 1, .c_row = N});
  pd_scratch_planned = planned;
  size_t square = sizeof(float) * N * N, bytes = 3 * square + pd_matmul_scratch(m);
  char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return 0;
  float *a = (float *)at, *b = (float *)(at + square), *c = (float *)(at + 2 * square);
  for (int i = 0; i < N * N; i++) a[i] = b[i] = (float)(i % 7);
  double best = 1e30;
  for (int run = 0; run < WARM + RUNS; run++) {
    double start = pd_seconds();
    pd_matmul(m, a, b, NULL, c, at + 3 * square);
    double seconds = pd_seconds() - start;
    if (run >= WARM && seconds < best) best = seconds;
  }
  munmap(at, bytes);
  return 2.0 * N * N * N / best;
}
