/* Counts of fallbacks to slower kernels, for the log's last line (docs/reference/log.md, "End"). Results are
 * correct in any case. */
#ifndef PD_COUNTS_H
#define PD_COUNTS_H

#include <cstdint>

struct pd_counts {
  int64_t own_products;   /* calls in the program without a cuBLASLt algorithm, done by pdc's kernel without tensor
                                * cores */
  int64_t plain_products; /* products in bf16 or TF32 that cuBLASLt computes without tensor cores */
  int64_t other_algorithms;    /* products without the plan's algorithm (algorithms.cu) */
  int64_t separate_gelus;      /* calls with a separate kernel for GELU or its gradient */
  int64_t separate_sums;       /* calls with a separate kernel for sums of a factor, the gradient of a bias */
  int64_t refused_algorithms;  /* cuDNN engines that created a plan but failed to run it */
  int64_t column_convolutions; /* calls that cuDNN supports, but without an engine or without cuDNN */
  int64_t own_attentions;      /* calls planned for cuDNN that pdc's kernels compute */
  int64_t late_kernels;        /* call sites with a first kernel launch after the first two updates */
  bool settled;                /* the first two updates are done: loading a kernel now may stall the device */
};
inline struct pd_counts pd_counts;

/* Declared here because run.h has names that collide with scratch.h's. */
extern "C" void pd_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Called at each launch; the call site keeps `launched`. */
inline void pd_count_launch(bool *launched) {
  if (*launched) return;
  *launched = true;
  pd_counts.late_kernels += pd_counts.settled;
}

#endif
