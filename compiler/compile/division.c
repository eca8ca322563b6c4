/* --tensor: plans other divisions of a model among ranks, and keeps the best. */
#include "compile/compile.h"
#include "tensor/tensor.h"

/* The same model under another division. Its passes print nothing. */
static Compilation *trial_of(const Compilation *c, TensorDivision division, Refusal refusal) {
  Compilation *trial = alloc(sizeof *trial);
  Options o = c->options;
  o.emit = EMIT_NOTHING;
  o.dump = o.stop_after = NULL;
  o.time_passes = o.verify_each = o.report = false;
  o.plan.refusal = refusal;
  compilation_start(trial, &c->passes, &o);
  trial->division = division;
  return trial;
}

/* The results of a trial become those of `c`. */
static void take_over(Compilation *c, const Compilation *trial) {
  const Options options = c->options;
  const TensorDegrees degrees = c->degrees;
  *c = *trial;
  c->options = options;
  c->degrees = degrees;
  prepare_request(c);
}

void spread_if_better(Compilation *c, int mark) {
  const Diagnostics before = diagnostics_take(mark);
  Compilation *trial = trial_of(c, (TensorDivision){c->division.degree, true}, c->options.plan.refusal);
  const Profiled profiled = {c->graph, alloc_copy(&c->pieces, sizeof c->pieces)};
  trial->request.profiled = alloc_copy(&profiled, sizeof profiled);
  const bool divided = compile(trial, "cut");
  diagnostics_forget(mark); /* repeats those of c */
  const bool planned = divided && plan_divided(trial), better = planned && tensor_is_better(trial->plan, c->plan);
  const bool says = divided && !planned && !c->plan && !c->request.plan;
  if (better || says) {
    take_over(c, trial);
    return;
  }
  diagnostics_forget(mark);
  diagnostics_put(before);
}

/* The plan of a tensor-parallel degree; its diagnostics go to `why`. */
static void plan_degree(const Compilation *c, TensorDegree *degree) {
  Compilation *trial = trial_of(c, (TensorDivision){.degree = degree->shards}, SAY_LEAST);
  int mark = diagnostics_mark();
  bool good = compile(trial, "plan") && exact_peaks(trial);
  const char *error = diagnostics_forget(mark);
  degree->plan = good ? trial->plan : NULL;
  degree->why = error ? error : "no plan";
}

bool choose_degree(Compilation *c) {
  if (c->request.tensor != TENSOR_AUTO)
    return true;
  if (!tensor_degrees(&c->request, &c->degrees))
    return false;
  for (int i = 0; i < c->degrees.n; i++)
    plan_degree(c, &c->degrees.at[i]);
  int chosen = tensor_choose(&c->degrees);
  c->division.degree = chosen < 0 ? 0 : c->degrees.at[chosen].shards;
  return true;
}
