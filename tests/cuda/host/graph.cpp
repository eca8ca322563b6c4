/* Graphs: what streams take while they are captured, to be launched again and again as one operation, in any order
 * that its nodes allow. */
#include "stream.h"

#include <algorithm>

struct cuda_host_graph_exec {
  std::vector<Node> nodes;
};

bool cuda_host_capturing() {
  return std::any_of(cuda_host_streams().begin(), cuda_host_streams().end(),
                     [](cuda_host_stream *s) { return s->capture; });
}

void cuda_host_capture(cuda_host_stream *s, cuda_host_operation operation) {
  if (operation.ready) cuda_host_die("%s cannot be captured here", operation.name);
  s->capture->nodes.push_back({std::move(operation), s->last});
  s->last = {(int)s->capture->nodes.size() - 1};
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  cuda_host_stream *s = cuda_host_valid(stream, "cudaStreamBeginCapture");
  if (s->capture) return cuda_host_error(cudaErrorStreamCaptureUnsupported);
  s->capture = new cuda_host_graph;
  s->capture->origin = s;
  s->last.clear();
  return cudaSuccess;
}

/* Whether node `early` comes before one of `late`, or is one. */
static bool leads_to(const cuda_host_graph &g, int early, const std::vector<int> &late) {
  return std::any_of(late.begin(), late.end(),
                     [&](int node) { return node == early || leads_to(g, early, g.nodes[(size_t)node].after); });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  cuda_host_stream *s = cuda_host_valid(stream, "cudaStreamEndCapture");
  cuda_host_graph *g = s->capture;
  *graph = nullptr;
  if (!g || g->origin != s) return cuda_host_error(cudaErrorStreamCaptureUnmatched);
  bool joined = true;
  for (cuda_host_stream *other : cuda_host_streams()) {
    if (other->capture != g) continue;
    for (int node : other->last) joined = joined && leads_to(*g, node, s->last);
    other->capture = nullptr;
  }
  if (!joined) {
    delete g;
    return cuda_host_error(cudaErrorStreamCaptureUnjoined);
  }
  *graph = g;
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
  cuda_host_stream *s = cuda_host_valid(stream, "cudaStreamIsCapturing");
  *status = s->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

/* With nodes NULL it counts them, which is all that is offered. */
cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t *nodes, size_t *n) {
  if (nodes) return cuda_host_error(cudaErrorNotSupported);
  *n = g->nodes.size();
  return cudaSuccess;
}

/* It may get memory and load kernels, and so waits for all that the device has to do. */
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t g, unsigned long long) {
  if (cudaError_t status = cudaDeviceSynchronize(); status != cudaSuccess) return status;
  *exec = new cuda_host_graph_exec{g->nodes};
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t stream) {
  cuda_host_valid(stream, "cudaGraphUpload");
  return cudaSuccess;
}

static void run_nodes(const std::vector<Node> &nodes) {
  std::vector<bool> done(nodes.size());
  for (size_t left = nodes.size(); left > 0; left--) {
    size_t i = cuda_host_random_below(nodes.size());
    while (done[i] || std::any_of(nodes[i].after.begin(), nodes[i].after.end(),
                                  [&](int before) { return !done[(size_t)before]; }))
      i = (i + 1) % nodes.size();
    const char *outer = cuda_host_doing;
    cuda_host_doing = nodes[i].operation.name;
    nodes[i].operation.run();
    cuda_host_doing = outer;
    done[i] = true;
  }
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  cuda_host_enqueue(stream, {"cudaGraphLaunch", [nodes = exec->nodes] { run_nodes(nodes); }});
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t g) {
  delete g;
  return cudaSuccess;
}
