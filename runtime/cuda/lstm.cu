/* The recurrence of an LSTM layer: a step is a product of the state with w by pd_matmul and a kernel for the
 * cells. cuDNN's recurrent networks also multiply the input, which is already done for all steps, so they are not
 * used. Products read the state in the type of w; sums and states that are passed on are float. Samples that end
 * early keep their state and contribute zero to gradients. */
#include "kernels/pd_math.h"
#include "pd_elements.h"
#include "scratch.h"

#include <vector>

enum { THREADS = 256 };

/* The products of layers of one size, made once. */
struct Product {
  struct pd_matmul_shape shape;
  struct pd_matmul *matmul;
};

static const struct pd_matmul *product_of(struct pd_matmul_shape s) {
  static std::vector<Product> known;
  for (const Product &p : known)
    if (p.shape.m == s.m && p.shape.n == s.n && p.shape.k == s.k && p.shape.b_row == s.b_row) return p.matmul;
  known.push_back({s, pd_matmul_new(s)});
  return known.back().matmul;
}

size_t pd_lstm_scratch(const struct pd_lstm *l) { return static_cast<size_t>(pd_cuda_lstm_scratch(l)); }
size_t pd_lstm_backward_scratch(const struct pd_lstm *l) {
  return static_cast<size_t>(pd_cuda_lstm_backward_scratch(l));
}

/* A step: t, the one before it in the direction of time, the one after; outside of the layer's at its ends. */
struct Step {
  int64_t t, before, after;
};

static Step step_of(const struct pd_lstm *l, int64_t i) {
  int64_t t = l->reverse ? l->length - 1 - i : i, on = l->reverse ? -1 : 1;
  return {t, t - on, t + on};
}

static __device__ bool exists(const struct pd_lstm &l, int64_t t) { return t >= 0 && t < l.length; }
static __device__ int64_t length_of(const struct pd_lstm &l, const int32_t *lengths, int64_t b) {
  return lengths ? lengths[b] : l.length;
}
static __device__ float element_or_zero(const pd_in &x, int64_t i) { return x.at ? pd_element(x, i) : 0.0f; }

/* A unit of the layer in a sample. Threads of a grid along x alone: along y it would be limited to 65535
 * samples. */
struct Unit {
  int64_t at, b, j; /* [batch][hidden] */
};

static __device__ Unit unit_of(int64_t hidden) {
  int64_t at = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
  return {at, at / hidden, at % hidden};
}

static dim3 grid_of(const struct pd_lstm *l) {
  return dim3(static_cast<unsigned>((l->batch * l->hidden + THREADS - 1) / THREADS));
}

/* ---- forward ------------------------------------------------------------------------------------ */

struct Forward {
  struct pd_lstm l;
  const int32_t *lengths;
  pd_in x, c0;
  pd_out h, c, gates;
  pd_out state;   /* [batch][hidden], h before the step, then after it */
  const float *z; /* what it adds to the gates; NULL where it is zero */
};

static __global__ void __launch_bounds__(THREADS, 1) cells_forward(Forward f, Step s) {
  const struct pd_lstm &l = f.l;
  const auto [unit, b, j] = unit_of(l.hidden);
  if (b >= l.batch) return;
  int64_t hidden = l.hidden, at = (b * l.length + s.t) * hidden + j;
  int64_t row = 4 * (b * l.length + s.t) * hidden + j;
  float before =
      exists(l, s.before) ? pd_element(f.c, (b * l.length + s.before) * hidden + j) : element_or_zero(f.c0, unit);
  if (s.t >= length_of(l, f.lengths, b)) {
    for (int gate = 0; gate < 4; gate++) pd_set_element(f.gates, row + gate * hidden, 0.0f);
    pd_set_element(f.h, at, 0.0f);
    pd_set_element(f.c, at, before);
    return;
  }
  float a[4];
  for (int gate = 0; gate < 4; gate++) {
    float sum = f.z ? f.z[4 * b * hidden + gate * hidden + j] : 0.0f;
    sum += pd_element(f.x, row + gate * hidden);
    a[gate] = gate == 2 ? pd_tanh(sum) : pd_sigmoid(sum);
    pd_set_element(f.gates, row + gate * hidden, a[gate]);
  }
  float c = fmaf(a[1], before, a[0] * a[2]), h = a[3] * pd_tanh(c);
  pd_set_element(f.c, at, c);
  pd_set_element(f.h, at, h);
  pd_set_element(f.state, unit, h);
}

/* to[b][j] = from[b * stride + j], zeros where there is nothing to copy. */
static __global__ void __launch_bounds__(THREADS)
    copy_state(pd_in from, int64_t stride, int64_t batch, int64_t hidden, pd_out to) {
  const auto [unit, b, j] = unit_of(hidden);
  if (b < batch) pd_set_element(to, unit, element_or_zero(from, b * stride + j));
}

void pd_lstm_forward(const struct pd_lstm *l, pd_in x, pd_in w, pd_in h0, pd_in c0, const int32_t *lengths,
                     pd_out h, pd_out h_n, pd_out c_n, pd_out c, pd_out gates, void *scratch) {
  char *z = pd_scratch_begin(scratch), *state = z + pd_lstm_gates_bytes(l), *rest = state + pd_lstm_state_bytes(l);
  const struct pd_matmul *product = product_of(pd_lstm_product(l));
  Forward f = {*l, lengths, x, c0, h, c, gates, pd_out_at(state, w.type), nullptr};
  PD_LAUNCH(copy_state, grid_of(l), THREADS, 0, pd_stream, h0, l->hidden, l->batch, l->hidden, f.state);
  for (int64_t i = 0; i < l->length; i++) {
    if (i > 0 || h0.at) {
      pd_matmul(product, pd_written(f.state), w, nullptr, pd_out_at(z, PD_F32), rest);
      f.z = reinterpret_cast<const float *>(z);
    }
    PD_LAUNCH(cells_forward, grid_of(l), THREADS, 0, pd_stream, f, step_of(l, i));
  }
  int64_t last = step_of(l, l->length - 1).t;
  PD_LAUNCH(copy_state, grid_of(l), THREADS, 0, pd_stream, pd_written(f.state), l->hidden, l->batch, l->hidden,
            h_n);
  PD_LAUNCH(copy_state, grid_of(l), THREADS, 0, pd_stream, pd_written(pd_moved(c, last * l->hidden)),
            l->length * l->hidden, l->batch, l->hidden, c_n);
}

/* ---- backward ----------------------------------------------------------------------------------- */

struct Backward {
  struct pd_lstm l;
  const int32_t *lengths;
  pd_in h0, c0, h, c, gates, dh;
  pd_out d_gates, previous;
  pd_out d;                     /* [batch][4 hidden], the step's d_gates as the product reads them */
  const float *through;         /* [batch][hidden], what the step after passes on; NULL before there is one */
  float *carried_h, *carried_c; /* [batch][hidden], gradients of the state after the step */
};

/* The gradient of h after step t, from step `after` if the sample has this step. */
static __device__ float take_over(const Backward &k, const Step &s, int64_t length, int64_t unit) {
  if (k.through && s.after >= 0 && s.after < length) k.carried_h[unit] = k.through[unit];
  return k.carried_h[unit];
}

/* h before step t, for the gradient of w. */
static __device__ float previous_h(const Backward &k, const Step &s, int64_t b, int64_t j, bool starts) {
  if (starts) return element_or_zero(k.h0, b * k.l.hidden + j);
  return pd_element(k.h, (b * k.l.length + s.before) * k.l.hidden + j);
}

static __global__ void __launch_bounds__(THREADS, 1) cells_backward(Backward k, Step s) {
  const struct pd_lstm &l = k.l;
  const auto [unit, b, j] = unit_of(l.hidden);
  if (b >= l.batch) return;
  int64_t hidden = l.hidden, length = length_of(l, k.lengths, b), row = 4 * (b * l.length + s.t) * hidden + j;
  int64_t at = (b * l.length + s.t) * hidden + j;
  float dh = take_over(k, s, length, unit), d[4] = {};
  bool inside = s.t < length, starts = s.t == (l.reverse ? length - 1 : 0);
  pd_set_element(k.previous, at, inside ? previous_h(k, s, b, j, starts) : 0.0f);
  if (inside) {
    float in = pd_element(k.gates, row), forget = pd_element(k.gates, row + hidden);
    float cell = pd_element(k.gates, row + 2 * hidden), out = pd_element(k.gates, row + 3 * hidden);
    float before = starts ? element_or_zero(k.c0, unit) : pd_element(k.c, (b * l.length + s.before) * hidden + j);
    float t = pd_tanh(pd_element(k.c, at));
    dh += element_or_zero(k.dh, at);
    float dc = fmaf(dh * out, fmaf(-t, t, 1.0f), k.carried_c[unit]);
    d[0] = dc * cell * in * (1.0f - in);
    d[1] = dc * before * forget * (1.0f - forget);
    d[2] = dc * in * fmaf(-cell, cell, 1.0f);
    d[3] = dh * t * out * (1.0f - out);
    k.carried_c[unit] = dc * forget;
  }
  for (int gate = 0; gate < 4; gate++) {
    pd_set_element(k.d_gates, row + gate * hidden, d[gate]);
    pd_set_element(k.d, (4 * b + gate) * hidden + j, d[gate]);
  }
}

/* s: the step that would come before all others. */
static __global__ void __launch_bounds__(THREADS) pass_to_start(Backward k, Step s, pd_out dh0, pd_out dc0) {
  const auto [unit, b, j] = unit_of(k.l.hidden);
  if (b >= k.l.batch) return;
  pd_set_element(dh0, unit, take_over(k, s, length_of(k.l, k.lengths, b), unit));
  pd_set_element(dc0, unit, k.carried_c[unit]);
}

void pd_lstm_backward(const struct pd_lstm *l, pd_in w, pd_in h0, pd_in c0, const int32_t *lengths, pd_in h,
                      pd_in c, pd_in gates, pd_in dh, pd_in dh_n, pd_in dc_n, pd_out d_gates, pd_out previous,
                      pd_out dh0, pd_out dc0, void *scratch) {
  char *d = pd_scratch_begin(scratch), *through = d + pd_lstm_gates_bytes(l);
  char *carried_h = through + pd_lstm_state_bytes(l), *carried_c = carried_h + pd_lstm_state_bytes(l);
  char *rest = carried_c + pd_lstm_state_bytes(l);
  const struct pd_matmul *product = product_of(pd_lstm_backward_product(l));
  Backward k = {*l,
                lengths,
                h0,
                c0,
                h,
                c,
                gates,
                dh,
                d_gates,
                previous,
                pd_out_at(d, w.type),
                nullptr,
                reinterpret_cast<float *>(carried_h),
                reinterpret_cast<float *>(carried_c)};
  PD_LAUNCH(copy_state, grid_of(l), THREADS, 0, pd_stream, dh_n, l->hidden, l->batch, l->hidden,
            pd_out_at(carried_h, PD_F32));
  PD_LAUNCH(copy_state, grid_of(l), THREADS, 0, pd_stream, dc_n, l->hidden, l->batch, l->hidden,
            pd_out_at(carried_c, PD_F32));
  for (int64_t i = l->length - 1; i >= 0; i--) {
    PD_LAUNCH(cells_backward, grid_of(l), THREADS, 0, pd_stream, k, step_of(l, i));
    if (i == 0 && !dh0.at) return;
    pd_matmul(product, pd_written(k.d), w, nullptr, pd_out_at(through, PD_F32), rest);
    k.through = reinterpret_cast<const float *>(through);
  }
  PD_LAUNCH(pass_to_start, grid_of(l), THREADS, 0, pd_stream, k, step_of(l, -1), dh0, dc0);
}
