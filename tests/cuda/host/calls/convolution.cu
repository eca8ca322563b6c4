/* pd_convolution on a device against plain loops in double: 1x1 kernels, depthwise ones, groups, and all others by
 * cuDNN and, where the environment makes it refuse, by columns. */
#include "test.h"

static int64_t out_of(const struct pd_convolution_shape &s, int axis) {
  int64_t size = axis ? s.width : s.height;
  return (size + 2 * s.padding[axis] - s.dilation[axis] * (s.kernel[axis] - 1) - 1) / s.stride[axis] + 1;
}

/* f(index into x, into w, into y) for all products. */
template <typename F> static void for_products(const struct pd_convolution_shape &s, F f) {
  int64_t rows = out_of(s, 0), columns = out_of(s, 1), in = s.in_channels / s.groups;
  int64_t out = s.out_channels / s.groups;
  for (int64_t at = 0; at < s.batch * rows * columns; at++)
    for (int64_t o = 0; o < s.out_channels; o++)
      for (int64_t k = 0; k < s.kernel[0] * s.kernel[1]; k++) {
        int64_t i = at / columns % rows * s.stride[0] - s.padding[0] + k / s.kernel[1] * s.dilation[0];
        int64_t j = at % columns * s.stride[1] - s.padding[1] + k % s.kernel[1] * s.dilation[1];
        if (i < 0 || i >= s.height || j < 0 || j >= s.width) continue;
        int64_t pixel = (at / (rows * columns) * s.height + i) * s.width + j;
        for (int64_t c = 0; c < in; c++)
          f((size_t)(pixel * s.in_channels + o / out * in + c),
            (size_t)((o * in + c) * s.kernel[0] * s.kernel[1] + k), (size_t)(at * s.out_channels + o));
      }
}

struct Sizes {
  int64_t x, w, y;
};
static Sizes sizes_of(const struct pd_convolution_shape &s) {
  return {s.batch * s.height * s.width * s.in_channels,
          s.out_channels * (s.in_channels / s.groups) * s.kernel[0] * s.kernel[1],
          s.batch * out_of(s, 0) * out_of(s, 1) * s.out_channels};
}

/* What sums come to, and the sums of their terms' sizes. */
struct Sums {
  std::vector<double> value, size;
  explicit Sums(int64_t n) : value((size_t)n), size((size_t)n) {}
  void add(size_t i, double x) {
    value[i] += x;
    size[i] += fabs(x);
  }
  /* In float, in whatever order and by fast algorithms, too, with so many roundings to `type` between them, and of factors
   * as tensor cores take them. */
  std::vector<double> allowed(double terms, int roundings, pd_type type) const {
    std::vector<double> a(size);
    double factors = pd_allow_tf32 ? 0x1p-10 : 0;
    for (size_t i = 0; i < a.size(); i++)
      a[i] = a[i] * ((terms + 64) * 0x1p-23 + factors) + size[i] * roundings * rounding(type);
    return a;
  }
};

static void forward(struct pd_convolution_shape s, pd_type x_type, pd_type w_type, pd_type y_type) {
  Sizes n = sizes_of(s);
  s.kind = PD_CONVOLUTION;
  Array x(x_type, random_floats(n.x)), w(w_type, random_floats(n.w)), y(y_type, filled(n.y, 99));
  Array bias(w_type, random_floats(s.out_channels));
  Sums want(n.y);
  struct pd_convolution *c = pd_convolution_new(s);
  Scratch scratch((int64_t)pd_convolution_scratch(c));
  for_products(s, [&](size_t i, size_t k, size_t o) { want.add(o, (double)x.host[i] * w.host[k]); });
  for (size_t o = 0; s.bias && o < want.value.size(); o++) want.add(o, bias.host[o % (size_t)s.out_channels]);
  int mixed = x_type != w_type ? 1 : 0; /* columns take the type of the weights */
  for (int round = 0; round < 2; round++) {
    pd_convolution(c, x.in(), w.in(), s.bias ? bias.in() : nullptr, y.out(), scratch.at());
    std::vector<double> allowed = want.allowed((double)(n.w / s.out_channels), 2, y_type);
    for (size_t i = 0; mixed && i < allowed.size(); i++) allowed[i] += want.size[i] * rounding(PD_BF16);
    compare("a convolution", y.fetch(), want.value, allowed);
  }
}

static void backward(struct pd_convolution_shape s, pd_type dy_type, pd_type w_type, pd_type dx_type) {
  Sizes n = sizes_of(s);
  s.kind = PD_CONVOLUTION_BACKWARD;
  s.bias = false;
  Array dy(dy_type, random_floats(n.y)), w(w_type, random_floats(n.w)), dx(dx_type, filled(n.x, 99));
  Sums want(n.x);
  struct pd_convolution *c = pd_convolution_new(s);
  Scratch scratch((int64_t)pd_convolution_scratch(c));
  for_products(s, [&](size_t i, size_t k, size_t o) { want.add(i, (double)dy.host[o] * w.host[k]); });
  double terms = (double)(n.w / (s.in_channels / s.groups));
  for (int round = 0; round < 2; round++) {
    pd_convolution_backward(c, dy.in(), w.in(), dx.out(), scratch.at());
    compare("a convolution's gradient of images", dx.fetch(), want.value, want.allowed(terms, 1, dx_type));
  }
}

static void weights(struct pd_convolution_shape s, bool accumulate, pd_type x_type, pd_type dy_type,
                    pd_type dw_type) {
  Sizes n = sizes_of(s);
  s.kind = PD_CONVOLUTION_WEIGHTS;
  s.bias = false, s.accumulate = accumulate;
  Array x(x_type, random_floats(n.x)), dy(dy_type, random_floats(n.y)), dw(dw_type, random_floats(n.w));
  Sums want(n.w);
  struct pd_convolution *c = pd_convolution_new(s);
  Scratch scratch((int64_t)pd_convolution_scratch(c));
  for (size_t i = 0; accumulate && i < want.value.size(); i++) want.add(i, dw.host[i]);
  for_products(s, [&](size_t i, size_t k, size_t o) { want.add(k, (double)x.host[i] * dy.host[o]); });
  double terms = (double)(n.y / s.out_channels);
  bool rounds = x_type == PD_BF16 || dy_type == PD_BF16; /* cuDNN's result, or columns of x in the type of dy */
  pd_convolution_weights(c, x.in(), dy.in(), dw.out(), scratch.at());
  std::vector<double> allowed = want.allowed(terms, 1, dw_type);
  for (size_t i = 0; rounds && i < allowed.size(); i++) allowed[i] += want.size[i] * rounding(PD_BF16);
  compare("a convolution's gradient of weights", dw.fetch(), want.value, allowed);
}

static struct pd_convolution_shape random_shape(int kind) {
  struct pd_convolution_shape s = {};
  s.batch = 1 + random_below(3), s.groups = 1;
  s.height = 1 + random_below(9), s.width = 1 + random_below(9);
  s.in_channels = 1 + random_below(9);
  s.out_channels = random_below(3) ? 1 + random_below(9) : 8 * (1 + random_below(3));
  s.bias = random_below(2);
  if (kind == 1)
    s.groups = s.in_channels = 2 + random_below(40), s.out_channels = s.groups * (1 + random_below(2));
  if (kind == 2) {
    s.groups = 2 + random_below(2);
    s.in_channels = s.groups * (2 + random_below(3)), s.out_channels = s.groups * (1 + random_below(4));
  }
  for (int axis = 0; axis < 2; axis++) {
    int64_t size = axis ? s.width : s.height;
    s.kernel[axis] = kind == 0 ? 1 : 1 + random_below(3);
    s.stride[axis] = kind == 0 ? 1 : 1 + random_below(2);
    s.padding[axis] = kind == 0 ? 0 : random_below(3);
    s.dilation[axis] = 1 + random_below(2);
    if (s.dilation[axis] * (s.kernel[axis] - 1) + 1 > size + 2 * s.padding[axis]) s.kernel[axis] = 1;
  }
  return s;
}

/* refused: what cuDNN's stand-in does not do (tests/cuda/host/cudnn_backend.cpp), or NULL. */
static void check_counts(const char *refused) {
  bool some = refused && (!strcmp(refused, "run") || !strcmp(refused, "first"));
  bool all = refused && strcmp(refused, "first") != 0;
  if ((pd_counts.refused_algorithms > 0) != some) pd_fail("refused algorithms are counted wrongly");
  if ((pd_counts.column_convolutions > 0) != all) pd_fail("convolutions by columns are counted wrongly");
}

/* The stand-in, whose environment has a seed, rounds floats to TF32 where it is allowed; a GPU's library may do so small a
 * convolution otherwise. */
static void check_tf32() {
  struct pd_convolution_shape s = random_shape(3);
  s.in_channels = s.out_channels = 8, s.kernel[0] = s.kernel[1] = 1, s.stride[0] = s.stride[1] = 2;
  Sizes n = sizes_of(s);
  s.kind = PD_CONVOLUTION, s.bias = false;
  Array x(PD_F32, random_floats(n.x)), w(PD_F32, random_floats(n.w)), y(PD_F32, filled(n.y, 99));
  std::vector<std::vector<float>> found;
  for (bool allow : {false, true}) {
    pd_allow_tf32 = allow;
    struct pd_convolution *c = pd_convolution_new(s);
    Scratch scratch((int64_t)pd_convolution_scratch(c));
    pd_convolution(c, x.in(), w.in(), nullptr, y.out(), scratch.at());
    found.push_back(y.fetch());
  }
  if (getenv("CUDA_HOST_SEED") && found[0] == found[1]) pd_fail("TF32 is allowed, and not used");
}

int main() {
  pd_cuda_check(cudaStreamCreateWithFlags(&pd_stream, cudaStreamNonBlocking), "make a stream");
  for (int i = 0; i < 80; i++) {
    struct pd_convolution_shape s = random_shape(i % 5);
    pd_type type = random_type(), other = random_below(4) ? type : random_type();
    forward(s, type, other, type);
    backward(s, type, other, type);
    weights(s, random_below(2), type, other, random_below(3) ? PD_F32 : type);
  }
  /* samples enough for several parts of a depthwise gradient's sum */
  struct pd_convolution_shape large = {.kind = PD_CONVOLUTION,
                                       .batch = 13,
                                       .in_channels = 3,
                                       .out_channels = 3,
                                       .groups = 3,
                                       .height = 16,
                                       .width = 16,
                                       .kernel = {3, 3},
                                       .stride = {1, 1},
                                       .padding = {1, 1},
                                       .dilation = {1, 1}};
  forward(large, PD_BF16, PD_BF16, PD_BF16);
  weights(large, true, PD_BF16, PD_BF16, PD_F32);
  /* images whose columns have no room for all samples at once */
  struct pd_convolution_shape parts = {.kind = PD_CONVOLUTION,
                                       .batch = 3,
                                       .in_channels = 64,
                                       .out_channels = 2,
                                       .groups = 2,
                                       .height = 64,
                                       .width = 64,
                                       .kernel = {5, 5},
                                       .stride = {1, 1},
                                       .padding = {2, 2},
                                       .dilation = {1, 1}};
  /* more samples than a grid has blocks along y */
  struct pd_convolution_shape many = {.kind = PD_CONVOLUTION,
                                      .batch = 65537,
                                      .in_channels = 1,
                                      .out_channels = 1,
                                      .groups = 1,
                                      .height = 1,
                                      .width = 1,
                                      .bias = true,
                                      .kernel = {1, 1},
                                      .stride = {2, 2},
                                      .padding = {0, 0},
                                      .dilation = {1, 1}};
  forward(many, PD_F32, PD_F32, PD_F32);
  check_counts(getenv("CUDNN_HOST_REFUSE"));
  check_tf32();
  for (int i = 0; i < 10; i++) {
    struct pd_convolution_shape s = random_shape(i % 5);
    forward(s, PD_F32, PD_F32, PD_F32);
    backward(s, PD_F32, PD_F32, PD_F32);
    weights(s, random_below(2), PD_F32, PD_F32, PD_F32);
  }
  pd_allow_tf32 = false;
  if (!getenv("CUDNN_HOST_REFUSE")) return 0;
  forward(parts, PD_F32, PD_F32, PD_F32);
  backward(parts, PD_F32, PD_F32, PD_F32);
  weights(parts, false, PD_F32, PD_F32, PD_F32);
  return 0;
}
