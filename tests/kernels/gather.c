/* Embedding rows and their gradient: every row, strides, repeated indices in order, 1 to 4 threads. */
#include "test.h"

static void expect(bool ok, const char *what, int64_t width, int threads) {
  if (ok) return;
  printf("FAIL width %ld, %d threads: %s\n", (long)width, threads, what);
  failures++;
}

static void test(int64_t classes, int64_t rows, int64_t width, int64_t stride) {
  float *table = random_floats(classes * width), *out = floats(rows * stride),
        *gradient = random_floats(rows * stride);
  float *sum = floats(classes * width), *exact = random_floats(classes * width);
  int32_t *index = (int32_t *)floats(rows);
  for (int64_t r = 0; r < rows; r++)
    index[r] = (int32_t)((random_float() * 0.5f + 0.5f) * 0.999f * (float)classes);
  index[0] = 0, index[rows - 1] = (int32_t)classes - 1;
  for (int threads = 1; threads <= 4; threads++) {
    omp_set_num_threads(threads);
    for (int64_t i = 0; i < rows * stride; i++) out[i] = 7;
    pd_gather(table, index, rows, width, out, stride);
    for (int64_t r = 0; r < rows; r++)
      for (int64_t j = 0; j < stride; j++)
        expect(out[r * stride + j] == (j < width ? table[index[r] * width + j] : 7), "gathered", width, threads);

    for (int first = 0; first < 2; first++) {
      for (int64_t i = 0; i < classes * width; i++) sum[i] = first ? NAN : table[i];
      for (int64_t i = 0; i < classes * width; i++) exact[i] = first ? 0 : table[i];
      for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < width; j++) exact[index[r] * width + j] += gradient[r * stride + j];
      pd_gather_gradient(sum, index, gradient, rows, width, stride, classes, first);
      expect(!memcmp(sum, exact, (size_t)(classes * width) * sizeof *sum), "added", width, threads);
    }
  }
  free(table), free(out), free(gradient), free(sum), free(exact), free(index);
}

int main(void) {
  test(10, 100, 1, 1);
  test(10, 100, 16, 48);
  test(300, 64, 50, 50);
  test(7, 200, 384, 400);
  test(1, 2, 33, 33);
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
