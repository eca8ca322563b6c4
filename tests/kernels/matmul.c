/* pd_matmul in all its forms against plain loops in double; the same bytes for 1 to 8 threads. */
#include "test.h"

typedef struct pd_matmul_shape Shape;

/* Elements from the first to one past the last. */
static int64_t span(int64_t batch, int64_t rows, int64_t columns, int64_t s_batch, int64_t s_row,
                    int64_t s_column) {
  return (batch - 1) * s_batch + (rows - 1) * s_row + (columns - 1) * s_column + 1;
}

/* Largest |got - exact| relative to the sum of the products' magnitudes. */
static double error(Shape s, const float *a, const float *b, const float *bias, const float *before,
                    const float *c) {
  double worst = 0;
  for (int64_t t = 0; t < s.batch; t++)
    for (int64_t i = 0; i < s.m; i++)
      for (int64_t j = 0; j < s.n; j++) {
        int64_t at = t * s.c_batch + i * s.c_row + j;
        double sum = (s.bias ? bias[j] : 0) + (s.accumulate ? before[at] : 0);
        double size = (s.bias ? fabsf(bias[j]) : 0) + (s.accumulate ? fabsf(before[at]) : 0) + 1e-30;
        for (int64_t p = 0; p < s.k; p++) {
          double product = (double)a[t * s.a_batch + i * s.a_row + p * s.a_column] *
                           b[t * s.b_batch + p * s.b_row + j * s.b_column];
          sum += product;
          size += fabs(product);
        }
        double e = fabs(c[at] - sum) / size;
        worst = fmax(worst, isnan(e) ? INFINITY : e);
      }
  return worst;
}

static void test(const char *name, Shape s) {
  int64_t n_a = span(s.batch, s.m, s.k, s.a_batch, s.a_row, s.a_column);
  int64_t n_b = span(s.batch, s.k, s.n, s.b_batch, s.b_row, s.b_column);
  int64_t n_c = span(s.batch, s.m, s.n, s.c_batch, s.c_row, 1), slack = s.c_row;
  float *a = random_floats(n_a), *b = random_floats(n_b), *bias = random_floats(s.n), *first = NULL;
  float *before = random_floats(n_c + slack), *c = floats(n_c + slack);
  for (int threads = 1; threads <= 8; threads++) {
    omp_set_num_threads(threads);
    struct pd_matmul *m = pd_matmul_new(s);
    int64_t scratch = (int64_t)pd_matmul_scratch(m);
    char *space = (char *)floats(scratch / 4 + 16);
    memset(space, 0x55, (size_t)scratch + 64);
    memcpy(c, before, (size_t)(n_c + slack) * sizeof *c);
    pd_matmul(m, a, b, s.bias ? bias : NULL, c, space);
    for (int i = 0; i < 64; i++)
      if (space[scratch + i] != 0x55) printf("FAIL %s: writes past its scratch\n", name), failures++, i = 64;
    free(space);
    bool touched = memcmp(c + n_c, before + n_c, (size_t)slack * sizeof *c) != 0;
    for (int64_t i = 0; i < s.m - 1 && s.batch == 1 && s.c_row > s.n; i++)
      touched |=
          memcmp(c + i * s.c_row + s.n, before + i * s.c_row + s.n, (size_t)(s.c_row - s.n) * sizeof *c) != 0;
    if (touched) printf("FAIL %s: writes outside c\n", name), failures++;
    if (threads > 1) {
      if (memcmp(first, c, (size_t)n_c * sizeof *c))
        printf("FAIL %s: %d threads differ\n", name, threads), failures++;
      continue;
    }
    first = floats(n_c);
    memcpy(first, c, (size_t)n_c * sizeof *c);
    double e = error(s, a, b, bias, before, c);
    if (!(e < 5e-7)) printf("FAIL %s: relative error %g\n", name, e), failures++;
  }
  free(a), free(b), free(bias), free(before), free(c), free(first);
}

/* y = x w^T, dx = dy w, dw = dy^T x, where the layer has m rows, n outputs, k inputs. */
static void test_layer(int64_t m, int64_t n, int64_t k) {
  for (int bias = 0; bias < 2; bias++)
    for (int add = 0; add < 2; add++) {
      char name[99];
      snprintf(name, sizeof name, "m %ld n %ld k %ld bias %d add %d", (long)m, (long)n, (long)k, bias, add);
      test(name, (Shape){1, m, n, k, 0, k, 1, 0, 1, k, 0, n, bias, add, false});
      test(name, (Shape){1, m, k, n, 0, n, 1, 0, k, 1, 0, k, bias, add, false});
      test(name, (Shape){1, n, k, m, 0, 1, n, 0, k, 1, 0, k, bias, add, false});
    }
}

int main(void) {
  static const int64_t size[][3] = {{1, 1, 1},    {3, 5, 7},   {100, 1, 50},   {64, 16, 1},  {17, 33, 65},
                                    {96, 10, 64}, {1, 96, 48}, {130, 192, 64}, {70, 65, 200}};
  for (unsigned i = 0; i < sizeof size / sizeof *size; i++) test_layer(size[i][0], size[i][1], size[i][2]);
  /* k that oneDNN would split among threads, in one, two and three pieces */
  test("long 1", (Shape){1, 64, 32, 1984, 0, 1, 64, 0, 32, 1, 0, 32, false, true, false});
  test("long 2", (Shape){1, 256, 128, 2048, 0, 1, 256, 0, 128, 1, 0, 128, false, false, false});
  test("long 3", (Shape){1, 48, 32, 4100, 0, 1, 48, 0, 32, 1, 0, 32, true, true, false});
  test("long, b transposed", (Shape){1, 48, 32, 2100, 0, 1, 48, 0, 1, 2100, 0, 32, false, true, false});
  test("long rows", (Shape){1, 48, 32, 4100, 0, 4100, 1, 0, 32, 1, 0, 32, false, false, false});
  /* strides */
  test("a is a slice", (Shape){1, 50, 40, 30, 0, 90, 1, 0, 1, 30, 0, 40, true, false, false});
  test("c is a slice", (Shape){1, 50, 40, 30, 0, 30, 1, 0, 1, 30, 0, 120, true, false, false});
  test("c is a slice, added", (Shape){1, 50, 40, 30, 0, 30, 1, 0, 40, 1, 0, 120, true, true, false});
  test("b is a slice", (Shape){1, 50, 40, 30, 0, 30, 1, 0, 1, 77, 0, 40, false, false, false});
  test("b is a slice of columns", (Shape){1, 50, 40, 30, 0, 30, 1, 0, 77, 1, 0, 40, false, false, false});
  test("a is a slice, transposed", (Shape){1, 40, 30, 50, 0, 1, 120, 0, 30, 1, 0, 30, false, true, false});
  test("a is a long slice, transposed", (Shape){1, 40, 30, 2050, 0, 1, 120, 0, 90, 1, 0, 30, false, true, false});
  test("every second column", (Shape){1, 20, 30, 40, 0, 80, 2, 0, 30, 1, 0, 30, false, false, false});
  test("one row repeated", (Shape){1, 20, 30, 40, 0, 0, 1, 0, 30, 1, 0, 30, false, false, false});
  /* few rows, which read b once */
  for (int64_t m = 1; m <= PD_FEW_ROWS; m += 7)
    for (int bias = 0; bias < 2; bias++) {
      test("few rows, b transposed", (Shape){1, m, 67, 203, 0, 203, 1, 0, 1, 203, 0, 67, bias, false, true});
      test("few rows", (Shape){1, m, 1100, 203, 0, 210, 1, 0, 1100, 1, 0, 1200, bias, false, true});
      test("few rows of one", (Shape){1, m, 1, 5, 0, 5, 1, 0, 1, 5, 0, 1, bias, false, true});
    }
  /* batches */
  test("batch", (Shape){6, 33, 47, 16, 33 * 16, 16, 1, 16 * 47, 47, 1, 33 * 47, 47, false, false, false});
  test("batch, transposed",
       (Shape){6, 33, 47, 16, 33 * 16, 1, 33, 16 * 47, 1, 16, 33 * 47, 47, true, true, false});
  test("batch, long",
       (Shape){2, 33, 47, 2100, 33 * 2100, 1, 33, 2100 * 47, 47, 1, 33 * 47, 47, false, false, false});
  test("b shared", (Shape){6, 33, 47, 16, 33 * 16, 16, 1, 0, 47, 1, 33 * 47, 47, false, false, false});
  test("a shared", (Shape){6, 33, 47, 16, 0, 16, 1, 16 * 47, 47, 1, 33 * 47, 47, false, true, false});
  test("heads", (Shape){6, 33, 35, 16, 16, 288, 1, 16, 1, 288, 33 * 35, 35, false, false, false});
  test("heads out", (Shape){6, 33, 16, 35, 33 * 35, 35, 1, 16, 96, 1, 16, 96, false, false, false});
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
