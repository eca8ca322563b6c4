/* Attention by cuDNN, where planned (attention_cudnn.cu), and its verification (attention_check.cu). */
#ifndef PD_ATTENTION_CUDNN_H
#define PD_ATTENTION_CUDNN_H

#include "attention.h"

#include <functional>

/* A call, with cuDNN's workspace after the scratch memory of pdc's kernels. */
struct pd_attention_call {
  const struct pd_attention *of;
  attention a;
  bool backward;
  void *workspace, *delta;   /* delta: [batch][heads][length] floats; backward */
  std::function<void()> own; /* enqueues pdc's kernels */
};

/* Enqueues the call: by cuDNN if planned and supported, else by pdc's kernels. With timing (pd_time_attentions):
 * by the fastest, with operands filled for the timing. */
void pd_attention_run(const pd_attention_call &call);

/* Device memory of PD_ATTENTION_NUMBERS bytes for results, and whether to advance other ranks' messages during
 * waits. */
struct pd_attention_check {
  void *numbers;
  bool among_others;
};
enum { PD_ATTENTION_NUMBERS = 1024 * 8 };
/* The error of the results relative to the rounding bound of bf16 and f32 sums; above 1 they are wrong. Plain
 * loops check a sample of rows. */
float pd_attention_error(const pd_attention_check &c, const attention &a, bool backward);
/* A hash of all bits of the results. */
uint64_t pd_attention_bits(const pd_attention_check &c, const attention &a, bool backward);
/* Fills q, k, v and, for the backward pass, d_o such that scores vary by some units. */
void pd_attention_fill(const attention &a, bool backward);

#endif
