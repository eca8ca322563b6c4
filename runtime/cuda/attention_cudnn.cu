/* The choice between pdc's attention kernels and cuDNN's engines: cuDNN if planned, because `pdc profile` measured
 * it faster on this GPU with this library version. Plans select an engine by the attention's sizes alone, so that
 * attention is bit-identical on every stage of every plan. Results of cuDNN are compared with plain loops before
 * timing, and again at a program's first call, to detect a different meaning of masks, statistics or strides. */
#include "attention_cudnn.h"
#include "run/run.h"
#include "attention_graph.h"
#include "measured.h"
#include "scratch.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

static std::string name_of(const struct pd_attention &a, bool backward) {
  char name[PD_ATTENTION_NAME];
  pd_attention_name(name, &a, backward);
  return name;
}

/* ---- plans that run ------------------------------------------------------------------------------- */

/* The graph of some of a call's samples, and its plan. */
struct Slice {
  int64_t samples = 0;
  std::unique_ptr<pd_attention_graph> graph;
  pd_cudnn_plan plan;
};

/* A call's plans. One slice of all samples, or slices one after another where all need a larger workspace than
 * PD_ATTENTION_WORKSPACE. */
struct Made {
  Slice each, last; /* last: the remaining samples, 0 where `each` divides the batch */
  std::string error;
  bool deterministic() const { return each.plan.deterministic && (!last.samples || last.plan.deterministic); }
  int64_t workspace() const { return std::max(each.plan.workspace, last.plan.workspace); }
};

static std::unique_ptr<pd_attention_graph> graph_of(const struct pd_attention &of, bool backward) {
  return backward ? pd_attention_backward_graph(of, "") : pd_attention_forward_graph(of, "");
}

static Slice slice_of(const pd_attention_call &c, int64_t samples, const pd_cudnn_engine &engine) {
  struct pd_attention of = *c.of;
  of.batch = samples;
  Slice s;
  s.samples = samples;
  s.graph = graph_of(of, c.backward);
  s.plan = pd_cudnn_plan_for(&s.graph->graph, engine);
  return s;
}

/* The number of samples per slice, given that `samples` need `workspace` bytes; 0: none. Slices are even, and
 * begin at multiples of 16 bytes in lse and delta, as cuDNN requires. */
static int64_t fewer_samples(const struct pd_attention &of, int64_t samples, int64_t workspace) {
  int64_t row_floats = of.heads * of.length, unit = row_floats % 4 == 0 ? 1 : row_floats % 2 == 0 ? 2 : 4;
  int64_t most = std::min(samples - 1, samples * PD_ATTENTION_WORKSPACE / workspace) / unit * unit;
  if (most == 0) return 0;
  int64_t slices = (of.batch + most - 1) / most, even = (of.batch + slices - 1) / slices;
  return (even + unit - 1) / unit * unit;
}

/* Depends only on sizes, engine, GPU and cuDNN's version, so that programs use the measured slices. */
static std::unique_ptr<Made> make(const pd_attention_call &c, const pd_cudnn_engine &engine) {
  auto made = std::make_unique<Made>();
  int64_t batch = c.of->batch, workspace = 0;
  for (int64_t samples = batch; samples > 0; samples = fewer_samples(*c.of, samples, workspace)) {
    made->each = slice_of(c, samples, engine);
    workspace = made->each.plan.workspace;
    if (!made->each.plan.error.empty() || workspace <= PD_ATTENTION_WORKSPACE) break;
  }
  if (int64_t rest = batch % made->each.samples; rest > 0 && made->each.plan.error.empty())
    made->last = slice_of(c, rest, engine);
  made->error = made->each.plan.error.empty() ? made->last.plan.error : made->each.plan.error;
  return made;
}

/* Where the operands' samples from `first` on begin, in the order of pd_attention_graph. */
static std::vector<void *> operands_from(const pd_attention_call &c, int64_t first) {
  const attention &a = c.a;
  auto tensor = [&](const attention_tensor &t) -> void * {
    return static_cast<pd_bf16 *>(t.at) + first * t.batch;
  };
  auto rows = [&](void *at) -> void * { return static_cast<float *>(at) + first * c.of->heads * c.of->length; };
  std::vector<void *> at = {tensor(a.q), tensor(a.k), tensor(a.v), tensor(a.o), rows(a.lse)};
  if (c.backward)
    for (void *x : {tensor(a.d_o), rows(c.delta), tensor(a.dq), tensor(a.dk), tensor(a.dv)}) at.push_back(x);
  return at;
}

/* False: cuDNN refuses; made->error says why. */
static bool run(Made *made, const pd_attention_call &c, void *workspace) {
  for (int64_t first = 0; first < c.of->batch; first += made->each.samples) {
    Slice *s = first + made->each.samples <= c.of->batch ? &made->each : &made->last;
    if (!pd_cudnn_run(&s->plan, pd_stream, s->graph->operands, operands_from(c, first), workspace)) {
      made->error = s->plan.error;
      return false;
    }
  }
  return true;
}

static std::string text_of(const pd_cudnn_engine &e) {
  std::string text = "engine " + std::to_string(e.id);
  for (int i = 0; i < e.n; i++)
    text += (i ? ", " : " with ") + std::to_string(e.knob[i].type) + " = " + std::to_string(e.knob[i].value);
  return text;
}

/* ---- the plan's ----------------------------------------------------------------------------------- */

/* A call of the program, by its sizes. */
struct Known {
  struct pd_attention of;
  bool backward;
  std::unique_ptr<Made> made; /* NULL: pdc's kernels */
};

struct Measured {
  std::string name;
  pd_cudnn_engine engine; /* cuDNN's fastest */
  int64_t workspace;
  double seconds, own_seconds; /* 0: cuDNN has no engine that may be used */
  std::unique_ptr<Made> made;  /* NULL: pdc's kernels are the fastest */
};

static struct {
  struct {
    const struct pd_planned_attention *of;
    int n;
    std::string elsewhere; /* cause why the plan's engines are not used; empty: used */
    std::vector<Known> known;
  } planned;
  pd_attention_check running = {nullptr, true};
  bool timing;
  std::vector<Measured *> measured, untold;
  struct {
    void *at;
    int64_t bytes;
  } timed; /* workspace of the measuring program, which has no planned one: grows to the largest need */
  pd_attention_check timed_check = {nullptr, false};
} choice;
void pd_use_attentions(const struct pd_planned_attention *of, int n, const char *device, int64_t version) {
  std::string why, here = pd_this_device();
  int64_t version_here = pd_cudnn_version(&why);
  choice.planned = {of, n, why, {}};
  if (why.empty() && (here != device || version_here != version))
    choice.planned.elsewhere = "this is " + std::to_string(version_here) + " on '" + here + "'";
  if (choice.planned.elsewhere.empty()) pd_cudnn_start(&choice.planned.elsewhere);
  if (choice.planned.elsewhere.empty() && !choice.running.numbers)
    choice.running.numbers = pd_cuda_memory(PD_ATTENTION_NUMBERS);
  if (!choice.planned.elsewhere.empty())
    pd_note("the plan computes attention with cuDNN %lld on '%s', but %s: pdc's kernels compute it",
            (long long)version, device, choice.planned.elsewhere.c_str());
}

static void refuse(const pd_attention_call &c, const std::string &why) {
  pd_counts.own_attentions++;
  pd_note("the plan computes %s with cuDNN, but pdc's kernels compute it: %s", name_of(*c.of, c.backward).c_str(),
          why.c_str());
}

/* Creates the plan's engine and runs it once; NULL: not possible, or not planned. */
static std::unique_ptr<Made> start_planned(const pd_attention_call &c) {
  const std::string name = name_of(*c.of, c.backward);
  const struct pd_planned_attention *end = choice.planned.of + choice.planned.n;
  auto same = [&](const struct pd_planned_attention &p) { return name == p.attention; };
  const struct pd_planned_attention *p = std::find_if(choice.planned.of, end, same);
  if (p == end) return nullptr;
  pd_cudnn_engine engine = {p->engine, p->n_knobs, {}};
  for (int i = 0; i < p->n_knobs; i++) engine.knob[i] = {p->knobs[2 * i], p->knobs[2 * i + 1]};
  if (!choice.planned.elsewhere.empty()) {
    pd_counts.own_attentions++;
    return nullptr;
  }
  std::unique_ptr<Made> made = make(c, engine);
  std::string why = made->error;
  if (why.empty() && made->workspace() > p->workspace)
    why =
        "it needs " + std::to_string(made->workspace()) + " bytes of workspace, more than it needed when measured";
  if (why.empty() && !run(made.get(), c, c.workspace)) why = made->error;
  if (!why.empty()) {
    refuse(c, why);
    return nullptr;
  }
  float error = pd_attention_error(choice.running, c.a, c.backward);
  if (!(error <= 1))
    pd_fail("cuDNN computes %s wrongly by %s: the error is %g times the rounding bound. help: plan without "
            "'\"attentions\"', so that pdc's kernels compute it",
            name.c_str(), text_of(engine).c_str(), static_cast<double>(error));
  return made;
}

static void run_planned(const pd_attention_call &c) {
  std::vector<Known> &known = choice.planned.known;
  auto same = [&](const Known &k) { return k.backward == c.backward && !memcmp(&k.of, c.of, sizeof k.of); };
  auto at = std::find_if(known.begin(), known.end(), same);
  if (at == known.end()) {
    known.push_back({*c.of, c.backward, start_planned(c)});
    if (!known.back().made) c.own();
    return;
  }
  Made *made = at->made.get();
  if (!made)
    c.own();
  else if (!run(made, c, c.workspace))
    pd_fail("cuDNN computed %s once and now refuses: %s", name_of(*c.of, c.backward).c_str(), made->error.c_str());
}

/* ---- the fastest ---------------------------------------------------------------------------------- */

static void free_timed() {
  pd_cuda_check(cudaStreamSynchronize(pd_stream), "make room for cuDNN");
  if (choice.timed.bytes) pd_cuda_check(cudaFree(choice.timed.at), "make room for cuDNN");
  choice.timed = {nullptr, 0};
}

/* NULL: not enough device memory. */
static void *timed_workspace(int64_t bytes) {
  if (bytes <= choice.timed.bytes) return choice.timed.at;
  free_timed();
  if (cudaMalloc(&choice.timed.at, static_cast<size_t>(bytes)) == cudaSuccess)
    choice.timed.bytes = bytes;
  else
    cudaGetLastError(); /* is dealt with */
  return choice.timed.bytes ? choice.timed.at : nullptr;
}

void pd_time_attentions(bool on) {
  choice.timing = on;
  if (on && !choice.timed_check.numbers)
    pd_cuda_check(cudaMalloc(&choice.timed_check.numbers, PD_ATTENTION_NUMBERS), "get memory to check attention");
  if (on) return;
  free_timed();
  pd_cuda_check(cudaFree(choice.timed_check.numbers), "free memory");
  choice.timed_check.numbers = nullptr;
}

/* The reason against an engine, by its plans in *made; empty: usable. */
static std::string try_engine(const pd_attention_call &c, const pd_cudnn_engine &engine, Made *made) {
  enum { RUNS = 8 };
  if (!made->error.empty()) return made->error;
  if (!made->deterministic()) return "it adds up in no fixed order";
  if (made->workspace() > PD_ATTENTION_WORKSPACE) return "it needs too much workspace";
  void *workspace = timed_workspace(made->workspace());
  if (made->workspace() && !workspace) return "the device has no memory for its workspace";
  uint64_t first = 0;
  for (int i = 0; i < RUNS; i++) {
    if (!run(made, c, workspace)) return made->error;
    uint64_t bits = pd_attention_bits(choice.timed_check, c.a, c.backward);
    if (i > 0 && bits != first) return "two runs gave different bits";
    first = bits;
  }
  float error = pd_attention_error(choice.timed_check, c.a, c.backward);
  if (error <= 1) return "";
  pd_note("cuDNN computes %s wrongly by %s: the error is %g times the rounding bound. This engine is not used",
          name_of(*c.of, c.backward).c_str(), text_of(engine).c_str(), static_cast<double>(error));
  return "its result is wrong";
}

/* Fills meaningful operands: for the backward pass o and lse belong to q, k and v. */
static void fill(const pd_attention_call &c) {
  pd_attention_fill(c.a, c.backward);
  if (c.backward) attention_forward_bf16(c.a);
}

static void measure(const pd_attention_call &c, Measured *m) {
  enum { MOST = 6 };
  std::vector<pd_cudnn_engine> engines = pd_attention_engines(graph_of(*c.of, c.backward).get(), c.backward);
  std::vector<std::unique_ptr<Made>> made;
  std::vector<pd_cudnn_engine> usable;
  if (engines.size() > MOST)
    engines.erase(engines.begin() + MOST - 1, engines.end() - 1); /* the last may be unlisted */
  fill(c);
  std::string why; /* the reason against the engine expected to be fastest */
  for (const pd_cudnn_engine &engine : engines) {
    std::unique_ptr<Made> one = make(c, engine);
    std::string refused = try_engine(c, engine, one.get());
    if (!refused.empty()) {
      if (why.empty()) why = refused;
      continue;
    }
    made.push_back(std::move(one));
    usable.push_back(engine);
  }
  if (made.empty()) {
    pd_note("cuDNN is not used for %s: %s", m->name.c_str(), why.empty() ? "it lists no engine" : why.c_str());
    return;
  }
  std::vector<std::function<void()>> runs = {c.own};
  for (auto &one : made) runs.push_back([&one, &c] { run(one.get(), c, timed_workspace(one->workspace())); });
  std::vector<double> seconds = pd_time_in_turns(runs);
  size_t best = 1;
  for (size_t i = 2; i < seconds.size(); i++)
    if (seconds[i] <= PD_FASTER * seconds[best]) best = i;
  m->own_seconds = seconds[0];
  m->seconds = seconds[best];
  m->engine = usable[best - 1];
  m->workspace = made[best - 1]->workspace();
  if (seconds[best] <= PD_FASTER * seconds[0]) m->made = std::move(made[best - 1]);
}

/* Results are kept by name; the first call's strides represent all. */
static void run_fastest(const pd_attention_call &c) {
  const std::string name = name_of(*c.of, c.backward);
  auto same = [&](const Measured *m) { return m->name == name; };
  auto at = std::find_if(choice.measured.begin(), choice.measured.end(), same);
  bool is_new = at == choice.measured.end();
  Measured *m = is_new ? new Measured{name, {}, 0, 0, 0, nullptr} : *at;
  if (is_new) {
    choice.measured.push_back(m);
    measure(c, m);
    if (m->seconds > 0) choice.untold.push_back(m);
  }
  if (!m->made || !run(m->made.get(), c, timed_workspace(m->workspace))) c.own();
}

void pd_tell_attentions(bool json) {
  for (const Measured *m : choice.untold) {
    if (!json && !m->made) continue;
    std::string knobs;
    for (int i = 0; i < m->engine.n; i++)
      for (int64_t x : {m->engine.knob[i].type, m->engine.knob[i].value})
        knobs += (knobs.empty() ? "" : ",") + std::to_string(x);
    const char *plain = "attention %lld %s %lld %.9g %.9g %s\n";
    const char *object = "{\"engine\": %lld, \"knobs\": [%s], \"workspace\": %lld, \"cudnn_seconds\": %.9g, "
                         "\"own_seconds\": %.9g, \"attention\": \"%s\"}\n";
    printf(json ? object : plain, static_cast<long long>(m->engine.id),
           knobs.empty() && !json ? "-" : knobs.c_str(), static_cast<long long>(m->workspace), m->seconds,
           m->own_seconds, m->name.c_str());
  }
  choice.untold.clear();
}

void pd_tell_cudnn(void) {
  std::string why;
  int64_t version = pd_cudnn_version(&why);
  if (version) printf("cudnn %lld %s\n", static_cast<long long>(version), pd_this_device().c_str());
}

/* ---- the choice ----------------------------------------------------------------------------------- */

void pd_attention_run(const pd_attention_call &call) {
  bool may = pd_attention_has_graph(*call.of);
  if (may && choice.timing)
    run_fastest(call);
  else if (may && choice.planned.n)
    run_planned(call);
  else
    call.own();
}
