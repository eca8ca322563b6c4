/* Convolutions as cuDNN graphs (convolution_graph.cu), run by convolution.cu. */
#ifndef PD_CONVOLUTION_GRAPH_H
#define PD_CONVOLUTION_GRAPH_H

#include "cudnn_graphs.h"
#include "pd_kernels.h"

struct pd_convolution_graph {
  pd_cudnn_graph graph;
  std::vector<int> operands; /* in the order of the call: x, w, y; dy, w, dx; or x, dy, dw */
  bool keeps_floats;         /* f32 factors must not be rounded to TF32 */
  int64_t workspace;         /* planned bytes */
  std::vector<pd_cudnn_engine> engines;
  size_t tried = 0; /* engines tried so far */

  explicit pd_convolution_graph(const std::string &device) : graph(device) {}
};
std::unique_ptr<pd_convolution_graph> pd_convolution_graph_of(const struct pd_convolution_shape &s,
                                                              pd_cudnn_type type, bool allow_tf32,
                                                              const std::string &device);

/* Creates a plan with the next usable engine, in cuDNN's order. False: no engine is left. */
bool pd_convolution_next_plan(pd_convolution_graph *g, pd_cudnn_plan *plan);

#endif
