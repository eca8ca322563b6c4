/* Who computes attention: without a plan our own kernels; where algorithms are timed the fastest of cuDNN's engines that
 * are right and keep their bits; by a plan's numbers the same bits again, wherever rows stand and whether samples come in
 * slices; our own kernels where cuDNN refuses. The stand-in's engines differ in the order of their sums, so that bits say which one it was. With an
 * argument (mask, statistic, stride) the stand-in gets that wrong, and a program that has such a plan must not go on. */
#include "test.h"

#include <cstdlib>
#include <cstring>
#include <string>

typedef std::vector<float> Floats;

/* Of q, k and v in one tensor, with so many elements between rows. */
struct Case {
  int64_t heads, kv_heads, length, size;
  bool causal;
  int64_t apart;
};
/* With SAMPLES=5 and PD_ATTENTION_WORKSPACE=20500 the backward passes of these are computed 2, 3, 5, 2 and 4 samples at a
 * time: the fourth's five samples in slices of 2, 2 and 1, the last's begin at multiples of 16 bytes. */
static const Case cases[] = {{4, 4, 40, 32, true, 0},
                             {4, 2, 33, 16, true, 0},
                             {2, 1, 24, 8, false, 0},
                             {2, 2, 40, 64, false, 0},
                             {1, 1, 33, 64, false, 0}};
#ifndef SAMPLES
#define SAMPLES 2
#endif
enum { N = sizeof cases / sizeof *cases };

/* The stand-in's workspace of a backward pass, but for 12 bytes. */
static int64_t sample_workspace(const Case &c) { return 2 * c.heads * c.length * c.size; }

static struct pd_attention describe(const Case &c, int64_t samples) {
  struct pd_attention a;
  memset(&a, 0, sizeof a);
  int64_t row = (c.heads + 2 * c.kv_heads) * c.size + c.apart, o_row = c.heads * c.size + c.apart;
  a.batch = samples, a.heads = c.heads, a.kv_heads = c.kv_heads, a.length = a.kv_length = c.length,
  a.size = c.size;
  a.causal = c.causal, a.scale = 1 / sqrtf((float)c.size);
  a.q = a.k = a.v = a.dq = a.dk = a.dv = {c.length * row, c.size, row};
  a.o = a.d_o = {c.length * o_row, c.size, o_row};
  return a;
}

/* Of each row's first `of` elements. */
static Floats without_gaps(const Floats &x, int64_t of, int64_t row) {
  Floats y;
  for (size_t i = 0; i < x.size(); i++)
    if ((int64_t)i % row < of) y.push_back(x[i]);
  return y;
}
static Floats with_gaps(const Floats &x, int64_t of, int64_t apart) {
  Floats y;
  for (size_t i = 0; i < x.size(); i++) {
    y.push_back(x[i]);
    for (int64_t j = 0; j < apart && (int64_t)(i + 1) % of == 0; j++) y.push_back(7);
  }
  return y;
}

/* Numbers of one of SAMPLES samples, or of all: sample -1. */
static Floats random_sample(int64_t numbers, int sample) {
  Floats all = random_floats(SAMPLES * numbers);
  if (sample < 0) return all;
  return Floats(all.begin() + sample * numbers, all.begin() + (sample + 1) * numbers);
}

/* The results: o, lse and gradients, one behind the other. `workspace`: bytes that the plan has room for. */
static Floats compute(const Case &c, int64_t workspace, int sample = -1) {
  struct pd_attention a = describe(c, sample < 0 ? SAMPLES : 1);
  random_state = 1;
  int64_t of = (c.heads + 2 * c.kv_heads) * c.size, o_of = c.heads * c.size, rows = a.batch * c.length;
  Array qkv(PD_BF16, with_gaps(random_sample(c.length * of, sample), of, c.apart));
  Array d_o(PD_BF16, with_gaps(random_sample(c.length * o_of, sample), o_of, c.apart));
  Array o(PD_BF16, filled(rows * (o_of + c.apart), 7)), d(PD_BF16, filled(rows * (of + c.apart), 7));
  Array lse(PD_F32, filled(rows * c.heads, 7));
  int64_t k = c.heads * c.size, v = k + c.kv_heads * c.size;
  Scratch forward(pd_cuda_attention_scratch(&a, false, workspace)),
      backward(pd_cuda_attention_scratch(&a, true, workspace));
  pd_in x = qkv.in();
  pd_out y = d.out();
  pd_attention_forward(&a, x, pd_moved(x, k), pd_moved(x, v), o.out(), lse.out(), forward.at());
  pd_attention_backward(&a, x, pd_moved(x, k), pd_moved(x, v), o.in(), lse.in(), d_o.in(), y, pd_moved(y, k),
                        pd_moved(y, v), backward.at());
  Floats all = without_gaps(o.fetch(), o_of, o_of + c.apart);
  for (const Floats &more : {lse.fetch(), without_gaps(d.fetch(), of, of + c.apart)})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

static std::vector<Floats> compute_all(int64_t apart, int64_t workspace) {
  std::vector<Floats> all;
  for (Case c : cases) {
    c.apart = apart;
    all.push_back(compute(c, workspace));
  }
  return all;
}

static void expect(bool good, const char *what) {
  if (!good) pd_fail("%s", what);
}

/* Rounded to bf16 otherwise, no more: of numbers below 8. */
static void expect_near(const std::vector<Floats> &x, const std::vector<Floats> &y) {
  for (size_t i = 0; i < x.size(); i++)
    for (size_t j = 0; j < x[i].size(); j++)
      if (!(fabsf(x[i][j] - y[i][j]) <= 0.05f))
        pd_fail("case %zu, element %zu: %g and %g", i, j, x[i][j], y[i][j]);
}

/* ---- what is told ---------------------------------------------------------------------------------- */

struct Told {
  pd_planned_attention of;
  double seconds, own_seconds;
  std::string name;
};

static std::vector<Told> told() {
  std::vector<Told> all;
  char line[512];
  FILE *screen = stdout, *file = tmpfile();
  stdout = file;
  pd_tell_attentions(false);
  stdout = screen;
  rewind(file);
  while (fgets(line, sizeof line, file)) {
    Told t = {};
    long long engine, type, value, workspace;
    int n = 0;
    sscanf(line, "attention %lld %lld,%lld %lld %lf %lf %n", &engine, &type, &value, &workspace, &t.seconds,
           &t.own_seconds, &n);
    if (!n) pd_fail("told: %s", line);
    t.of = {nullptr, engine, workspace, 1, {type, value}};
    t.name = std::string(line + n, strlen(line + n) - 1);
    all.push_back(t);
  }
  fclose(file);
  return all;
}

static std::vector<Told> measure() {
  pd_time_attentions(true);
  for (const Case &c : cases) compute(c, 0);
  std::vector<Told> plan = told();
  pd_time_attentions(false);
  return plan;
}

static const char *device; /* the stand-in's */

static void use(const std::vector<Told> &plan, const char *whose, int64_t version) {
  static std::vector<pd_planned_attention> table;
  table.clear();
  for (const Told &t : plan) {
    table.push_back(t.of);
    table.back().attention = t.name.c_str();
  }
  pd_use_attentions(table.data(), (int)table.size(), whose, version);
}

/* ---- the cases ------------------------------------------------------------------------------------- */

enum { QUICK = 2, VERSION = 91900 };

static std::vector<Told> the_fastest_that_is_right_is_taken() {
  std::vector<Told> plan = measure();
  expect(plan.size() == 2 * N, "each attention is told once");
  for (size_t i = 0; i < plan.size(); i++) {
    const Told &t = plan[i];
    bool any = !cases[i / 2].causal; /* who sees all keys is right, too, then */
    expect(t.of.engine == QUICK || (any && t.of.engine == 4), "another engine than the fastest that is right");
    expect(t.seconds < t.own_seconds, "it is not faster than our own kernels");
    expect(t.of.workspace >= 12, "no workspace is told");
  }
  expect(told().empty(), "told twice");
  expect(plan[0].name == "forward bf16 [" + std::to_string(SAMPLES) + ", 4, 40, 32] of [4, 40] causal",
         "what it is called");
  return plan;
}

static int64_t largest(const std::vector<Told> &plan) {
  int64_t most = 0;
  for (const Told &t : plan) most = t.of.workspace > most ? t.of.workspace : most;
  return most;
}

/* ---- slices ---------------------------------------------------------------------------------------- */

/* All results as they should be, from those of each sample computed alone. */
static std::vector<Floats> one_by_one(std::vector<Told> plan) {
  std::string samples = "[" + std::to_string(SAMPLES) + ",";
  for (Told &t : plan) t.name.replace(t.name.find(samples), samples.size(), "[1,");
  use(plan, device, VERSION);
  std::vector<Floats> all;
  for (const Case &c : cases) {
    size_t parts[] = {(size_t)(c.length * c.heads * c.size), (size_t)(c.length * c.heads),
                      (size_t)(c.length * (c.heads + 2 * c.kv_heads) * c.size)};
    Floats together[3];
    for (int sample = 0; sample < SAMPLES; sample++) {
      Floats one = compute(c, largest(plan), sample);
      auto from = one.begin();
      for (int i = 0; i < 3; from += (ptrdiff_t)parts[i++])
        together[i].insert(together[i].end(), from, from + (ptrdiff_t)parts[i]);
    }
    all.emplace_back();
    for (const Floats &part : together) all.back().insert(all.back().end(), part.begin(), part.end());
  }
  return all;
}

/* What each backward pass is planned to need is what its largest slice does, and bits are those of no slices. */
static void slices_have_the_same_bits(const std::vector<Told> &plan) {
  static const int64_t samples[N] = {2, 3, 5, 2, 4};
  for (size_t i = 0; i < N; i++) {
    int64_t all = sample_workspace(cases[i]) * SAMPLES + 12, limit = PD_ATTENTION_WORKSPACE;
    int64_t expected = all <= limit ? all : sample_workspace(cases[i]) * samples[i] + 12;
    if (plan[2 * i + 1].of.workspace != expected)
      pd_fail("case %zu: a workspace of %lld bytes, not %lld", i, (long long)plan[2 * i + 1].of.workspace,
              (long long)expected);
  }
  std::vector<Floats> alone = one_by_one(plan);
  use(plan, device, VERSION);
  expect(compute_all(0, largest(plan)) == alone, "samples computed together have other bits");
  expect(pd_counts.own_attentions == 0, "some were our own kernels'");
}

/* Slices of one sample need too much, or their rows' floats would begin at no multiples of 16 bytes. */
static void what_has_no_slices_is_left(void) {
  for (const Case &c : {Case{4, 4, 40, 96, true, 0}, Case{1, 1, 33, 128, true, 0}}) {
    if (sample_workspace(c) * SAMPLES + 12 <= PD_ATTENTION_WORKSPACE) continue;
    pd_time_attentions(true);
    compute(c, 0);
    std::vector<Told> plan = told();
    pd_time_attentions(false);
    expect(plan.size() == 1 && plan[0].name.find("forward") == 0, "a plan over the workspace limit is printed");
  }
}

/* ---- plans ----------------------------------------------------------------------------------------- */

static void a_plan_says_who(const std::vector<Told> &plan, const std::vector<Floats> &own) {
  use(plan, device, VERSION);
  std::vector<Floats> theirs = compute_all(0, largest(plan));
  expect(theirs != own, "cuDNN's bits are ours");
  expect_near(theirs, own);
  expect(compute_all(0, largest(plan)) == theirs, "the second time other bits");
  expect(compute_all(8, largest(plan)) == theirs, "where rows stand apart other bits");
  expect(pd_counts.own_attentions == 0, "some were our own kernels'");
}

/* The variable is as said until the next; then all is our own kernels' again, and counted. */
static void expect_own(const char *why, const std::vector<Told> &plan, const std::vector<Floats> &own) {
  static int64_t counted;
  expect(compute_all(0, largest(plan)) == own, why);
  counted += 2 * N;
  expect(pd_counts.own_attentions == counted, "counted wrongly");
  unsetenv("CUDNN_HOST_REFUSE");
  unsetenv("CUDNN_HOST_WORKSPACE");
}

static void what_is_refused_is_counted(const std::vector<Told> &plan, const std::vector<Floats> &own) {
  for (const char *what : {"graphs", "plans"}) {
    use(plan, device, VERSION);
    setenv("CUDNN_HOST_REFUSE", what, 1);
    expect_own(what, plan, own);
  }
  use(plan, device, VERSION);
  setenv("CUDNN_HOST_WORKSPACE", "1", 1);
  expect_own("a byte more of workspace", plan, own);
  use(plan, device, VERSION - 1);
  expect_own("another version's", plan, own);
  use(plan, "another", VERSION);
  expect_own("another device's", plan, own);
  std::vector<Told> wrong = plan;
  for (Told &t : wrong) t.of.knobs[1] += 90;
  use(wrong, device, VERSION);
  expect_own("knobs that no engine has", plan, own);
  int64_t counted = pd_counts.own_attentions;
  use({}, device, VERSION);
  expect(compute_all(0, 0) == own && pd_counts.own_attentions == counted, "of what no plan speaks");
}

int main(int n_arguments, char **argument) {
  cudaDeviceProp properties;
  pd_cuda_check(cudaGetDeviceProperties(&properties, 0), "ask for the device");
  pd_cuda_check(cudaStreamCreateWithFlags(&pd_stream, cudaStreamNonBlocking), "make a stream");
  device = properties.name;
  std::vector<Floats> own = compute_all(0, 0);
  if (n_arguments > 1) {
    const char *wrong = argument[1];
    std::vector<Told> plan;
    if (strcmp(wrong, "absent")) plan = the_fastest_that_is_right_is_taken();
    setenv(strcmp(wrong, "absent") ? "CUDNN_HOST_WRONG" : "CUDNN_HOST_REFUSE",
           strcmp(wrong, "absent") ? wrong : "library", 1);
    for (const Told &t : measure())
      if (!strcmp(wrong, "absent") || t.name.find("causal") != std::string::npos || strcmp(wrong, "mask"))
        pd_fail("what is wrong is told");
    if (!strcmp(wrong, "absent")) return 0;
    use(plan, device, VERSION);
    compute_all(0, largest(plan));
    pd_fail("a program goes on with what is wrong");
  }
  std::vector<Told> plan = the_fastest_that_is_right_is_taken();
  slices_have_the_same_bits(plan);
  what_has_no_slices_is_left();
  a_plan_says_who(plan, own);
  what_is_refused_is_counted(plan, own);
  return 0;
}
