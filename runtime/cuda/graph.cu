/* Passes as CUDA graphs (--graphs): with the same arguments a pass enqueues the same work, so it is recorded once
 * for each, and from then on launched as a whole. The first call of a pass is none of these: it loads kernels. */
#include "../internal.h"
#include "pd_cuda.h"

#include <algorithm>
#include <vector>

struct called {
  const void *pass;
  std::vector<uint64_t> arguments;
  cudaGraphExec_t graph;
};

static std::vector<const void *> passes; /* called before */
static std::vector<called> graphs;       /* the last one's graph is NULL while it is recorded */
static bool recording;

bool pd_device_recording(void) { return recording; }

bool pd_graph_launched(const void *pass, const uint64_t *arguments, size_t n) {
  if (!pd_options.graphs) return false;
  for (const called &c : graphs)
    if (c.pass == pass && std::equal(c.arguments.begin(), c.arguments.end(), arguments, arguments + n)) {
      pd_cuda_check(cudaGraphLaunch(c.graph, pd_stream), "launch a graph");
      return true;
    }
  if (std::find(passes.begin(), passes.end(), pass) == passes.end()) {
    passes.push_back(pass);
    return false;
  }
  graphs.push_back({pass, {arguments, arguments + n}, nullptr});
  pd_cuda_check(cudaStreamBeginCapture(pd_stream, cudaStreamCaptureModeThreadLocal), "record a graph");
  recording = true;
  return false;
}

void pd_graph_called(void) {
  cudaGraph_t graph;
  if (!recording) return;
  recording = false;
  pd_cuda_check(cudaStreamEndCapture(pd_stream, &graph), "record a graph");
  pd_cuda_check(cudaGraphInstantiate(&graphs.back().graph, graph, 0), "make a graph");
  pd_cuda_check(cudaGraphDestroy(graph), "give back a graph");
  pd_cuda_check(cudaGraphLaunch(graphs.back().graph, pd_stream), "launch a graph");
}

void pd_graphs_finish(void) {
  for (const called &c : graphs) pd_cuda_check(cudaGraphExecDestroy(c.graph), "give back a graph");
  graphs.clear();
}
