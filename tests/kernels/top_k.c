/* The largest elements of rows against sorting all: equal ones, NaN, infinities, every k, 1 to 4 threads. */
#include "test.h"

static const float *sorted_row;

static int by_order(const void *a, const void *b) {
  const int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
  const float x = sorted_row[i], y = sorted_row[j];
  const int of_nan = !isnan(x) - !isnan(y);
  return of_nan ? of_nan : x > y ? -1 : x < y ? 1 : i - j;
}

static bool comes_first(float a, int64_t i, float b, int64_t j) {
  const bool a_is_nan = isnan(a), b_is_nan = isnan(b);
  return a_is_nan != b_is_nan ? a_is_nan : a > b || (!(a < b) && i < j);
}

/* The sum of the two that come first of n numbers. */
static float best_two(const float *x, int64_t n) {
  float two[2] = {0};
  for (int64_t i = 0; i < n; i++) {
    int64_t before = 0;
    for (int64_t j = 0; j < n; j++) before += j != i && comes_first(x[j], j, x[i], i);
    if (before < 2) two[before] = x[i];
  }
  return two[0] + two[1];
}

static void test_biased(int64_t rows, int64_t n, int64_t k, int64_t groups, int64_t kept, bool equal) {
  float *x = random_floats(rows * n), *bias = random_floats(n), *values = floats(rows * k), *choice = floats(n);
  float *group = floats(groups);
  int32_t *indices = (int32_t *)floats(rows * k);
  for (int64_t i = 0; i < rows * n && equal; i++) x[i] = i % 23 == 5 ? NAN : floorf(x[i] * 3);
  for (int64_t i = 0; i < n && equal; i++) bias[i] = floorf(bias[i] * 2);
  for (int threads = 1; threads <= 3; threads += 2) {
    omp_set_num_threads(threads);
    pd_biased_top_k(x, bias, rows, n, k, groups, kept, values, indices);
    for (int64_t r = 0; r < rows; r++) {
      for (int64_t i = 0; i < n; i++) choice[i] = x[r * n + i] + bias[i];
      for (int64_t g = 0; g < groups && kept < groups; g++)
        group[g] = best_two(choice + g * (n / groups), n / groups);
      for (int64_t i = 0; i < n; i++) {
        int64_t before = 0, groups_before = 0;
        for (int64_t g = 0; g < groups && kept < groups; g++)
          groups_before += comes_first(group[g], g, group[i / (n / groups)], i / (n / groups));
        if (groups_before >= kept) continue;
        for (int64_t j = 0; j < n; j++) {
          int64_t of_other = 0;
          for (int64_t g = 0; g < groups && kept < groups; g++)
            of_other += comes_first(group[g], g, group[j / (n / groups)], j / (n / groups));
          before += of_other < kept && j != i && comes_first(choice[j], j, choice[i], i);
        }
        if (before >= k) continue;
        const float got = values[r * k + before];
        if (indices[r * k + before] == i && (got == x[r * n + i] || (isnan(got) && isnan(x[r * n + i])))) continue;
        printf("FAIL score %ld of row %ld, %ld of %ld, %ld of %ld groups\n", (long)i, (long)r, (long)k, (long)n,
               (long)kept, (long)groups);
        failures++;
      }
    }
  }
  free(x), free(bias), free(values), free(choice), free(group), free(indices);
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
  for (int equal = 0; equal < 2; equal++) {
    test_biased(20, 12, 3, 1, 1, equal);
    test_biased(20, 12, 4, 4, 2, equal);
    test_biased(9, 64, 8, 8, 4, equal);
    test_biased(3, 128, 5, 64, 63, equal);
    test_biased(1, 2, 2, 1, 1, equal);
  }
  for (int kinds = 0; kinds < 3; kinds++) {
    for (int64_t k = 1; k <= 9; k++) test(20, 9, k, kinds);
    test(50, 64, 8, kinds);
    test(3, 1000, 1000, kinds);
    test(1, 1, 1, kinds);
  }
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
