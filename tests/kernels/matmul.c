/* pd_matmul in all its forms against plain loops in double; the same bytes for 1 to 8 threads. */
#define PD_KERNELS
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

static Shape shape(int64_t batch, int64_t m, int64_t n, int64_t k, int64_t a_batch, int64_t a_row,
                   int64_t a_column, int64_t b_batch, int64_t b_row, int64_t b_column, int64_t c_batch,
                   int64_t c_row, bool bias, bool accumulate, bool few_rows) {
  return (Shape){.batch = batch,
                 .m = m,
                 .n = n,
                 .k = k,
                 .a_batch = a_batch,
                 .a_row = a_row,
                 .a_column = a_column,
                 .b_batch = b_batch,
                 .b_row = b_row,
                 .b_column = b_column,
                 .c_batch = c_batch,
                 .c_row = c_row,
                 .bias = bias,
                 .accumulate = accumulate,
                 .few_rows = few_rows};
}

static void test_typed(const char *name, Shape s) {
  int64_t n_a = span(s.batch, s.m, s.k, s.a_batch, s.a_row, s.a_column);
  int64_t n_b = span(s.batch, s.k, s.n, s.b_batch, s.b_row, s.b_column);
  int64_t n_c = span(s.batch, s.m, s.n, s.c_batch, s.c_row, 1), slack = s.c_row;
  float *a = random_floats(n_a), *b = random_floats(n_b), *bias = random_floats(s.n), *first = NULL;
  float *before = random_floats(n_c + slack), *c = floats(n_c + slack);
  pd_in in_a = operand(a, n_a, s.a_type), in_b = operand(b, n_b, s.b_type);
  pd_in in_bias = operand(bias, s.n, s.bias_type), of_before = operand(before, n_c + slack, s.c_type);
  for (int threads = 1; threads <= 8; threads++) {
    omp_set_num_threads(threads);
    struct pd_matmul *m = pd_matmul_new(s);
    int64_t scratch = (int64_t)pd_matmul_scratch(m);
    char *space = (char *)floats(scratch / 4 + 16);
    memset(space, 0x55, (size_t)scratch + 64);
    pd_out out = {floats(n_c + slack), s.c_type};
    memcpy(out.at, of_before.at, (size_t)((n_c + slack) * pd_bytes_of(s.c_type)));
    pd_matmul(m, in_a, in_b, s.bias ? in_bias : (pd_in){NULL, PD_F32}, out, space);
    for (int i = 0; i < 64; i++)
      if (space[scratch + i] != 0x55) printf("FAIL %s: writes past its scratch\n", name), failures++, i = 64;
    free(space);
    pd_read(c, (pd_in){out.at, out.type}, 0, n_c + slack);
    free(out.at);
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
    double e = error(s, a, b, bias, before, c), allowed = s.c_type == PD_BF16 ? 0x1p-8 + 5e-7 : 5e-7;
    if (!(e < allowed)) printf("FAIL %s: relative error %g\n", name, e), failures++;
  }
  free((void *)in_a.at), free((void *)in_b.at), free((void *)in_bias.at), free((void *)of_before.at);
  free(a), free(b), free(bias), free(before), free(c), free(first);
}

/* In floats, in bf16 to floats and to bf16, to which nothing is added, and of each. */
static void test(const char *name, Shape s) {
  test_typed(name, s);
  s.a_type = s.b_type = PD_BF16;
  test_typed(format("%s, bf16", name), s);
  s.bias_type = PD_BF16;
  s.c_type = s.accumulate ? PD_F32 : PD_BF16;
  test_typed(format("%s, all in bf16", name), s);
  s.b_type = PD_F32;
  test_typed(format("%s, of floats and bf16", name), s);
}

/* y = x w^T, dx = dy w, dw = dy^T x, where the layer has m rows, n outputs, k inputs. */
static void test_layer(int64_t m, int64_t n, int64_t k) {
  for (int bias = 0; bias < 2; bias++)
    for (int add = 0; add < 2; add++) {
      char name[99];
      snprintf(name, sizeof name, "m %ld n %ld k %ld bias %d add %d", (long)m, (long)n, (long)k, bias, add);
      test(name, shape(1, m, n, k, 0, k, 1, 0, 1, k, 0, n, bias, add, false));
      test(name, shape(1, m, k, n, 0, n, 1, 0, k, 1, 0, k, bias, add, false));
      test(name, shape(1, n, k, m, 0, 1, n, 0, k, 1, 0, k, bias, add, false));
    }
}

/* Marked by_sample: all rows by the library, or the rows in use as a product of few rows, and no others. */
static void test_by_sample(void) {
  enum { ROWS = 20, USED = 3 };
  Shape s = shape(1, ROWS, 67, 203, 0, 203, 1, 0, 1, 203, 0, 67, true, false, false), marked = s, few = s;
  marked.by_sample = true;
  few.m = USED, few.few_rows = true;
  float *a = random_floats(ROWS * 203), *b = random_floats(203 * 67), *bias = random_floats(67);
  float *all = floats(ROWS * 67), *same = floats(ROWS * 67), *first = floats(ROWS * 67), *used = floats(ROWS * 67);
  memset(first, 0, ROWS * 67 * sizeof(float)), memset(used, 0, ROWS * 67 * sizeof(float));
  const struct pd_matmul *plain = pd_matmul_new(s), *by = pd_matmul_new(marked), *of_few = pd_matmul_new(few);
  char *space = (char *)floats((int64_t)pd_matmul_scratch(plain) / 4 + 16);
  pd_in in_a = {a, PD_F32}, in_b = {b, PD_F32}, in_bias = {bias, PD_F32};
  pd_matmul(plain, in_a, in_b, in_bias, (pd_out){all, PD_F32}, space);
  pd_matmul(by, in_a, in_b, in_bias, (pd_out){same, PD_F32}, space);
  pd_matmul(of_few, in_a, in_b, in_bias, (pd_out){first, PD_F32}, space);
  pd_rows_used = USED;
  pd_matmul(by, in_a, in_b, in_bias, (pd_out){used, PD_F32}, space);
  pd_rows_used = 0;
  if (memcmp(all, same, ROWS * 67 * sizeof(float)) || memcmp(first, used, ROWS * 67 * sizeof(float)))
    printf("FAIL rows in use\n"), failures++;
}

int main(void) {
  static const int64_t size[][3] = {{1, 1, 1},    {3, 5, 7},   {100, 1, 50},   {64, 16, 1},  {17, 33, 65},
                                    {96, 10, 64}, {1, 96, 48}, {130, 192, 64}, {70, 65, 200}};
  for (unsigned i = 0; i < sizeof size / sizeof *size; i++) test_layer(size[i][0], size[i][1], size[i][2]);
  /* in tiles, on processors without AVX-512: whole and partial blocks of rows, columns and k */
  test_layer(97, 272, 400);
  test("tiles of more columns than are packed at once",
       shape(1, 100, 1070, 390, 0, 390, 1, 0, 1, 390, 0, 1070, true, true, false));
  test("tiles of slices", shape(1, 100, 70, 390, 0, 1, 107, 0, 1, 395, 0, 75, true, true, false));
  test("tiles of every second column", shape(1, 100, 70, 90, 0, 180, 2, 0, 75, 1, 0, 70, true, true, false));
  /* in two parts, of which the first is larger */
  test_typed("wide", shape(1, 516, 2080, 512, 0, 1, 516, 0, 2080, 1, 0, 2080, true, true, false));
  /* k that oneDNN would split among threads, in one, two and three pieces */
  test("long 1", shape(1, 64, 32, 1984, 0, 1, 64, 0, 32, 1, 0, 32, false, true, false));
  test("long 2", shape(1, 256, 128, 2048, 0, 1, 256, 0, 128, 1, 0, 128, false, false, false));
  test("long 3", shape(1, 48, 32, 4100, 0, 1, 48, 0, 32, 1, 0, 32, true, true, false));
  test("long, b transposed", shape(1, 48, 32, 2100, 0, 1, 48, 0, 1, 2100, 0, 32, false, true, false));
  test("long rows", shape(1, 48, 32, 4100, 0, 4100, 1, 0, 32, 1, 0, 32, false, false, false));
  /* ... and that oneDNN 3 would split without a transposed operand */
  test_typed("very long rows", shape(1, 48, 32, 20100, 0, 20100, 1, 0, 32, 1, 0, 32, true, true, false));
  test_typed("very long rows, b transposed",
             shape(1, 48, 32, 20100, 0, 20100, 1, 0, 1, 20100, 0, 32, false, false, false));
  test_typed("very long rows in batches",
             shape(2, 17, 33, 20100, 17 * 20100, 20100, 1, 20100 * 33, 33, 1, 17 * 33, 33, false, true, false));
  /* strides */
  test("a is a slice", shape(1, 50, 40, 30, 0, 90, 1, 0, 1, 30, 0, 40, true, false, false));
  test("c is a slice", shape(1, 50, 40, 30, 0, 30, 1, 0, 1, 30, 0, 120, true, false, false));
  test("c is a slice, added", shape(1, 50, 40, 30, 0, 30, 1, 0, 40, 1, 0, 120, true, true, false));
  test("b is a slice", shape(1, 50, 40, 30, 0, 30, 1, 0, 1, 77, 0, 40, false, false, false));
  test("b is a slice of columns", shape(1, 50, 40, 30, 0, 30, 1, 0, 77, 1, 0, 40, false, false, false));
  test("a is a slice, transposed", shape(1, 40, 30, 50, 0, 1, 120, 0, 30, 1, 0, 30, false, true, false));
  test("a is a long slice, transposed", shape(1, 40, 30, 2050, 0, 1, 120, 0, 90, 1, 0, 30, false, true, false));
  test("every second column", shape(1, 20, 30, 40, 0, 80, 2, 0, 30, 1, 0, 30, false, false, false));
  test("one row repeated", shape(1, 20, 30, 40, 0, 0, 1, 0, 30, 1, 0, 30, false, false, false));
  /* few rows, which read b once */
  for (int64_t m = 1; m <= PD_FEW_ROWS; m += 7)
    for (int bias = 0; bias < 2; bias++) {
      test("few rows, b transposed", shape(1, m, 67, 203, 0, 203, 1, 0, 1, 203, 0, 67, bias, false, true));
      test("few rows", shape(1, m, 1100, 203, 0, 210, 1, 0, 1100, 1, 0, 1200, bias, false, true));
      test("few rows of one", shape(1, m, 1, 5, 0, 5, 1, 0, 1, 5, 0, 1, bias, false, true));
    }
  test_by_sample();
  /* batches */
  test("batch", shape(6, 33, 47, 16, 33 * 16, 16, 1, 16 * 47, 47, 1, 33 * 47, 47, false, false, false));
  test("batch, transposed", shape(6, 33, 47, 16, 33 * 16, 1, 33, 16 * 47, 1, 16, 33 * 47, 47, true, true, false));
  test("batch, long",
       shape(2, 33, 47, 2100, 33 * 2100, 1, 33, 2100 * 47, 47, 1, 33 * 47, 47, false, false, false));
  test("b shared", shape(6, 33, 47, 16, 33 * 16, 16, 1, 0, 47, 1, 33 * 47, 47, false, false, false));
  test("a shared", shape(6, 33, 47, 16, 0, 16, 1, 16 * 47, 47, 1, 33 * 47, 47, false, true, false));
  test("heads", shape(6, 33, 35, 16, 16, 288, 1, 16, 1, 288, 33 * 35, 35, false, false, false));
  test("heads out", shape(6, 33, 16, 35, 33 * 35, 35, 1, 16, 96, 1, 16, 96, false, false, false));
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
