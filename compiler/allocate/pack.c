/* Dynamic storage allocation for known lifetimes, greedily by size (Pisarchyk and Lee, "Efficient Memory
 * Management for Deep Neural Net Inference", 2020, section 5.2). */
#include "allocate/allocation.h"

#include <stdlib.h>

typedef struct Order { const Item *items; int index; } Order;

static int larger_first(const void *x, const void *y) {
  const Order *a = x, *b = y;
  const Item *i = &a->items[a->index], *j = &b->items[b->index];
  if (i->bytes != j->bytes)
    return i->bytes > j->bytes ? -1 : 1;
  if (i->first != j->first)
    return i->first < j->first ? -1 : 1;
  return a->index < b->index ? -1 : 1;
}

static bool meet(const Item *a, const Item *b) {
  return a->first <= b->last && b->first <= a->last;
}

/* The offset for `item` among `placed`, which is sorted by offset. */
static int64_t best_gap(const Item *items, const int *placed, int n, const Item *item) {
  int64_t end = 0, best = -1, best_size = INT64_MAX;
  for (int i = 0; i < n; i++) {
    const Item *other = &items[placed[i]];
    if (!meet(item, other))
      continue;
    int64_t gap = other->offset - end;
    if (gap >= item->bytes && gap < best_size) {
      best = end;
      best_size = gap;
    }
    if (other->offset + other->bytes > end)
      end = other->offset + other->bytes;
  }
  return best >= 0 ? best : end;
}

int64_t pack(Item *items, int n) {
  Order *order = alloc((size_t)n * sizeof *order);
  int *placed = alloc((size_t)n * sizeof *placed);
  for (int i = 0; i < n; i++)
    order[i] = (Order){items, i};
  qsort(order, (size_t)n, sizeof *order, larger_first);
  int64_t bytes = 0;
  for (int i = 0; i < n; i++) {
    Item *item = &items[order[i].index];
    item->offset = best_gap(items, placed, i, item);
    int at = i;
    for (; at > 0 && items[placed[at - 1]].offset > item->offset; at--)
      placed[at] = placed[at - 1];
    placed[at] = order[i].index;
    if (item->offset + item->bytes > bytes)
      bytes = item->offset + item->bytes;
  }
  return bytes;
}
