/* Inputs of random numbers: noise.cases, by tests/data/make_noise.py, and their distributions. */
#include "data/data.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 4096 };

static enum pd_origin origin_of(const char *kind) {
  return !strcmp(kind, "normal") ? PD_NORMAL_NOISE : !strcmp(kind, "uniform") ? PD_UNIFORM_NOISE : PD_RANDOM_INT;
}

static void numbers_follow_from_seed_name_and_sample(void **state) {
  (void)state;
  char kind[16], name[16];
  unsigned long long seed;
  long long sample, elements, classes;
  int cases = 0;
  FILE *in = fopen(NOISE_CASES, "r");
  assert_non_null(in);
  while (fscanf(in, "%15s %15s %llu %lld %lld %lld", kind, name, &seed, &sample, &elements, &classes) == 6) {
    const struct pd_input x = {.name = name, .elements = elements, .classes = classes, .origin = origin_of(kind)};
    float numbers[MOST];
    int32_t tokens[MOST];
    pd_make_noise(&x, seed, sample, x.origin == PD_RANDOM_INT ? (void *)tokens : numbers);
    for (int64_t i = 0; i < elements; i++) {
      double want;
      assert_int_equal(fscanf(in, "%lf", &want), 1);
      const double got = x.origin == PD_RANDOM_INT ? tokens[i] : (double)numbers[i];
      if (fabs(got - want) > 1e-7 * fabs(want))
        fail_msg("%s %s, element %lld: %.9g, not %.9g", kind, name, (long long)i, got, want);
    }
    cases++;
  }
  fclose(in);
  assert_int_equal(cases, 5);
}

/* Means of powers over 4 million numbers, within four deviations of the mean. */
static void moments_are_those_of_the_distribution(void **state) {
  (void)state;
  enum { SAMPLES = 1000 };
  const struct pd_input normal = {.name = "x", .elements = MOST, .origin = PD_NORMAL_NOISE},
                        uniform = {.name = "x", .elements = MOST, .origin = PD_UNIFORM_NOISE},
                        die = {.name = "x", .elements = MOST, .origin = PD_RANDOM_INT, .classes = 6};
  double mean = 0, square = 0, fourth = 0, pairs = 0, of_uniform = 0;
  int64_t faces[6] = {0};
  float x[MOST];
  int32_t t[MOST];
  for (int64_t s = 0; s < SAMPLES; s++) {
    pd_make_noise(&normal, 5, s, x);
    for (int i = 0; i < MOST; i++) {
      mean += (double)x[i];
      square += (double)x[i] * (double)x[i];
      fourth += pow((double)x[i], 4);
      pairs += (double)x[i] * (double)x[(i + 1) % MOST];
    }
    pd_make_noise(&uniform, 5, s, x);
    for (int i = 0; i < MOST; i++) {
      assert_true(x[i] >= 0 && x[i] < 1);
      of_uniform += (double)x[i];
    }
    pd_make_noise(&die, 5, s, t);
    for (int i = 0; i < MOST; i++) faces[t[i]]++;
  }
  const double n = (double)SAMPLES * MOST, four = 4 / sqrt(n);
  assert_true(fabs(mean / n) < four);
  assert_true(fabs(square / n - 1) < four * sqrt(2));
  assert_true(fabs(fourth / n - 3) < four * sqrt(96));
  assert_true(fabs(pairs / n) < four);
  assert_true(fabs(of_uniform / n - 0.5) < four / sqrt(12));
  for (int i = 0; i < 6; i++) assert_true(fabs((double)faces[i] / n - 1.0 / 6) < four * sqrt(5.0 / 36));
}

static void names_seeds_and_samples_are_independent(void **state) {
  (void)state;
  const struct pd_input a = {.name = "a", .elements = MOST, .origin = PD_NORMAL_NOISE},
                        b = {.name = "b", .elements = MOST, .origin = PD_NORMAL_NOISE};
  float x[MOST], y[3][MOST];
  pd_make_noise(&a, 1, 1, x);
  pd_make_noise(&b, 1, 1, y[0]);
  pd_make_noise(&a, 2, 1, y[1]);
  pd_make_noise(&a, 1, 2, y[2]);
  for (int k = 0; k < 3; k++) {
    double together = 0;
    for (int i = 0; i < MOST; i++) together += (double)x[i] * (double)y[k][i];
    assert_true(fabs(together / MOST) < 4 / sqrt(MOST));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(numbers_follow_from_seed_name_and_sample),
                                     cmocka_unit_test(moments_are_those_of_the_distribution),
                                     cmocka_unit_test(names_seeds_and_samples_are_independent)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
