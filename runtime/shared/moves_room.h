/* Private to moves.c: used memory at every step, with additions over ranges of steps. */
#ifndef PD_MOVES_ROOM_H
#define PD_MOVES_ROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A tree over the steps: the addition to all steps below a node, and the maximum over these steps. */
struct pd_fill {
  int64_t steps, leaves;
  int64_t *added, *most;
};

void pd_fill_start(struct pd_fill *f, int64_t steps, void *(*take)(size_t bytes));
/* Steps of a batch form a ring, from <= to < from + steps; `from` may be negative. */
void pd_fill_add(struct pd_fill *f, int64_t from, int64_t to, int64_t bytes);
int64_t pd_fill_most(const struct pd_fill *f, int64_t from, int64_t to); /* 0 for an empty range */
/* The first step s, from `from`, such that all steps from s to `to` have at most `bytes`; to + 1: none. */
int64_t pd_fill_since(const struct pd_fill *f, int64_t from, int64_t to, int64_t bytes);
/* The first step from `from` to `to` with more than `bytes`; to + 1: none. */
int64_t pd_fill_until(const struct pd_fill *f, int64_t from, int64_t to, int64_t bytes);

#endif
