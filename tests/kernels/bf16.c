/* Kernels over bf16 compute in floats: their results equal, bit for bit, the results for the same numbers in
 * floats, rounded once; approximately for convolutions, whose products the library adds up in its own order, and
 * for attention and LSTMs where the processor multiplies bf16, for probabilities and states are rounded. The same
 * bytes for 1, 2 and 4 threads. matmul.c has the products. */
#define PD_KERNELS
#include "kernels/pd_vector.h"
#include "test.h"

enum { MOST = 24 };

/* Numbers in bf16, and the same in floats. */
struct pair {
  pd_in bf16, f32;
};

/* The operands and results of one test, freed at its end. */
static struct pair held[MOST];
static int n_held;

static struct pair numbers(int64_t n) {
  float *x = random_floats(n);
  struct pair p = {.bf16 = operand(x, n, PD_BF16), .f32 = {x, PD_F32}};
  return held[n_held++] = p;
}

static struct pair room(int64_t n) { return numbers(n); } /* what is there is overwritten */

static pd_out out(pd_in x) { return (pd_out){(void *)x.at, x.type}; }

static void *working(size_t bytes) { return floats((int64_t)(bytes / sizeof(float)) + 16); }

static void release(void) {
  while (n_held) {
    struct pair p = held[--n_held];
    free((void *)p.bf16.at), free((void *)p.f32.at);
  }
}

/* n results in bf16 beside those in floats; with `nearly` these may differ by two roundings of the largest. */
static void compare(const char *name, struct pair p, int64_t n, bool nearly) {
  const float *x = p.f32.at;
  float largest = 0;
  add_to_digest(p.bf16.at, (size_t)n * sizeof(pd_bf16));
  for (int64_t i = 0; i < n; i++) largest = fmaxf(largest, fabsf(x[i]));
  for (int64_t i = 0; i < n; i++) {
    float got;
    pd_read(&got, p.bf16, i, 1);
    float want = nearly ? x[i] : pd_from_bf16(pd_to_bf16(x[i])), allowed = nearly ? largest * 0x1p-7f : 0;
    if (fabsf(got - want) <= allowed) continue;
    printf("FAIL %s: element %ld of %ld is %g, not %g\n", name, (long)i, (long)n, (double)got, (double)want);
    failures++;
    return;
  }
}

/* ---- attention --------------------------------------------------------------------------------------- */

/* ranged: in a window, within documents, and with capped scores. */
static void test_attention(bool causal, bool masked, bool ranged, int64_t length, int64_t size, int64_t kv_heads) {
  struct pd_attention a = {.batch = 2, .heads = 4, .kv_heads = kv_heads, .length = length, .kv_length = length};
  int64_t n = 2 * 4 * length * size, n_k = 2 * kv_heads * length * size, lse_n = 2 * 4 * length;
  a.size = size, a.causal = causal, a.masked = masked, a.scale = 0.3f;
  a.q.batch = 4 * length * size, a.q.head = size, a.q.row = 4 * size;
  a.k.batch = kv_heads * length * size, a.k.head = size, a.k.row = kv_heads * size;
  a.v = a.dk = a.dv = a.k;
  a.o = a.d_o = a.dq = a.q;
  a.mask.row = masked ? length : 0;
  a.parted = ranged, a.window = ranged ? length / 3 + 1 : 0, a.softcap = ranged ? 0.9f : 0.0f;
  int32_t *documents = a.parted ? (int32_t *)floats(length) : NULL;
  for (int64_t i = 0; documents && i < length; i++) documents[i] = (int32_t)(i * i / 1500);
  struct pair q = numbers(n), k = numbers(n_k), v = numbers(n_k), d_o = numbers(n),
              mask = numbers(length * length);
  struct pair o = room(n), lse = room(lse_n), dq = room(n), dk = room(n_k), dv = room(n_k);
  void *space = working(pd_attention_scratch(&a, omp_get_max_threads()));
#define OF(type)                                                                                                 \
  do {                                                                                                           \
    pd_in l = lse.f32; /* stays in floats */                                                                     \
    if (masked || a.parted) {                                                                                    \
      pd_masked_attention_forward(&a, q.type, k.type, v.type, mask.type, documents, out(o.type), out(l), space); \
      pd_masked_attention_backward(&a, q.type, k.type, v.type, o.bf16, l, d_o.type, mask.type, documents,        \
                                   out(dq.type), out(dk.type), out(dv.type), space);                             \
    } else {                                                                                                     \
      pd_attention_forward(&a, q.type, k.type, v.type, out(o.type), out(l), space);                              \
      pd_attention_backward(&a, q.type, k.type, v.type, o.bf16, l, d_o.type, out(dq.type), out(dk.type),         \
                            out(dv.type), space);                                                                \
    }                                                                                                            \
  } while (0)
  OF(bf16); /* first: both backward passes read its o */
  OF(f32);
#undef OF
  const char *name = format("attention, causal %d, mask %d, ranged %d, length %ld, size %ld", causal, masked,
                            ranged, (long)length, (long)size);
  compare(name, o, n, PD_PAIRS);
  compare(name, dq, n, PD_PAIRS);
  compare(name, dk, n_k, PD_PAIRS);
  compare(name, dv, n_k, PD_PAIRS);
  free(documents);
  free(space);
  release();
}

/* With a bias of scores or by distance, sinks, and values larger than keys. Gradients of the bias and of sinks are floats. */
static void test_biased_attention(bool by_distance, int64_t length, int64_t size) {
  enum { HEADS = 4 };
  const int64_t value = size + 16, row = by_distance ? 2 * length - 1 : length,
                head = by_distance ? row : length * row;
  const int64_t n = 2 * HEADS * length * size, n_v = 2 * HEADS * length * value, n_bias = HEADS * head;
  struct pd_attention a = {.batch = 2, .heads = HEADS, .kv_heads = HEADS, .length = length, .kv_length = length};
  a.size = size, a.value_size = value, a.causal = true, a.scale = 0.3f;
  a.biased = a.bias_gradient = a.has_sinks = true, a.by_distance = by_distance;
  a.q.batch = HEADS * length * size, a.q.head = size, a.q.row = HEADS * size;
  a.v.batch = HEADS * length * value, a.v.head = value, a.v.row = HEADS * value;
  a.k = a.dq = a.dk = a.q, a.o = a.d_o = a.dv = a.v;
  a.bias.head = a.d_bias.head = head, a.bias.row = a.d_bias.row = row;
  struct pair q = numbers(n), k = numbers(n), v = numbers(n_v), d_o = numbers(n_v), bias = numbers(n_bias),
              sinks = numbers(HEADS);
  struct pair o = room(n_v), lse = room(2 * HEADS * length), dq = room(n), dk = room(n), dv = room(n_v);
  struct pair d_bias = room(n_bias), d_sinks = room(HEADS);
  float *d[2][2] = {{working((size_t)n_bias * 4), working(HEADS * 4)},
                    {(float *)d_bias.f32.at, (float *)d_sinks.f32.at}};
  void *space = working(pd_attention_scratch(&a, omp_get_max_threads()));
  const pd_in none = {NULL, PD_F32}, l = lse.f32;
#define OF(type, d)                                                                                           \
  do {                                                                                                        \
    (pd_biased_attention_forward)(&a, q.type, k.type, v.type, none, NULL, bias.type, sinks.type, out(o.type), \
                                  out(l), space);                                                             \
    (pd_biased_attention_backward)(&a, q.type, k.type, v.type, o.bf16, l, d_o.type, none, NULL, bias.type,    \
                                   sinks.type, out(dq.type), out(dk.type), out(dv.type), d[0], d[1], space);  \
  } while (0)
  OF(bf16, d[0]);
  OF(f32, d[1]);
#undef OF
  for (int i = 0; i < 2; i++) pd_write(out(i ? d_sinks.bf16 : d_bias.bf16), 0, d[0][i], i ? HEADS : n_bias);
  const char *name = format("biased attention, by distance %d, length %ld", by_distance, (long)length);
  compare(name, o, n_v, PD_PAIRS);
  compare(name, dq, n, PD_PAIRS);
  compare(name, dk, n, PD_PAIRS);
  compare(name, dv, n_v, PD_PAIRS);
  compare(name, d_bias, n_bias, PD_PAIRS);
  compare(name, d_sinks, HEADS, PD_PAIRS);
  free(d[0][0]), free(d[0][1]), free(space);
  release();
}

static void test_cached_attention(int64_t size) {
  struct pd_cached_attention a = {
      .batch = 2, .sequences = 2, .heads = 4, .kv_heads = 2, .context = 130, .size = size, .scale = 0.3f};
  int32_t position[] = {0, 129}, sequence[] = {0, 1};
  int64_t n = 2 * 4 * size, n_k = 2 * 2 * size, cache = 2 * 2 * 130 * size;
  a.q.batch = a.o.batch = 4 * size, a.k.batch = a.v.batch = 2 * size;
  a.q.head = a.o.head = a.k.head = a.v.head = size;
  struct pair q = numbers(n), k = numbers(n_k), v = numbers(n_k), o = room(n), keys = numbers(cache);
  struct pair values = numbers(cache);
  pd_cached_attention(&a, q.bf16, k.bf16, v.bf16, position, sequence, out(o.bf16), out(keys.f32), out(values.f32));
  pd_cached_attention(&a, q.f32, k.f32, v.f32, position, sequence, out(o.f32), out(keys.f32), out(values.f32));
  compare("cached attention", o, n, false);
  release();
}

/* ---- embedding rows ----------------------------------------------------------------------------------- */

static void test_gather(int64_t width) {
  enum { ROWS = 9, CLASSES = 5 };
  static const int32_t index[ROWS] = {4, 0, 3, 3, 1, 0, 4, 4, 2};
  struct pair table = numbers(CLASSES * width), rows = room(ROWS * (width + 3)), mixed = room(ROWS * (width + 3));
  struct pair sum = room(CLASSES * width), other = room(CLASSES * width);
  pd_gather(table.bf16, index, ROWS, width, out(rows.bf16), width + 3);
  pd_gather(table.f32, index, ROWS, width, out(rows.f32), width + 3);
  pd_gather(table.bf16, index, ROWS, width, out(mixed.f32), width + 3);
  pd_gather(table.f32, index, ROWS, width, out(mixed.bf16), width + 3);
  for (int i = 0; i < ROWS; i++) {
    struct pair row = {pd_in_from(rows.bf16, i * (width + 3)), pd_in_from(rows.f32, i * (width + 3))};
    struct pair second = {pd_in_from(mixed.bf16, i * (width + 3)), pd_in_from(mixed.f32, i * (width + 3))};
    compare("gather", row, width, false);
    compare("gather between types", second, width, false);
  }
  pd_gather_gradient(out(sum.f32), index, rows.bf16, ROWS, width, width + 3, CLASSES, true);
  pd_gather_gradient(out(other.f32), index, rows.f32, ROWS, width, width + 3, CLASSES, true);
  if (memcmp(sum.f32.at, other.f32.at, sizeof(float) * (size_t)(CLASSES * width)))
    printf("FAIL gather's gradient of width %ld\n", (long)width), failures++;
  release();
}

/* ---- LSTM --------------------------------------------------------------------------------------------- */

/* Cells and gates stay in floats; the backward pass of both reads what the one over bf16 left. */
static void test_lstm(int64_t hidden, bool reverse, bool has_state) {
  struct pd_lstm l = {.batch = 9, .length = 4, .hidden = hidden, .reverse = reverse};
  int64_t n = 9 * 4 * hidden, state = 9 * hidden;
  static const int32_t lengths[] = {4, 4, 1, 0, 3, 4, 2, 4, 4};
  struct pair x = numbers(4 * n), w = numbers(4 * hidden * hidden), h0 = numbers(state), c0 = numbers(state);
  struct pair h = room(n), h_n = room(state), c_n = room(state), c = room(n), gates = room(4 * n);
  struct pair dh = numbers(n), dh_n = numbers(state), dc_n = numbers(state);
  struct pair d_gates = room(4 * n), previous = room(n), dh0 = room(state), dc0 = room(state);
  size_t forward = pd_lstm_scratch(&l), backward = pd_lstm_backward_scratch(&l);
  void *space = working(forward > backward ? forward : backward);
  pd_in no = {NULL, PD_F32};
#define OF(type)                                                                                               \
  pd_lstm_forward(&l, x.type, w.type, has_state ? h0.type : no, has_state ? c0.f32 : no, lengths, out(h.type), \
                  out(h_n.type), out(c_n.f32), out(c.f32), out(gates.f32), space)
  OF(bf16);
  OF(f32);
#undef OF
  const char *name = format("LSTM of %ld, reverse %d, state %d", (long)hidden, reverse, has_state);
  compare(name, h, n, PD_PAIRS);
  compare(name, h_n, state, PD_PAIRS);
  float *rounded = (float *)h.f32.at;
  pd_read(rounded, h.bf16, 0, n);
#define OF(type)                                                                                          \
  pd_lstm_backward(&l, w.type, has_state ? h0.type : no, has_state ? c0.f32 : no, lengths, h.type, c.f32, \
                   gates.f32, dh.type, dh_n.type, dc_n.f32, out(d_gates.type), out(previous.type),        \
                   has_state ? out(dh0.type) : out(no), has_state ? out(dc0.f32) : out(no), space)
  OF(bf16);
  OF(f32);
#undef OF
  compare(name, d_gates, 4 * n, PD_PAIRS);
  compare(name, previous, n, PD_PAIRS);
  if (has_state) compare(name, dh0, state, PD_PAIRS);
  free(space);
  release();
}

/* ---- pooling ------------------------------------------------------------------------------------------ */

static void test_pooling(struct pd_pooling p) {
  int64_t n = p.batch * p.height * p.width * p.channels, m = p.batch * p.out[0] * p.out[1] * p.channels;
  struct pair x = numbers(n), y = room(m), dy = numbers(m), dx = room(n);
  const char *name = format("pooling, maximum %d, adaptive %d, kernel %ld, channels %ld", p.maximum, p.adaptive,
                            (long)p.kernel[0], (long)p.channels);
  pd_pooling(&p, x.bf16, out(y.bf16));
  pd_pooling(&p, x.f32, out(y.f32));
  compare(name, y, m, false);
  if (p.maximum) pd_read((float *)y.f32.at, y.bf16, 0, m);
  pd_pooling_backward(&p, p.maximum ? x.bf16 : (pd_in){0}, p.maximum ? y.bf16 : (pd_in){0}, dy.bf16, out(dx.bf16));
  pd_pooling_backward(&p, p.maximum ? x.f32 : (pd_in){0}, p.maximum ? y.f32 : (pd_in){0}, dy.f32, out(dx.f32));
  compare(name, dx, n, false);
  release();
}

/* ---- convolution -------------------------------------------------------------------------------------- */

/* One of the three over operands of a type: its result, of dw in floats. */
static void convolve(struct pd_convolution_shape s, pd_in x, pd_in w, pd_in bias, pd_in y) {
  struct pd_convolution *c = pd_convolution_new(s);
  void *space = working(pd_convolution_scratch(c));
  if (s.kind == PD_CONVOLUTION)
    pd_convolution(c, x, w, bias, out(y), space);
  else if (s.kind == PD_CONVOLUTION_BACKWARD)
    pd_convolution_backward(c, y, w, out(x), space);
  else
    pd_convolution_weights(c, x, y, out(w), space);
  free(space);
}

static void test_kind(struct pd_convolution_shape s, int64_t n_x, int64_t n_w, int64_t n_y) {
  bool gradient = s.kind == PD_CONVOLUTION_WEIGHTS;
  struct pair x = numbers(n_x), w = numbers(n_w), bias = numbers(s.out_channels), y = numbers(n_y);
  struct pair result = s.kind == PD_CONVOLUTION ? y : s.kind == PD_CONVOLUTION_BACKWARD ? x : w;
  int64_t n = s.kind == PD_CONVOLUTION ? n_y : s.kind == PD_CONVOLUTION_BACKWARD ? n_x : n_w;
  struct pair sum = numbers(n_w), again = room(n); /* dw, of the same before */
  memcpy(out(sum.f32).at, w.f32.at, sizeof(float) * (size_t)n_w);
  memcpy(out(again.f32).at, result.f32.at, sizeof(float) * (size_t)n);
  int threads = omp_get_max_threads();
  const char *name = format("convolution %d of %ld x %ld to %ld in %ld groups", (int)s.kind, (long)s.kernel[0],
                            (long)s.in_channels, (long)s.out_channels, (long)s.groups);
  convolve(s, x.f32, w.f32, bias.f32, y.f32);
  s.x_type = s.y_type = s.bias_type = PD_BF16;
  s.w_type = gradient ? PD_F32 : PD_BF16;
  pd_in made = gradient ? sum.f32 : result.bf16, alone = gradient ? again.f32 : again.bf16;
  for (int i = 0; i < 2; i++) { /* on all threads, and on one */
    pd_in to = i ? alone : made;
    omp_set_num_threads(i ? 1 : threads);
    convolve(s, s.kind == PD_CONVOLUTION_BACKWARD ? to : x.bf16, gradient ? to : w.bf16, bias.bf16,
             s.kind == PD_CONVOLUTION ? to : y.bf16);
  }
  omp_set_num_threads(threads);
  if (memcmp(made.at, alone.at, (size_t)(n * pd_bytes_of(made.type))))
    printf("FAIL %s: %d threads make other bytes\n", name, threads), failures++;
  if (gradient) pd_write(out(w.bf16), 0, made.at, n_w);
  compare(name, result, n, true);
  release();
}

static void test_convolution(struct pd_convolution_shape s) {
  int64_t height = (s.height + 2 * s.padding[0] - s.dilation[0] * (s.kernel[0] - 1) - 1) / s.stride[0] + 1;
  int64_t width = (s.width + 2 * s.padding[1] - s.dilation[1] * (s.kernel[1] - 1) - 1) / s.stride[1] + 1;
  int64_t n_x = s.batch * s.height * s.width * s.in_channels, n_y = s.batch * height * width * s.out_channels;
  int64_t n_w = s.out_channels * (s.in_channels / s.groups) * s.kernel[0] * s.kernel[1];
  for (int i = 0; i < 4; i++) {
    struct pd_convolution_shape of = s;
    of.kind = i < 3 ? (enum pd_convolution_kind)i : PD_CONVOLUTION_WEIGHTS;
    of.bias = of.kind == PD_CONVOLUTION;
    of.accumulate = i == 3;
    test_kind(of, n_x, n_w, n_y);
  }
}

static void test_all(void) {
  for (int kind = 0; kind < 8; kind++) {
    const bool causal = kind & 1, masked = kind & 2, ranged = kind & 4;
    test_attention(causal, masked, ranged, 70, 24, 2);
    test_attention(causal, masked, ranged, 33, 64, 4);
    test_attention(causal, masked, ranged, 5, 5, 1);
    test_attention(causal, masked, ranged, 129, 80, 4); /* more keys than a block of them */
    test_attention(causal, masked, ranged, 97, 7, 1);
    test_attention(causal, masked, ranged, 200, 32, 2);
  }
  for (int by_distance = 0; by_distance < 2; by_distance++) {
    test_biased_attention(by_distance, 70, 24);
    test_biased_attention(by_distance, 131, 64);
  }
  test_cached_attention(24);
  test_cached_attention(64);
  for (int64_t width = 1; width < 70; width += 17) test_gather(width);
  for (int kind = 0; kind < 4; kind++) {
    test_lstm(16, kind & 1, kind & 2);
    test_lstm(37, kind & 1, kind & 2);
  }
  for (int maximum = 0; maximum < 2; maximum++)
    for (int64_t channels = 3; channels < 70; channels += 30) {
      struct pd_pooling p = {.batch = 2, .channels = channels, .height = 9, .width = 11, .maximum = maximum};
      p.kernel[0] = 3, p.kernel[1] = 2, p.stride[0] = 2, p.stride[1] = 1, p.padding[0] = 1, p.padding[1] = 0;
      p.out[0] = 5, p.out[1] = 10;
      test_pooling(p);
      p.count_padding = true;
      test_pooling(p);
      p.adaptive = true, p.out[0] = 4, p.out[1] = 5;
      if (!maximum) test_pooling(p);
    }
  struct pd_convolution_shape s = {.batch = 3,
                                   .in_channels = 16,
                                   .out_channels = 32,
                                   .groups = 1,
                                   .height = 9,
                                   .width = 8,
                                   .kernel = {3, 3},
                                   .stride = {1, 2},
                                   .padding = {1, 1},
                                   .dilation = {1, 1}};
  test_convolution(s);
  s.groups = 4;
  test_convolution(s);
  s.in_channels = s.out_channels = s.groups = 16;
  test_convolution(s);
  s.kernel[0] = s.kernel[1] = 5, s.padding[0] = s.padding[1] = 2;
  test_convolution(s);
  s = (struct pd_convolution_shape){.batch = 3,
                                    .in_channels = 24,
                                    .out_channels = 10,
                                    .groups = 1,
                                    .height = 6,
                                    .width = 5,
                                    .kernel = {1, 1},
                                    .stride = {1, 1},
                                    .dilation = {1, 1}};
  test_convolution(s);
  s.in_channels = 3, s.out_channels = 256, s.kernel[0] = s.kernel[1] = 3, s.dilation[0] = 2;
  test_convolution(s);
}

int main(void) {
  uint64_t alone = 0;
  for (int threads = 1; threads <= 4; threads *= 2) {
    omp_set_num_threads(threads);
    random_state = 1, digest = 0;
    test_all();
    if (threads == 1) alone = digest;
    if (digest != alone) printf("FAIL %d threads make other bytes than one\n", threads), failures++;
  }
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
