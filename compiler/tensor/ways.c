/* The ways to compute a node on a shard group, from the rules of its op, and their costs. */
#include "ops/rules.h"
#include "tensor/internal.h"

#include <string.h>

/* ---- layouts --------------------------------------------------------------------------------- */

Layout layout_of(const Division *d, LayoutId id) {
  static const LayoutKind unsplit[] = {[WHOLE] = LAYOUT_WHOLE, [PARTIAL] = LAYOUT_PARTIAL, [BOUND] = LAYOUT_BOUND};
  if (id < FIRST_SPLIT)
    return (Layout){.kind = unsplit[id]};
  int i = id - FIRST_SPLIT;
  return (Layout){LAYOUT_SPLIT, i / d->n_blocks, d->blocks[i % d->n_blocks]};
}

int layout_id(const Division *d, Layout layout) {
  for (int id = WHOLE; id < FIRST_SPLIT; id++)
    if (layout_of(d, (LayoutId)id).kind == layout.kind)
      return id;
  for (int i = 0; i < d->n_blocks; i++)
    if (d->blocks[i] == layout.blocks)
      return FIRST_SPLIT + layout.axis * d->n_blocks + i;
  return -1;
}

Shape part_shape(const Division *d, const Shape *s, Layout layout) {
  Shape part = *s;
  if (layout.kind != LAYOUT_SPLIT)
    return part;
  int64_t n = s->dim[layout.axis], unit = d->ranks * d->multiple;
  part.dim[layout.axis] = n % (d->ranks * layout.blocks) ? (n + unit - 1) / unit * d->multiple : n / d->ranks;
  return part;
}

bool is_uneven(const Division *d, int value, LayoutId id) {
  Layout l = layout_of(d, id);
  return l.kind == LAYOUT_SPLIT && d->g->values.at[value].shape.dim[l.axis] % (l.blocks * d->ranks) != 0;
}

/* Readers along a value's last axis can skip elements after its end; along other axes those must be zeros. */
static bool fits_unevenly(const Division *d, int value, Layout l) {
  const Shape *s = &d->g->values.at[value].shape;
  if (l.blocks > 1 || s->dim[l.axis] < d->least * d->ranks || (d->param[value] && l.axis > 0))
    return false;
  return d->clean[value] || (l.axis == s->rank - 1 && !d->gradient[value]);
}

bool by_positions(const Division *d, int value, LayoutId id) {
  const Shape *s = &d->g->values.at[value].shape;
  Layout l = layout_of(d, id);
  return (d->spread || d->any_cost) && l.kind == LAYOUT_SPLIT && l.blocks == 1 && s->batched &&
         l.axis < s->rank - 1 && !is_uneven(d, value, id);
}

/* Tokens are always whole. */
bool layout_fits(const Division *d, int value, LayoutId id) {
  const Value *v = &d->g->values.at[value];
  Layout l = layout_of(d, id);
  if (l.kind == LAYOUT_WHOLE)
    return true;
  if (v->type != TYPE_F32 || d->fixed[value])
    return false;
  if (l.kind != LAYOUT_SPLIT || l.axis >= v->shape.rank)
    return l.kind != LAYOUT_SPLIT;
  return !is_uneven(d, value, id) || fits_unevenly(d, value, l);
}

static void add_blocks(Division *d, int64_t n) {
  for (int i = 0; i < d->n_blocks; i++)
    if (d->blocks[i] == n)
      return;
  if (d->n_blocks < MOST_BLOCKS)
    d->blocks[d->n_blocks++] = n;
}

/* An axis has blocks if it concatenates several values, as one product for queries, keys and values does. */
static void find_blocks(Division *d) {
  add_blocks(d, 1);
  for (int i = 0; i < d->g->nodes.n; i++) {
    const Node *n = &d->g->nodes.at[i];
    if (n->op->kind == OP_VIEW && n->n_out > 1)
      add_blocks(d, n->n_out);
    if (n->op->kind == OP_CONCAT && n->n_in > 1)
      add_blocks(d, n->n_in);
  }
}

/* Values that depend on no sample and no weight, such as tables of angles, are small, so they stay whole. A source
 * that can be made in parts, such as a class count, follows its readers. */
static void fix_tables(Division *d) {
  const Graph *g = d->g;
  bool *is_table = alloc((size_t)g->values.n + 1);
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *n = &g->nodes.at[i];
    bool table = n->op->source == SOURCE_NONE && !g->values.at[n->out[0]].shape.batched;
    for (int k = 0; k < n->n_in && table; k++)
      table = is_table[n->in[k]];
    for (int k = 0; k < n->n_out && table; k++) {
      is_table[n->out[k]] = true;
      d->fixed[n->out[k]] = n->n_in > 0 || !n->op->divided;
    }
  }
}

/* Whether a node's result has zeros after the end of an uneven axis. Parameters, views, sums of clean values, and
 * sums over a microbatch are clean. Readers of other values, except pointwise ones and views, need an explicit
 * fill of zeros. */
static bool makes_clean(const Division *d, const Node *n) {
  bool clean = n->n_in > 0;
  for (int k = 0; k < n->n_in; k++)
    clean &= d->clean[n->in[k]];
  if (n->op->kind == OP_VIEW || (n->op->kind == OP_POINTWISE && n->op->linear == LINEAR_IN_ALL))
    return clean;
  return !d->g->values.at[n->out[0]].shape.batched &&
         ((n->op->kind == OP_CALL && n->op->adds) || n->op->kind == OP_SUM_TO);
}

static void find_clean(Division *d) {
  const Graph *g = d->g;
  for (int i = 0; i < g->params.n; i++) {
    const Param *p = &g->params.at[i];
    d->clean[p->value] = p->padding == 0;
    for (int k = 0; k < p->gradients.n; k++)
      if (p->gradients.at[k] >= 0)
        d->gradient[p->gradients.at[k]] = true;
  }
  for (int i = 0; i < g->nodes.n; i++)
    for (int k = 0; k < g->nodes.at[i].n_out; k++)
      d->clean[g->nodes.at[i].out[k]] |= makes_clean(d, &g->nodes.at[i]);
}

Division division_of(Graph *g, int ranks) {
  Division d = {.g = g, .ranks = ranks, .least = 128, .multiple = 8};
  find_blocks(&d);
  d.fixed = alloc((size_t)g->values.n + 1);
  d.param = alloc((size_t)g->values.n + 1);
  d.gradient = alloc((size_t)g->values.n + 1);
  d.clean = alloc((size_t)g->values.n + 1);
  d.pinned = alloc((size_t)g->values.n + 1);
  memset(d.pinned, UNPINNED, (size_t)g->values.n);
  for (int i = 0; i < g->inputs.n; i++)
    d.fixed[g->inputs.at[i].value] = true;
  for (int i = 0; i < g->figures.n; i++)
    d.fixed[g->figures.at[i].value] = true;
  for (int i = 0; i < g->params.n; i++)
    d.param[g->params.at[i].value] = true;
  fix_tables(&d);
  find_clean(&d);
  return d;
}

/* ---- costs ----------------------------------------------------------------------------------- */

/* Rates of a typical machine, independent of the actual one: only ratios matter. Operations that are not calls
 * fuse with their neighbours and find most operands in registers. A weight costs as much as sending its optimizer
 * state once. If memory is short, a saved byte costs as much as several sent ones. */
static const double flops_a_second = 1e11, memory = 1e10, in_loop = 5e11, link = 4e9, latency = 4e-6,
                    state_bytes = 16, kept_bytes = 4;

static int value_at(const Node *n, int k) { return k < n->n_in ? n->in[k] : n->out[k - n->n_in]; }

static double node_seconds(const Division *d, int node, const Way *way) {
  const Node *n = &d->g->nodes.at[node];
  OpCost cost = n->op->cost ? n->op->cost(d->g, node) : (OpCost){0};
  double seconds = (cost.matmul_flops + cost.other_flops) / flops_a_second +
                   cost.bytes / (n->op->kind == OP_CALL ? memory : in_loop);
  if (n->op->source == SOURCE_PARAMETER)
    seconds += state_bytes * (double)shape_elements(out_shape(d->g, node, 0)) / link;
  for (int k = 0; k < n->n_in + n->n_out; k++)
    if (way->at[k] >= FIRST_SPLIT)
      return seconds / d->ranks;
  return seconds;
}

static double bytes_of(const Division *d, int value) {
  return 4 * (double)shape_elements(&d->g->values.at[value].shape);
}

double keeping_seconds(const Division *d, int value, LayoutId id) {
  if (!d->spread || d->any_cost)
    return 0;
  return kept_bytes * bytes_of(d, value) / (id < FIRST_SPLIT ? 1 : d->ranks) / link;
}

/* Making a partial sum whole takes two rounds: reduce parts, then gather them. */
static double seconds_of(const Division *d, int value, LayoutId from, LayoutId to) {
  double bytes = bytes_of(d, value), share = (d->ranks - 1.0) / d->ranks;
  if (from == WHOLE)
    return to == PARTIAL ? bytes / in_loop : bytes / d->ranks / memory;
  return latency + (from < FIRST_SPLIT && to == WHOLE ? 2 : 1) * share * bytes / link;
}

double conversion_seconds(const Division *d, int value, LayoutId from, LayoutId to) {
  if (from == to)
    return 0;
  bool scatters = from == PARTIAL && by_positions(d, value, to);
  if ((from != WHOLE && to != WHOLE && !scatters) || to == BOUND || is_uneven(d, value, from) ||
      is_uneven(d, value, to))
    return -1;
  return d->any_cost ? d->any_cost() : seconds_of(d, value, from, to);
}

/* ---- ways ------------------------------------------------------------------------------------ */

/* Whether, if any split axis has uneven parts, all split axes have the same length. */
static bool parts_agree(const Division *d, const Node *n, const LayoutId *at) {
  int64_t axis = 0;
  bool uneven = false, agree = true;
  for (int k = 0; k < n->n_in + n->n_out; k++) {
    int v = value_at(n, k);
    Layout l = layout_of(d, at[k]);
    if (l.kind != LAYOUT_SPLIT)
      continue;
    int64_t size = d->g->values.at[v].shape.dim[l.axis];
    agree &= !axis || size == axis;
    axis = size;
    uneven |= is_uneven(d, v, at[k]);
  }
  return agree || !uneven;
}

static void add_way(const Division *d, int node, const LayoutId *at, Ways *to) {
  const Node *n = &d->g->nodes.at[node];
  size_t bytes = (size_t)(n->n_in + n->n_out) * sizeof *at;
  for (int k = 0; k < n->n_in + n->n_out; k++)
    if (!layout_fits(d, value_at(n, k), at[k]))
      return;
  if (!parts_agree(d, n, at))
    return;
  for (int i = 0; i < to->n; i++)
    if (!memcmp(to->at[i].at, at, bytes))
      return;
  Way way = {.at = alloc_copy(at, bytes)};
  way.seconds = d->any_cost ? d->any_cost() : node_seconds(d, node, &way);
  push(to, way);
}

static void add_split(const Division *d, int node, int k, LayoutId id, Ways *to) {
  const Node *n = &d->g->nodes.at[node];
  int all = n->n_in + n->n_out;
  Layout *layout = alloc((size_t)all * sizeof *layout);
  LayoutId *at = alloc((size_t)all);
  if (!layout_fits(d, value_at(n, k), id) || !n->op->divide(d->g, node, k, layout_of(d, id), layout))
    return;
  for (int i = 0; i < all; i++) {
    int found = layout_id(d, layout[i]);
    if (found < 0)
      return;
    at[i] = (LayoutId)found;
  }
  add_way(d, node, at, to);
}

/* Operand `partial` (-1: all operands) and the results are partial sums. */
static void add_partial(const Division *d, int node, int partial, Ways *to) {
  const Node *n = &d->g->nodes.at[node];
  LayoutId *at = alloc((size_t)(n->n_in + n->n_out));
  for (int k = 0; k < n->n_in + n->n_out; k++)
    at[k] = partial < 0 || k == partial || k >= n->n_in ? PARTIAL : WHOLE;
  add_way(d, node, at, to);
}

Ways ways_of(const Division *d, int node) {
  const Node *n = &d->g->nodes.at[node];
  Ways ways = {0};
  add_way(d, node, alloc((size_t)(n->n_in + n->n_out)), &ways);
  for (int k = 0; k < n->n_in + n->n_out && n->op->divide; k++)
    for (int id = FIRST_SPLIT; id < n_layouts(d); id++)
      add_split(d, node, k, (LayoutId)id, &ways);
  if (n->op->linear == LINEAR_IN_ALL)
    add_partial(d, node, -1, &ways);
  for (int k = 0; k < n->n_in && n->op->linear == LINEAR_IN_EACH; k++)
    add_partial(d, node, k, &ways);
  if (n->op->linear == LINEAR_IN_FIRST)
    add_partial(d, node, 0, &ways);
  return ways;
}
