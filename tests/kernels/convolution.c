/* pd_convolution forward and backward against plain loops in double; the same bytes for 1 to 8 threads. */
#include "test.h"

typedef struct pd_convolution_shape Shape;
typedef enum pd_convolution_kind Kind;

static int64_t out_size(const Shape *s, int axis) {
  int64_t size = axis ? s->width : s->height;
  return (size + 2 * s->padding[axis] - s->dilation[axis] * (s->kernel[axis] - 1) - 1) / s->stride[axis] + 1;
}

static int64_t n_x(const Shape *s) { return s->batch * s->height * s->width * s->in_channels; }
static int64_t n_w(const Shape *s) {
  return s->out_channels * (s->in_channels / s->groups) * s->kernel[0] * s->kernel[1];
}
static int64_t n_y(const Shape *s) { return s->batch * out_size(s, 0) * out_size(s, 1) * s->out_channels; }
static int64_t n_result(const Shape *s) {
  return s->kind == PD_CONVOLUTION ? n_y(s) : s->kind == PD_CONVOLUTION_BACKWARD ? n_x(s) : n_w(s);
}

/* The result, and in size the sum of its products' magnitudes. x, w, y: the operands, the result's NULL. */
static void reference(const Shape *s, const float *x, const float *w, const float *y, double *sum, double *size) {
  int64_t height = out_size(s, 0), width = out_size(s, 1), in = s->in_channels, out = s->out_channels;
  for (int64_t pixel = 0; pixel < s->batch * height * width; pixel++)
    for (int64_t kernel = 0; kernel < s->kernel[0] * s->kernel[1]; kernel++) {
      int64_t ky = kernel / s->kernel[1], kx = kernel % s->kernel[1], sample = pixel / (height * width);
      int64_t row = pixel / width % height * s->stride[0] - s->padding[0] + ky * s->dilation[0];
      int64_t column = pixel % width * s->stride[1] - s->padding[1] + kx * s->dilation[1];
      if (row < 0 || row >= s->height || column < 0 || column >= s->width) continue;
      int64_t at_x = ((sample * s->height + row) * s->width + column) * in, at_y = pixel * out;
      for (int64_t o = 0; o < out; o++)
        for (int64_t k = 0; k < in / s->groups; k++) {
          int64_t at_w = ((o * (in / s->groups) + k) * s->kernel[0] + ky) * s->kernel[1] + kx;
          int64_t i = o / (out / s->groups) * (in / s->groups) + k;
          double product = w ? w[at_w] : 1;
          product *= x ? x[at_x + i] : 1;
          product *= y ? y[at_y + o] : 1;
          int64_t at = !w ? at_w : !x ? at_x + i : at_y + o;
          sum[at] += product;
          size[at] += fabs(product);
        }
    }
}

static void run(const struct pd_convolution *c, Kind kind, const float *a, const float *b, const float *bias,
                float *result, void *scratch) {
  if (kind == PD_CONVOLUTION) pd_convolution(c, a, b, bias, result, scratch);
  if (kind == PD_CONVOLUTION_BACKWARD) pd_convolution_backward(c, a, b, result, scratch);
  if (kind == PD_CONVOLUTION_WEIGHTS) pd_convolution_weights(c, a, b, result, scratch);
}

static void fail(const Shape *s, const char *what, double x) {
  static const char *const kinds[] = {"forward", "backward", "weights"};
  printf("FAIL %s of %ld x [%ld, %ld, %ld] -> %ld in %ld groups, kernel %ld x %ld, bias %d, add %d: %s %g\n",
         kinds[s->kind], (long)s->batch, (long)s->height, (long)s->width, (long)s->in_channels,
         (long)s->out_channels, (long)s->groups, (long)s->kernel[0], (long)s->kernel[1], s->bias, s->accumulate,
         what, x);
  failures++;
}

/* Largest error relative to the sum of the products' magnitudes. */
static double error(const Shape *s, const float *x, const float *w, const float *y, const float *bias,
                    const float *before, const float *got) {
  int64_t n = n_result(s);
  double *sum = calloc((size_t)n, sizeof *sum), *size = calloc((size_t)n, sizeof *size), worst = 0;
  if (!sum || !size) pd_fail("out of memory");
  reference(s, x, w, y, sum, size);
  for (int64_t i = 0; i < n; i++) {
    double extra = s->bias ? bias[i % s->out_channels] : s->accumulate ? before[i] : 0;
    double e = fabs(got[i] - (sum[i] + extra)) / (size[i] + fabs(extra) + 1e-30);
    worst = fmax(worst, isnan(e) ? INFINITY : e);
  }
  free(sum), free(size);
  return worst;
}

/* exact: against plain loops, too; else, for what these take long for, the bytes alone. */
static void test(Shape s, bool exact) {
  int64_t n = n_result(&s), before_n = n + 16;
  float *x = s.kind == PD_CONVOLUTION_BACKWARD ? NULL : random_floats(n_x(&s));
  float *w = s.kind == PD_CONVOLUTION_WEIGHTS ? NULL : random_floats(n_w(&s));
  float *y = s.kind == PD_CONVOLUTION ? NULL : random_floats(n_y(&s));
  float *bias = random_floats(s.out_channels), *before = random_floats(before_n);
  float *got = floats(before_n), *first = floats(n);
  for (int threads = 1; threads <= 8; threads += exact ? 1 : threads) {
    omp_set_num_threads(threads);
    struct pd_convolution *c = pd_convolution_new(s);
    size_t scratch = pd_convolution_scratch(c);
    char *space = (char *)floats((int64_t)scratch / 4 + 16);
    memset(space, 0x55, scratch + 64);
    memcpy(got, before, (size_t)before_n * sizeof *got);
    run(c, s.kind, s.kind == PD_CONVOLUTION_BACKWARD ? y : x, s.kind == PD_CONVOLUTION_WEIGHTS ? y : w,
        s.bias ? bias : NULL, got, space);
    for (int i = 0; i < 64; i++)
      if (space[scratch + (size_t)i] != 0x55) fail(&s, "writes past its scratch by", i + 1), i = 64;
    if (memcmp(got + n, before + n, 16 * sizeof *got)) fail(&s, "writes past its result", 0);
    free(space);
    if (threads == 1) {
      memcpy(first, got, (size_t)n * sizeof *got);
      double e = exact ? error(&s, x, w, y, bias, before, got) : 0;
      if (!(e < 5e-7)) fail(&s, "relative error", e);
    } else if (memcmp(first, got, (size_t)n * sizeof *got)) {
      fail(&s, "differs with threads", threads);
    }
  }
  free(x), free(w), free(y), free(bias), free(before), free(got), free(first);
}

static void test_kinds(Shape s, bool exact) {
  for (int add = 0; add < 2; add++) {
    s.kind = PD_CONVOLUTION, s.bias = add, s.accumulate = false;
    test(s, exact);
    s.kind = PD_CONVOLUTION_WEIGHTS, s.bias = false, s.accumulate = add;
    test(s, exact);
  }
  s.kind = PD_CONVOLUTION_BACKWARD, s.accumulate = false;
  test(s, exact);
}

static void test_layer(Shape s) { test_kinds(s, true); }

static Shape square(int64_t batch, int64_t in, int64_t out, int64_t size, int64_t kernel, int64_t stride,
                    int64_t padding) {
  return (Shape){.batch = batch,
                 .in_channels = in,
                 .out_channels = out,
                 .groups = 1,
                 .height = size,
                 .width = size,
                 .kernel = {kernel, kernel},
                 .stride = {stride, stride},
                 .padding = {padding, padding},
                 .dilation = {1, 1}};
}

static Shape grouped(Shape s, int64_t groups) {
  s.groups = groups;
  return s;
}

int main(void) {
  test_layer(square(1, 1, 1, 1, 1, 1, 0));
  test_layer(square(2, 3, 16, 32, 3, 1, 1)); /* a first layer; parts are samples */
  test_layer(square(3, 3, 64, 39, 7, 2, 3));
  test_layer(square(2, 3, 64, 35, 11, 4, 2));
  test_layer(square(8, 16, 32, 14, 3, 1, 1));
  test_layer(square(1, 32, 64, 28, 3, 1, 1)); /* parts are channels */
  test_layer(square(2, 64, 128, 7, 3, 1, 1));
  test_layer(square(9, 17, 33, 9, 3, 1, 1)); /* no multiple of a vector */
  test_layer(square(7, 24, 20, 11, 5, 1, 2));
  test_layer(square(4, 32, 48, 15, 3, 2, 1));
  test_layer(square(8, 32, 64, 14, 1, 1, 0)); /* products of matrices */
  test_layer(square(5, 19, 21, 13, 1, 1, 0));
  test_layer(square(4, 32, 64, 14, 1, 2, 0)); /* of some pixels */
  test_layer(square(3, 19, 21, 17, 1, 3, 0));
  test_layer(square(2, 512, 520, 5, 1, 2, 0));
  test_layer(square(2, 32, 16, 5, 5, 1, 0)); /* one pixel left */
  test_layer(grouped(square(8, 32, 64, 14, 3, 1, 1), 2));
  test_layer(grouped(square(3, 24, 12, 9, 3, 2, 1), 4));
  test_layer(grouped(square(2, 32, 32, 12, 1, 1, 0), 8));
  test_layer(grouped(square(8, 48, 48, 14, 3, 1, 1), 48)); /* depthwise */
  test_layer(grouped(square(5, 35, 35, 13, 5, 2, 2), 35));
  test_layer(grouped(square(1, 70, 140, 9, 3, 1, 0), 70)); /* two results a channel */
  test_layer(grouped(square(2, 36, 36, 17, 7, 2, 3), 36));
  test_layer(square(1, 32, 32, 2, 3, 1, 1)); /* too small for tiles; then in tiles: of odd sizes, paddings */
  test_layer(square(3, 48, 64, 13, 3, 1, 1));
  test_layer(square(2, 64, 32, 15, 3, 1, 0));
  test_layer(square(2, 32, 48, 6, 3, 1, 2));
  test_layer(square(1, 80, 32, 3, 3, 1, 0));
  test_layer(square(5, 32, 80, 18, 3, 1, 1));
  Shape s = square(4, 32, 32, 17, 1, 1, 0);
  s.kernel[1] = 7, s.padding[1] = 3;
  test_layer(s);
  s = square(2, 16, 16, 23, 3, 1, 2);
  s.dilation[0] = s.dilation[1] = 2;
  s.height = 19, s.stride[0] = 2;
  test_layer(s);
  test_kinds(square(8, 3, 64, 224, 3, 1, 1), false); /* large enough for the library to deal rows to threads */
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
