/* The largest elements of rows against sorting all: equal ones, NaN, infinities, every k, 1 to 4 threads. */
#include "test.h"

static const float *sorted_row;

static int by_order(const void *a, const void *b) {
  const int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
  const float x = sorted_row[i], y = sorted_row[j];
  const int of_nan = !isnan(x) - !isnan(y);
  return of_nan ? of_nan : x > y ? -1 : x < y ? 1 : i - j;
}

static void test(int64_t rows, int64_t n, int64_t k, int kinds) {
  static const float special[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f};
  float *x = random_floats(rows * n), *values = floats(rows * k), *dx = floats(rows * n),
        *dy = random_floats(rows * k);
  int32_t *indices = (int32_t *)floats(rows * k), *order = malloc((size_t)n * sizeof *order);
  for (int64_t i = 0; i < rows * n && kinds; i++)
    x[i] = kinds > 1 && i % 3 == 0 ? special[i / 3 % 5] : floorf(x[i] * 4); /* many are equal */
  for (int threads = 1; threads <= 4; threads++) {
    omp_set_num_threads(threads);
    pd_top_k(x, rows, n, k, values, indices);
    pd_top_k_gradient(indices, dy, rows, n, k, dx);
    for (int64_t r = 0; r < rows; r++) {
      for (int64_t i = 0; i < n; i++) order[i] = (int32_t)i;
      sorted_row = x + r * n;
      qsort(order, (size_t)n, sizeof *order, by_order);
      for (int64_t i = 0; i < n; i++) {
        const float want = i < k ? dy[r * k + i] : 0;
        const bool same = i >= k || (indices[r * k + i] == order[i] &&
                                     !memcmp(&values[r * k + i], &sorted_row[order[i]], sizeof *values));
        if (same && dx[r * n + order[i]] == want) continue;
        printf("FAIL element %ld of row %ld, %ld of %ld, %d threads\n", (long)i, (long)r, (long)k, (long)n,
               threads);
        failures++;
      }
    }
  }
  free(x), free(values), free(dx), free(dy), free(indices), free(order);
}

int main(void) {
  for (int kinds = 0; kinds < 3; kinds++) {
    for (int64_t k = 1; k <= 9; k++) test(20, 9, k, kinds);
    test(50, 64, 8, kinds);
    test(3, 1000, 1000, kinds);
    test(1, 1, 1, kinds);
  }
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
