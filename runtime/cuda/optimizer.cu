/* One launch updates all parameters of a stage: a block a chunk (pd_chunks). The formulas and the order of their
 * operations are host/optimizer.c's. With masters these are what is updated, and the working copies of the next
 * version are rounded from them; without, the next version is computed from the one before. */
#include "internal.h"
#include "pd_cuda.h"
#include "kernels/pd_math.h"
#include "pd_elements.h"

#include <stdlib.h>

/* A parameter as the kernel sees it; byte offsets as in struct pd_parameter. */
enum class Kind { KEPT, TRAINED, AVERAGE };
struct Entry {
  size_t offset, state;
  size_t gradient;    /* of its last use */
  bool gradient_here; /* in the accumulator set, else in the exchange set */
  bool decays, bf16;
  Kind kind;
  float left;         /* of an average: what a batch leaves of the old one */
};

static Entry *entries;   /* on the device, by parameter held here */
static pd_chunk *chunks; /* on the device */

/* What an update is given, in device memory. */
struct Arrays {
  const char *from, *gradient, *exchanged;
  char *to, *masters, *moment[2]; /* masters NULL: none */
};

/* ---- start ----------------------------------------------------------------------------------------- */

static Entry describe(const struct pd_parameter *p) {
  const struct pd_stage *s = pd.stage;
  Entry e = {p->offset, s->has_masters ? p->state : p->offset, 0, false, p->decays, p->bf16, Kind::KEPT, 0};
  if (p->n_uses) {
    const struct pd_use *last = &p->uses[p->n_uses - 1];
    e.gradient = last->offset;
    e.gradient_here = last->stage == s->stage;
    e.kind = p->buffer ? Kind::AVERAGE : Kind::TRAINED;
    e.left = static_cast<float>(pd_power(1 - static_cast<double>(p->momentum), s->microbatches));
  }
  return e;
}

static void *on_device(const void *from, size_t bytes) {
  void *to = pd_cuda_memory(bytes ? bytes : 1);
  pd_cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, pd_stream), "describe the parameters");
  pd_cuda_check(cudaStreamSynchronize(pd_stream), "describe the parameters");
  return to;
}

void pd_optimizer_start(void) {
  const struct pd_stage *s = pd.stage;
  pd_deal_chunks();
  size_t n = static_cast<size_t>(s->n_parameters);
  Entry *all = static_cast<Entry *>(pd_allocate(sizeof *all * n));
  for (size_t i = 0; i < n; i++) all[i] = describe(&s->parameters[i]);
  entries = static_cast<Entry *>(on_device(all, sizeof *all * n));
  chunks = static_cast<pd_chunk *>(on_device(pd_chunks, sizeof *pd_chunks * static_cast<size_t>(pd_n_chunks)));
  free(all);
}

/* ---- formulas -------------------------------------------------------------------------------------- */

struct AdamW {
  enum { MOMENTS = 2 };
  struct pd_adamw_step step[2]; /* by whether weights decay */
  __device__ float operator()(bool decays, float from, float gradient, float *moment) const {
    const struct pd_adamw_step &s = step[decays];
    float g = gradient * s.scale;
    float w = from * s.keep;
    float m = moment[0] * s.beta1 + g * s.rest1;
    float v = moment[1] * s.beta2 + s.rest2 * g * g;
    moment[0] = m;
    moment[1] = v;
    return w - s.step_size * m / (sqrtf(v) / s.root2 + s.eps);
  }
};

struct Sgd {
  enum { MOMENTS = 0 };
  struct pd_sgd_step step[2];
  __device__ float operator()(bool decays, float from, float gradient, float *) const {
    const struct pd_sgd_step &s = step[decays];
    return from - s.lr * (gradient * s.scale + s.decay * from);
  }
};

struct Momentum {
  enum { MOMENTS = 1 };
  struct pd_sgd_step step[2];
  __device__ float operator()(bool decays, float from, float gradient, float *moment) const {
    const struct pd_sgd_step &s = step[decays];
    float u = s.momentum * *moment + (gradient * s.scale + s.decay * from);
    *moment = u;
    return from - s.lr * u;
  }
};

/* ---- the kernel -------------------------------------------------------------------------------------- */

enum { THREADS = 256, WIDE = 4 };

/* A parameter's arrays from the chunk's first element. */
struct Run {
  const float *from, *gradient;
  float *to, *moment[2];
  pd_bf16 *rounded; /* the working copy, where it is not `to` */
  float *copied;
};

static __device__ Run run_of(const Entry &e, const pd_chunk &c, const Arrays &a) {
  size_t first = static_cast<size_t>(c.first) * sizeof(float);
  char *to = a.to + e.offset, *master = a.masters + e.state;
  const char *gradient = (e.gradient_here ? a.gradient : a.exchanged) + e.gradient;
  Run r = {};
  r.from = reinterpret_cast<const float *>((a.masters ? master : a.from + e.offset) + first);
  r.to = reinterpret_cast<float *>((a.masters ? master : to) + first);
  r.gradient = reinterpret_cast<const float *>(gradient + first);
  for (int i = 0; i < 2; i++) r.moment[i] = reinterpret_cast<float *>(a.moment[i] + e.state + first);
  if (a.masters && e.bf16) r.rounded = reinterpret_cast<pd_bf16 *>(to) + c.first;
  if (a.masters && !e.bf16) r.copied = reinterpret_cast<float *>(to + first);
  return r;
}

/* Elements [i, i + N). */
template <int N, class Rule>
static __device__ void update_some(const Entry &e, const Run &r, const Rule &rule, int i) {
  float w[N], g[N] = {}, moment[2][N] = {};
  pd_get(w, r.from + i);
  if (e.kind != Kind::KEPT) pd_get(g, r.gradient + i);
  if (e.kind == Kind::TRAINED) {
#pragma unroll
    for (int m = 0; m < Rule::MOMENTS; m++) pd_get(moment[m], r.moment[m] + i);
#pragma unroll
    for (int j = 0; j < N; j++) {
      float of_one[2] = {moment[0][j], moment[1][j]};
      w[j] = rule(e.decays, w[j], g[j], of_one);
      moment[0][j] = of_one[0];
      moment[1][j] = of_one[1];
    }
#pragma unroll
    for (int m = 0; m < Rule::MOMENTS; m++) pd_put(r.moment[m] + i, moment[m]);
  }
  if (e.kind == Kind::AVERAGE)
#pragma unroll
    for (int j = 0; j < N; j++) w[j] = e.left * w[j] + g[j];
  pd_put(r.to + i, w);
  if (r.rounded) pd_put(r.rounded + i, w);
  if (r.copied) pd_put(r.copied + i, w);
}

template <class Rule>
static __global__ void __launch_bounds__(THREADS) update_all(const pd_chunk *chunks, const Entry *entries,
                                                             Arrays arrays, Rule rule) {
  const pd_chunk c = chunks[blockIdx.x];
  const Entry e = entries[c.parameter];
  const Run r = run_of(e, c, arrays);
  int n = static_cast<int>(c.n), wide = n / WIDE * WIDE;
  for (int i = static_cast<int>(threadIdx.x) * WIDE; i < wide; i += THREADS * WIDE)
    update_some<WIDE>(e, r, rule, i);
  for (int i = wide + static_cast<int>(threadIdx.x); i < n; i += THREADS) update_some<1>(e, r, rule, i);
}

template <class Rule>
static void launch(int64_t t, const void *from, void *to, void *gradient, void *moment1, void *moment2,
                   Rule rule) {
  const struct pd_stage *s = pd.stage;
  if (!pd_n_chunks) return;
  Arrays arrays = {static_cast<const char *>(from),
                   static_cast<const char *>(gradient),
                   pd.arena + pd_exchange_set(t),
                   static_cast<char *>(to),
                   s->has_masters ? pd.arena + s->masters : NULL,
                   {static_cast<char *>(moment1), static_cast<char *>(moment2)}};
  PD_LAUNCH(update_all<Rule>, static_cast<unsigned>(pd_n_chunks), THREADS, 0, pd_stream, chunks, entries, arrays,
            rule);
}

void pd_adamw(int64_t t, float scale, const void *from, void *to, void *gradient, void *moment1, void *moment2) {
  const struct pd_stage *s = pd.stage;
  AdamW rule = {{pd_adamw_constants(s, t, scale, false), pd_adamw_constants(s, t, scale, true)}};
  launch(t, from, to, gradient, moment1, moment2, rule);
}

void pd_sgd(int64_t t, float scale, const void *from, void *to, void *gradient, void *momentum) {
  const struct pd_stage *s = pd.stage;
  float lr = static_cast<float>(pd_learning_rate(s, t));
  struct pd_sgd_step plain = {scale, 0, static_cast<float>(s->momentum), lr}, decaying = plain;
  decaying.decay = static_cast<float>(s->weight_decay);
  if (s->n_moments)
    launch(t, from, to, gradient, momentum, NULL, Momentum{{plain, decaying}});
  else
    launch(t, from, to, gradient, NULL, NULL, Sgd{{plain, decaying}});
}
