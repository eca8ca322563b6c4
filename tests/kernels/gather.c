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

/* Parts of a table: what a rank has not is zero, and gets no gradient; the ranks' together are those of the whole. */
static void test_parts(int64_t own, int ranks, int64_t rows, int64_t width, int64_t stride) {
  int64_t n = own * width;
  float *table = random_floats(n * ranks), *out = floats(rows * stride), *gradient = random_floats(rows * stride);
  float *sum = random_floats(n), *before = floats(n), *exact = floats(n * ranks);
  int32_t *index = (int32_t *)floats(rows);
  for (int64_t r = 0; r < rows; r++) index[r] = (int32_t)(r * r % (own * ranks));
  for (int rank = 0; rank < ranks; rank++)
    for (int first = 0; first < 2; first++) {
      memcpy(before, sum, (size_t)n * sizeof *sum);
      for (int64_t i = 0; i < n; i++) exact[i] = first ? 0 : before[i];
      for (int64_t i = 0; i < rows * stride; i++) out[i] = 7;
      pd_gather_part(table + rank * n, index, rows, width, out, stride, own, rank * own);
      pd_gather_gradient_part(sum, index, gradient, rows, width, stride, own, first, rank * own);
      for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < stride; j++) {
          bool has = index[r] / own == rank;
          float want = j >= width ? 7 : has ? table[index[r] * width + j] : 0;
          expect(out[r * stride + j] == want, "gathered of a part", width, rank);
          if (has && j < width) exact[index[r] % own * width + j] += gradient[r * stride + j];
        }
      expect(!memcmp(sum, exact, (size_t)n * sizeof *sum), "added to a part", width, rank);
    }
  free(table), free(out), free(gradient), free(sum), free(before), free(exact), free(index);
}

int main(void) {
  test_parts(5, 2, 100, 16, 20);
  test_parts(3, 4, 50, 7, 7);
  test(10, 100, 1, 1);
  test(10, 100, 16, 48);
  test(300, 64, 50, 50);
  test(7, 200, 384, 400);
  test(1, 2, 33, 33);
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
