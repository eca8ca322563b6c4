/* Attention as cuDNN graphs (attention_graph.cu), run by attention_cudnn.cu. */
#ifndef PD_ATTENTION_GRAPH_H
#define PD_ATTENTION_GRAPH_H

#include "cudnn_graphs.h"
#include "pd_kernels.h"

/* True if cuDNN supports the attention: bf16, without mask, documents, window and cap. */
bool pd_attention_has_graph(const struct pd_attention &a);

/* A graph and its operands in the order of run arguments: forward q, k, v, o, lse; backward q, k, v,
 * o, lse, d_o, delta (a float of each row, in scratch), dq, dk, dv. */
struct pd_attention_graph {
  pd_cudnn_graph graph;
  std::vector<int> operands;
  explicit pd_attention_graph(const std::string &device) : graph(device) {}
};
std::unique_ptr<pd_attention_graph> pd_attention_forward_graph(const struct pd_attention &a,
                                                               const std::string &device);
std::unique_ptr<pd_attention_graph> pd_attention_backward_graph(const struct pd_attention &a,
                                                                const std::string &device);

/* Engines that may be deterministic: those that cuDNN lists, and one more that it does not list. */
std::vector<pd_cudnn_engine> pd_attention_engines(pd_attention_graph *g, bool backward);

#endif
