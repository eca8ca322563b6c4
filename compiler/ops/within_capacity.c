/* A bound on the rows of each expert: the choices of a sample that its experts have room for. */
#include <math.h>

#include "ops/call.h"
#include "ops/rules.h"

enum { EXPERTS, KEPT }; /* values */

/* The most rows of a sample for an expert: `factor` times an equal share, rounded up. A share that is an integer, such as
 * 1.1 * 20, stays one despite the rounding of the product. */
static int64_t room(const Node *n, int64_t rows) {
  const double share = node_number(n, "factor") * (double)rows / node_number(n, "$count");
  return (int64_t)fmin((double)rows, ceil(share * (1 - 1e-12)));
}

static bool shape_within_capacity(ShapeRule *r) {
  const Value *experts = rule_value(r, EXPERTS);
  const double factor = rule_attr(r, "factor")->number;
  if (!rule_token(r, EXPERTS))
    return false;
  if (experts->shape.rank < 2) {
    Diagnostic *d =
        error_at(r->span, "PD0318", "'within_capacity' needs experts [.., length, k], but operand 1 is %s",
                 rule_operand(r, EXPERTS));
    rule_underline(r, d);
    return false;
  }
  if (!(factor > 0 && factor <= 1e9)) {
    help(error_at(r->span, "PD0202", "'within_capacity' takes a positive factor, not %g", factor),
         "a factor of 1.25 gives each expert room for 1.25 times an equal share of the rows");
    return false;
  }
  rule_view(r, experts->shape);
  rule_attr(r, "$count")->number = (double)experts->classes;
  r->out[0].classes = experts->classes + 1;
  return true;
}

static void evaluate_within_capacity(const Graph *g, int node, int64_t batch, const double *const *in,
                                     double *const *out) {
  const Node *n = &g->nodes.at[node];
  const Shape *s = in_shape(g, node, EXPERTS);
  const int64_t rows = s->dim[s->rank - 2] * s->dim[s->rank - 1], all = batch_elements(s, batch);
  for (int64_t i = 0; i < all; i++) {
    int64_t before = 0;
    for (int64_t j = i / rows * rows; j < i; j++)
      before += in[EXPERTS][j] == in[EXPERTS][i];
    out[0][i] = before < room(n, rows) ? in[EXPERTS][i] : node_number(n, "$count");
  }
}

static void call_within_capacity(const Site *site, Call *c) {
  const Place *experts = &site->in[EXPERTS];
  const int64_t rows = experts->dim[experts->rank - 2] * experts->dim[experts->rank - 1];
  int64_t samples = 1;
  for (int i = 0; i + 2 < experts->rank; i++)
    samples *= experts->dim[i];
  c->function = "pd_within_capacity";
  pass_place(c, experts);
  pass_int(c, samples);
  pass_int(c, rows);
  pass_int(c, node_int(site->node, "$count"));
  pass_int(c, room(site->node, rows));
  pass_place(c, &site->out[0]);
}

static bool always_causal(const Graph *g, int node) {
  (void)g, (void)node;
  return true;
}

/* Each expert takes the first ceil(factor * length * k / n) rows of a sample that chose it, in the order of positions. These
 * choices stay, and others become n: a token of n + 1 classes, for expert_linear(.., drops = true). Earlier rows alone decide,
 * and other samples do not matter. */
const Op op_within_capacity = {
    .name = "within_capacity",
    .signature = "within_capacity(experts[.., length, k], factor)",
    .kind = OP_CALL,
    .min_in = 1,
    .max_in = 1,
    .attr = {{"factor", ATTR_NUMBER, true, 0}, {"$count", ATTR_INT, false, 0}},
    .shape = shape_within_capacity,
    .cost = cost_copy,
    .evaluate = evaluate_within_capacity,
    .call = call_within_capacity,
    .causal = always_causal,
    .stays_f32 = all_stays_f32,
};
