/* The graphs that runtime/cuda makes of convolutions, given to the real cuDNN without a GPU, for devices that are described
 * to it: every convolution here, of models and at the edges, must have a plan that a program may use, within the workspace
 * that is planned for it, in each of its three directions.
 *     convolutions ARCH        80 or 90
 * Prints "CONVOLUTION: ENGINE WORKSPACE" for each. Exit status 77: no cuDNN that does this is found. */
#include "convolution_graph.h"
#include "devices.h"
#include "scratch.h"

#include <cstdlib>

struct Case {
  const char *model;
  int64_t batch, in, size, out, kernel[2], padding[2], stride, dilation;
};
static const Case cases[] = {
    {"resnet50, first", 32, 3, 224, 64, {7, 7}, {3, 3}, 2, 1},
    {"resnet50, 64 channels", 32, 64, 56, 64, {3, 3}, {1, 1}, 1, 1},
    {"resnet50, to half the size", 32, 128, 56, 128, {3, 3}, {1, 1}, 2, 1},
    {"resnet50, beside a block", 32, 256, 56, 512, {1, 1}, {0, 0}, 2, 1},
    {"resnet50, 512 channels", 32, 512, 7, 512, {3, 3}, {1, 1}, 1, 1},
    {"vgg16, first", 16, 3, 224, 64, {3, 3}, {1, 1}, 1, 1},
    {"vgg16, the largest", 16, 64, 224, 64, {3, 3}, {1, 1}, 1, 1},
    {"vgg16, 512 channels", 16, 512, 14, 512, {3, 3}, {1, 1}, 1, 1},
    {"inception, first", 32, 3, 299, 32, {3, 3}, {0, 0}, 2, 1},
    {"inception, 5 x 5", 32, 48, 35, 64, {5, 5}, {2, 2}, 1, 1},
    {"inception, rows of 7", 32, 160, 17, 160, {1, 7}, {0, 3}, 1, 1},
    {"inception, columns of 7", 32, 160, 17, 192, {7, 1}, {3, 0}, 1, 1},
    {"inception, to a smaller grid", 32, 288, 35, 384, {3, 3}, {0, 0}, 2, 1},
    {"with gaps", 4, 32, 32, 48, {3, 3}, {2, 2}, 1, 2},
    {"odd channels", 3, 5, 9, 7, {3, 3}, {1, 1}, 1, 1},
};

static struct pd_convolution_shape describe(const Case &c, pd_convolution_kind kind) {
  struct pd_convolution_shape s = {};
  s.kind = kind;
  s.batch = c.batch, s.in_channels = c.in, s.out_channels = c.out, s.groups = 1;
  s.height = s.width = c.size;
  for (int axis = 0; axis < 2; axis++) {
    s.kernel[axis] = c.kernel[axis], s.padding[axis] = c.padding[axis];
    s.stride[axis] = c.stride, s.dilation[axis] = c.dilation;
  }
  return s;
}

struct Numbers {
  const char *name;
  pd_cudnn_type type;
  bool allow_tf32;
};
static const Numbers numbers[] = {{"f32", PD_CUDNN_F32, false},
                                  {"tf32", PD_CUDNN_F32, true},
                                  {"bf16", PD_CUDNN_BF16, false}};
static const struct {
  const char *name;
  pd_convolution_kind kind;
} directions[] = {{"forward", PD_CONVOLUTION},
                  {"images", PD_CONVOLUTION_BACKWARD},
                  {"weights", PD_CONVOLUTION_WEIGHTS}};

static int failures;

static void expect_plan(const Case &c, const std::string &device) {
  for (const Numbers &n : numbers)
    for (const auto &d : directions) {
      struct pd_convolution_shape s = describe(c, d.kind);
      auto g = pd_convolution_graph_of(s, n.type, n.allow_tf32, device);
      pd_cudnn_plan plan;
      bool found = pd_convolution_next_plan(g.get(), &plan);
      bool right = found && plan.workspace <= pd_convolution_workspace(&s) && plan.deterministic && !plan.rounds &&
                   (n.type == PD_CUDNN_BF16 || n.allow_tf32 || !plan.tensor_cores);
      printf("%s%s, %s, %s: engine %lld, number %zu of %zu, workspace %lld%s %s\n", right ? "" : "FAIL ", c.model,
             d.name, n.name, found ? (long long)g->engines[g->tried - 1].id : -1, g->tried, g->engines.size(),
             (long long)plan.workspace, plan.tensor_cores ? ", on tensor cores" : "", g->graph.error.c_str());
      failures += !right;
    }
}

/* What cuDNN says of its engines is read: some of these, for the weights' gradient, do not add up in one order, some take
 * floats to tensor cores, and some do neither. */
static void expect_notes(const std::string &device) {
  struct pd_convolution_shape s = describe(cases[0], PD_CONVOLUTION_WEIGHTS);
  auto g = pd_convolution_graph_of(s, PD_CUDNN_F32, true, device);
  int unsure = 0, on_tensor_cores = 0, neither = 0;
  for (const pd_cudnn_engine &engine : g->engines) {
    pd_cudnn_plan plan = pd_cudnn_plan_for(&g->graph, engine);
    unsure += !plan.deterministic, on_tensor_cores += plan.tensor_cores;
    neither += plan.deterministic && !plan.tensor_cores;
  }
  bool right = unsure && on_tensor_cores && neither;
  printf("%s%d engines are not deterministic, %d on tensor cores, %d neither\n", right ? "" : "FAIL ", unsure,
         on_tensor_cores, neither);
  failures += !right;
}

/* What cuDNN can see to be wrong. */
static void expect_refusal(const std::string &device) {
  struct pd_convolution_shape s = describe(cases[0], PD_CONVOLUTION);
  s.dilation[0] = s.dilation[1] = 0;
  auto g = pd_convolution_graph_of(s, PD_CUDNN_F32, false, device);
  pd_cudnn_plan plan;
  bool refused = !pd_convolution_next_plan(g.get(), &plan) && !g->graph.error.empty();
  printf("%sa dilation of 0: %s\n", refused ? "" : "FAIL ", g->graph.error.c_str());
  failures += !refused;
}

int main(int n, char **argument) {
  std::string why;
  if (!pd_cudnn_version(&why)) {
    printf("skipped: %s\n", why.c_str());
    return 77;
  }
  const std::string device = device_in_words(n > 1 ? atoi(argument[1]) : 90);
  for (const Case &c : cases) expect_plan(c, device);
  expect_notes(device);
  expect_refusal(device);
  return failures > 0;
}
