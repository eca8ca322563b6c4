/* Passes as CUDA graphs (--graphs): a pass enqueues the same work for the same arguments, so it is recorded once
 * per arguments and then launched as a graph. The first call with some arguments is not recorded, because it loads
 * kernels and libraries choose algorithms. */
#include "run/run.h"
#include "pd_cuda.h"

#include <algorithm>
#include <vector>

struct called {
  const void *pass;
  std::vector<uint64_t> arguments;
  cudaGraphExec_t graph; /* NULL before the second call has recorded it */
};

static struct {
  std::vector<called> calls;
  size_t recorded; /* the call that is being recorded, if any */
  bool recording;
} passes;

bool pd_device_recording(void) { return passes.recording; }

bool pd_graph_launched(const void *pass, const uint64_t *arguments, size_t n) {
  if (!pd_options.graphs) return false;
  auto same = [&](const called &c) {
    return c.pass == pass && std::equal(c.arguments.begin(), c.arguments.end(), arguments, arguments + n);
  };
  auto found = std::find_if(passes.calls.begin(), passes.calls.end(), same);
  if (found == passes.calls.end()) {
    passes.calls.push_back({pass, {arguments, arguments + n}, nullptr});
    return false;
  }
  if (found->graph) {
    pd_cuda_check(cudaGraphLaunch(found->graph, pd_stream), "launch a graph");
    return true;
  }
  passes.recorded = static_cast<size_t>(found - passes.calls.begin());
  pd_cuda_check(cudaStreamBeginCapture(pd_stream, cudaStreamCaptureModeThreadLocal), "record a graph");
  passes.recording = true;
  return false;
}

void pd_graph_called(void) {
  cudaGraph_t graph;
  if (!passes.recording) return;
  passes.recording = false;
  pd_cuda_check(cudaStreamEndCapture(pd_stream, &graph), "record a graph");
  cudaGraphExec_t &made = passes.calls[passes.recorded].graph;
  pd_cuda_check(cudaGraphInstantiate(&made, graph, 0), "make a graph");
  pd_cuda_check(cudaGraphDestroy(graph), "give back a graph");
  pd_cuda_check(cudaGraphLaunch(made, pd_stream), "launch a graph");
}

void pd_graphs_finish(void) {
  for (const called &c : passes.calls)
    if (c.graph) pd_cuda_check(cudaGraphExecDestroy(c.graph), "give back a graph");
  passes.calls.clear();
}
