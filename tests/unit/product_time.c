/* Times of a GPU's kernels against measurements on an H100 (tests/gpu/measured/h100.tsv). The rates were fitted
 * without every fourth product whose rows are multiples of 16 bytes (tests/gpu/fit.py): those are tested here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "plan/search/search.h"
#include "model.h"

enum { MOST_ROWS = 1024 };

static Rates rates_of(const char *kind, Precision precision) {
  return device_rates(kind_find(kind), &(Target){.backend = &backend_cuda, .precision = precision});
}

typedef struct Row {
  double m, n, k, seconds;
} Row;

static double predicted(const Rates *r, const Row *row, double element) {
  ProductSize size = {.times = 1, .m = row->m, .n = row->n, .k = row->k, .factor = element};
  size.beside = element * row->m * row->n;
  size.odd = fmod(row->n * element, 16) != 0 || fmod(row->k * element, 16) != 0;
  return product_seconds(r, &size);
}

/* The measured products of a precision. */
static int products(const char *precision, Row *rows) {
  FILE *in = fopen("tests/gpu/measured/h100.tsv", "r");
  char line[256], type[16];
  int n = 0;
  assert_non_null(in);
  while (fgets(line, sizeof line, in)) {
    Row *row = &rows[n];
    if (sscanf(line, "product %15s %lf %lf %lf %lf", type, &row->m, &row->n, &row->k, &row->seconds) == 5 &&
        !strcmp(type, precision)) {
      row->seconds *= 1e-6;
      ensure(++n < MOST_ROWS);
    }
  }
  fclose(in);
  return n;
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static void products_take_the_measured_time(void **unused) {
  (void)unused;
  static const struct {
    const char *name;
    Precision precision;
    double element, median, ninety; /* most: of errors */
  } of[] = {{"bf16", PRECISION_BF16, 2, 0.1, 0.25},
            {"tf32", PRECISION_TF32, 4, 0.1, 0.3},
            {"f32", PRECISION_F32, 4, 0.06, 0.65}}; /* small products in f32 are too slow */
  static Row rows[MOST_ROWS];
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
    Rates r = rates_of("h100_80gb", of[i].precision);
    double error[MOST_ROWS], sum = 0;
    int n = products(of[i].name, rows), held = 0, even = 0;
    for (int k = 0; k < n; k++) {
      if (fmod(rows[k].n * of[i].element, 16) != 0 || fmod(rows[k].k * of[i].element, 16) != 0 || even++ % 4 != 0)
        continue;
      double off = log(predicted(&r, &rows[k], of[i].element) / rows[k].seconds);
      error[held++] = fabs(off);
      sum += off;
    }
    assert_true(held >= 16 && fabs(sum / held) < 0.12);
    qsort(error, (size_t)held, sizeof *error, by_size);
    assert_true(error[held / 2] < of[i].median && error[9 * held / 10] < of[i].ninety);
  }
}

/* Factors with odd rows are slow in TF32 and copied in bf16. */
static void odd_rows_cost_more(void **unused) {
  (void)unused;
  static const Row even = {1024, 1024, 1024, 0}, odd = {1024, 1024, 1001, 0};
  Rates tf32 = rates_of("h100_80gb", PRECISION_TF32), bf16 = rates_of("h100_80gb", PRECISION_BF16);
  assert_true(predicted(&tf32, &odd, 4) > 2 * predicted(&tf32, &even, 4) - 5e-6);
  assert_true(predicted(&bf16, &odd, 2) > predicted(&bf16, &even, 2) + 2e-6);
}

/* A wave more than the multiprocessors fill takes another wave's time. */
static void waves_are_whole(void **unused) {
  (void)unused;
  Rates r = rates_of("h100_80gb", PRECISION_BF16);
  Row full = {128 * 11, 256 * 12, 255, 0}, more = {128 * 12, 256 * 12, 255, 0}; /* too short to divide */
  assert_true(predicted(&r, &more, 2) / predicted(&r, &full, 2) > 1.2);
}

static void other_gpus_are_scaled(void **unused) {
  (void)unused;
  static const Row large = {8192, 8192, 8192, 0};
  static const char *const kinds[] = {"v100_32gb", "a100_80gb", "h100_80gb", "h200_141gb"};
  static const double peak[] = {15.7e12, 19.5e12, 67e12, 67e12};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    Rates r = rates_of(kinds[i], PRECISION_F32);
    double share = 2 * pow(8192, 3) / predicted(&r, &large, 4) / peak[i];
    assert_true(share > 0.68 && share < 0.78);
    r = rates_of(kinds[i], PRECISION_BF16);
    assert_true((r.product > 0) == (i > 0)); /* V100s have no bf16 */
  }
}

/* Seconds of attention for 32 sequences of GPT-2, an update's 12 layers: 3.3 ms forward, 9.6 ms backward
 * (docs/results/gpu.md). */
static void attention_takes_the_measured_time(void **unused) {
  (void)unused;
  Rates r = rates_of("h100_80gb", PRECISION_BF16);
  double operations = 12 * 32 * 12 * 4.0 * 1024 * 1024 * 64 / 2;
  const AttentionRate *forward = &r.attention[0][1][0], *backward = &r.attention[1][1][0];
  assert_true(fabs(operations / forward->rate * (1 + forward->longer / 1024) - 3.3e-3) <= 0.1e-3);
  assert_true(fabs(2 * operations / backward->rate * (1 + backward->longer / 1024) - 9.6e-3) <= 0.3e-3);
  Rates f32 = rates_of("h100_80gb", PRECISION_F32);
  assert_true(f32.attention[0][1][0].rate < r.product / 10);
}

/* Seconds of all nodes of a model at this microbatch. */
static double model_seconds(Precision precision, int64_t b) {
  Graph *g = model_build((ModelOptions){.blocks = 3, .batch = 64});
  Pieces pieces = cut(g);
  Planner r;
  PlanRequest q = {.stages = 1, .arch = "sm_90", .target = {.backend = &backend_cuda, .precision = precision}};
  assert_true(planner_prepare(&r, g, &pieces, &q, NULL));
  const double *seconds = kernel_seconds(&r, b, r.rates);
  double sum = 0;
  for (int i = 0; i < g->nodes.n; i++) {
    assert_true(seconds[i] >= 0);
    sum += seconds[i];
  }
  return sum;
}

/* Small microbatches take launches, large ones the bytes that kernels move, at most half as many in bf16. */
static void kernels_move_their_bytes(void **unused) {
  (void)unused;
  double one = model_seconds(PRECISION_F32, 1), large = model_seconds(PRECISION_F32, 1 << 24);
  assert_true(one > 10e-6 && one < 1e-3);
  assert_true(fabs(model_seconds(PRECISION_F32, 1 << 25) / large - 2) <= 0.02);
  double bf16 = model_seconds(PRECISION_BF16, 1 << 24) / large;
  assert_true(bf16 > 0.05 && bf16 < 0.6);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(products_take_the_measured_time),
      cmocka_unit_test(odd_rows_cost_more),
      cmocka_unit_test(waves_are_whole),
      cmocka_unit_test(other_gpus_are_scaled),
      cmocka_unit_test(attention_takes_the_measured_time),
      cmocka_unit_test(kernels_move_their_bytes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
