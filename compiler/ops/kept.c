/* Values that a generating program keeps from one step to the next, beside the caches of attention: results of an encoder,
 * which new samples alone change, and rows of earlier positions, for attention that is written as products. Sample b of
 * a step is always the same sequence. */
#include <string.h>

#include "ops/call.h"
#include "ops/rules.h"
#include "pd_kernels.h"

/* ---- the nodes that run once ---------------------------------------------------------------------- */

bool *nodes_once(const Graph *g) {
  bool *once = alloc((size_t)g->nodes.n + 1), *read = alloc((size_t)g->values.n + 1), any = false;
  bool *always = alloc((size_t)g->values.n + 1); /* by value: a node of every step reads it */
  for (int i = 0; i < g->figures.n; i++)
    always[g->figures.at[i].value] = true;
  for (int i = g->nodes.n - 1; i >= 0; i--) {
    const Node *n = &g->nodes.at[i];
    bool serves = n->op->once;
    for (int k = 0; k < n->n_out && !n->op->once; k++)
      serves |= read[n->out[k]];
    for (int k = 0; k < n->n_out && !n->op->once; k++)
      serves &= !always[n->out[k]];
    once[i] = serves;
    any |= serves;
    for (int k = 0; k < n->n_in; k++) {
      read[n->in[k]] = true;
      always[n->in[k]] |= !serves;
    }
  }
  return any ? once : NULL;
}

/* ---- keep(x): x, until the next sample ------------------------------------------------------------- */

static bool shape_keep(ShapeRule *r) { return rule_f32(r, 0) && rule_result(r, *rule_shape(r, 0)); }

static void evaluate_keep(const Graph *g, int node, int64_t batch, const double *const *in, double *const *out) {
  memcpy(out[0], in[0], (size_t)batch_elements(in_shape(g, node, 0), batch) * sizeof **out);
}

static int64_t elements_of(const Place *p) {
  int64_t n = 1;
  for (int i = 0; i < p->rank; i++)
    n *= p->dim[i];
  return n;
}

static void call_keep(const Site *site, Call *c) {
  c->function = "pd_keep";
  pass_place(c, &site->in[0]);
  pass_int(c, elements_of(&site->in[0]));
  pass_place(c, &site->out[0]);
}

static bool keep_stays_f32(const Node *n, bool result, int index) {
  (void)result, (void)index;
  return node_int(n, "exact") != 0;
}

/* exact: in f32 under any precision. */
const Op op_keep = {
    .name = "keep",
    .signature = "keep(x, exact)",
    .kind = OP_CALL,
    .internal = true,
    .keeps = true,
    .once = true,
    .min_in = 1,
    .max_in = 1,
    .attr = {{"exact", ATTR_BOOL, true, 0}},
    .shape = shape_keep,
    .cost = cost_copy,
    .evaluate = evaluate_keep,
    .call = call_keep,
    .stays_f32 = keep_stays_f32,
};

/* ---- cached_rows(x, position): x of all positions so far ------------------------------------------- */

static bool shape_cached_rows(ShapeRule *r) {
  const Shape *x = rule_shape(r, 0);
  const int64_t axis = rule_int(r, "axis");
  ensure(x->batched && axis >= 0 && axis < x->rank && x->dim[axis] == 1);
  return rule_f32(r, 0) && rule_token(r, 1) && rule_result(r, shape_with(*x, (int)axis, rule_int(r, "context")));
}

/* A sample's rows around the axis of positions. */
static Around rows_around(const Node *n, const Shape *all) {
  return around_axis(all, 1, (int)node_int(n, "axis"));
}

/* out[0] has the rows of earlier calls. */
static void evaluate_cached_rows(const Graph *g, int node, int64_t batch, const double *const *in,
                                 double *const *out) {
  const Around a = rows_around(&g->nodes.at[node], out_shape(g, node, 0));
  for (int64_t b = 0; b < batch; b++)
    for (int64_t i = 0; i < a.outer; i++)
      memcpy(out[0] + ((b * a.outer + i) * a.middle + (int64_t)in[1][b]) * a.inner,
             in[0] + (b * a.outer + i) * a.inner, (size_t)a.inner * sizeof **out);
}

static void call_cached_rows(const Site *site, Call *c) {
  const Place *all = &site->out[0];
  Shape s = {.batched = true, .rank = all->rank - 1};
  memcpy(s.dim, all->dim + 1, sizeof(int64_t) * (size_t)s.rank);
  const Around a = rows_around(site->node, &s);
  c->function = c->object = "pd_cached_rows";
  field_int(c, "batch", all->dim[0]);
  field_int(c, "outer", a.outer);
  field_int(c, "context", a.middle);
  field_int(c, "inner", a.inner);
  pass_object(c);
  pass_place(c, &site->in[0]);
  pass_place(c, &site->in[1]);
  pass_place(c, &site->out[0]);
}

/* x[.., 1, ..] at position[1] becomes row `position` along the axis of [.., context, ..]; other rows are those of earlier
 * calls. */
const Op op_cached_rows = {
    .name = "cached_rows",
    .signature = "cached_rows(x[.., 1, ..], position[1], axis, context)",
    .kind = OP_CALL,
    .internal = true,
    .keeps = true,
    .min_in = 2,
    .max_in = 2,
    .attr = {{"axis", ATTR_INT, true, 0}, {"context", ATTR_INT, true, 0}},
    .shape = shape_cached_rows,
    .cost = cost_copy,
    .evaluate = evaluate_cached_rows,
    .call = call_cached_rows,
};
