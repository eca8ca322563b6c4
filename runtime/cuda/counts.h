/* What is slower than it was meant to be, counted for the log's last line (docs/reference/log.md, "End"). Kernels and
 * libraries do it without a word, and results are right all the same. */
#ifndef PD_COUNTS_H
#define PD_COUNTS_H

#include <cstdint>

struct pd_counts {
  int64_t own_products;     /* calls in the program whose products cuBLASLt has no algorithm for: a kernel of ours
                                * without tensor cores does them */
  int64_t plain_products;   /* that cuBLASLt does without tensor cores, though they are of bf16 or TF32 */
  int64_t other_algorithms; /* that it does not do by the plan's algorithm (algorithms.cu) */
  int64_t separate_gelus;   /* calls whose GELU, or its gradient, a kernel of ours applies behind the product */
  int64_t separate_sums;    /* calls whose sums of a factor, the gradient of a bias, a kernel of ours makes */
  int64_t refused_algorithms;  /* cuDNN's engines that made a plan and would not run it */
  int64_t column_convolutions; /* calls in the program that cuDNN could do, but has no engine for, or is missing */
  int64_t own_attentions;      /* calls in the program that the plan gives to cuDNN and kernels of ours compute */
  int64_t late_kernels; /* places that launched their kernel for the first time after the first two updates */
  bool settled;         /* those are over: a kernel that is loaded now may hold up all that runs */
};
inline struct pd_counts pd_counts;

/* log.c's. internal.h, which declares it for the rest of the runtime, has names that scratch.h has, too. */
extern "C" void pd_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Called at a place's every launch; whether it has launched before is the place's to keep. */
inline void pd_count_launch(bool *launched) {
  if (*launched) return;
  *launched = true;
  pd_counts.late_kernels += pd_counts.settled;
}

#endif
