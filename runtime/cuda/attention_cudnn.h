/* Attention by cuDNN, where the plan says so (attention_cudnn.cu), and what it is held against (attention_check.cu). */
#ifndef PD_ATTENTION_CUDNN_H
#define PD_ATTENTION_CUDNN_H

#include "attention.h"

#include <functional>

/* A call: what it is of, as kernels know it, with room behind what our own kernels need of scratch. */
struct pd_attention_call {
  const struct pd_attention *of;
  attention a;
  bool backward;
  void *workspace, *delta;   /* delta: [batch][heads][length] floats; backward */
  std::function<void()> own; /* enqueues our own kernels */
};

/* Enqueues the call: by cuDNN where the plan says so and cuDNN still can, otherwise by our own kernels. Where algorithms
 * are timed (pd_time_attentions) by the fastest, of operands that are filled for that. */
void pd_attention_run(const pd_attention_call &call);

/* Device memory for what these find, PD_ATTENTION_NUMBERS bytes, and whether other ranks' messages have to move on while
 * the host waits for that. */
struct pd_attention_check {
  void *numbers;
  bool among_others;
};
enum { PD_ATTENTION_NUMBERS = 1024 * 8 };
/* How far off results are, as a share of what rounding to bf16 and sums in floats explain: over 1 they are wrong. Rows
 * are looked at here and there by plain loops. */
float pd_attention_error(const pd_attention_check &c, const attention &a, bool backward);
/* A number of all bits of the results: of the same results the same. */
uint64_t pd_attention_bits(const pd_attention_check &c, const attention &a, bool backward);
/* Numbers in q, k, v and, for the backward pass, d_o, such that scores are spread over some units. */
void pd_attention_fill(const attention &a, bool backward);

#endif
