/* --tensor: plans other divisions of a model among ranks, and keeps the best. */
#include "compile/compile.h"
#include "tensor/tensor.h"

/* Compiles up to the plan, without output. */
static Compilation *quiet(const Options *o, const PlanRequest *request) {
  Compilation *c = alloc(sizeof *c);
  c->options = *o;
  c->options.plan = *request;
  c->options.emit = EMIT_NOTHING;
  c->options.dump = c->options.stop_after = NULL;
  c->options.time_passes = c->options.verify_each = c->options.report = false;
  return c;
}

void spread_if_better(Compilation *c) {
  Compilation *other = quiet(&c->options, &c->asked);
  other->options.plan.spread = true;
  Profiled profiled = {c->graph, alloc_copy(&c->pieces, sizeof c->pieces)};
  other->options.plan.profiled = alloc_copy(&profiled, sizeof profiled);
  int mark = diagnostics_mark();
  bool planned = compile(other, "plan"), better = planned && tensor_is_better(other->plan, c->plan);
  bool says = !planned && !c->plan && !other->options.plan.plan && other->stages;
  diagnostics_forget(mark);
  if (!better && !says)
    return;
  const PlanRequest request = other->options.plan;
  const TensorDegrees degrees = c->degrees;
  other->options = c->options;
  *c = *other;
  c->options.plan = request;
  c->degrees = degrees;
}

/* The plan of a tensor-parallel degree; its diagnostics go to `why`. */
static void plan_degree(const Options *o, TensorDegree *degree) {
  Compilation *c = quiet(o, &o->plan);
  c->options.plan.tensor = degree->shards > 1 ? degree->shards : 0;
  c->options.plan.refusal = SAY_LEAST;
  int mark = diagnostics_mark();
  bool good = compile(c, "plan") && exact_peaks(c);
  const char *error = diagnostics_forget(mark);
  degree->plan = good ? c->plan : NULL;
  degree->why = error ? error : "no plan";
}

bool choose_degree(Compilation *c) {
  PlanRequest *request = &c->options.plan;
  if (request->tensor != TENSOR_AUTO)
    return true;
  if (!tensor_degrees(request, &c->degrees))
    return false;
  for (int i = 0; i < c->degrees.n; i++)
    plan_degree(&c->options, &c->degrees.at[i]);
  int chosen = tensor_choose(&c->degrees);
  request->tensor = chosen < 0 ? 0 : c->degrees.at[chosen].shards;
  return true;
}
