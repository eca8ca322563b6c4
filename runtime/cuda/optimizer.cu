/* One launch updates all parameters of a stage, one block per tile (pd_tiles), by the elementwise rules of
 * optimizers/list.h, as on the host. With masters, the update changes the masters and rounds the next version's
 * working copies from them; without, it computes the next version from the previous one. */
#include "home.h"
#include "update/update.h"
#include "watch/watch.h"
#include "kernels/pd_math.h"
#include "pd_elements.h"
#include "offload/spill.h"

#include <stdlib.h>
#include <vector>

/* A parameter as the kernel sees it; byte offsets as in struct pd_parameter. */
enum class Kind { KEPT, TRAINED, AVERAGE, BALANCE };
struct Entry {
  size_t offset;
  int64_t state;
  size_t gradient;    /* of its last use */
  bool gradient_here; /* in the accumulator set, else in the exchange set */
  int step;           /* pd_step_of() */
  bool bf16;
  Kind kind;
  float rate; /* decay of an average per batch; step of a balance */
};

static struct {
  const Entry *described; /* by parameter held here */
  Entry *entries;         /* the same on the device */
  pd_tile *tiles;         /* on the device */
} tables;

/* The arguments of an update, in device memory. */
struct Arrays {
  const char *from, *gradient, *exchanged;
  const char *before;           /* pd_update_arrays' */
  char *to, *masters, *moments; /* masters NULL: none */
  size_t moments_stride;
  float damping;
  const float *scale; /* of gradients; NULL: it is among a rule's constants */
};

/* ---- start ----------------------------------------------------------------------------------------- */

static Entry describe(const struct pd_parameter *p) {
  const struct pd_stage *s = pd.stage;
  Entry e = {.offset = p->offset,
             .state = pd_state_offset(p),
             .gradient = 0,
             .gradient_here = false,
             .step = pd_step_of(p),
             .bf16 = p->bf16,
             .kind = Kind::KEPT,
             .rate = 0};
  if (p->n_uses) {
    const struct pd_use *last = &p->uses[p->n_uses - 1];
    e.gradient = last->offset;
    e.gradient_here = last->stage == s->stage;
    const bool balances = p->buffer && p->momentum == 0;
    e.kind = balances ? Kind::BALANCE : p->buffer ? Kind::AVERAGE : Kind::TRAINED;
    e.rate =
        balances ? p->rate : static_cast<float>(pd_power(1 - static_cast<double>(p->momentum), s->microbatches));
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
  pd_deal_tiles();
  pd_start_rule();
  size_t n = static_cast<size_t>(s->n_parameters);
  Entry *all = static_cast<Entry *>(pd_allocate(sizeof *all * n));
  for (size_t i = 0; i < n; i++) all[i] = describe(&s->parameters[i]);
  tables.entries = static_cast<Entry *>(on_device(all, sizeof *all * n));
  tables.tiles = static_cast<pd_tile *>(on_device(pd_tiles, sizeof *pd_tiles * static_cast<size_t>(pd_n_tiles)));
  tables.described = all;
}

/* ---- rules ----------------------------------------------------------------------------------------- */

/* of(): a parameter's constants, with the device's gradient scale, if any (sums.cu). */
#define RULE(rule, optimizer, moments)                                                          \
  struct rule {                                                                                 \
    enum { MOMENTS = moments, GIVEN = false };                                                  \
    typedef struct pd_##optimizer##_step Step;                                                  \
    Step step[PD_GROUP_STEPS];                                                                  \
    __device__ Step of(int i, const float *scale) const {                                       \
      Step s = step[i];                                                                         \
      if (scale) s.scale = *scale;                                                              \
      return s;                                                                                 \
    }                                                                                           \
    static __device__ float element(const Step &s, float from, float gradient, float *moment) { \
      return pd_##rule##_element(s, from, gradient, moment);                                    \
    }                                                                                           \
  };
namespace rules {
PD_ELEMENT_RULES(RULE)
/* Parameters with a gradient are updated already. */
struct given {
  enum { MOMENTS = 0, GIVEN = true };
  struct Step {};
  __device__ Step of(int, const float *) const { return {}; }
  static __device__ float element(const Step &, float from, float, float *) { return from; }
};
}

/* ---- the kernel -------------------------------------------------------------------------------------- */

enum { THREADS = 256, WIDE = 4 };

/* A parameter's arrays from the tile's first element. */
struct Run {
  const float *from, *gradient;
  float *to, *moment[PD_MAX_ELEMENT_MOMENTS];
  pd_bf16 *rounded; /* the working copy, where it is not `to` */
  float *copied;
  const char *now, *before; /* struct pd_change's; NULL: the step is not damped */
};

template <class Rule> static __host__ __device__ Run run_of(const Entry &e, const pd_tile &c, const Arrays &a) {
  size_t first = static_cast<size_t>(c.first) * sizeof(float);
  char *to = a.to + e.offset, *master = a.masters + e.state;
  const char *gradient = (e.gradient_here ? a.gradient : a.exchanged) + e.gradient;
  Run r = {};
  r.from = reinterpret_cast<const float *>((a.masters ? master : a.from + e.offset) + first);
  r.to = reinterpret_cast<float *>((a.masters ? master : to) + first);
  r.gradient = reinterpret_cast<const float *>(gradient + first);
  if (Rule::GIVEN && e.kind == Kind::TRAINED) r.from = r.to;
  char *moments = a.moments + e.state + first;
  for (int i = 0; i < Rule::MOMENTS; i++)
    r.moment[i] = reinterpret_cast<float *>(moments + static_cast<size_t>(i) * a.moments_stride);
  if (a.before && !Rule::GIVEN && e.kind == Kind::TRAINED) {
    const size_t at = e.offset + static_cast<size_t>(c.first) * (e.bf16 ? sizeof(pd_bf16) : sizeof(float));
    r.now = a.from + at, r.before = a.before + at;
  }
  if (a.masters && e.bf16) r.rounded = reinterpret_cast<pd_bf16 *>(to) + c.first;
  if (a.masters && !e.bf16) r.copied = reinterpret_cast<float *>(to + first);
  return r;
}

/* The part of the last change that a damped step takes back, computed before any write, as on the host. */
template <int N, class T> static __device__ void get_change(float (&change)[N], const Run &r, int i) {
  float before[N];
  pd_get(change, reinterpret_cast<const T *>(r.now) + i);
  pd_get(before, reinterpret_cast<const T *>(r.before) + i);
#pragma unroll
  for (int j = 0; j < N; j++) change[j] = change[j] - before[j];
}

/* Elements [i, i + N). */
template <int N, class Rule>
static __device__ void update_some(const Entry &e, const Run &r, const typename Rule::Step &step, float damping,
                                   int i) {
  float w[N], g[N] = {}, moment[PD_MAX_ELEMENT_MOMENTS][N] = {}, change[N] = {};
  if (r.before && e.bf16) get_change<N, pd_bf16>(change, r, i);
  if (r.before && !e.bf16) get_change<N, float>(change, r, i);
  pd_get(w, r.from + i);
  if (e.kind != Kind::KEPT) pd_get(g, r.gradient + i);
  if (e.kind == Kind::TRAINED) {
#pragma unroll
    for (int m = 0; m < Rule::MOMENTS; m++) pd_get(moment[m], r.moment[m] + i);
#pragma unroll
    for (int j = 0; j < N; j++) {
      float of_one[PD_MAX_ELEMENT_MOMENTS];
#pragma unroll
      for (int m = 0; m < PD_MAX_ELEMENT_MOMENTS; m++) of_one[m] = moment[m][j];
      w[j] = Rule::element(step, w[j], g[j], of_one);
      if (r.before) w[j] = w[j] - damping * change[j];
#pragma unroll
      for (int m = 0; m < PD_MAX_ELEMENT_MOMENTS; m++) moment[m][j] = of_one[m];
    }
#pragma unroll
    for (int m = 0; m < Rule::MOMENTS; m++) pd_put(r.moment[m] + i, moment[m]);
  }
  if (e.kind == Kind::AVERAGE || e.kind == Kind::BALANCE)
#pragma unroll
    for (int j = 0; j < N; j++)
      w[j] = e.kind == Kind::AVERAGE ? e.rate * w[j] + g[j] : pd_balanced(w[j], g[j], e.rate);
  pd_put(r.to + i, w);
  if (r.rounded) pd_put(r.rounded + i, w);
  if (r.copied) pd_put(r.copied + i, w);
}

/* One block a multiprocessor is enough: else ptxas spills registers for more. */
template <class Rule>
static __global__ void __launch_bounds__(THREADS, 1)
    update_all(int first, const pd_tile *tiles, const Entry *entries, Arrays arrays, Rule rule) {
  const pd_tile c = tiles[first + static_cast<int>(blockIdx.x)];
  Entry e = entries[c.parameter];
  if (arrays.scale && !isfinite(*arrays.scale)) e.kind = Kind::KEPT; /* the launch ends with the first cause */
  const Run r = run_of<Rule>(e, c, arrays);
  const typename Rule::Step step = rule.of(e.step, arrays.scale);
  int n = static_cast<int>(c.n), wide = n / WIDE * WIDE;
  for (int i = static_cast<int>(threadIdx.x) * WIDE; i < wide; i += THREADS * WIDE)
    update_some<WIDE, Rule>(e, r, step, arrays.damping, i);
  for (int i = wide + static_cast<int>(threadIdx.x); i < n; i += THREADS)
    update_some<1, Rule>(e, r, step, arrays.damping, i);
}

static Arrays arrays_of(const struct pd_update_arrays *u) {
  const struct pd_stage *s = pd.stage;
  return {.from = static_cast<const char *>(u->from),
          .gradient = static_cast<const char *>(u->gradient),
          .exchanged = pd.arena + pd_exchange_set(u->t),
          .before = static_cast<const char *>(u->before),
          .to = static_cast<char *>(u->to),
          .masters = s->has_masters ? pd.arena + s->masters : NULL,
          .moments = pd.arena + s->moments,
          .moments_stride = s->moments_stride,
          .damping = static_cast<float>(s->damping),
          .scale = pd_scale_of(u->t)};
}

/* ---- launches, or two of each with --audit -------------------------------------------------------------- */

enum { AT_ONCE = 16 };

/* Tiles [first, end) by a rule. */
template <class Rule> struct Launch {
  const struct pd_update_arrays *u;
  const Rule *rule;
  int first, end;
};

template <class Rule> static void launch(const void *of) {
  const auto *x = static_cast<const Launch<Rule> *>(of);
  PD_LAUNCH(update_all<Rule>, static_cast<unsigned>(x->end - x->first), THREADS, 0, pd_stream, x->first,
            tables.tiles, tables.entries, arrays_of(x->u), *x->rule);
}

/* Some neighbouring tiles of one parameter, from `first` on: where they end. */
static int end_of_some(int first, int end) {
  int some = first + 1;
  while (some < end && some < first + AT_ONCE && pd_tiles[some].parameter == pd_tiles[first].parameter) some++;
  return some;
}

static size_t n_elements(int first, int end) {
  size_t n = 0;
  for (int i = first; i < end; i++) n += static_cast<size_t>(pd_tiles[i].n);
  return n;
}

/* The arrays that an update of these tiles of a parameter writes. */
template <class Rule> static int written_by(const Launch<Rule> &x, struct pd_written *to) {
  const Entry &e = tables.described[pd_tiles[x.first].parameter];
  const Run r = run_of<Rule>(e, pd_tiles[x.first], arrays_of(x.u));
  const size_t n = n_elements(x.first, x.end), bytes = n * sizeof(float);
  int written = 0;
  to[written++] = {pd.stage->has_masters ? PD_ARRAY_MASTERS : PD_ARRAY_WEIGHTS, r.to, bytes, false};
  for (int i = 0; i < Rule::MOMENTS && e.kind == Kind::TRAINED; i++)
    to[written++] = {PD_ARRAY_MOMENTS + i, r.moment[i], bytes, false};
  if (r.rounded) to[written++] = {PD_ARRAY_WEIGHTS, r.rounded, n * sizeof(pd_bf16), true};
  if (r.copied) to[written++] = {PD_ARRAY_WEIGHTS, r.copied, bytes, false};
  return written;
}

template <class Rule> static void update(const struct pd_update_arrays *u, const Rule &rule) {
  const int end = pd_first_tile(u->end);
  char *copy = pd_twice_copy(u->t);
  Launch<Rule> x = {u, &rule, pd_first_tile(u->first), end};
  if (!copy && x.first < end) launch<Rule>(&x);
  for (; copy && x.first < end; x.first = x.end) {
    struct pd_written w[2 + PD_MAX_ELEMENT_MOMENTS];
    x.end = end_of_some(x.first, end);
    int n = written_by(x, w);
    pd_update_twice(launch<Rule>, &x, w, n, copy, pd_tiles[x.first].parameter, pd_tiles[x.first].first);
  }
  pd_check_agreement(u->t);
}

/* ---- updates by the host of offloaded parameters ----------------------------------------------------------- */

/* As host/optimizer.c has it, of one version. */
static struct pd_updated run_at_home(int64_t t, const pd_tile &c) {
  const struct pd_parameter *p = &pd.stage->parameters[c.parameter];
  char *weights = pd_home_at(pd_weights_at(p, t));
  struct pd_updated r = {};
  float *gradient = p->n_uses ? pd_home_copy(c.parameter) : NULL;
  if (p->n_uses && !gradient) gradient = pd_home(pd_gradient_at(p, t, pd_accumulators(t)));
  r.gradient = gradient ? gradient + c.first : NULL;
  r.bf16 = p->bf16;
  r.to = reinterpret_cast<float *>(weights) + c.first;
  if (pd.stage->has_masters) {
    r.to = reinterpret_cast<float *>(pd_home_at(pd_state_at(pd.stage->masters, p))) + c.first;
    r.working = weights + static_cast<size_t>(c.first) * (p->bf16 ? sizeof(pd_bf16) : sizeof(float));
  }
  r.from = r.to;
  for (int i = 0; i < pd.stage->n_moments && p->n_uses && pd_is_trained(p); i++)
    r.moment[i] = pd_home(pd_moment_at(p, i)) + c.first;
  return r;
}

/* Traced, an update lasts until it is made. */
static void await_traced() {
  static cudaEvent_t made;
  if (!pd_options.trace) return;
  if (!made) made = pd_cuda_event();
  pd_home_record(made);
  pd_cuda_await(made, "the host to update parameters");
}

static void update_at_home(const struct pd_update_arrays *u, pd_elements *elements, size_t step_bytes) {
  std::vector<char> steps(static_cast<size_t>(u->n_steps) * step_bytes);
  for (int i = 0; i < u->n_steps; i++)
    memcpy(steps.data() + static_cast<size_t>(i) * step_bytes, u->step[i], step_bytes);
  pd_home_tiles(PD_STEP_UPDATE, u->first, u->end, [=, t = u->t](int tile) {
    const pd_tile &c = pd_tiles[tile];
    const struct pd_parameter *p = &pd.stage->parameters[c.parameter];
    const struct pd_updated r = run_at_home(t, c);
    pd_update_some(p, c.n, &r, elements, steps.data() + static_cast<size_t>(pd_step_of(p)) * step_bytes);
  });
  await_traced();
}

static void average_at_home(const struct pd_update_arrays *u) {
  pd_home_tiles(PD_STEP_UPDATE, u->first, u->end, [t = u->t](int tile) {
    const pd_tile &c = pd_tiles[tile];
    const struct pd_parameter *p = &pd.stage->parameters[c.parameter];
    pd_average_some(p, c.n, t, run_at_home(t, c).to, pd_home(pd_average_at(p)) + c.first);
  });
  await_traced();
}

/* ---- the table ------------------------------------------------------------------------------------------ */

/* A launch is given 4 KiB at most. */
#define UPDATE(rule, optimizer, moments)                                                  \
  static void rule##_update(const struct pd_update_arrays *u) {                           \
    if (pd_updates_at_home()) {                                                           \
      update_at_home(u, pd_##rule##_elements, sizeof(struct pd_##optimizer##_step));      \
      return;                                                                             \
    }                                                                                     \
    static_assert(sizeof(rules::rule) <= 3840, "all groups' constants go with a launch"); \
    rules::rule with = {};                                                                \
    for (int i = 0; i < u->n_steps; i++)                                                  \
      with.step[i] = *static_cast<const struct pd_##optimizer##_step *>(u->step[i]);      \
    update(u, with);                                                                      \
  }
PD_ELEMENT_RULES(UPDATE)

static void after_tensors(const struct pd_update_arrays *u) { update(u, rules::given{}); }

/* As on the host. */
static __global__ void __launch_bounds__(THREADS, 1)
    average_all(int first, const pd_tile *tiles, const Entry *entries, Arrays arrays, char *averages, float rest,
                bool begins) {
  const pd_tile c = tiles[first + static_cast<int>(blockIdx.x)];
  const Entry e = entries[c.parameter];
  const float *w = run_of<rules::given>(e, c, arrays).to;
  float *a = reinterpret_cast<float *>(averages + e.state) + c.first;
  const bool copies = begins || e.kind == Kind::AVERAGE || e.kind == Kind::BALANCE;
  for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(c.n); i += THREADS)
    a[i] = copies ? w[i] : a[i] + rest * (w[i] - a[i]);
}

static char *averages(void) { return pd.arena + pd.stage->averages; }

static void launch_average(const void *of) {
  const auto *x = static_cast<const Launch<rules::given> *>(of);
  PD_LAUNCH(average_all, static_cast<unsigned>(x->end - x->first), THREADS, 0, pd_stream, x->first, tables.tiles,
            tables.entries, arrays_of(x->u), averages(), static_cast<float>(1 - pd.stage->ema), x->u->t == 0);
}

static void average(const struct pd_update_arrays *u) {
  if (pd_updates_at_home()) return average_at_home(u);
  const int end = pd_first_tile(u->end);
  char *copy = pd_twice_copy(u->t);
  Launch<rules::given> x = {u, NULL, pd_first_tile(u->first), end};
  if (!copy && x.first < end) launch_average(&x);
  for (; copy && x.first < end; x.first = x.end) {
    const pd_tile &c = pd_tiles[x.first];
    x.end = end_of_some(x.first, end);
    struct pd_written w = {PD_ARRAY_AVERAGES,
                           reinterpret_cast<float *>(averages() + tables.described[c.parameter].state) + c.first,
                           n_elements(x.first, x.end) * sizeof(float), false};
    pd_update_twice(launch_average, &x, &w, 1, copy, c.parameter, c.first);
  }
  pd_check_agreement(u->t);
}

#define ROW(rule, optimizer, moments) rule##_update, /* in the order of enum pd_rule */
extern const struct pd_rules pd_rules = {.by_elements = {PD_ELEMENT_RULES(ROW)},
                                         .after_tensors = after_tensors,
                                         .average = average,
                                         .tensor = pd_update_by_tensors,
                                         .at_once = AT_ONCE,
                                         .next_group = pd_next_updated};
