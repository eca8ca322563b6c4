/* Dynamic storage allocation for known lifetimes, greedily by size (Pisarchyk and Lee, "Efficient Memory
 * Management for Deep Neural Net Inference", 2020, section 5.2). */
#include "base/pack.h"

#include <stdlib.h>

typedef struct Order {
  const LiveRange *ranges;
  int index;
} Order;

static int larger_first(const void *x, const void *y) {
  const Order *a = x, *b = y;
  const LiveRange *i = &a->ranges[a->index], *j = &b->ranges[b->index];
  if (i->bytes != j->bytes)
    return i->bytes > j->bytes ? -1 : 1;
  if (i->first != j->first)
    return i->first < j->first ? -1 : 1;
  return a->index < b->index ? -1 : 1;
}

static bool live_together(const LiveRange *a, const LiveRange *b) {
  return a->first <= b->last && b->first <= a->last;
}

/* The offset for `range` among `placed`, which is sorted by offset. */
static int64_t best_gap(const LiveRange *ranges, const int *placed, int n, const LiveRange *range) {
  int64_t end = 0, best = -1, best_size = INT64_MAX;
  for (int i = 0; i < n; i++) {
    const LiveRange *other = &ranges[placed[i]];
    if (!live_together(range, other))
      continue;
    int64_t gap = other->offset - end;
    if (gap >= range->bytes && gap < best_size) {
      best = end;
      best_size = gap;
    }
    if (other->offset + other->bytes > end)
      end = other->offset + other->bytes;
  }
  return best >= 0 ? best : end;
}

int64_t pack(LiveRange *ranges, int n) {
  Order *order = alloc((size_t)n * sizeof *order);
  int *placed = alloc((size_t)n * sizeof *placed);
  for (int i = 0; i < n; i++)
    order[i] = (Order){ranges, i};
  qsort(order, (size_t)n, sizeof *order, larger_first);
  int64_t bytes = 0;
  for (int i = 0; i < n; i++) {
    LiveRange *range = &ranges[order[i].index];
    range->offset = best_gap(ranges, placed, i, range);
    int at = i;
    for (; at > 0 && ranges[placed[at - 1]].offset > range->offset; at--)
      placed[at] = placed[at - 1];
    placed[at] = order[i].index;
    if (range->offset + range->bytes > bytes)
      bytes = range->offset + range->bytes;
  }
  return bytes;
}
