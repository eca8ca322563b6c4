/* Private to compiler/plan: the choice of cuts over plain numbers. */
#ifndef PDC_PARTITION_H
#define PDC_PARTITION_H

#include "plan/cost/spans.h"
#include "plan/problem/budgets.h"

typedef struct Partition {
  int *start;     /* by stage, then n: stages + 1 entries */
  int *recompute; /* by stage: SAVE_ALL, REPEAT_ALL, recompute_at() */
  double slowest; /* seconds per microbatch of the slowest stage */
  double value;   /* the minimized value, in seconds per microbatch; includes waits of filling and draining */
} Partition;

/* The exact partition into `stages` stages with the least value, each stage within `limit` bytes. Ties go to the
 * least sum of squares of stage times. False: none fits with a value up to `most`. */
bool partition_fastest(const Spans *spans, const Copies *at, int stages, int64_t limit, double most,
                       Partition *out);
/* The partition with stages at start[0 .. stages - 1]; recomputes where the limit requires it. False: a stage does
 * not fit; `out` then has its smallest form. */
bool partition_pinned(const Spans *spans, const Copies *at, int stages, const int *start, int64_t limit,
                      Partition *out);
/* The partition with the smallest largest stage; returns that stage's bytes. */
int64_t partition_smallest(const Spans *spans, const Copies *at, int stages, Partition *out);
/* An approximation on a few hundred evenly spaced cuts. */
int64_t partition_small(const Spans *spans, const Copies *at, int stages, Partition *out);

#endif
