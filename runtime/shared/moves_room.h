/* Private to moves.c: how full memory is at every step, as sums that grow over ranges of steps. */
#ifndef PD_MOVES_ROOM_H
#define PD_MOVES_ROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A tree over the steps: what is added to all below a node, and the most that a step below it has. */
struct pd_fill {
  int64_t steps, leaves;
  int64_t *added, *most;
};

void pd_fill_start(struct pd_fill *f, int64_t steps, void *(*take)(size_t bytes));
/* Steps of a batch in a ring, from <= to < from + steps; `from` may be negative. */
void pd_fill_add(struct pd_fill *f, int64_t from, int64_t to, int64_t bytes);
int64_t pd_fill_most(const struct pd_fill *f, int64_t from, int64_t to); /* of none: 0 */
/* The first step s from `from` on so that all from s to `to` have at most so many bytes; to + 1: not even `to` has. */
int64_t pd_fill_since(const struct pd_fill *f, int64_t from, int64_t to, int64_t bytes);
/* The first from `from` on that has more; to + 1: none to `to`. */
int64_t pd_fill_until(const struct pd_fill *f, int64_t from, int64_t to, int64_t bytes);

#endif
