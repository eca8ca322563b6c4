/* Products of rows with the matrices of their experts, and gradients of these, against plain loops: strides of views, rows
 * that experts share, experts without rows and with most, floats and bf16, 1 to 4 threads. The digest of all results is
 * printed, for comparing builds. */
#define PD_KERNELS
#include "test.h"

struct data {
  struct pd_experts e;
  int64_t n_x, n_y, n_w;
  pd_in x, w, dy;
  float *x_is, *w_is, *dy_is;
  int32_t *experts;
};

static void expect_near(float got, double want, double scale, const char *what, const struct data *d,
                        int threads) {
  if (fabs((double)got - want) <= 3e-6 * scale + 1e-30) return;
  printf("FAIL %s: %.9g, not %.9g, rows %ld x %ld, %ld experts, %ld to %ld, %d threads\n", what, (double)got, want,
         (long)d->e.rows, (long)d->e.chosen, (long)d->e.count, (long)d->e.in, (long)d->e.out, threads);
  failures++;
}

static int64_t x_at(const struct data *d, int64_t i) {
  return i / d->e.chosen * d->e.x_row + i % d->e.chosen * d->e.x_chosen;
}
static int64_t y_at(const struct data *d, int64_t i) {
  return i / d->e.chosen * d->e.y_row + i % d->e.chosen * d->e.y_chosen;
}
static int64_t expert_of(const struct data *d, int64_t i) {
  return d->experts[i / d->e.chosen * d->e.experts_row + i % d->e.chosen * d->e.experts_chosen];
}

static void test_forward(const struct data *d, enum pd_type type) {
  const struct pd_experts *e = &d->e;
  float *first = NULL;
  for (int threads = 1; threads <= 4; threads++) {
    omp_set_num_threads(threads);
    void *scratch = floats((int64_t)pd_expert_linear_scratch(e, threads) / 4 + 16);
    pd_out y = {floats(d->n_y), type};
    float *got = floats(d->n_y);
    for (int64_t i = 0; i < d->n_y; i++) got[i] = 7;
    pd_write(y, 0, got, d->n_y);
    pd_expert_linear(e, d->x, d->w, d->experts, y, scratch);
    pd_read(got, (pd_in){y.at, type}, 0, d->n_y);
    for (int64_t i = 0; i < e->rows * e->chosen; i++)
      for (int64_t n = 0; n < e->out; n++) {
        double want = 0, scale = 0;
        for (int64_t k = 0; k < e->in && expert_of(d, i) < e->count; k++) {
          const double p =
              (double)d->x_is[x_at(d, i) + k * e->x_column] *
              (double)d->w_is[expert_of(d, i) * e->weight_expert + n * e->weight_out + k * e->weight_in];
          want += p, scale += fabs(p);
        }
        expect_near(got[y_at(d, i) + n * e->y_column], want, type == PD_BF16 ? 2000 * scale : scale, "product", d,
                    threads);
      }
    if (threads > 1 && memcmp(first, got, (size_t)d->n_y * sizeof *got)) {
      printf("FAIL products differ at %d threads\n", threads);
      failures++;
    }
    if (threads == 1) add_to_digest(got, (size_t)d->n_y * sizeof *got);
    if (threads == 1)
      first = got;
    else
      free(got);
    free(scratch), free(y.at);
  }
  free(first);
}

static void test_weights(const struct data *d) {
  const struct pd_experts *e = &d->e;
  const int64_t n_w = e->count * e->out * e->in;
  float *before = random_floats(n_w), *one = floats(n_w), *got = floats(n_w);
  double *want = calloc((size_t)n_w, sizeof *want), *scale = calloc((size_t)n_w, sizeof *scale);
  for (int64_t i = 0; i < e->rows * e->chosen; i++)
    for (int64_t n = 0; n < e->out && expert_of(d, i) < e->count; n++)
      for (int64_t k = 0; k < e->in; k++) {
        const double p =
            (double)d->dy_is[y_at(d, i) + n * e->y_column] * (double)d->x_is[x_at(d, i) + k * e->x_column];
        const int64_t at = (expert_of(d, i) * e->out + n) * e->in + k;
        want[at] += p, scale[at] += fabs(p);
      }
  for (int threads = 1; threads <= 4; threads++)
    for (int overwrite = 0; overwrite < 2; overwrite++) {
      omp_set_num_threads(threads);
      void *scratch = floats((int64_t)pd_expert_linear_weights_scratch(e, threads) / 4 + 16);
      for (int64_t i = 0; i < n_w; i++) got[i] = overwrite ? NAN : before[i];
      pd_expert_linear_weights(e, d->x, d->dy, d->experts, got, overwrite, scratch);
      for (int64_t i = 0; i < n_w; i++)
        expect_near(got[i], want[i] + (overwrite ? 0 : (double)before[i]), scale[i] + 1, "gradient", d, threads);
      if (overwrite && threads == 1) memcpy(one, got, (size_t)n_w * sizeof *got);
      if (overwrite && memcmp(one, got, (size_t)n_w * sizeof *got)) {
        printf("FAIL gradients differ at %d threads\n", threads);
        failures++;
      }
      if (threads == 1) add_to_digest(got, (size_t)n_w * sizeof *got);
      free(scratch);
    }
  free(before), free(one), free(got), free(want), free(scale);
}

/* form: bits of 1 a row for all experts, 2 matrices transposed, 4 y's columns apart, as of a view, 8 experts [chosen][rows],
 * 16 rows without an expert */
static void test(int64_t rows, int64_t chosen, int64_t count, int64_t in, int64_t out, int form,
                 enum pd_type type) {
  const bool shared = form & 1, turned = form & 2, apart = form & 4, by_choice = form & 8, drops = form & 16;
  struct data d = {.e = {.rows = rows, .chosen = chosen, .count = count, .in = in, .out = out, .drops = drops}};
  const int64_t x_width = in + 5;
  d.e.x_row = shared ? x_width : chosen * x_width, d.e.x_chosen = shared ? 0 : x_width, d.e.x_column = 1;
  d.e.y_row = chosen * out, d.e.y_chosen = apart ? 1 : out, d.e.y_column = apart ? chosen : 1;
  d.e.experts_row = by_choice ? 1 : chosen, d.e.experts_chosen = by_choice ? rows : 1;
  d.e.weight_expert = in * out, d.e.weight_out = turned ? 1 : in, d.e.weight_in = turned ? out : 1;
  d.n_x = rows * chosen * x_width, d.n_y = rows * chosen * out, d.n_w = count * in * out;
  d.x_is = random_floats(d.n_x), d.w_is = random_floats(d.n_w), d.dy_is = random_floats(d.n_y);
  d.x = operand(d.x_is, d.n_x, type), d.w = operand(d.w_is, d.n_w, type), d.dy = operand(d.dy_is, d.n_y, type);
  d.experts = malloc((size_t)(rows * chosen) * sizeof *d.experts);
  for (int64_t i = 0; i < rows * chosen; i++) /* half of them choose the last expert, none the first of many */
    d.experts[i] = (int32_t)(drops && i % 5 == 3 ? count
                             : i % 2             ? count - 1
                             : count > 2         ? 1 + i * 7 % (count - 1)
                                                 : i * 7 % count);
  if (!apart) test_forward(&d, type);
  test_weights(&d);
  free((void *)d.x.at), free((void *)d.w.at), free((void *)d.dy.at);
  free(d.x_is), free(d.w_is), free(d.dy_is), free(d.experts);
}

static void test_sum(int64_t rows, int64_t chosen, int64_t width, enum pd_type type) {
  float *y_is = random_floats(rows * chosen * width), *weights = random_floats(rows * chosen),
        *got = floats(rows * width);
  pd_in y = operand(y_is, rows * chosen * width, type);
  for (int threads = 1; threads <= 3; threads += 2) {
    omp_set_num_threads(threads);
    pd_expert_sum(y, weights, rows, chosen, width, (pd_out){got, PD_F32});
    for (int64_t i = 0; i < rows * width; i++) {
      float want = 0;
      for (int64_t j = 0; j < chosen; j++)
        want += weights[i / width * chosen + j] * y_is[(i / width * chosen + j) * width + i % width];
      if (got[i] == want) continue;
      printf("FAIL sum of element %ld, %d threads\n", (long)i, threads);
      failures++;
    }
  }
  free(y_is), free(weights), free(got), free((void *)y.at);
}

static void test_capacity(int64_t samples, int64_t rows, int64_t count, int64_t room) {
  int32_t *experts = malloc((size_t)(samples * rows) * sizeof *experts),
          *got = malloc((size_t)(samples * rows) * 4);
  for (int64_t i = 0; i < samples * rows; i++) experts[i] = (int32_t)(i * i % 7 * 5 % count);
  for (int threads = 1; threads <= 3; threads += 2) {
    omp_set_num_threads(threads);
    pd_within_capacity(experts, samples, rows, count, room, got);
    for (int64_t i = 0; i < samples * rows; i++) {
      int64_t before = 0;
      for (int64_t j = i / rows * rows; j < i; j++) before += experts[j] == experts[i];
      if (got[i] == (before < room ? experts[i] : count)) continue;
      printf("FAIL row %ld within a capacity of %ld, %d threads\n", (long)i, (long)room, threads);
      failures++;
    }
  }
  free(experts), free(got);
}

int main(void) {
  test_capacity(1, 1, 1, 1);
  test_capacity(3, 40, 5, 6);
  test_capacity(2, 30, 2500, 2);
  for (int type = 0; type < 2; type++) {
    test_sum(7, 3, 5, type ? PD_BF16 : PD_F32);
    test_sum(20, 8, 600, type ? PD_BF16 : PD_F32);
  }
  for (int form = 0; form < 32; form++)
    for (int type = 0; type < 2; type++) {
      test(7, 2, 3, 5, 9, form, type ? PD_BF16 : PD_F32);
      test(130, 3, 5, 70, 45, form, type ? PD_BF16 : PD_F32);
    }
  test(1, 1, 1, 1, 1, 0, PD_F32);
  test(2, 2, 64, 33, 160, 1, PD_F32);
  test(9, 1, 2, 3, 700, 16, PD_F32);    /* rows of zeros longer than a part */
  test(300, 4, 2, 40, 300, 1, PD_F32);  /* more rows than a block of a gradient's sum */
  test(50, 2, 4, 1100, 130, 0, PD_F32); /* more than a block of a product's sum */
  test(20, 2, 2, 9000, 40, 0, PD_F32);  /* narrow strips */
  printf("%016llx\n", (unsigned long long)digest);
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
