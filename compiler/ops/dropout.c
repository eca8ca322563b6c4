/* Dropout with counter-based random numbers. An element's mask depends only on the seed, the instance, the sample
 * and the element's index in it. Forward, backward and recomputation therefore agree on any plan. */
#include "ops/rules.h"

#include <string.h>

/* The k-th dropout of an instance has the key "h.0.attn/k"; its derivative inherits the key. */
static bool shape_dropout(ShapeRule *r) {
  double p = rule_attr(r, "p")->number;
  if (!(p >= 0 && p < 1)) {
    error_at(r->span, "PD0202", "'dropout' takes a probability of at least 0 and below 1, not %g", p);
    return false;
  }
  if (!rule_shape(r, 0)->batched) {
    Diagnostic *d =
        error_at(r->span, "PD0311", "'dropout' needs a value per sample, but %s is the same for all samples",
                 rule_operand(r, 0));
    note_at(d, rule_value(r, 0)->span, "the value comes from here");
    return false;
  }
  rule_key(r, "");
  return shape_pointwise(r);
}

static void derive_dropout(Gradients *d, int node) {
  int dy = grad_of(d, node, 0);
  grad_add(d, node, 0, grad_build(d, node, &op_dropout, &dy, 1, grad_graph(d)->nodes.at[node].attr));
}

/* A 64-bit finaliser (Steele et al., "Fast splittable pseudorandom number generators", 2014). The reference may
 * use any counter-based numbers; the runtime's are Philox. */
static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

static bool dropped(const Node *n, int64_t i) {
  double uniform = (double)(mix(node_key(n) ^ mix((uint64_t)i)) >> 11) * 0x1p-53;
  return uniform < node_number(n, "p");
}

static void evaluate_dropout(const Graph *g, int node, int64_t batch, const double *const *in,
                             double *const *out) {
  const Node *n = &g->nodes.at[node];
  double p = node_number(n, "p");
  int64_t total = batch_elements(out_shape(g, node, 0), batch);
  for (int64_t i = 0; i < total; i++)
    out[0][i] = dropped(n, i) ? 0 : in[0][i] / (1 - p);
}

/* Masks the same elements as on the whole value. */
static void meet_dropout(const Graph *g, int node, int64_t batch, int ranks, const double *const *const *in,
                         double *const *const *out) {
  const Node *n = &g->nodes.at[node];
  int64_t total = batch_elements(out_shape(g, node, 0), batch), part = node_int(n, "part"),
          whole = node_int(n, "whole");
  for (int r = 0; r < ranks; r++)
    for (int64_t i = 0; i < total; i++)
      out[r][0][i] =
          dropped(n, i / part * whole + r * part + i % part) ? 0 : in[r][0][i] / (1 - node_number(n, "p"));
}

/* 0 with probability p, else x / (1 - p), while training; x in validation. */
const Op op_dropout = {
    .name = "dropout",
    .signature = "dropout(x, p = 0.5)",
    .kind = OP_POINTWISE,
    .trains = true,
    .expensive = true,
    .min_in = 1,
    .max_in = 1,
    .attr = {{"p", ATTR_NUMBER, false, 0.5}, {"$key", ATTR_TEXT, false, 0}},
    .shape = shape_dropout,
    .derivative = derive_dropout,
    .cost = cost_expensive,
    .divide = divide_pointwise,
    .divided = &op_dropout_part,
    .expression = "pd_dropout($0, pd_mix($seed, $scope), $s, $i, $training ? ${p} : 0.0f)",
    .evaluate = evaluate_dropout,
};

/* Dropout of a part of a value, with elements numbered as in the whole. */
const Op op_dropout_part = {
    .name = "dropout_part",
    .signature = "dropout_part(x, p, part, whole)",
    .kind = OP_POINTWISE,
    .internal = true,
    .expensive = true,
    .min_in = 1,
    .max_in = 1,
    .attr = {{"p", ATTR_NUMBER, true, 0},
             {"$key", ATTR_TEXT, false, 0},
             {"part", ATTR_INT, true, 0},
             {"whole", ATTR_INT, true, 0}},
    .shape = shape_dropout,
    .cost = cost_expensive,
    .expression = "pd_dropout($0, pd_mix($seed, $scope), $s, pd_whole_index($i, ${part}, ${whole}, $shard), "
                  "$training ? ${p} : 0.0f)",
    .meet = meet_dropout,
};
