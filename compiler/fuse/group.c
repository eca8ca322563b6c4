/* Decides which items share a loop. Each group only needs earlier groups. An item joins the first loop group with
 * its region, segment, iteration space and accumulation that is not before its operands. Fusion only moves computations, so
 * rounding is unchanged. */
#include <string.h>

#include "fuse/internal.h"

enum { DEEPEST = 24 }; /* phases of a loop are bits of Term.phases */

/* Groups of one direction under construction. */
typedef struct Grouping {
  const Fuse *f;
  Direction d;
  const ItemList *items;
  Groups *groups;
  int *computed_in; /* by value: the group that computes it; -1 */
  int *depth;       /* by value: consecutive row reductions from its group's start to it */
  int *ready;       /* by value: the first group that may read it from memory */
  Ints *concats;    /* by value: the concatenations that it is a part of; NULL: none */
} Grouping;

static bool item_is_loop(const Fuse *f, const Item *it) {
  return it->kind != ITEM_NODE || is_loop_node(node_at(f, it->node));
}

/* Whether only a loop over exactly its shape can compute the item. */
static bool item_counts(const Fuse *f, Direction d, const Item *it) {
  if (it->kind == ITEM_FILL)
    return false;
  const Node *n = node_at(f, it->node);
  bool counts = it->kind == ITEM_NODE && counts_elements(f->g, n);
  for (int i = 0; i < (it->kind == ITEM_COPY ? 1 : n->n_in) && !counts; i++) {
    int root = view_root(f, it->kind == ITEM_COPY ? it->value : n->in[i]);
    counts = is_rematerialised(f, d, root) && f->remat[d]->counts[root];
  }
  return counts;
}

/* The iteration space: the operand of a reduction, the result of a pointwise node, the source of a copy. */
static void space_of(const Fuse *f, const Item *it, Group *s) {
  if (it->kind == ITEM_FILL) {
    s->n_dims = it->place.rank;
    for (int i = 0; i < s->n_dims; i++)
      s->dim[i] = it->place.dim[i];
    s->batched = it->target >= 0 && value_at(f, it->target)->shape.batched;
  } else {
    const Node *n = node_at(f, it->node);
    int value = it->kind != ITEM_COPY ? space_value(n) : it->through ? it->target : it->value;
    s->n_dims = dims_of(f, value, s->dim);
    s->batched = value_at(f, value)->shape.batched;
  }
  while (!s->batched && s->n_dims > 1 && s->dim[0] == 1)
    memmove(s->dim, s->dim + 1, (size_t)--s->n_dims * sizeof s->dim[0]);
  if (s->n_dims == 0) {
    s->n_dims = 1;
    s->dim[0] = 1;
  }
}

/* Whether the spaces are equal, or `s` has one value per row of the group's. */
static bool space_fits(const Group *group, const Group *s, bool counts) {
  if (group->batched != s->batched || group->n_dims != s->n_dims)
    return false;
  for (int i = 0; i + 1 < s->n_dims; i++)
    if (group->dim[i] != s->dim[i])
      return false;
  return s->dim[s->n_dims - 1] == group->dim[s->n_dims - 1] || (s->dim[s->n_dims - 1] == 1 && !counts);
}

/* Outer axes that a sum_to sums over, as a mask over the iteration space. */
static unsigned summed(const Fuse *f, const Item *it, const Group *s) {
  if (it->kind != ITEM_NODE || node_at(f, it->node)->op->kind != OP_SUM_TO || is_row_sum(f, node_at(f, it->node)))
    return 0;
  const Shape *to = &value_at(f, node_at(f, it->node)->out[0])->shape;
  unsigned mask = 0;
  for (int i = 0; i + 1 < s->n_dims; i++) {
    int axis = to->rank - (s->n_dims - i);
    bool kept = s->batched && i == 0 ? to->batched : axis >= 0 && to->dim[axis] == s->dim[i];
    if (!kept && s->dim[i] > 1)
      mask |= 1u << i;
  }
  return mask;
}

static unsigned all_outer(const Group *s) {
  unsigned mask = 0;
  for (int i = 0; i + 1 < s->n_dims; i++)
    if (s->dim[i] > 1)
      mask |= 1u << i;
  return mask;
}

/* Sums over all rows can share a loop. Sums over some axes reorder the loops, so no item of the group may depend
 * on element indices or have different sums. */
static bool sums_fit(const Grouping *b, const Group *group, const Item *it, unsigned sums, const Group *s) {
  bool partial = sums && sums != all_outer(s);
  bool group_partial = group->sums && group->sums != all_outer(group);
  if (sums && group->sums && sums != group->sums)
    return false;
  if (group_partial && item_counts(b->f, b->d, it))
    return false;
  if (!partial)
    return true;
  for (int i = 0; i < group->items.n; i++) {
    if (item_counts(b->f, b->d, &b->items->at[group->items.at[i]]))
      return false;
  }
  return true;
}

static int bound_behind(const Grouping *b, int root); /* of a rematerialised value: the bound of its operands */

/* The first group of this direction that may hold a reader of `value`. It is the group that computes it if the
 * reader reads elementwise, else one after all groups that write it. */
static int bound_of(const Grouping *b, int value, bool loop) {
  const Fuse *f = b->f;
  int root = view_root(f, value), node = value_at(f, root)->node;
  if (node_at(f, node)->op->kind == OP_SOURCE)
    return b->d != SETUP || (loop && view_is_alias(f, value)) ? 0 : b->ready[root];
  if (b->d == BACKWARD && node_at(f, node)->serves < 0) /* a forward value, in memory or rematerialised */
    return 0;
  if (!f->survey->here[node] || direction_of(f, node) != b->d)
    return 0;
  if (is_rematerialised(f, b->d, root))
    return bound_behind(b, root);
  if (loop && b->computed_in[root] >= 0 && view_is_alias(f, value))
    return b->computed_in[root];
  return b->ready[root];
}

static int bound_behind(const Grouping *b, int root) {
  int bound = 0;
  for (int i = 0; i < producer(b->f, root)->n_in; i++) {
    int behind = bound_of(b, producer(b->f, root)->in[i], true);
    bound = behind > bound ? behind : bound;
  }
  return bound;
}

static int item_bound(const Grouping *b, const Item *it) {
  int bound = 0;
  bool loop = item_is_loop(b->f, it);
  if (it->kind == ITEM_COPY)
    return bound_of(b, it->value, loop && !it->through);
  if (it->kind == ITEM_FILL)
    return 0;
  const Node *n = node_at(b->f, it->node);
  for (int i = 0; i < n->n_in; i++) {
    int of_operand = bound_of(b, n->in[i], loop);
    bound = of_operand > bound ? of_operand : bound;
  }
  int vector = b->f->biases->vector[it->node], bias = vector >= 0 ? bound_of(b, vector, false) : 0;
  return bias > bound ? bias : bound;
}

/* A concatenation is whole once its parts are, also those that their producers wrote in place. */
static void find_concats(Grouping *b) {
  const Fuse *f = b->f;
  const Ints *concats = &f->survey->concats[b->d];
  if (concats->n == 0)
    return;
  b->concats = alloc((size_t)f->g->values.n * sizeof *b->concats);
  for (int i = 0; i < concats->n; i++) {
    const Node *n = node_at(f, concats->at[i]);
    for (int j = 0; j < n->n_in; j++) {
      int root = view_root(f, n->in[j]), from = value_at(f, root)->node;
      if (direction_of(f, from) == b->d && f->survey->here[from])
        push(&b->concats[root], n->out[0]);
    }
  }
}

static void set_ready(Grouping *b, int value, int group) {
  b->ready[value] = group;
  for (int i = 0; b->concats && i < b->concats[value].n; i++)
    if (b->ready[b->concats[value].at[i]] < group)
      set_ready(b, b->concats[value].at[i], group);
}

/* Records where the item's results can be read. */
static void settle(Grouping *b, const Item *it, int group, bool loop) {
  if (it->kind != ITEM_NODE) {
    if (it->target >= 0 && b->ready[it->target] < group + 1)
      set_ready(b, it->target, group + 1);
    return;
  }
  const Node *n = node_at(b->f, it->node);
  int sum = b->f->biases->sum[it->node]; /* a call's result is the sum with its bias */
  for (int o = 0; o < n->n_out; o++) {
    int value = sum >= 0 ? sum : n->out[o];
    set_ready(b, value, group + 1);
    b->computed_in[value] = loop && (n->op->kind != OP_SUM_TO || is_row_sum(b->f, n)) ? group : -1;
  }
}

/* Depth of a value that the group contains, or of its operands there if it is rematerialised. */
static int depth_of(const Grouping *b, int root, int group) {
  const Fuse *f = b->f;
  int node = value_at(f, root)->node, depth = 0;
  if (!f->survey->here[node] || direction_of(f, node) != b->d)
    return 0;
  if (!is_rematerialised(f, b->d, root))
    return b->computed_in[root] == group ? b->depth[root] : 0;
  for (int i = 0; i < node_at(f, node)->n_in; i++) {
    int behind = depth_of(b, view_root(f, node_at(f, node)->in[i]), group);
    depth = behind > depth ? behind : depth;
  }
  return depth;
}

/* Consecutive row reductions up to the item's result if it joins the group. */
static int depth_in(const Grouping *b, const Item *it, int group) {
  if (it->kind != ITEM_NODE)
    return 0;
  const Node *n = node_at(b->f, it->node);
  int depth = 0;
  for (int i = 0; i < n->n_in; i++) {
    int behind = depth_of(b, view_root(b->f, n->in[i]), group);
    depth = behind > depth ? behind : depth;
  }
  return depth + (n->op->kind != OP_POINTWISE);
}

static int find_group(const Grouping *b, const Item *it, int bound, const Group *s, unsigned sums) {
  bool counts = item_counts(b->f, b->d, it);
  for (int i = bound; i < b->groups->n; i++) {
    const Group *group = &b->groups->at[i];
    if (group->loop && group->region == it->region && group->segment == segment_of(b->f, it->node) &&
        space_fits(group, s, counts) && sums_fit(b, group, it, sums, s) && depth_in(b, it, i) <= DEEPEST)
      return i;
  }
  return -1;
}

static void group_item(Grouping *b, int i) {
  const Item *it = &b->items->at[i];
  Group s = {.loop = item_is_loop(b->f, it), .region = it->region, .segment = segment_of(b->f, it->node)};
  int at = -1, bound = item_bound(b, it);
  unsigned sums = 0;
  if (s.loop) {
    space_of(b->f, it, &s);
    sums = summed(b->f, it, &s);
    at = find_group(b, it, bound, &s, sums);
  }
  if (at < 0) {
    at = b->groups->n;
    push(b->groups, s);
  }
  ensure(at >= bound || !s.loop);
  push(&b->groups->at[at].items, i);
  b->groups->at[at].sums |= sums;
  if (s.loop && it->kind == ITEM_NODE)
    b->depth[node_at(b->f, it->node)->out[0]] = depth_in(b, it, at);
  settle(b, it, at, s.loop);
}

const Groups *group_items(const Fuse *f, Direction d) {
  size_t bytes = sizeof(int) * (size_t)f->g->values.n;
  Grouping b = {.f = f,
                .d = d,
                .items = &f->items->of[d],
                .groups = alloc(sizeof *b.groups),
                .computed_in = alloc(bytes),
                .depth = alloc(bytes),
                .ready = alloc(bytes)};
  memset(b.computed_in, 0xff, bytes);
  find_concats(&b);
  for (int i = 0; i < b.items->n; i++)
    group_item(&b, i);
  return b.groups;
}
