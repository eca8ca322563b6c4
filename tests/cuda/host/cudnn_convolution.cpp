/* Convolutions of cuDNN's graphs on the host, as plain loops, of images and weights by channels. What cuDNN would refuse, or
 * what would be luck, is refused: other layouts, several types, shapes that do not fit, results that are scaled or added. */
#include "cudnn_descriptors.h"

/* ---- what is read and refused --------------------------------------------------------------------- */

/* The attributes of the three kinds stand in one order, from another number on. */
static cudnnBackendAttributeName_t attribute_of(const Backend *d, cudnnBackendAttributeName_t forward) {
  int apart = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA - CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA;
  int kind = d->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR         ? 0
             : d->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ? 1
                                                                                       : 2;
  return static_cast<cudnnBackendAttributeName_t>(forward + kind * apart);
}

static Images images_of(const Tensor &t) {
  auto dim = [&](int axis) { return static_cast<int>(t.dim[axis]); };
  return {dim(0), dim(1), dim(2), dim(3)};
}

static void read_pair(const Backend *d, cudnnBackendAttributeName_t name, int *to) {
  std::vector<int64_t> pair = values<int64_t>(d, name);
  for (size_t i = 0; i < 2; i++) to[i] = pair.size() == 2 ? static_cast<int>(pair[i]) : -1;
}

void cudnn_host_read_convolution(const Backend *d, Operation *o) {
  const Backend *c = part(d, attribute_of(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC));
  Tensor w = tensor_of(part(d, attribute_of(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W)));
  Tensor x = tensor_of(part(d, attribute_of(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X)));
  Tensor y = tensor_of(part(d, attribute_of(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y)));
  o->convolution = {d->type, images_of(x), images_of(w), images_of(y), {}, {}, {}};
  read_pair(c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, o->convolution.padding);
  read_pair(c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, o->convolution.stride);
  read_pair(c, CUDNN_ATTR_CONVOLUTION_DILATIONS, o->convolution.dilation);
  bool forward = d->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
  bool images = d->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
  o->in = {images ? y : x, forward || images ? w : y};
  o->to = forward ? y : images ? x : w;
}

cudnnStatus_t cudnn_host_judge_convolution(const Backend *d) {
  cudnnConvolutionMode_t mode = value(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CONVOLUTION);
  cudnnDataType_t sums = value(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_BFLOAT16);
  bool plane = value<int64_t>(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 0) == 2;
  std::vector<int64_t> before = values<int64_t>(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  if (before.size() != 2 || before != values<int64_t>(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS))
    return not_supported("paddings that differ");
  for (int64_t i : before)
    if (i < 0) return bad("a padding that is negative");
  for (auto name : {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_ATTR_CONVOLUTION_DILATIONS}) {
    std::vector<int64_t> pair = values<int64_t>(d, name);
    if (pair.size() != 2 || pair[0] < 1 || pair[1] < 1) return bad("a stride or dilation that is not positive");
  }
  return mode == CUDNN_CROSS_CORRELATION && sums == CUDNN_DATA_FLOAT && plane
             ? CUDNN_STATUS_SUCCESS
             : not_supported("a convolution that is mirrored, summed in fewer bits or not of a plane");
}

static bool is_by_channels(const Tensor &t) {
  const int64_t stride[4] = {t.dim[1] * t.dim[2] * t.dim[3], 1, t.dim[1] * t.dim[3], t.dim[1]};
  return std::equal(stride, stride + 4, t.stride);
}

cudnnStatus_t cudnn_host_judge_convolution(const Backend *d, const Operation &o) {
  const Convolution &c = o.convolution;
  float alpha = value(d, attribute_of(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA), 0.0f);
  float beta = value(d, attribute_of(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA), 1.0f);
  if (alpha != 1 || beta != 0) return not_supported("a convolution that is scaled or added");
  bool fits = c.w.c == c.x.c && c.w.n == c.y.c && c.x.n == c.y.n;
  for (int axis = 0; axis < 2; axis++) {
    int size = axis ? c.x.w : c.x.h, kernel = axis ? c.w.w : c.w.h;
    int results = (size + 2 * c.padding[axis] - c.dilation[axis] * (kernel - 1) - 1) / c.stride[axis] + 1;
    fits = fits && results == (axis ? c.y.w : c.y.h);
  }
  if (!fits) return bad("a convolution of shapes that do not fit");
  for (const Tensor *t : {&o.in[0], &o.in[1], &o.to})
    if (t->type != o.to.type || !is_by_channels(*t))
      return not_supported("a convolution of several types, or not by channels");
  return CUDNN_STATUS_SUCCESS;
}

/* ---- loops ---------------------------------------------------------------------------------------- */

/* f(pixel of y, pixel of x, tap) for all that meet, the last first. */
template <class F> static void for_taps(const Convolution &p, F f) {
  int taps = p.w.h * p.w.w;
  for (int i = p.y.n * p.y.h * p.y.w; i-- > 0;)
    for (int k = taps; k-- > 0;) {
      int row = i / p.y.w % p.y.h * p.stride[0] - p.padding[0] + k / p.w.w * p.dilation[0];
      int column = i % p.y.w * p.stride[1] - p.padding[1] + k % p.w.w * p.dilation[1];
      if (row >= 0 && row < p.x.h && column >= 0 && column < p.x.w)
        f((size_t)i, (size_t)((i / (p.y.h * p.y.w) * p.x.h + row) * p.x.w + column), (size_t)k);
    }
}

static void forward(const Convolution &p, const Floats &x, const Floats &w, Floats &y) {
  size_t in = (size_t)p.x.c, out = (size_t)p.y.c, taps = (size_t)(p.w.h * p.w.w);
  for_taps(p, [&](size_t to, size_t from, size_t k) {
    for (size_t o = 0; o < out; o++) {
      double sum = 0;
      for (size_t c = 0; c < in; c++) sum += (double)x[from * in + c] * w[(o * taps + k) * in + c];
      y[to * out + o] += (float)sum;
    }
  });
}

static void backward(const Convolution &p, Floats &dx, const Floats &w, const Floats &dy) {
  size_t in = (size_t)p.x.c, out = (size_t)p.y.c, taps = (size_t)(p.w.h * p.w.w);
  for_taps(p, [&](size_t from, size_t to, size_t k) {
    for (size_t o = 0; o < out; o++)
      for (size_t c = 0; c < in; c++) dx[to * in + c] += dy[from * out + o] * w[(o * taps + k) * in + c];
  });
}

static void gradient(const Convolution &p, const Floats &x, Floats &dw, const Floats &dy) {
  size_t in = (size_t)p.x.c, out = (size_t)p.y.c, taps = (size_t)(p.w.h * p.w.w);
  for_taps(p, [&](size_t i, size_t from, size_t k) {
    for (size_t o = 0; o < out; o++)
      for (size_t c = 0; c < in; c++) dw[(o * taps + k) * in + c] += dy[i * out + o] * x[from * in + c];
  });
}

/* TF32 keeps ten bits of the mantissa, to the nearest. */
static float as_tf32(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  bits = (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu;
  memcpy(&x, &bits, sizeof bits);
  return x;
}

/* A tensor's elements as they lie in memory, where nothing is between them. */
static Floats as_in_memory(const Tensor &t, const Floats &x, bool rounds) {
  Floats to(x.size());
  each(t, [&](size_t n, int64_t place, const int64_t *) {
    to[static_cast<size_t>(place)] = rounds ? as_tf32(x[n]) : x[n];
  });
  return to;
}

void cudnn_host_convolve(const Operation &o, const Floats &a, const Floats &b, bool rounds, Floats &to) {
  const Convolution &c = o.convolution;
  const Floats x = as_in_memory(o.in[0], a, rounds), y = as_in_memory(o.in[1], b, rounds);
  Floats sums(to.size());
  if (c.kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
    forward(c, x, y, sums);
  else if (c.kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR)
    backward(c, sums, y, x);
  else
    gradient(c, x, sums, y);
  each(o.to,
       [&](size_t n, int64_t place, const int64_t *) { to[n] = rounded(o.to, sums[static_cast<size_t>(place)]); });
}
