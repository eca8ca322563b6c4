/* Private to compiler/plan: the choice of cuts as a problem about plain numbers. */
#ifndef PDC_PARTITION_H
#define PDC_PARTITION_H

#include "plan/cost/spans.h"
#include "plan/problem/budgets.h"

typedef struct Partition {
  int *start;      /* by stage, and n at the end: stages + 1 */
  bool *recompute; /* by stage */
  double slowest;  /* seconds of a microbatch at the slowest stage */
  double value; /* what is minimised: with what stages wait while the pipeline fills and drains, shared out among
                      the microbatches; else the slowest */
} Partition;

/* The partition into `stages` stages of the least value, none above `limit` bytes, exactly; among equals the one
 * whose stages' times have the least sum of squares (of a pipeline that drains: with every stage's followers as
 * fast as can be). False when none fits whose value is at most `most`. */
bool partition_fastest(const Spans *spans, const Copies *at, int stages, int64_t limit, double most,
                       Partition *out);
/* The partition that starts its stages at start[0 .. stages - 1]: recomputes where it must to stay below the
 * limit. False when some stage does not fit; `out` then has its smallest form. */
bool partition_pinned(const Spans *spans, const Copies *at, int stages, const int *start, int64_t limit,
                      Partition *out);
/* The partition whose largest stage is smallest; returns that stage's bytes. */
int64_t partition_smallest(const Spans *spans, const Copies *at, int stages, Partition *out);
/* The same where it need not be the very smallest: of many cuts some hundreds that lie evenly are looked at. */
int64_t partition_small(const Spans *spans, const Copies *at, int stages, Partition *out);

#endif
