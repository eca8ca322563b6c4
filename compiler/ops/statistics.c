/* Statistics of a microbatch, and their running averages for validation. A buffer with an average gets no
 * gradient: a microbatch's share is summed over a batch in place of a gradient, and update t makes
 * W(t + 1) = (1 - momentum)^M W(t) + the sum of the shares, for a batch of M microbatches. The share of microbatch
 * k = 0 .. M - 1 is
 *   momentum (1 - momentum)^(M - 1 - k) statistic
 * This equals a sequential update by each microbatch, in any order of the replicas. */
#include "ops/rules.h"

/* ---- microbatch ------------------------------------------------------------------------------- */

static bool shape_number(ShapeRule *r) { return rule_result(r, (Shape){.batched = false}); }

static void evaluate_microbatch(const Graph *g, int node, int64_t batch, const double *const *in,
                                double *const *out) {
  (void)g, (void)node, (void)in;
  out[0][0] = (double)batch;
}

/* The number of samples in a microbatch, which the plan chooses: one number for all samples. */
const Op op_microbatch = {
    .name = "microbatch",
    .signature = "microbatch()",
    .kind = OP_SOURCE,
    .of_microbatch = true,
    .shape = shape_number,
    .cost = cost_none,
    .expression = "(float)MICROBATCH",
    .evaluate = evaluate_microbatch,
};

/* ---- running_average -------------------------------------------------------------------------- */

static bool shape_running_average(ShapeRule *r) {
  static const char *const names[] = {NULL, "statistic", "value"};
  double momentum = rule_attr(r, "momentum")->number;
  if (!rule_all_f32(r))
    return false;
  if (!(momentum >= 0 && momentum <= 1)) {
    error_at(r->span, "PD0202", "'running_average' takes a momentum from 0 to 1, not %g", momentum);
    return false;
  }
  if (!rule_buffer(r, 0))
    return false;
  for (int i = 1; i < 3; i++) {
    if (shape_equal(rule_shape(r, i), rule_shape(r, 0)))
      continue;
    const char *each = rule_shape(r, i)->batched ? " of each sample" : "";
    Diagnostic *d = error_at(r->span, "PD0340",
                             "'running_average' needs a %s like its buffer, of shape %s, but "
                             "'%s' has shape %s%s",
                             names[i], shape_text(rule_shape(r, 0)), rule_value(r, i)->name,
                             shape_text(rule_shape(r, i)), each);
    rule_underline(r, d);
    note_at(d, rule_value(r, i)->span, "the %s comes from here", names[i]);
    if (*each)
      help(d, "use 'sum_to' to sum over the samples of a microbatch");
    return false;
  }
  return rule_result(r, *rule_shape(r, 0));
}

static void derive_running_average(Gradients *d, int node) {
  const Node n = grad_graph(d)->nodes.at[node];
  int dy = grad_of(d, node, 0);
  if (dy >= 0)
    grad_add(d, node, 2, dy);
  Attr momentum[MAX_ATTR] = {{.number = node_number(&n, "momentum")}};
  grad_share(d, node, 0, grad_2(d, node, &op_mul, n.in[1], grad_build(d, node, &op_share, NULL, 0, momentum)));
}

static double fold_running_average(const double *x, const Attr *attr) {
  (void)attr;
  return x[2];
}

/* In training `value`, with its gradient; in validation the buffer, a running average that every microbatch of
 * training moves by momentum * (statistic - buffer). A buffer has exactly one such use. */
const Op op_running_average = {
    .name = "running_average",
    .signature = "running_average(buffer, statistic, value, momentum = 0.1)",
    .kind = OP_POINTWISE,
    .trains = true,
    .moves_by = "momentum",
    .divide = divide_pointwise,
    .min_in = 3,
    .max_in = 3,
    .no_gradient = 1u << 0 | 1u << 1, /* the buffer, the statistic */
    .attr = {{"momentum", ATTR_NUMBER, false, 0.1}},
    .shape = shape_running_average,
    .derivative = derive_running_average,
    .cost = cost_cheap,
    .expression = "$training ? $2 : $0",
    .fold = fold_running_average,
};

/* ---- share ------------------------------------------------------------------------------------- */

/* For a batch of one microbatch. */
static void evaluate_share(const Graph *g, int node, int64_t batch, const double *const *in, double *const *out) {
  (void)batch, (void)in;
  out[0][0] = node_number(&g->nodes.at[node], "momentum");
}

const Op op_share = {
    .name = "share",
    .signature = "share(momentum)",
    .kind = OP_SOURCE,
    .internal = true,
    .varies = true,
    .attr = {{"momentum", ATTR_NUMBER, true, 0}},
    .shape = shape_number,
    .cost = cost_none,
    .expression = "pd_share(${momentum}, $following)",
    .evaluate = evaluate_share,
};

/* ---- evaluation ------------------------------------------------------------------------------------------------- */

static bool sums_samples(const Graph *g, const Node *n) {
  return n->op->kind == OP_SUM_TO && g->values.at[n->in[0]].shape.batched &&
         !g->values.at[n->out[0]].shape.batched;
}

int evaluated_statistic(const Graph *g) {
  bool *needed = alloc((size_t)(g->values.n + 1) * sizeof *needed);
  int first = -1;
  for (int i = 0; i < g->figures.n; i++)
    needed[g->figures.at[i].value] = true;
  for (int i = g->n_forward - 1; i >= 0; i--) {
    const Node *n = &g->nodes.at[i];
    bool any = false;
    for (int j = 0; j < n->n_out; j++)
      any |= needed[n->out[j]];
    if (any && (sums_samples(g, n) || n->op->of_microbatch))
      first = i;
    for (int j = 0; any && j < (n->op->trains ? 1 : n->n_in); j++)
      needed[n->in[j]] = true;
  }
  return first;
}
