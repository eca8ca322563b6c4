/* pd_convolution: a matrix product for 1x1 kernels, pdc's kernels for depthwise ones, columns for other grouped
 * ones, and cuDNN for all others, as graphs of one operation (convolution_graph.cu). cuDNN gets images and weights
 * by channels; each call rearranges weights in scratch. Columns also replace cuDNN if it is missing, has no usable
 * engine, or operand types differ. cuDNN returns bf16 weight gradients rounded to bf16, once per microbatch, which
 * are added up in float. */
#include "convolution.h"
#include "convolution_graph.h"

enum { THREADS = 256 };

/* Of cuDNN, for operands of one type. */
struct Plan {
  std::unique_ptr<pd_convolution_graph> graph;
  pd_cudnn_plan by; /* its engine's, if it has any */
  bool has, ran, counted;
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
    pd_fail("images of %lld x [%lld, %lld, %lld] are too large for a convolution", (long long)s.batch,
            (long long)s.height, (long long)s.width, (long long)s.in_channels);
  return g;
}

/* False, once with a note: there is no cuDNN, or it cannot start. */
static bool library_starts() {
  static bool asked, starts;
  std::string why;
  if (!asked && !(starts = pd_cudnn_start(&why)))
    pd_note("convolutions run as matrix products of columns, slower than cuDNN: %s", why.c_str());
  asked = true;
  return starts;
}

/* Opens the library at start, because passes, which may be captured as graphs, must not allocate. */
struct pd_convolution *pd_convolution_new(struct pd_convolution_shape shape) {
  struct pd_convolution *c = new struct pd_convolution();
  c->shape = shape;
  if (pd_convolution_is_product(&shape))
    c->product = pd_matmul_new(pd_convolution_product(&shape));
  else if (!pd_convolution_is_depthwise(&shape))
    c->columns = pd_columns_new(shape);
  if (!c->product && shape.groups == 1) library_starts();
  return c;
}

/* ---- by cuDNN ----------------------------------------------------------------------------------- */

/* The plan for these operands; NULL: use columns. w: type of weights or their gradient. */
static Plan *plan_for(const struct pd_convolution *c, pd_type x, pd_type y, pd_type w) {
  const struct pd_convolution_shape &s = c->shape;
  bool gradient = s.kind == PD_CONVOLUTION_WEIGHTS; /* is unpacked into any type */
  if (s.groups > 1 || x != y || (x != w && !gradient)) return nullptr;
  Plan *p = &c->plans[x];
  if (!p->graph && library_starts()) {
    p->graph = pd_convolution_graph_of(s, x == PD_F32 ? PD_CUDNN_F32 : PD_CUDNN_BF16, pd_allow_tf32, "");
    p->has = pd_convolution_next_plan(p->graph.get(), &p->by);
  }
  return p;
}

static std::string name_of(const struct pd_convolution_shape &s) {
  char name[200];
  snprintf(name, sizeof name, "%lld x %lld of %lld x [%lld, %lld, %lld] to %lld channels", (long long)s.kernel[0],
           (long long)s.kernel[1], (long long)s.batch, (long long)s.height, (long long)s.width,
           (long long)s.in_channels, (long long)s.out_channels);
  return name;
}

/* Notes, once per call and type, that cuDNN has no usable engine or refuses to run all of them. */
static void count_columns(const struct pd_convolution_shape &s, Plan *p) {
  if (p->counted) return;
  p->counted = true;
  pd_counts.column_convolutions++;
  if (!p->graph) return; /* the missing library has been noted */
  const std::string &why = p->graph->graph.error;
  pd_note("convolutions %s run as matrix products of columns: cuDNN has no engine for them%s%s",
          name_of(s).c_str(), why.empty() ? "" : ": ", why.c_str());
}

/* Runs the first engine that the library accepts, on the graph's operands; false if it refuses all. */
static bool by_library(const struct pd_convolution_shape &s, Plan *p, const std::vector<void *> &at,
                       void *workspace) {
  while (p->has) {
    if (pd_cudnn_run(&p->by, pd_stream, p->graph->operands, at, workspace)) {
      p->ran = true;
      return true;
    }
    if (p->ran || !p->by.not_supported)
      pd_fail("cuDNN cannot compute a convolution, %s: %s", name_of(s).c_str(), p->by.error.c_str());
    pd_counts.refused_algorithms++;
    p->has = pd_convolution_next_plan(p->graph.get(), &p->by);
  }
  count_columns(s, p);
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

/* Weights in cuDNN's layout, at the start of scratch. */
struct Packed {
  pd_out at;
  int in, taps, n;
  dim3 grid;
};

static Packed packed_at(const struct pd_convolution_shape &s, char *scratch, pd_type type) {
  int in = static_cast<int>(s.in_channels), taps = static_cast<int>(s.kernel[0] * s.kernel[1]);
  int64_t n = s.out_channels * pd_convolution_column(&s);
  if (n > INT32_MAX) pd_fail("a convolution has %lld weights: too many", (long long)n);
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

/* N neighbouring channels a thread; blockIdx.y: the first of a thread's samples, of `elements` each. */
template <typename T, int N>
static __global__ void __launch_bounds__(THREADS, 1)
    add_bias(pd_in bias, int channels, int elements, int64_t samples, T *y) {
  int i = static_cast<int>(blockIdx.x * THREADS + threadIdx.x) * N;
  if (i >= elements) return;
  for (int64_t sample = blockIdx.y; sample < samples; sample += gridDim.y) {
    T *at = y + sample * elements + i;
    float x[N];
    pd_get(x, at);
    for (int j = 0; j < N; j++) x[j] += pd_element(bias, i % channels + j);
    pd_put(at, x);
  }
}

static void add_bias_to(const struct pd_convolution_shape &s, pd_in bias, pd_out y) {
  int channels = static_cast<int>(s.out_channels);
  int64_t elements = pd_convolution_out(&s, 0) * pd_convolution_out(&s, 1) * channels;
  if (elements > INT32_MAX) pd_fail("a convolution's result is too large to add a bias to");
  pd_by_type(y.type, [&](auto example) {
    using T = decltype(example);
    enum { N = 16 / sizeof(T) };
    bool packed = channels % N == 0 && pd_aligned(y.at, 16);
    int n = static_cast<int>(elements), each = packed ? N : 1, blocks = (n / each + THREADS - 1) / THREADS;
    dim3 grid(static_cast<unsigned>(blocks), pd_grid_part(s.batch));
    T *at = static_cast<T *>(y.at);
    if (packed)
      PD_LAUNCH((add_bias<T, N>), grid, THREADS, 0, pd_stream, bias, channels, n, s.batch, at);
    else
      PD_LAUNCH((add_bias<T, 1>), grid, THREADS, 0, pd_stream, bias, channels, n, s.batch, at);
  });
}

/* ---- calls -------------------------------------------------------------------------------------- */

/* cuDNN's interface has no const operands. */
static void *read_at(pd_in x) { return const_cast<void *>(x.at); }

static bool forward_by_library(const struct pd_convolution_shape &s, Plan *p, pd_in x, pd_in w, pd_out y,
                               char *scratch) {
  if (!p) return false;
  if (p->has) pack_weights(s, w, scratch, x.type);
  return by_library(s, p, {read_at(x), scratch, y.at}, behind_weights(s, scratch));
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
  if (p->has) pack_weights(s, w, scratch, dy.type);
  return by_library(s, p, {read_at(dy), scratch, dx.at}, behind_weights(s, scratch));
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
  bool done = p && by_library(s, p, {read_at(x), read_at(dy), scratch}, behind_weights(s, scratch));
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
