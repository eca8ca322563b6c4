/* Collectives of a shard group. The tensor pass writes these ops, not the author of a model: it converts a value whose
 * readers need another layout. The graph has its derivatives by then, so these ops have no derivatives of their own. If
 * a forward pass reads a whole value in parts, the backward pass adds up gradients. */
#include <math.h>
#include <string.h>

#include "ops/call.h"
#include "ops/rules.h"
#include "pd_runtime.h"

/* ---- all_reduce ------------------------------------------------------------------------------ */

static bool shape_all_reduce(ShapeRule *r) { return rule_result(r, *rule_shape(r, 0)); }

static void meet_all_reduce(const Graph *g, int node, int64_t batch, int ranks, const double *const *const *in,
                            double *const *const *out) {
  int64_t n = batch_elements(out_shape(g, node, 0), batch);
  for (int64_t i = 0; i < n; i++) {
    double sum = 0;
    for (int r = 0; r < ranks; r++)
      sum += in[r][0][i];
    for (int r = 0; r < ranks; r++)
      out[r][0][i] = sum;
  }
}

static int64_t elements_of(const Place *p) {
  int64_t n = 1;
  for (int i = 0; i < p->rank; i++)
    n *= p->dim[i];
  return n;
}

/* Begun and ended by two calls it needs no scratch memory, which what is called between them uses; the end has the rest
 * from the beginning. */
static void name_part(const Site *site, Call *c, const char *function) {
  c->function = site->part == CALL_WHOLE   ? function
                : site->part == CALL_BEGIN ? internf("%s_begin", function)
                                           : "pd_collective_end";
}

static void pass_result(const Site *site, Call *c) {
  pass_place(c, &site->out[0]);
  if (site->part == CALL_WHOLE)
    pass_scratch(c);
}

static void call_reduction(const Site *site, Call *c, const char *function) {
  name_part(site, c, function);
  if (site->part != CALL_END) {
    pass_place(c, &site->in[0]);
    pass_int(c, elements_of(&site->out[0]));
  }
  pass_result(site, c);
}

/* What messages take of scratch memory; where others see this rank's memory, a place to show them what it has. */
static int64_t meeting_bytes(const Site *site) {
  int64_t messages = site->node->op->scratch(site);
  int64_t shown = pd_shown_bytes(elements_of(&site->in[0]) * (int64_t)sizeof(float));
  return site->library->sees_others && shown > messages ? shown : messages;
}

static void call_all_reduce(const Site *site, Call *c) { call_reduction(site, c, "pd_all_reduce"); }

static int64_t scratch_all_reduce(const Site *site) {
  return pd_all_reduce_scratch(elements_of(&site->out[0]), (int)node_int(site->node, "ranks"));
}

static void meet_all_reduce_max(const Graph *g, int node, int64_t batch, int ranks, const double *const *const *in,
                                double *const *const *out) {
  int64_t n = batch_elements(out_shape(g, node, 0), batch);
  for (int64_t i = 0; i < n; i++) {
    double most = in[0][0][i];
    for (int r = 1; r < ranks; r++)
      most = fmax(most, in[r][0][i]);
    for (int r = 0; r < ranks; r++)
      out[r][0][i] = most;
  }
}

static void call_all_reduce_max(const Site *site, Call *c) { call_reduction(site, c, "pd_all_reduce_max"); }

#define REDUCTION                                                                                      \
  .kind = OP_CALL, .attr = {{"ranks", ATTR_INT, true, 0}}, .internal = true, .min_in = 1, .max_in = 1, \
  .shape = shape_all_reduce, .cost = cost_copy, .collective = 2, .scratch = scratch_all_reduce,        \
  .meeting = meeting_bytes, .stays_f32 = all_stays_f32

/* The sum of all ranks' partial sums, in the order of ranks: x[..] gives [..], the same on every rank. */
const Op op_all_reduce = {
    .name = "all_reduce",
    .signature = "all_reduce(x, ranks)",
    REDUCTION,
    .meet = meet_all_reduce,
    .call = call_all_reduce,
};

/* The largest of all ranks' elements: x[..] gives [..], the same on every rank. */
const Op op_all_reduce_max = {
    .name = "all_reduce_max",
    .signature = "all_reduce_max(x, ranks)",
    REDUCTION,
    .meet = meet_all_reduce_max,
    .call = call_all_reduce_max,
};

/* ---- all_gather and own_part ------------------------------------------------------------------- */

/* In memory's order a whole value is so many runs of elements, of each of which a rank has its part. */
typedef struct Runs {
  int64_t n, part;
} Runs;

static Runs runs_of(const Graph *g, int node, const Shape *part, int64_t batch) {
  const Node *n = &g->nodes.at[node];
  Around a = around_axis(part, batch, (int)node_int(n, "axis"));
  int64_t blocks = node_int(n, "blocks");
  return (Runs){a.outer * blocks, a.middle / blocks * a.inner};
}

static bool shape_all_gather(ShapeRule *r) {
  const Shape *x = rule_shape(r, 0);
  int axis = (int)rule_int(r, "axis");
  return rule_result(r, shape_with(*x, axis, x->dim[axis] * rule_int(r, "ranks")));
}

static bool shape_own_part(ShapeRule *r) {
  const Shape *x = rule_shape(r, 0);
  int axis = (int)rule_int(r, "axis");
  int64_t parts = rule_int(r, "ranks") * rule_int(r, "blocks");
  ensure(x->dim[axis] % parts == 0);
  return rule_result(r, shape_with(*x, axis, x->dim[axis] / rule_int(r, "ranks")));
}

static void meet_all_gather(const Graph *g, int node, int64_t batch, int ranks, const double *const *const *in,
                            double *const *const *out) {
  Runs x = runs_of(g, node, in_shape(g, node, 0), batch);
  for (int to = 0; to < ranks; to++)
    for (int64_t i = 0; i < x.n; i++)
      for (int r = 0; r < ranks; r++)
        memcpy(out[to][0] + (i * ranks + r) * x.part, in[r][0] + i * x.part, (size_t)x.part * sizeof ***out);
}

static void meet_reduce_scatter(const Graph *g, int node, int64_t batch, int ranks, const double *const *const *in,
                                double *const *const *out) {
  Runs x = runs_of(g, node, out_shape(g, node, 0), batch);
  for (int r = 0; r < ranks; r++)
    for (int64_t i = 0; i < x.n * x.part; i++) {
      out[r][0][i] = 0;
      for (int from = 0; from < ranks; from++)
        out[r][0][i] += in[from][0][(i / x.part * ranks + r) * x.part + i % x.part];
    }
}

static void meet_own_part(const Graph *g, int node, int64_t batch, int ranks, const double *const *const *in,
                          double *const *const *out) {
  Runs x = runs_of(g, node, out_shape(g, node, 0), batch);
  for (int r = 0; r < ranks; r++)
    for (int64_t i = 0; i < x.n; i++)
      memcpy(out[r][0] + i * x.part, in[r][0] + (i * ranks + r) * x.part, (size_t)x.part * sizeof ***out);
}

/* The same of a place of a part. */
static Runs runs_at(const Node *n, const Place *part, int axis) {
  int64_t blocks = node_int(n, "blocks"), runs = blocks;
  for (int i = 0; i < axis; i++)
    runs *= part->dim[i];
  return (Runs){runs, elements_of(part) / runs};
}

/* Sample axes count from the right here: in front there may be the microbatch. */
static int place_axis(const Node *n, const Place *p, int rank) {
  return (int)node_int(n, "axis") + p->rank - rank;
}

static void call_parts(const Site *site, Call *c, const char *function, const Place *part) {
  const Node *n = site->node;
  Runs x = runs_at(n, part, place_axis(n, part, (int)node_int(n, "rank")));
  name_part(site, c, function);
  if (site->part != CALL_END) {
    pass_place(c, &site->in[0]);
    pass_int(c, x.n);
    pass_int(c, x.part);
  }
}

static void call_all_gather(const Site *site, Call *c) {
  call_parts(site, c, "pd_all_gather", &site->in[0]);
  pass_result(site, c);
}

static int64_t scratch_all_gather(const Site *site) { return elements_of(&site->out[0]) * (int64_t)sizeof(float); }

static void call_reduce_scatter(const Site *site, Call *c) {
  call_parts(site, c, "pd_reduce_scatter", &site->out[0]);
  pass_result(site, c);
}

/* This rank's part of its own summands and of each other's, and what the others get. */
static int64_t scratch_reduce_scatter(const Site *site) {
  return pd_reduce_scatter_scratch(elements_of(&site->out[0]), (int)node_int(site->node, "ranks"));
}

static void call_own_part(const Site *site, Call *c) {
  call_parts(site, c, "pd_take_part", &site->out[0]);
  pass_place(c, &site->out[0]);
}

#define PARTS                                                                     \
  .kind = OP_CALL, .internal = true, .min_in = 1, .max_in = 1, .cost = cost_copy, \
  .attr = {{"axis", ATTR_INT, true, 0},                                           \
           {"blocks", ATTR_INT, true, 0},                                         \
           {"ranks", ATTR_INT, true, 0},                                          \
           {"rank", ATTR_INT, true, 0}},                                          \
  .stays_f32 = all_stays_f32

/* All of a value that is split along an axis of `blocks` blocks among so many ranks. rank: its number of axes. */
const Op op_all_gather = {
    .name = "all_gather",
    .signature = "all_gather(x, axis, blocks, ranks, rank)",
    PARTS,
    .shape = shape_all_gather,
    .collective = 1,
    .meet = meet_all_gather,
    .call = call_all_gather,
    .scratch = scratch_all_gather,
    .meeting = meeting_bytes,
};

/* This rank's part of the sum of all ranks' partial sums, in the order of ranks: the bits that all_reduce has there. */
const Op op_reduce_scatter = {
    .name = "reduce_scatter",
    .signature = "reduce_scatter(x, axis, blocks, ranks, rank)",
    PARTS,
    .shape = shape_own_part,
    .collective = 1,
    .meet = meet_reduce_scatter,
    .call = call_reduce_scatter,
    .scratch = scratch_reduce_scatter,
    .meeting = meeting_bytes,
};

/* Of a whole value this rank's part; nothing is sent. */
const Op op_own_part = {
    .name = "own_part",
    .signature = "own_part(x, axis, blocks, ranks, rank)",
    PARTS,
    .shape = shape_own_part,
    .meet = meet_own_part,
    .call = call_own_part,
};

/* ---- summand --------------------------------------------------------------------------------- */

static void meet_summand(const Graph *g, int node, int64_t batch, int ranks, const double *const *const *in,
                         double *const *const *out) {
  int64_t n = batch_elements(out_shape(g, node, 0), batch);
  for (int r = 0; r < ranks; r++)
    for (int64_t i = 0; i < n; i++)
      out[r][0][i] = r == 0 ? in[r][0][i] : 0;
}

/* A whole value as a partial sum: the first rank has it, the others zeros. */
const Op op_summand = {
    .name = "summand",
    .signature = "summand(x)",
    .kind = OP_POINTWISE,
    .internal = true,
    .min_in = 1,
    .max_in = 1,
    .shape = shape_all_reduce,
    .cost = cost_cheap,
    .expression = "$shard == 0 ? $0 : 0.0f",
    .meet = meet_summand,
};

/* ---- own_columns ------------------------------------------------------------------------------- */

static void meet_own_columns(const Graph *g, int node, int64_t batch, int ranks, const double *const *const *in,
                             double *const *const *out) {
  const Node *n = &g->nodes.at[node];
  int64_t total = batch_elements(out_shape(g, node, 0), batch), part = node_int(n, "part");
  for (int r = 0; r < ranks; r++)
    for (int64_t i = 0; i < total; i++)
      out[r][0][i] = r * part + i % part < node_int(n, "whole") ? in[r][0][i] : node_number(n, "fill");
}

/* Of the ranks' `part` columns each the first `whole` as they are, behind them `fill`. */
const Op op_own_columns = {
    .name = "own_columns",
    .signature = "own_columns(x, part, whole, fill)",
    .kind = OP_POINTWISE,
    .internal = true,
    .min_in = 1,
    .max_in = 1,
    .attr = {{"part", ATTR_INT, true, 0}, {"whole", ATTR_INT, true, 0}, {"fill", ATTR_NUMBER, true, 0}},
    .shape = shape_all_reduce,
    .cost = cost_cheap,
    .expression = "(int32_t)$shard * ${part} + (int32_t)$j < ${whole} ? $0 : ${fill}",
    .meet = meet_own_columns,
};
