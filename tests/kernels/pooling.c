/* pd_pooling forward and backward against plain loops in double; the same bytes for 1 to 8 threads. */
#include "test.h"

typedef struct pd_pooling Shape;

/* One channel of one sample: y from x, and dx from dy, every stride as in the whole. */
static void reference(const Shape *s, const float *x, const float *dy, double *y, double *dx) {
  for (int64_t i = 0; i < s->out[0]; i++)
    for (int64_t j = 0; j < s->out[1]; j++) {
      int64_t out = (i * s->out[1] + j) * s->channels, best = -1, inside[256], n = 0, padded = 0;
      double sum = 0;
      int64_t top = i * s->stride[0] - s->padding[0], left = j * s->stride[1] - s->padding[1];
      int64_t rows = s->kernel[0], columns = s->kernel[1];
      if (s->adaptive) {
        top = i * s->height / s->out[0], left = j * s->width / s->out[1];
        rows = ((i + 1) * s->height + s->out[0] - 1) / s->out[0] - top;
        columns = ((j + 1) * s->width + s->out[1] - 1) / s->out[1] - left;
      }
      for (int64_t k = 0; k < rows * columns; k++) {
        int64_t row = top + k / columns, column = left + k % columns;
        padded += row < s->height + s->padding[0] && column < s->width + s->padding[1];
        if (row < 0 || row >= s->height || column < 0 || column >= s->width) continue;
        int64_t at = (row * s->width + column) * s->channels;
        inside[n++] = at;
        sum += x[at];
        if (best < 0 || x[at] > x[best]) best = at;
      }
      double count = (double)(s->count_padding ? padded : n);
      y[out] = s->maximum ? x[best] : sum / count;
      for (int64_t k = 0; k < n; k++)
        dx[inside[k]] += !s->maximum ? dy[out] / count : inside[k] == best ? dy[out] : 0;
    }
}

static double worst_of(int64_t n, const float *got, const double *exact) {
  double worst = 0;
  for (int64_t i = 0; i < n; i++) {
    double e = fabs(got[i] - exact[i]);
    worst = fmax(worst, isnan(e) ? INFINITY : e);
  }
  return worst;
}

/* Values on a coarse grid: maxima repeat. */
static void test(Shape s) {
  int64_t size = s.height * s.width * s.channels, out = s.out[0] * s.out[1] * s.channels;
  int64_t n = s.batch * size, n_out = s.batch * out;
  float *x = random_floats(n), *dy = random_floats(n_out), *y = floats(n_out), *dx = floats(n);
  float *first_y = floats(n_out), *first_dx = floats(n);
  double *exact_y = calloc((size_t)n_out, sizeof *exact_y), *exact_dx = calloc((size_t)n, sizeof *exact_dx);
  if (!exact_y || !exact_dx) pd_fail("out of memory");
  for (int64_t i = 0; i < n; i++) x[i] = floorf(4 * x[i]) - 2.5f;
  for (int64_t i = 0; i < s.batch * s.channels; i++) {
    int64_t at = i / s.channels * size + i % s.channels, to = i / s.channels * out + i % s.channels;
    reference(&s, x + at, dy + to, exact_y + to, exact_dx + at);
  }
  for (int threads = 1; threads <= 8; threads++) {
    omp_set_num_threads(threads);
    memset(y, 0x55, (size_t)n_out * sizeof *y);
    memset(dx, 0x55, (size_t)n * sizeof *dx);
    pd_pooling(&s, x, y);
    pd_pooling_backward(&s, s.maximum ? x : NULL, s.maximum ? y : NULL, dy, dx);
    double e = worst_of(n_out, y, exact_y), d = worst_of(n, dx, exact_dx);
    bool same = threads == 1 ||
                (!memcmp(y, first_y, (size_t)n_out * sizeof *y) && !memcmp(dx, first_dx, (size_t)n * sizeof *dx));
    if (!same || !(e <= (s.maximum ? 0 : 1e-6)) || !(d <= 2e-6))
      printf("FAIL %ld x [%ld, %ld, %ld], maximum %d, padding counts %d, %d threads: errors %g %g%s\n",
             (long)s.batch, (long)s.height, (long)s.width, (long)s.channels, s.maximum, s.count_padding, threads,
             e, d, same ? "" : ", bytes differ"),
          failures++;
    if (threads > 1) continue;
    memcpy(first_y, y, (size_t)n_out * sizeof *y);
    memcpy(first_dx, dx, (size_t)n * sizeof *dx);
  }
  free(x), free(dy), free(y), free(dx), free(first_y), free(first_dx), free(exact_y), free(exact_dx);
}

static void test_all(Shape s) {
  s.maximum = true;
  test(s);
  s.maximum = false;
  test(s);
  s.count_padding = true;
  test(s);
}

int main(void) {
  test_all((Shape){2, 64, 16, 16, .kernel = {2, 2}, {2, 2}, {0, 0}, .out = {8, 8}});
  test_all((Shape){3, 70, 17, 12, .kernel = {3, 3}, {2, 2}, {1, 1}, .out = {9, 6}});
  test_all((Shape){1, 130, 9, 9, .kernel = {3, 3}, {1, 1}, {1, 1}, .out = {9, 9}});
  test_all((Shape){2, 5, 7, 7, .kernel = {7, 7}, {1, 1}, {0, 0}, .out = {1, 1}});
  test_all((Shape){2, 16, 8, 11, .kernel = {3, 2}, {2, 3}, {0, 1}, .out = {4, 4}}); /* rows rounded up */
  test_all((Shape){4, 1, 6, 6, .kernel = {2, 2}, {3, 3}, {0, 0}, .out = {2, 2}});   /* pixels in no window */
  test((Shape){2, 70, 7, 11, .out = {3, 5}, .adaptive = true});
  test((Shape){3, 16, 6, 6, .out = {1, 1}, .adaptive = true});
  test((Shape){1, 8, 3, 4, .out = {6, 7}, .adaptive = true}); /* windows share pixels */
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
