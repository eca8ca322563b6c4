/* Which items share a loop. Groups stand in an order in which each only needs earlier ones; an item
 * joins the first loop group of its region, iteration space and kind of accumulation that comes no
 * earlier than what it reads. Fusion changes no rounding: it only moves computations. */
#include <string.h>

#include "fuse/internal.h"

enum { DEEPEST = 24 }; /* passes over a row are bits of Term.passes */

bool is_loop_node(const Node *n) {
  return n->op->kind == OP_POINTWISE || n->op->kind == OP_REDUCE || n->op->kind == OP_SUM_TO;
}

bool is_row_sum(const Fuse *f, const Node *n) {
  if (n->op->kind != OP_SUM_TO)
    return false;
  const Shape *from = &value_at(f, n->in[0])->shape, *to = &value_at(f, n->out[0])->shape;
  bool same = from->batched == to->batched && from->rank == to->rank && from->rank > 0;
  for (int i = 0; same && i + 1 < from->rank; i++)
    same = from->dim[i] == to->dim[i];
  return same && to->dim[to->rank - 1] == 1;
}

static bool item_is_loop(const Fuse *f, const Item *it) {
  return it->kind != ITEM_NODE || is_loop_node(node_at(f, it->node));
}

/* It can only be computed in a loop over exactly its shape. */
static bool item_counts(const Fuse *f, const Item *it) {
  if (it->kind == ITEM_FILL)
    return false;
  const Node *n = node_at(f, it->node);
  bool counts = it->kind == ITEM_NODE && counts_elements(f, n);
  for (int i = 0; i < (it->kind == ITEM_COPY ? 1 : n->n_in) && !counts; i++) {
    int root = view_root(f, it->kind == ITEM_COPY ? it->value : n->in[i]);
    counts = f->inlined[root] && f->counts[root];
  }
  return counts;
}

/* The iteration space: what a reduction reads, what a pointwise node writes, what a copy copies. */
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

/* Equal, or `s` holds one value a row of the group's. */
static bool space_fits(const Group *group, const Group *s, bool counts) {
  if (group->batched != s->batched || group->n_dims != s->n_dims)
    return false;
  for (int i = 0; i + 1 < s->n_dims; i++)
    if (group->dim[i] != s->dim[i])
      return false;
  return s->dim[s->n_dims - 1] == group->dim[s->n_dims - 1] || (s->dim[s->n_dims - 1] == 1 && !counts);
}

/* Outer axes that a sum_to adds up, as a mask over the iteration space. */
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

/* Sums over all rows go together; sums over some axes reorder the loops, so they stand only with what
 * does not count samples and does not sum otherwise. */
static bool sums_fit(const Fuse *f, Direction d, const Group *group, const Item *it, unsigned sums,
                     const Group *s) {
  bool partial = sums && sums != all_outer(s);
  bool group_partial = group->sums && group->sums != all_outer(group);
  if (sums && group->sums && sums != group->sums)
    return false;
  if (group_partial && item_counts(f, it))
    return false;
  if (!partial)
    return true;
  for (int i = 0; i < group->items.n; i++) {
    if (item_counts(f, &f->items[d].at[group->items.at[i]]))
      return false;
  }
  return true;
}

static int bound_behind(Fuse *f, Direction d, int root); /* of what is inlined: of all that it reads */

/* The first group of this direction that may hold a reader of `value`: the one that computes it when
 * the reader can take it element by element, else one after all that write it. */
static int bound_of(Fuse *f, Direction d, int value, bool loop) {
  int root = view_root(f, value), node = value_at(f, root)->node;
  if (node_at(f, node)->op->kind == OP_SOURCE)
    return d != SETUP || (loop && view_is_alias(f, value)) ? 0 : f->ready[root];
  if (d == BACKWARD && node_at(f, node)->serves < 0) /* of the forward pass, in memory or recomputed */
    return 0;
  if (!f->here[node] || direction_of(f, node) != d)
    return 0;
  if (f->inlined[root])
    return bound_behind(f, d, root);
  if (loop && f->home[root] >= 0 && view_is_alias(f, value))
    return f->home[root];
  return f->ready[root];
}

static int bound_behind(Fuse *f, Direction d, int root) {
  int bound = 0;
  for (int i = 0; i < producer(f, root)->n_in; i++) {
    int b = bound_of(f, d, producer(f, root)->in[i], true);
    bound = b > bound ? b : bound;
  }
  return bound;
}

static int item_bound(Fuse *f, Direction d, const Item *it) {
  int bound = 0;
  bool loop = item_is_loop(f, it);
  if (it->kind == ITEM_COPY)
    return bound_of(f, d, it->value, loop && !it->through);
  if (it->kind == ITEM_FILL)
    return 0;
  const Node *n = node_at(f, it->node);
  for (int i = 0; i < n->n_in; i++) {
    int b = bound_of(f, d, n->in[i], loop);
    bound = b > bound ? b : bound;
  }
  int bias = f->bias[it->node] >= 0 ? bound_of(f, d, f->bias[it->node], false) : 0;
  return bias > bound ? bias : bound;
}

/* Records where the item's results can be read. */
static void settle(Fuse *f, const Item *it, int group, bool loop) {
  if (it->kind != ITEM_NODE) {
    if (it->target >= 0 && f->ready[it->target] < group + 1)
      f->ready[it->target] = group + 1;
    return;
  }
  const Node *n = node_at(f, it->node);
  int add = -1; /* a call's result is the sum with its bias */
  for (int i = it->node + 1; f->bias[it->node] >= 0 && add < 0; i++)
    if (f->merged[i] == it->node)
      add = i;
  for (int o = 0; o < n->n_out; o++) {
    int value = add >= 0 ? node_at(f, add)->out[0] : n->out[o];
    f->ready[value] = group + 1;
    f->home[value] = loop && (n->op->kind != OP_SUM_TO || is_row_sum(f, n)) ? group : -1;
  }
}

/* A join is whole once its parts are, also those that their producers wrote in place. */
static void settle_joins(Fuse *f, Direction d) {
  for (int i = 0; i < f->joins[d].n; i++) {
    const Node *n = node_at(f, f->joins[d].at[i]);
    for (int j = 0; j < n->n_in; j++) {
      int root = view_root(f, n->in[j]);
      if (direction_of(f, value_at(f, root)->node) == d && f->here[value_at(f, root)->node] &&
          f->ready[n->out[0]] < f->ready[root])
        f->ready[n->out[0]] = f->ready[root];
    }
  }
}

/* Of a value that stands in the group, or that it is computed from there. */
static int depth_of(const Fuse *f, Direction d, int root, int group) {
  int node = value_at(f, root)->node, depth = 0;
  if (!f->here[node] || direction_of(f, node) != d)
    return 0;
  if (!f->inlined[root])
    return f->home[root] == group ? f->depth[root] : 0;
  for (int i = 0; i < node_at(f, node)->n_in; i++) {
    int behind = depth_of(f, d, view_root(f, node_at(f, node)->in[i]), group);
    depth = behind > depth ? behind : depth;
  }
  return depth;
}

/* Reductions of the row, one after the other, up to the item's result if it joins the group. */
static int depth_in(const Fuse *f, Direction d, const Item *it, int group) {
  if (it->kind != ITEM_NODE)
    return 0;
  const Node *n = node_at(f, it->node);
  int depth = 0;
  for (int i = 0; i < n->n_in; i++) {
    int behind = depth_of(f, d, view_root(f, n->in[i]), group);
    depth = behind > depth ? behind : depth;
  }
  return depth + (n->op->kind != OP_POINTWISE);
}

static int find_group(Fuse *f, Direction d, const Item *it, int bound, const Group *s, unsigned sums) {
  bool counts = item_counts(f, it);
  for (int i = bound; i < f->groups[d].n; i++) {
    Group *group = &f->groups[d].at[i];
    if (group->loop && group->region == it->region && space_fits(group, s, counts) &&
        sums_fit(f, d, group, it, sums, s) && depth_in(f, d, it, i) <= DEEPEST)
      return i;
  }
  return -1;
}

static void sort_by_region(Fuse *f, Direction d) {
  int n = f->items[d].n, sign = d == BACKWARD ? -1 : 1;
  for (int i = 1; i < n; i++)
    for (int j = i; j > 0 && sign * f->items[d].at[j].region < sign * f->items[d].at[j - 1].region; j--) {
      Item t = f->items[d].at[j];
      f->items[d].at[j] = f->items[d].at[j - 1];
      f->items[d].at[j - 1] = t;
    }
}

void group_items(Fuse *f, Direction d) {
  sort_by_region(f, d);
  for (int i = 0; i < f->items[d].n; i++) {
    Item *it = &f->items[d].at[i];
    settle_joins(f, d);
    Group s = {.loop = item_is_loop(f, it), .region = it->region};
    int at = -1, bound = item_bound(f, d, it);
    unsigned sums = 0;
    if (s.loop) {
      space_of(f, it, &s);
      sums = summed(f, it, &s);
      at = find_group(f, d, it, bound, &s, sums);
    }
    if (at < 0) {
      at = f->groups[d].n;
      push(&f->groups[d], s);
    }
    ensure(at >= bound || !s.loop);
    push(&f->groups[d].at[at].items, i);
    f->groups[d].at[at].sums |= sums;
    it->group = at;
    if (s.loop && it->kind == ITEM_NODE)
      f->depth[node_at(f, it->node)->out[0]] = depth_in(f, d, it, at);
    settle(f, it, at, s.loop);
  }
  settle_joins(f, d);
}
