/* Random numbers in a model, of each sample: an element depends only on the seed, the instance, the sample and the element's
 * index in it, as in dropout. Forward, backward and recomputation agree on any plan. */
#include <math.h>

#include "ops/rules.h"

static bool shape_random(ShapeRule *r) {
  if (!rule_shape(r, 0)->batched) {
    Diagnostic *d =
        error_at(r->span, "PD0311", "'%s' needs a value per sample, but %s is the same for all samples",
                 r->op->name, rule_operand(r, 0));
    note_at(d, rule_value(r, 0)->span, "the value comes from here");
    return false;
  }
  rule_key(r, format("%s/", r->op->name));
  return rule_result(r, *rule_shape(r, 0));
}

/* The reference may use any counter-based numbers; the runtime's are Philox. This is the finaliser of SplitMix64. */
static double uniform(const Node *n, int64_t i) {
  uint64_t x = node_key(n) + 0x9e3779b97f4a7c15u * (uint64_t)(i + 1);
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return (double)((x ^ x >> 31) >> 11) * 0x1p-53;
}

static void evaluate_rand(const Graph *g, int node, int64_t batch, const double *const *in, double *const *out) {
  (void)in;
  for (int64_t i = 0; i < batch_elements(out_shape(g, node, 0), batch); i++)
    out[0][i] = uniform(&g->nodes.at[node], i);
}

/* Box and Muller, "A Note on the Generation of Random Normal Deviates", 1958. */
static void evaluate_randn(const Graph *g, int node, int64_t batch, const double *const *in, double *const *out) {
  const Node *n = &g->nodes.at[node];
  (void)in;
  for (int64_t i = 0; i < batch_elements(out_shape(g, node, 0), batch); i++)
    out[0][i] = sqrt(-2 * log(1 - uniform(n, 2 * i))) * cos(2 * M_PI * uniform(n, 2 * i + 1));
}

#define RANDOM                                                                                                \
  .kind = OP_POINTWISE, .expensive = true, .min_in = 1, .max_in = 1, .attr = {{"$key", ATTR_TEXT, false, 0}}, \
  .shape = shape_random, .cost = cost_expensive

/* Uniform numbers from 0 to below 1 in the shape of x, in training and in validation. */
const Op op_rand_like = {
    .name = "rand_like",
    .signature = "rand_like(x)",
    RANDOM,
    .expression = "pd_rand(pd_mix($seed, $scope), $s, $i)",
    .evaluate = evaluate_rand,
};

/* The same of a standard normal distribution. */
const Op op_randn_like = {
    .name = "randn_like",
    .signature = "randn_like(x)",
    RANDOM,
    .expression = "pd_randn(pd_mix($seed, $scope), $s, $i)",
    .evaluate = evaluate_randn,
};
