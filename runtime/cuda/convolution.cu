/* pd_convolution: a matrix product for 1x1 kernels, kernels of ours for depthwise ones, columns for other groups,
 * and cuDNN for the rest. cuDNN is given images by channels, [batch][height][width][channels], and weights
 * likewise, [out][kernel 0][kernel 1][in], rearranged in scratch at every call. Of the algorithms that its
 * heuristics list for a convolution, the first is taken that is deterministic, fits the planned workspace and
 * runs. By NVIDIA's tables for this layout (cuDNN 9, API reference, cudnn_cnn) these are, for float and bfloat16
 * alike, the forward pass by IMPLICIT_PRECOMP_GEMM (or IMPLICIT_GEMM) and both gradients by ALGO_1; ALGO_0 and
 * ALGO_3 add atomically. Where none is offered, or operands are of several types, columns do it. bfloat16 weight
 * gradients come from cuDNN rounded to bfloat16, once a microbatch, and are added up in float. */
#include "convolution.h"

#include <cudnn.h>

enum { THREADS = 256 };

static cudnnHandle_t library;

enum { MOST_CHOICES = 8 };
struct Choice {
  int algorithm; /* an enumerator of the kind's */
  size_t workspace;
  cudnnMathType_t math;
};
struct Plan { /* of cuDNN, for operands of one type */
  bool made, counted;
  cudnnTensorDescriptor_t x, y;
  cudnnFilterDescriptor_t w;
  cudnnConvolutionDescriptor_t convolution;
  Choice choices[MOST_CHOICES];
  int n, chosen; /* those before are refused when they are to run; n: columns do it */
};

struct pd_convolution {
  struct pd_convolution_shape shape;
  struct pd_matmul *product; /* of a 1x1 kernel, else NULL */
  Columns columns;
  mutable Plan plans[2];
};

size_t pd_convolution_scratch(const struct pd_convolution *c) {
  return static_cast<size_t>(pd_cuda_convolution_scratch(&c->shape));
}

Geometry pd_geometry(const struct pd_convolution_shape &s) {
  Geometry g = {};
  int64_t image = s.height * s.width * s.in_channels;
  g.batch = s.batch;
  g.in = static_cast<int>(s.in_channels);
  g.out = static_cast<int>(s.out_channels);
  g.own_in = static_cast<int>(s.in_channels / s.groups);
  g.own_out = static_cast<int>(s.out_channels / s.groups);
  g.height = static_cast<int>(s.height);
  g.width = static_cast<int>(s.width);
  g.out_height = static_cast<int>(pd_convolution_out(&s, 0));
  g.out_width = static_cast<int>(pd_convolution_out(&s, 1));
  for (int i = 0; i < 2; i++) {
    g.kernel[i] = static_cast<int>(s.kernel[i]);
    g.stride[i] = static_cast<int>(s.stride[i]);
    g.padding[i] = static_cast<int>(s.padding[i]);
    g.dilation[i] = static_cast<int>(s.dilation[i]);
  }
  if (image > INT32_MAX || s.batch * s.height * s.width > INT32_MAX || s.out_channels > INT32_MAX)
    pd_fail("images of %lld x [%lld, %lld, %lld] are too large to convolve", (long long)s.batch,
            (long long)s.height, (long long)s.width, (long long)s.in_channels);
  return g;
}

static void check(cudnnStatus_t status, const char *what, const struct pd_convolution_shape &s) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  pd_fail("cuDNN cannot %s, %lld x %lld of %lld x [%lld, %lld, %lld] to %lld: %s", what, (long long)s.kernel[0],
          (long long)s.kernel[1], (long long)s.batch, (long long)s.height, (long long)s.width,
          (long long)s.in_channels, (long long)s.out_channels, cudnnGetErrorString(status));
}

static void open_library(const struct pd_convolution_shape &s) {
  if (library) return;
  check(cudnnCreate(&library), "start for a convolution", s);
  check(cudnnSetStream(library, pd_stream), "take a stream for a convolution", s);
}

/* The library is opened here: no pass, which may be captured as a graph, allocates anything. */
struct pd_convolution *pd_convolution_new(struct pd_convolution_shape shape) {
  struct pd_convolution *c = new struct pd_convolution();
  c->shape = shape;
  if (pd_convolution_is_product(&shape))
    c->product = pd_matmul_new(pd_convolution_product(&shape));
  else if (!pd_convolution_is_depthwise(&shape))
    c->columns = pd_columns_new(shape);
  if (!c->product && shape.groups == 1) open_library(shape);
  return c;
}

/* ---- planning with cuDNN ------------------------------------------------------------------------ */

static void describe(const struct pd_convolution_shape &s, pd_type type, Plan *p) {
  Geometry g = pd_geometry(s);
  cudnnDataType_t element = type == PD_F32 ? CUDNN_DATA_FLOAT : CUDNN_DATA_BFLOAT16;
  int n = static_cast<int>(g.batch);
  check(cudnnCreateTensorDescriptor(&p->x), "describe images", s);
  check(cudnnCreateTensorDescriptor(&p->y), "describe images", s);
  check(cudnnCreateFilterDescriptor(&p->w), "describe weights", s);
  check(cudnnCreateConvolutionDescriptor(&p->convolution), "describe a convolution", s);
  check(cudnnSetTensor4dDescriptor(p->x, CUDNN_TENSOR_NHWC, element, n, g.in, g.height, g.width),
        "describe images", s);
  check(cudnnSetTensor4dDescriptor(p->y, CUDNN_TENSOR_NHWC, element, n, g.out, g.out_height, g.out_width),
        "describe images", s);
  check(cudnnSetFilter4dDescriptor(p->w, element, CUDNN_TENSOR_NHWC, g.out, g.own_in, g.kernel[0], g.kernel[1]),
        "describe weights", s);
  check(cudnnSetConvolution2dDescriptor(p->convolution, g.padding[0], g.padding[1], g.stride[0], g.stride[1],
                                        g.dilation[0], g.dilation[1], CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
        "describe a convolution", s);
  cudnnMathType_t math = type == PD_BF16 ? CUDNN_TENSOR_OP_MATH
                         : pd_allow_tf32 ? CUDNN_DEFAULT_MATH
                                         : CUDNN_FMA_MATH;
  check(cudnnSetConvolutionMathType(p->convolution, math), "describe a convolution", s);
}

/* Those that are deterministic and fit, the fastest first. */
template <typename Found>
static void choose(const struct pd_convolution_shape &s, Plan *p, cudnnStatus_t status, int n,
                   const Found *found) {
  for (int i = 0; status == CUDNN_STATUS_SUCCESS && i < n; i++) {
    bool fits = found[i].memory <= static_cast<size_t>(pd_convolution_workspace(&s));
    if (found[i].status == CUDNN_STATUS_SUCCESS && found[i].determinism == CUDNN_DETERMINISTIC && fits)
      p->choices[p->n++] = {found[i].algo, found[i].memory, found[i].mathType};
  }
}

static void choose_algorithms(const struct pd_convolution_shape &s, Plan *p) {
  int n = 0;
  if (s.kind == PD_CONVOLUTION) {
    cudnnConvolutionFwdAlgoPerf_t found[MOST_CHOICES];
    cudnnStatus_t status =
        cudnnGetConvolutionForwardAlgorithm_v7(library, p->x, p->w, p->convolution, p->y, MOST_CHOICES, &n, found);
    choose(s, p, status, n, found);
  } else if (s.kind == PD_CONVOLUTION_BACKWARD) {
    cudnnConvolutionBwdDataAlgoPerf_t found[MOST_CHOICES];
    cudnnStatus_t status = cudnnGetConvolutionBackwardDataAlgorithm_v7(library, p->w, p->y, p->convolution, p->x,
                                                                       MOST_CHOICES, &n, found);
    choose(s, p, status, n, found);
  } else {
    cudnnConvolutionBwdFilterAlgoPerf_t found[MOST_CHOICES];
    cudnnStatus_t status = cudnnGetConvolutionBackwardFilterAlgorithm_v7(library, p->x, p->y, p->convolution, p->w,
                                                                         MOST_CHOICES, &n, found);
    choose(s, p, status, n, found);
  }
}

/* The plan for these operands: NULL where columns do it. w: of weights or their gradient. */
static Plan *plan_for(const struct pd_convolution *c, pd_type x, pd_type y, pd_type w) {
  const struct pd_convolution_shape &s = c->shape;
  bool gradient = s.kind == PD_CONVOLUTION_WEIGHTS; /* is unpacked into any type */
  if (s.groups > 1 || x != y || (x != w && !gradient)) return nullptr;
  Plan *p = &c->plans[x];
  if (!p->made) {
    describe(s, x, p);
    choose_algorithms(s, p);
    p->made = true;
  }
  return p;
}

/* Once for each call in the program and type: cuDNN lists nothing that is deterministic and fits, or refuses it all. */
static void count_columns(const struct pd_convolution_shape &s, Plan *p) {
  if (p->counted) return;
  p->counted = true;
  pd_counts.column_convolutions++;
  pd_note(
      "convolutions %lld x %lld of %lld x [%lld, %lld, %lld] to %lld channels are products of columns: cuDNN has no "
      "algorithm for them",
      (long long)s.kernel[0], (long long)s.kernel[1], (long long)s.batch, (long long)s.height, (long long)s.width,
      (long long)s.in_channels, (long long)s.out_channels);
}

/* run(choice) with the first that the library does not refuse; false where it refuses all. */
template <typename F> static bool by_library(const struct pd_convolution_shape &s, Plan *p, F run) {
  for (; p && p->chosen < p->n; p->chosen++) {
    const Choice &c = p->choices[p->chosen];
    check(cudnnSetConvolutionMathType(p->convolution, c.math), "describe a convolution", s);
    cudnnStatus_t status = run(c);
    if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED) {
      pd_counts.refused_algorithms++;
      continue;
    }
    check(status, "compute a convolution", s);
    return true;
  }
  if (p) count_columns(s, p);
  return false;
}

/* ---- weights ------------------------------------------------------------------------------------ */

/* packed[out][tap][in] = w[out][in][tap] */
static __global__ void __launch_bounds__(THREADS) pack(pd_in w, int in, int taps, int n, pd_out packed) {
  int i = static_cast<int>(blockIdx.x * THREADS + threadIdx.x);
  if (i >= n) return;
  int o = i / (in * taps), k = i / in % taps, c = i % in;
  pd_set_element(packed, i, pd_element(w, (o * in + c) * taps + k));
}

/* w[out][in][tap] (+)= packed[out][tap][in] */
static __global__ void __launch_bounds__(THREADS)
    unpack(pd_in packed, int in, int taps, int n, bool add, pd_out w) {
  int i = static_cast<int>(blockIdx.x * THREADS + threadIdx.x);
  if (i >= n) return;
  int o = i / (in * taps), c = i / taps % in, k = i % taps;
  float value = pd_element(packed, (o * taps + k) * in + c);
  pd_set_element(w, i, add ? pd_element(w, i) + value : value);
}

/* Weights as cuDNN wants them, at the beginning of scratch. */
struct Packed {
  pd_out at;
  int in, taps, n;
  dim3 grid;
};

static Packed packed_at(const struct pd_convolution_shape &s, char *scratch, pd_type type) {
  int in = static_cast<int>(s.in_channels), taps = static_cast<int>(s.kernel[0] * s.kernel[1]);
  int64_t n = s.out_channels * pd_convolution_column(&s);
  if (n > INT32_MAX) pd_fail("%lld weights of a convolution are too many", (long long)n);
  dim3 grid(static_cast<unsigned>((n + THREADS - 1) / THREADS));
  return {pd_out_at(scratch, type), in, taps, static_cast<int>(n), grid};
}

static char *behind_weights(const struct pd_convolution_shape &s, char *scratch) {
  return scratch + pd_scratch_part(pd_convolution_weights_bytes(&s));
}

static void pack_weights(const struct pd_convolution_shape &s, pd_in w, char *scratch, pd_type type) {
  Packed p = packed_at(s, scratch, type);
  PD_LAUNCH(pack, p.grid, THREADS, 0, pd_stream, w, p.in, p.taps, p.n, p.at);
}

static void unpack_weights(const struct pd_convolution_shape &s, char *scratch, pd_type type, pd_out w) {
  Packed p = packed_at(s, scratch, type);
  PD_LAUNCH(unpack, p.grid, THREADS, 0, pd_stream, pd_written(p.at), p.in, p.taps, p.n, s.accumulate, w);
}

/* N neighbouring channels a thread; blockIdx.y: a sample, of `elements`. */
template <typename T, int N>
static __global__ void __launch_bounds__(THREADS, 1) add_bias(pd_in bias, int channels, int elements, T *y) {
  int i = static_cast<int>(blockIdx.x * THREADS + threadIdx.x) * N;
  if (i >= elements) return;
  T *at = y + static_cast<int64_t>(blockIdx.y) * elements + i;
  float x[N];
  pd_get(x, at);
  for (int j = 0; j < N; j++) x[j] += pd_element(bias, i % channels + j);
  pd_put(at, x);
}

static void add_bias_to(const struct pd_convolution_shape &s, pd_in bias, pd_out y) {
  int channels = static_cast<int>(s.out_channels);
  int64_t elements = pd_convolution_out(&s, 0) * pd_convolution_out(&s, 1) * channels;
  if (elements > INT32_MAX || s.batch > 65535) pd_fail("a convolution's result is too large to add a bias to");
  pd_by_type(y.type, [&](auto example) {
    using T = decltype(example);
    enum { N = 16 / sizeof(T) };
    bool packed = channels % N == 0 && pd_aligned(y.at, 16);
    int n = static_cast<int>(elements), each = packed ? N : 1, blocks = (n / each + THREADS - 1) / THREADS;
    dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(s.batch));
    if (packed)
      PD_LAUNCH((add_bias<T, N>), grid, THREADS, 0, pd_stream, bias, channels, n, static_cast<T *>(y.at));
    else
      PD_LAUNCH((add_bias<T, 1>), grid, THREADS, 0, pd_stream, bias, channels, n, static_cast<T *>(y.at));
  });
}

/* ---- calls -------------------------------------------------------------------------------------- */

static const float one = 1, zero = 0;

static bool forward_by_library(const struct pd_convolution_shape &s, Plan *p, pd_in x, pd_in w, pd_out y,
                               char *scratch) {
  if (!p) return false;
  pack_weights(s, w, scratch, x.type);
  return by_library(s, p, [&](const Choice &c) {
    return cudnnConvolutionForward(library, &one, p->x, x.at, p->w, scratch, p->convolution,
                                   static_cast<cudnnConvolutionFwdAlgo_t>(c.algorithm), behind_weights(s, scratch),
                                   c.workspace, &zero, p->y, y.at);
  });
}

void pd_convolution(const struct pd_convolution *c, pd_in x, pd_in w, pd_in bias, pd_out y, void *scratch) {
  const struct pd_convolution_shape &s = c->shape;
  char *free = pd_scratch_begin(scratch);
  if (c->product) {
    pd_matmul(c->product, x, w, bias, y, scratch);
    return;
  }
  if (pd_convolution_is_depthwise(&s)) {
    pd_depthwise_forward(s, x, w, s.bias ? bias : nullptr, y);
    return;
  }
  if (!forward_by_library(s, plan_for(c, x.type, y.type, w.type), x, w, y, free))
    pd_columns_forward(s, c->columns, x, w, y, free);
  if (s.bias) add_bias_to(s, bias, y);
}

static bool backward_by_library(const struct pd_convolution_shape &s, Plan *p, pd_in dy, pd_in w, pd_out dx,
                                char *scratch) {
  if (!p) return false;
  pack_weights(s, w, scratch, dy.type);
  return by_library(s, p, [&](const Choice &c) {
    return cudnnConvolutionBackwardData(library, &one, p->w, scratch, p->y, dy.at, p->convolution,
                                        static_cast<cudnnConvolutionBwdDataAlgo_t>(c.algorithm),
                                        behind_weights(s, scratch), c.workspace, &zero, p->x, dx.at);
  });
}

void pd_convolution_backward(const struct pd_convolution *c, pd_in dy, pd_in w, pd_out dx, void *scratch) {
  const struct pd_convolution_shape &s = c->shape;
  char *free = pd_scratch_begin(scratch);
  if (c->product)
    pd_matmul(c->product, dy, w, nullptr, dx, scratch);
  else if (pd_convolution_is_depthwise(&s))
    pd_depthwise_backward(s, dy, w, dx);
  else if (!backward_by_library(s, plan_for(c, dx.type, dy.type, w.type), dy, w, dx, free))
    pd_columns_backward(s, c->columns, dy, w, dx, free);
}

static bool weights_by_library(const struct pd_convolution_shape &s, Plan *p, pd_in x, pd_in dy, pd_out dw,
                               char *scratch) {
  bool done = by_library(s, p, [&](const Choice &c) {
    return cudnnConvolutionBackwardFilter(library, &one, p->x, x.at, p->y, dy.at, p->convolution,
                                          static_cast<cudnnConvolutionBwdFilterAlgo_t>(c.algorithm),
                                          behind_weights(s, scratch), c.workspace, &zero, p->w, scratch);
  });
  if (done) unpack_weights(s, scratch, x.type, dw);
  return done;
}

void pd_convolution_weights(const struct pd_convolution *c, pd_in x, pd_in dy, pd_out dw, void *scratch) {
  const struct pd_convolution_shape &s = c->shape;
  char *free = pd_scratch_begin(scratch);
  if (c->product)
    pd_matmul(c->product, dy, x, nullptr, dw, scratch);
  else if (pd_convolution_is_depthwise(&s))
    pd_depthwise_weights(s, x, dy, dw, free);
  else if (!weights_by_library(s, plan_for(c, x.type, dy.type, dw.type), x, dy, dw, free))
    pd_columns_weights(s, c->columns, x, dy, dw, free);
}
