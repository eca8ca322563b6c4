/* Errors of pd_math.h over all 2^32 floats, or over every 61st of them ("quick"), against double; the
 * bounds are those its header states. Philox against the known answers of its authors' library;
 * dropout's statistics. */
#include "kernels/pd_math.h"

#include <stdio.h>
#include <stdlib.h>

static int failures;

static void check(int ok, const char *what) {
  if (!ok) {
    printf("FAIL %s\n", what);
    failures++;
  }
}

/* Distance of `got` from `exact` in units in the last place of the float nearest to `exact`. */
static double ulps(float got, double exact) {
  float nearest = (float)exact;
  if (isnan(exact) || isnan(got)) return isnan(exact) && isnan(got) ? 0 : INFINITY;
  if (isinf(nearest) || isinf(got)) {
    /* exact results between the largest float and half a step above it may round either way */
    if (got == nearest) return 0;
    return fabs(exact) < 0x1.000001p128 ? 1 : INFINITY;
  }
  int exponent;
  frexp(nearest, &exponent);
  double unit = ldexp(1, exponent < -125 ? -149 : exponent - 24);
  return fabs(got - exact) / unit;
}

enum { CHUNK = 4096 };

#define LOOP(f)                                          \
  static void loop_##f(const float *x, float *y) {       \
    for (int i = 0; i < CHUNK; i++) y[i] = pd_##f(x[i]); \
  }
LOOP(exp)
LOOP(log)
LOOP(tanh)
LOOP(erf)
LOOP(erfc)
LOOP(sin)
LOOP(cos)
LOOP(abs)
LOOP(floor)
LOOP(rint)
LOOP(sqrt)
LOOP(rsqrt)
LOOP(expm1)
LOOP(log1p)
LOOP(sigmoid)

static double rsqrt(double x) { return 1 / sqrt(x); }
static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static const struct {
  const char *name;
  void (*loop)(const float *x, float *y);
  double (*exact)(double x);
  double limit, bound; /* arguments up to limit; largest error in ulp */
} functions[] = {
    {"exp", loop_exp, exp, INFINITY, 1.06},       {"log", loop_log, log, INFINITY, 0.92},
    {"tanh", loop_tanh, tanh, INFINITY, 1.50},    {"erf", loop_erf, erf, INFINITY, 1.22},
    {"erfc", loop_erfc, erfc, INFINITY, 9.15},    {"sin", loop_sin, sin, 0x1p30, 1.03},
    {"cos", loop_cos, cos, 0x1p30, 1.03},         {"sqrt", loop_sqrt, sqrt, INFINITY, 0.5001},
    {"rsqrt", loop_rsqrt, rsqrt, INFINITY, 1.50}, {"expm1", loop_expm1, expm1, INFINITY, 1.66},
    {"log1p", loop_log1p, log1p, INFINITY, 1.66}, {"sigmoid", loop_sigmoid, sigmoid, INFINITY, 2.41},
    {"abs", loop_abs, fabs, INFINITY, 0},         {"floor", loop_floor, floor, INFINITY, 0},
    {"rint", loop_rint, rint, INFINITY, 0},
};

static void accuracy(uint32_t step) {
  static float x[CHUNK], y[CHUNK];
  for (unsigned f = 0; f < sizeof functions / sizeof *functions; f++) {
    double worst = 0;
    float at = 0;
    for (uint64_t u = 0; u < 1ull << 32;) {
      for (int i = 0; i < CHUNK; i++, u += step) x[i] = pd_float((uint32_t)u);
      functions[f].loop(x, y);
      for (int i = 0; i < CHUNK; i++) {
        double error = ulps(y[i], functions[f].exact(x[i]));
        if (fabsf(x[i]) > functions[f].limit && !isnan(x[i])) error = isnan(y[i]) ? 0 : INFINITY;
        if (error > worst) worst = error, at = x[i];
      }
    }
    printf("%-7s largest error %.4f ulp at %a\n", functions[f].name, worst, at);
    check(worst <= functions[f].bound, functions[f].name);
  }
}

static void limits(void) {
  check(pd_exp(-INFINITY) == 0 && pd_exp(INFINITY) == INFINITY && pd_exp(89) == INFINITY && pd_exp(0) == 1,
        "exp's limits");
  check(pd_exp(-104) == 0 && pd_exp(-100) > 0, "exp underflows gradually");
  check(pd_expm1(-INFINITY) == -1 && pd_expm1(INFINITY) == INFINITY && pd_expm1(89) == INFINITY, "expm1's limits");
  check(pd_log1p(-1) == -INFINITY && pd_log1p(INFINITY) == INFINITY && isnan(pd_log1p(-1.5f)), "log1p's limits");
  check(pd_sigmoid(-INFINITY) == 0 && pd_sigmoid(INFINITY) == 1 && pd_sigmoid(0) == 0.5f && pd_sigmoid(-100) > 0,
        "sigmoid's limits");
  check(isnan(pd_expm1(NAN)) && isnan(pd_log1p(NAN)) && isnan(pd_sigmoid(NAN)), "NaN propagates");
  check(isnan(pd_exp(NAN)) && isnan(pd_log(NAN)) && isnan(pd_tanh(NAN)) && isnan(pd_erf(NAN)) &&
            isnan(pd_erfc(NAN)),
        "NaN propagates");
  check(pd_log(0) == -INFINITY && pd_log(-0.0f) == -INFINITY && pd_log(INFINITY) == INFINITY && isnan(pd_log(-1)),
        "log's limits");
  check(pd_tanh(INFINITY) == 1 && pd_tanh(-INFINITY) == -1 && pd_erf(INFINITY) == 1 && pd_erf(-INFINITY) == -1,
        "tanh's and erf's limits");
  check(pd_erfc(INFINITY) == 0 && pd_erfc(-INFINITY) == 2 && pd_erfc(0) == 1 && pd_erfc(10) > 0, "erfc's limits");
  check(signbit(pd_tanh(-0.0f)) && signbit(pd_erf(-0.0f)) && signbit(pd_expm1(-0.0f)) && signbit(pd_log1p(-0.0f)),
        "negative zero stays");
  check(isnan(pd_sin(INFINITY)) && isnan(pd_cos(-INFINITY)) && isnan(pd_sin(NAN)), "sine of infinity");
  check(isnan(pd_max(NAN, 1)) && isnan(pd_max(1, NAN)) && isnan(pd_min(NAN, 1)) && isnan(pd_min(1, NAN)),
        "maximum and minimum propagate NaN");
  check(pd_max(1, 2) == 2 && pd_max(2, 1) == 2 && pd_min(1, 2) == 1 && pd_min(-INFINITY, 1) == -INFINITY,
        "maximum and minimum");
}

static void random_numbers(void) {
  /* kat_vectors of Random123 */
  static const struct {
    uint32_t counter[4];
    uint64_t key;
    uint32_t word[4];
  } known[] = {
      {{0, 0, 0, 0}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{~0u, ~0u, ~0u, ~0u}, ~0ull, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       0x299f31d0a4093822ull,
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (int i = 0; i < 3; i++) {
    const uint32_t *c = known[i].counter;
    pd_random r = pd_philox(c[0], c[1], c[2], c[3], known[i].key);
    check(!memcmp(r.word, known[i].word, sizeof r.word), "Philox's known answers");
  }
  check(pd_uniform(0) == 0 && pd_uniform(~0u) < 1, "uniform numbers lie in [0, 1)");
  check(pd_mix(0, 1) != pd_mix(1, 0) && pd_mix(1, 2) != pd_mix(1, 3) && pd_mix(1, 2) != pd_mix(2, 2),
        "keys differ by seed and by scope");
}

/* Bernoulli counts must lie within five standard deviations. */
static void dropout(void) {
  enum { N = 1 << 16 };
  static float y[N];
  static const float p[] = {0.0f, 0.1f, 0.5f, 0.9f, 1.0f};
  for (int trial = 0; trial < 5; trial++) {
    int64_t kept = 0, both = 0, kept_next = 0;
    for (int64_t i = 0; i < N; i++) y[i] = pd_dropout(3.0f, pd_mix(7, 9), 12, i, p[trial]);
    for (int64_t i = 0; i < N; i++) {
      float next = pd_dropout(3.0f, pd_mix(7, 9), 13, i, p[trial]);
      check(y[i] == 0.0f || y[i] == 3.0f * (1.0f / (1.0f - p[trial])), "a kept element is scaled");
      kept += y[i] != 0;
      kept_next += next != 0;
      both += y[i] != 0 && next != 0;
      check(pd_bits(y[i]) == pd_bits(pd_dropout(3.0f, pd_mix(7, 9), 12, i, p[trial])), "repeatable");
    }
    double q = 1 - p[trial], deviation = sqrt(N * q * (1 - q)), pair = sqrt(N * q * q * (1 - q * q));
    check(fabs(kept - N * q) <= 5 * deviation + 0.01, "share kept");
    check(fabs(kept_next - N * q) <= 5 * deviation + 0.01, "share kept of the next sample");
    check(fabs(both - N * q * q) <= 5 * pair + 0.01, "samples are independent");
  }
  int64_t runs = 0;
  for (int64_t i = 0; i < N; i++) y[i] = pd_dropout(1.0f, pd_mix(7, 9), 12, i, 0.5f);
  for (int64_t i = 0; i < N; i++) {
    pd_random block = pd_philox((uint32_t)(i / 4), 0, 12, 0, pd_mix(7, 9));
    check((y[i] != 0) == (pd_uniform(block.word[i % 4]) >= 0.5f), "four elements take the four words of a block");
    runs += i > 0 && (y[i] != 0) == (y[i - 1] != 0);
  }
  check(fabs(runs - (N - 1) / 2.0) < 5 * sqrt(N) / 2, "neighbours are independent");
}

/* Moments of rand_like's and randn_like's numbers must lie within five standard deviations. */
static void random_values(void) {
  enum { N = 1 << 16 };
  const uint64_t key = pd_mix(3, 4);
  double moment[4] = {0}, mean = 0, square = 0, products = 0;
  for (int64_t i = 0; i < N; i++) {
    const double x = pd_randn(key, 5, i), u = pd_rand(key, 5, i);
    check(u >= 0 && u < 1 && isfinite(x), "the range of random numbers");
    for (int k = 0; k < 4; k++) moment[k] += pow(x, k + 1) / N;
    mean += u / N, square += u * u / N, products += x * pd_randn(key, 6, i) / N;
  }
  const double deviation = 1 / sqrt(N);
  check(fabs(moment[0]) < 5 * deviation && fabs(moment[1] - 1) < 5 * sqrt(2) * deviation, "mean and variance");
  check(fabs(moment[2]) < 5 * sqrt(15) * deviation && fabs(moment[3] - 3) < 5 * sqrt(96) * deviation,
        "third and fourth moment");
  check(fabs(mean - 0.5) < 5 * sqrt(1 / 12.0) * deviation && fabs(square - 1 / 3.0) < 5 * 0.3 * deviation,
        "moments of uniform numbers");
  check(fabs(products) < 5 * deviation, "samples are independent");
}

int main(int argc, char **argv) {
  accuracy(argc > 1 && !strcmp(argv[1], "quick") ? 61 : 1);
  limits();
  random_numbers();
  dropout();
  random_values();
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
