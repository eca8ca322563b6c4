/* A convolution as a cuDNN graph of one operation: images by channels, [batch][height][width][channels] in memory,
 * weights [out][kernel 0][kernel 1][in], in one type, with sums in float. The graph and the device determine the
 * engine: the first, among the library's heuristics and then its fallbacks, that is deterministic, does not round
 * unnecessarily, and fits the planned workspace. */
#include "convolution_graph.h"
#include "scratch.h"

static pd_cudnn_convolution described(const struct pd_convolution_shape &s) {
  pd_cudnn_convolved kind = s.kind == PD_CONVOLUTION            ? PD_CUDNN_CONVOLVED
                            : s.kind == PD_CONVOLUTION_BACKWARD ? PD_CUDNN_IMAGES_GRADIENT
                                                                : PD_CUDNN_WEIGHTS_GRADIENT;
  return {kind, {s.padding[0], s.padding[1]}, {s.stride[0], s.stride[1]}, {s.dilation[0], s.dilation[1]}};
}

std::unique_ptr<pd_convolution_graph> pd_convolution_graph_of(const struct pd_convolution_shape &s,
                                                              pd_cudnn_type type, bool allow_tf32,
                                                              const std::string &device) {
  auto made = std::make_unique<pd_convolution_graph>(device);
  pd_cudnn_graph &g = made->graph;
  made->keeps_floats = type == PD_CUDNN_F32 && !allow_tf32;
  made->workspace = pd_convolution_workspace(&s);
  pd_cudnn_shape x = pd_cudnn_by_channels(s.batch, s.in_channels, s.height, s.width);
  pd_cudnn_shape w = pd_cudnn_by_channels(s.out_channels, s.in_channels / s.groups, s.kernel[0], s.kernel[1]);
  pd_cudnn_shape y =
      pd_cudnn_by_channels(s.batch, s.out_channels, pd_convolution_out(&s, 0), pd_convolution_out(&s, 1));
  bool gradient = s.kind == PD_CONVOLUTION_WEIGHTS, backward = s.kind == PD_CONVOLUTION_BACKWARD;
  int a = g.operand(type, backward ? y : x);
  int b = g.operand(type, gradient ? y : w);
  int to = g.operand(type, gradient ? w : backward ? x : y);
  g.convolution(described(s), a, b, to);
  made->operands = {a, b, to};
  made->engines = pd_cudnn_engines(&g, true);
  return made;
}

bool pd_convolution_next_plan(pd_convolution_graph *g, pd_cudnn_plan *plan) {
  while (g->tried < g->engines.size()) {
    *plan = pd_cudnn_plan_for(&g->graph, g->engines[g->tried++]);
    bool may = plan->deterministic && !plan->rounds && !(g->keeps_floats && plan->tensor_cores);
    if (plan->error.empty() && may && plan->workspace <= g->workspace) return true;
  }
  return false;
}
