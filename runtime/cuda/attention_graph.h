/* Attention as graphs of cuDNN's (attention_graph.cu), and by its plans (attention_cudnn.cu). */
#ifndef PD_ATTENTION_GRAPH_H
#define PD_ATTENTION_GRAPH_H

#include "cudnn_graphs.h"
#include "pd_runtime.h"

/* Whether cuDNN has a graph for it: in bf16, without a mask that is a tensor. */
bool pd_attention_has_graph(const struct pd_attention &a);

/* A graph and its operands, in the order in which runs are given their memory: forward q, k, v, o, lse; backward q, k, v,
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

/* The engines that might do it with the same bits in every run: those listed, and one that cuDNN does not list. */
std::vector<pd_cudnn_engine> pd_attention_engines(pd_attention_graph *g, bool backward);

#endif
