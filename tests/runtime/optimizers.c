/* Optimizers against plain loops in float of what their papers and PyTorch say: twenty updates from the same
 * gradients, for a matrix, a
 * vector, a scalar and filters, whole-tensor rules with any number of threads. */
#include "update/update.h"

#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { UPDATES = 20, MOST = 70000 };

typedef struct Case {
  int rank;
  int64_t dim[PD_MAX_RANK];
  bool decays, hidden;
} Case;
static const Case cases[] = {{2, {37, 23}, true, true},  {2, {5, 13001}, false, true},
                             {2, {700, 3}, true, false}, {1, {301}, false, false},
                             {0, {0}, true, false},      {4, {3, 5, 7, 2}, true, false},
                             {2, {64, 64}, true, true},  {2, {31, 65}, true, true},
                             {2, {1, 17}, true, true}};
enum { CASES = sizeof cases / sizeof *cases };

static int64_t elements_of(const Case *c) {
  int64_t n = 1;
  for (int i = 0; i < c->rank; i++) n *= c->dim[i];
  return n;
}

static float weight(int64_t i) { return sinf((float)(i % 1000)) + 0.01f; }
static float gradient(int64_t i, int t) { return cosf((float)((i % 997) * (t + 1)) + (float)(i % 7)) / 3; }
static const float scale = 0.5f;
static double rate(int t) { return 0.01 / (1 + 0.1 * t); }

/* ---- plain loops: the new weights; what is kept between updates stands in two arrays ---- */

typedef void Plain(const Case *c, int t, float *w, const float *g, float *m, float *v);

static void nesterov(const Case *c, int t, float *w, const float *g, float *m, float *v) {
  (void)v;
  for (int64_t i = 0; i < elements_of(c); i++) {
    float d = g[i] + (c->decays ? 0.1f : 0) * w[i];
    m[i] = 0.9f * m[i] + d;
    w[i] -= (float)rate(t) * (d + 0.9f * m[i]);
  }
}

static void lamb(const Case *c, int t, float *w, const float *g, float *m, float *v) {
  static float r[MOST];
  double weights = 0, steps = 0;
  for (int64_t i = 0; i < elements_of(c); i++) {
    m[i] = 0.9f * m[i] + 0.1f * g[i];
    v[i] = 0.95f * v[i] + 0.05f * g[i] * g[i];
    float m1 = m[i] / (1 - powf(0.9f, (float)(t + 1))), v1 = v[i] / (1 - powf(0.95f, (float)(t + 1)));
    r[i] = m1 / (sqrtf(v1) + 1e-6f) + (c->decays ? 0.1f : 0) * w[i];
    weights += (double)w[i] * (double)w[i];
    steps += (double)r[i] * (double)r[i];
  }
  for (int64_t i = 0; i < elements_of(c); i++) w[i] -= (float)(rate(t) * sqrt(weights) / sqrt(steps)) * r[i];
}

static double mean_square(const float *x, int64_t n, int64_t stride) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += (double)x[i * stride] * (double)x[i * stride];
  return sum / (double)n;
}

static void adafactor(const Case *c, int t, float *w, const float *g, float *row, float *column) {
  static float u[MOST];
  const int64_t n = elements_of(c), columns = c->rank ? c->dim[c->rank - 1] : 1;
  const int64_t rows = c->rank > 1 ? c->dim[c->rank - 2] : 1;
  const float fresh = powf((float)(t + 1), -0.8f);
  const double relative = fmin(rate(t), 1 / sqrt(t + 1.0));
  const double alpha = fmax(1e-3, sqrt(mean_square(w, n, 1))) * relative;
  for (int64_t at = 0; at < n; at += rows * columns, row += rows, column += columns) { /* a matrix */
    float mean = 0;
    for (int64_t r = 0; r < rows; r++) {
      row[r] += fresh * ((float)mean_square(g + at + r * columns, columns, 1) - row[r]);
      mean += row[r] / (float)rows;
    }
    for (int64_t j = 0; j < columns; j++)
      column[j] += fresh * ((float)mean_square(g + at + j, rows, columns) - column[j]);
    for (int64_t i = 0; i < rows * columns; i++) {
      float v = row[i / columns] * column[i % columns] / mean;
      if (c->rank < 2) v = column[i]; /* of one row it is the mean square itself */
      u[at + i] = g[at + i] / sqrtf(fmaxf(v, 0x1p-46f));
    }
  }
  const double step = alpha / fmax(1, sqrt(mean_square(u, n, 1)) / 0.8);
  for (int64_t i = 0; i < n; i++) w[i] = w[i] * (c->decays ? (float)(1 - rate(t) * 0.1) : 1) - (float)step * u[i];
}

static void adamw(const Case *c, int t, float *w, const float *g, float *m, float *v) {
  for (int64_t i = 0; i < elements_of(c); i++) {
    w[i] *= c->decays ? (float)(1 - rate(t) * 0.1) : 1;
    m[i] = 0.8f * m[i] + 0.2f * g[i];
    v[i] = 0.95f * v[i] + 0.05f * g[i] * g[i];
    float m1 = m[i] / (1 - powf(0.8f, (float)(t + 1))), v1 = v[i] / (1 - powf(0.95f, (float)(t + 1)));
    w[i] -= (float)rate(t) * m1 / (sqrtf(v1) + 1e-6f);
  }
}

/* c = a @ b, or a @ b^T. */
static void multiply(int64_t m, int64_t n, int64_t k, const float *a, const float *b, bool transposed, float *c) {
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      float sum = 0;
      for (int64_t l = 0; l < k; l++) sum += a[i * k + l] * (transposed ? b[j * k + l] : b[l * n + j]);
      c[i * n + j] = sum;
    }
}

/* Five steps of a matrix with no more rows than columns. */
static void newton_schulz(int64_t rows, int64_t columns, float *x) {
  static float gram[64 * 64], square[64 * 64], product[MOST];
  double norm = 0;
  for (int64_t i = 0; i < rows * columns; i++) norm += (double)x[i] * (double)x[i];
  for (int64_t i = 0; i < rows * columns; i++) x[i] /= (float)sqrt(norm);
  for (int step = 0; step < 5; step++) {
    multiply(rows, rows, columns, x, x, true, gram);
    multiply(rows, rows, rows, gram, gram, false, square);
    for (int64_t i = 0; i < rows * rows; i++) square[i] = -4.775f * gram[i] + 2.0315f * square[i];
    multiply(rows, columns, rows, square, x, false, product);
    for (int64_t i = 0; i < rows * columns; i++) x[i] = 3.4445f * x[i] + product[i];
  }
}

/* As published, with Nesterov's momentum; a matrix with more rows than columns is transposed. */
static void muon(const Case *c, int t, float *w, const float *g, float *m, float *v) {
  static float x[MOST];
  if (!c->hidden) {
    adamw(c, t, w, g, m, v);
    return;
  }
  const int64_t rows = c->dim[0], columns = c->dim[1], longer = rows > columns ? rows : columns;
  const bool tall = rows > columns;
  for (int64_t i = 0; i < rows * columns; i++) {
    m[i] = 0.95f * m[i] + 0.05f * g[i];
    x[tall ? i % columns * rows + i / columns : i] = 0.95f * m[i] + 0.05f * g[i];
  }
  newton_schulz(tall ? columns : rows, longer, x);
  const float step = (float)rate(t) * 0.2f * sqrtf((float)longer);
  for (int64_t i = 0; i < rows * columns; i++)
    w[i] = w[i] * (c->decays ? (float)(1 - rate(t) * 0.1) : 1) -
           step * x[tall ? i % columns * rows + i / columns : i];
}

/* ---- the rules ---- */

typedef struct Tried {
  const struct pd_optimizer *rule;
  const void *arguments;
  Plain *plain;
  float tolerance;
} Tried;

static const struct pd_nesterov_arguments nesterov_arguments = {.momentum = 0.9, .weight_decay = 0.1};
static const struct pd_lamb_arguments lamb_arguments = {
    .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1};
static const struct pd_adafactor_arguments adafactor_arguments = {
    .beta2_decay = -0.8, .eps1 = 0x1p-23, .eps2 = 1e-3, .d = 0.8, .weight_decay = 0.1};

static const struct pd_muon_arguments muon_arguments = {.weight_decay = 0.1,
                                                        .momentum = 0.95,
                                                        .nesterov = 1,
                                                        .ns_a = 3.4445,
                                                        .ns_b = -4.775,
                                                        .ns_c = 2.0315,
                                                        .eps = 1e-7,
                                                        .ns_steps = 5,
                                                        .adamw_beta1 = 0.8,
                                                        .adamw_beta2 = 0.95,
                                                        .adamw_eps = 1e-6};

static void update(const Tried *tried, const struct pd_tensor_update *x) {
  if (tried->rule->tensor) {
    tried->rule->tensor(x);
    return;
  }
  struct pd_nesterov_step step =
      pd_nesterov_constants(&nesterov_arguments, x->rate, x->t, x->scale, x->parameter->decays);
  pd_nesterov_elements(x->parameter->elements, &step, x->from, x->to, x->gradient, x->moment,
                       &(struct pd_change){0});
}

/* Twenty updates, from one array to another in turn; the weights then are in `to`. */
static void run(const Tried *tried, const Case *c, float *to) {
  static float w[2][MOST], moments[3][MOST], g[MOST];
  static _Alignas(64) char scratch[1 << 23];
  struct pd_parameter p = {.rank = c->rank, .elements = elements_of(c), .decays = c->decays, .hidden = c->hidden};
  memcpy(p.dim, c->dim, sizeof p.dim);
  memset(moments, 0, sizeof moments);
  memset(scratch, 0xff, sizeof scratch);
  bool factored = tried->plain == adafactor;
  if (tried->rule->start) tried->rule->start(&p);
  for (int64_t i = 0; i < p.elements; i++) w[0][i] = weight(i);
  for (int t = 0; t < UPDATES; t++) {
    for (int64_t i = 0; i < p.elements; i++) g[i] = gradient(i, t) / scale;
    struct pd_tensor_update x = {.parameter = &p,
                                 .arguments = tried->arguments,
                                 .t = t,
                                 .rate = {.lr = rate(t)},
                                 .scale = scale,
                                 .from = w[t % 2],
                                 .to = w[(t + 1) % 2],
                                 .gradient = g,
                                 .scratch = scratch};
    for (int i = 0; i < 3; i++) x.moment[i] = !factored || (i < 2) == (c->rank > 1) ? moments[i] : NULL;
    update(tried, &x);
  }
  memcpy(to, w[UPDATES % 2], (size_t)p.elements * sizeof *to);
}

static void follows_its_algorithm(const Tried *tried) {
  static float got[MOST], again[MOST], want[MOST], m[MOST], v[MOST], g[MOST];
  for (int i = 0; i < CASES; i++) {
    const Case *c = &cases[i];
    const int64_t n = elements_of(c);
    assert_true(n <= MOST);
    run(tried, c, got);
    memset(m, 0, sizeof m);
    memset(v, 0, sizeof v);
    for (int64_t j = 0; j < n; j++) want[j] = weight(j);
    for (int t = 0; t < UPDATES; t++) {
      for (int64_t j = 0; j < n; j++) g[j] = gradient(j, t);
      tried->plain(c, t, want, g, m, v);
    }
    for (int64_t j = 0; j < n; j++)
      if (!(fabsf(got[j] - want[j]) <= tried->tolerance * fmaxf(1, fabsf(want[j]))))
        fail_msg("case %d: element %lld is %.9g, not %.9g", i, (long long)j, (double)got[j], (double)want[j]);
    for (int threads = 1; threads <= 5; threads += 2) {
      omp_set_num_threads(threads);
      run(tried, c, again);
      bool products = tried->plain == muon && c->hidden; /* whose bits are tests/kernels/matmul.c's matter */
      if (!products) assert_memory_equal(got, again, (size_t)n * sizeof *got);
      for (int64_t j = 0; j < n; j++)
        assert_true(fabsf(got[j] - again[j]) <= tried->tolerance * fmaxf(1, fabsf(got[j])));
    }
  }
}

static void nesterov_is_pytorchs(void **state) {
  (void)state;
  follows_its_algorithm(&(Tried){&pd_nesterov, &nesterov_arguments, nesterov, 1e-6f});
}

static void lamb_follows_algorithm_2(void **state) {
  (void)state;
  follows_its_algorithm(&(Tried){&pd_lamb, &lamb_arguments, lamb, 1e-6f});
}

static void adafactor_is_pytorchs(void **state) {
  (void)state;
  follows_its_algorithm(&(Tried){&pd_adafactor, &adafactor_arguments, adafactor, 1e-6f});
}

static void muon_is_jordans(void **state) {
  (void)state;
  follows_its_algorithm(&(Tried){&pd_muon, &muon_arguments, muon, 1e-5f});
}

/* What is no hidden matrix has AdamW's bits. */
static void muons_others_are_adamws(void **state) {
  (void)state;
  enum { N = 301 };
  static float w[2][N], moments[4][N], g[N];
  struct pd_parameter p = {.rank = 1, .dim = {N}, .elements = N, .decays = true};
  const struct pd_adamw_arguments arguments = {.beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1};
  for (int64_t i = 0; i < N; i++) w[0][i] = w[1][i] = weight(i);
  for (int t = 0; t < UPDATES; t++) {
    for (int64_t i = 0; i < N; i++) g[i] = gradient(i, t);
    struct pd_tensor_update x = {.parameter = &p,
                                 .arguments = &muon_arguments,
                                 .t = t,
                                 .rate = {.lr = rate(t)},
                                 .scale = scale,
                                 .from = w[0],
                                 .to = w[0],
                                 .gradient = g,
                                 .moment = {moments[0], moments[1]}};
    pd_muon.tensor(&x);
    struct pd_adamw_step step = pd_adamw_constants(&arguments, (struct pd_rate){.lr = rate(t)}, t, scale, true);
    pd_adamw_elements(N, &step, w[1], w[1], g, (float *const[]){moments[2], moments[3]}, &(struct pd_change){0});
    assert_memory_equal(w[0], w[1], sizeof w[0]);
  }
}

/* Without Nesterov's momentum, and where nothing is to be learnt: of zeros the step is 0. */
static void muon_without_gradients_decays(void **state) {
  (void)state;
  static float w[12], m[12], g[12];
  static _Alignas(64) char scratch[1 << 20];
  struct pd_muon_arguments arguments = muon_arguments;
  struct pd_parameter p = {.rank = 2, .dim = {3, 4}, .elements = 12, .decays = true, .hidden = true};
  arguments.nesterov = 0;
  pd_muon.start(&p);
  for (int i = 0; i < 12; i++) w[i] = weight(i);
  struct pd_tensor_update x = {.parameter = &p,
                               .arguments = &arguments,
                               .rate = {.lr = 0.5},
                               .scale = 1,
                               .from = w,
                               .to = w,
                               .gradient = g,
                               .moment = {m},
                               .scratch = scratch};
  pd_muon.tensor(&x);
  for (int i = 0; i < 12; i++) assert_true(w[i] == weight(i) * (float)(1 - 0.5 * 0.1) && m[i] == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nesterov_is_pytorchs),    cmocka_unit_test(lamb_follows_algorithm_2),
      cmocka_unit_test(adafactor_is_pytorchs),   cmocka_unit_test(muon_is_jordans),
      cmocka_unit_test(muons_others_are_adamws), cmocka_unit_test(muon_without_gradients_decays),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
