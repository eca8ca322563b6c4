/* Collectives of a shard group's ranks. The tensor pass, and no author of a model, inserts them where the
 * layout of a value differs between writer and reader. They need no derivatives: the pass runs after differentiation and treats backward nodes by
 * the same rules. Where a forward pass reads parts of a whole value, the backward pass sums gradients. */
#include <math.h>
#include <string.h>

#include "ops/call.h"
#include "ops/rules.h"
#include "pd_kernels.h"

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

/* The begin and end of a split collective need no scratch memory, which kernels between them use. The end gets its
 * arguments from the begin. */
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

/* Scratch bytes of messages; if ranks share memory, at least a buffer that shows this rank's operand. */
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

/* A whole value consists of runs of elements in memory order; a rank has a part of each. */
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

/* The runs of a part's place. */
static Runs runs_at(const Node *n, const Place *part, int axis) {
  int64_t blocks = node_int(n, "blocks"), runs = blocks;
  for (int i = 0; i < axis; i++)
    runs *= part->dim[i];
  return (Runs){runs, elements_of(part) / runs};
}

/* Converts a sample axis to a place's axis, counted from the right because of the microbatch axis. */
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

/* Scratch bytes for a rank's part of each rank's summands, and for the parts sent to them. */
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

/* The whole of a value that is split among `ranks` ranks along an axis of `blocks` blocks. rank: its number of
 * axes. */
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

/* This rank's part of the sum of all ranks' partial sums, in the order of ranks: bit-identical to that part of
 * all_reduce. */
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

/* This rank's part of a whole value; nothing is sent. */
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

/* A whole value as a partial sum: the first rank has the value, all later ranks have zeros. */
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

/* The first `whole` of all ranks' `part` columns unchanged, the remaining ones `fill`. */
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
