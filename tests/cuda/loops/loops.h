/* A model's loops as print.c prints them, in C and in CUDA: the same kernels in the same order. */
#ifndef TEST_LOOPS_H
#define TEST_LOOPS_H

#include <stdbool.h>
#include <stdint.h>

enum { LOOPS_FIRST_SAMPLE = 24, LOOPS_FOLLOWING = 3, LOOPS_SEED = 7, MOST_ARRAYS = 96 };
enum { LOOPS_FLOAT, LOOPS_BF16, LOOPS_TOKEN };

struct loop_array {
  const char *name;
  int64_t elements;
  int type;
  bool written;
};

struct loop {
  const char *name;
  void (*run)(bool first, void *const *x, char *scratch);
  bool exact;      /* both targets give the same bits */
  int64_t scratch; /* bytes */
  int n;
  struct loop_array array[MOST_ARRAYS];
};

#ifdef __cplusplus
extern "C" {
#endif
extern const struct loop c_loops[], cuda_loops[];
extern const int n_c_loops, n_cuda_loops;
#ifdef __cplusplus
}
#endif

#endif
