/* The graphs that runtime/cuda makes of attention, given to the real cuDNN without a GPU, for devices that are described
 * to it: every attention of the models must have engines, plans of these, and a workspace that is planned for.
 *     plans ARCH        80, 90 or 100
 * Prints "GRAPH: ENGINE WORKSPACE" for each plan. Exit status 77: no cuDNN that does this is found. */
#include "attention_graph.h"
#include "devices.h"
#include "scratch.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

/* Attentions of models, and some at the edges: q, k and v are slices of one tensor, or stand apart, as in tensor.pdm. */
struct Case {
  const char *model;
  int64_t batch, heads, kv_heads, length, size;
  bool causal;
};
static const Case cases[] = {
    {"gpt2", 8, 12, 12, 1024, 64, true},
    {"gpt2, a large microbatch", 32, 12, 12, 1024, 64, true},
    {"llama_mini", 8, 8, 2, 128, 32, true},
    {"llama of 7 B", 1, 32, 8, 4096, 128, true},
    {"bert without a mask", 8, 12, 12, 512, 64, false},
    {"odd rows", 3, 4, 2, 100, 40, true},
    {"a head", 4, 1, 1, 128, 64, true},
};

static struct pd_attention describe(const Case &c) {
  struct pd_attention a = {};
  int64_t row = (c.heads + 2 * c.kv_heads) * c.size, o_row = c.heads * c.size;
  a.batch = c.batch, a.heads = c.heads, a.kv_heads = c.kv_heads, a.length = a.kv_length = c.length,
  a.size = c.size;
  a.causal = c.causal, a.scale = 1 / sqrtf((float)c.size);
  a.q = a.k = a.v = a.dq = a.dk = a.dv = {c.length * row, c.size, row};
  a.o = a.d_o = {c.length * o_row, c.size, o_row};
  if (c.heads == 1)
    for (auto *strides : {&a.q, &a.k, &a.v, &a.o, &a.d_o, &a.dq, &a.dk, &a.dv})
      strides->head = 0; /* as pdc says it */
  return a;
}

static int failures;

/* Plans of all engines; the smallest workspace that one takes, -1: there is no plan. */
static int64_t try_all(const Case &c, const std::string &device, bool backward) {
  struct pd_attention a = describe(c);
  auto g = backward ? pd_attention_backward_graph(a, device) : pd_attention_forward_graph(a, device);
  int64_t least = -1;
  for (const pd_cudnn_engine &engine : pd_attention_engines(g.get(), backward)) {
    pd_cudnn_plan plan = pd_cudnn_plan_for(&g->graph, engine);
    if (!plan.error.empty() || !plan.deterministic) continue;
    printf("%s %s: engine %lld, workspace %lld\n", c.model, backward ? "backward" : "forward",
           (long long)engine.id, (long long)plan.workspace);
    if (least < 0 || plan.workspace < least) least = plan.workspace;
  }
  if (least < 0) printf("FAIL %s %s: %s\n", c.model, backward ? "backward" : "forward", g->graph.error.c_str());
  failures += least < 0;
  return least;
}

/* What docs/guide/gpus.md says of the workspaces. */
static void expect_workspace(const Case &c, int arch, bool backward, int64_t bytes) {
  int64_t scores = 2 * c.batch * c.heads * c.length * c.length;
  int64_t all_heads =
      c.heads > c.kv_heads ? 8 * c.batch * c.heads * c.length * c.size : 0; /* dk and dv in floats */
  bool good = !backward ? bytes <= 256 : arch >= 100 ? bytes <= all_heads + 256 : bytes >= scores;
  if (bytes >= 0 && !good) printf("FAIL %s: a workspace of %lld bytes\n", c.model, (long long)bytes), failures++;
}

/* An engine of the large microbatch also makes plans of its slices, within the limit: of 8 samples, and of 7 as a rest. */
static void expect_slices(const Case &c, const std::string &device) {
  struct pd_attention a = describe(c);
  auto all = pd_attention_backward_graph(a, device);
  for (const pd_cudnn_engine &engine : pd_attention_engines(all.get(), true)) {
    if (!pd_cudnn_plan_for(&all->graph, engine).error.empty()) continue;
    for (int64_t samples : {8, 7}) {
      a.batch = samples;
      auto slice = pd_attention_backward_graph(a, device);
      pd_cudnn_plan plan = pd_cudnn_plan_for(&slice->graph, engine);
      bool good = plan.error.empty() && plan.workspace <= PD_ATTENTION_WORKSPACE;
      printf("%s, %lld samples: engine %lld, workspace %lld %s\n", c.model, (long long)samples,
             (long long)engine.id, (long long)plan.workspace, plan.error.c_str());
      if (!good) printf("FAIL a slice\n"), failures++;
    }
  }
}

/* Graphs that are wrong in a way that cuDNN can see. */
static void expect_refusals(const std::string &device) {
  struct pd_attention a = describe(cases[0]);
  a.size = 4; /* rows of 8 bytes */
  auto none = pd_attention_forward_graph(a, device);
  bool refused = pd_attention_engines(none.get(), false).empty();
  a = describe(cases[0]);
  auto graph = pd_attention_forward_graph(a, device);
  std::string why = pd_cudnn_plan_for(&graph->graph, {77, 0, {}}).error;
  printf("engine 77: %s\n", why.c_str());
  refused = refused && !why.empty();
  if (!refused) printf("FAIL what is wrong is taken\n"), failures++;
}

int main(int n, char **argument) {
  std::string why;
  int arch = n > 1 ? atoi(argument[1]) : 90;
  if (!pd_cudnn_version(&why)) {
    printf("skipped: %s\n", why.c_str());
    return 77;
  }
  printf("cuDNN %lld\n", (long long)pd_cudnn_version(&why));
  const std::string device = device_in_words(arch);
  for (const Case &c : cases)
    for (bool backward : {false, true}) expect_workspace(c, arch, backward, try_all(c, device, backward));
  expect_slices(cases[1], device);
  expect_refusals(device);
  return failures > 0;
}
