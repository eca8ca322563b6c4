/* The diagnostic for a request without a plan: the required memory, the stage, and options that would help. */
#include "plan/answer.h"

static int largest_stage(const Plan *plan) {
  int most = 0;
  for (int i = 1; i < plan_parts(plan); i++)
    if (plan->stage[i].peak_bytes > plan->stage[most].peak_bytes)
      most = i;
  return most;
}

/* Any plan that fits a changed request; NULL: none. Costs are counted, because a profile may not cover the
 * change. */
static Plan *instead(const Planner *r, PlanRequest changed) {
  int64_t batch = r->g->train.batch;
  bool deeper = changed.stages > r->form.n_stages;
  Pipeline form = deeper ? form_make(r, changed.stages, NULL) : r->form;
  int64_t most = batch / (changed.microbatch ? changed.microbatch : 1);
  int64_t least, multiple;
  schedule_needs(&form, &least, &multiple);
  bool possible = pipeline_parts(&form) <= r->p->n && most >= least && batch % multiple == 0;
  if (!possible || (changed.microbatch && !schedule_allows(&form, most)))
    return NULL;
  changed.workers = 0;
  changed.profile = NULL;
  changed.schedule = r->form.schedule;
  changed.replicas = replicas_text(&form);
  Planner other;
  if (!planner_prepare(&other, r->g, r->p, &changed, NULL) || !planner_microbatches(&other))
    return NULL;
  return plan_any(&other);
}

static void advise(const Planner *r, Diagnostic *d, const char *what, const Plan *plan) {
  int worst = largest_stage(plan);
  help(d, "use %s: at most %s, on stage %d", what, bytes_text(plan->stage[worst].peak_bytes + r->memory.process),
       plan_stage_of(plan, worst));
}

/* A plan under flush, which needs less memory, with all other options unchanged; NULL: none. */
static Plan *draining(const Planner *r) {
  PlanRequest changed = *r->request;
  ScheduleTraits traits = schedule_traits(r->form.schedule);
  if (traits.drains || traits.forward_only)
    return NULL;
  changed.schedule = "flush";
  changed.profile = changed.plan = NULL;
  Planner other;
  if (!planner_prepare(&other, r->g, r->p, &changed, NULL) || !planner_microbatches(&other))
    return NULL;
  return plan_any(&other);
}

/* A plan with offload on the same ranks; NULL: none fits, or offload is impossible. */
static Plan *spilling(const Planner *r) {
  PlanRequest changed = *r->request;
  if (r->g->inference || r->traits.spills || !form_is_plain(&r->form) || r->ranks != r->form.n_stages ||
      changed.cluster)
    return NULL;
  changed.schedule = "spilled";
  changed.profile = changed.plan = changed.split = NULL;
  changed.stages = 0;
  changed.workers = r->ranks;
  changed.replicas = NULL;
  Planner other;
  if (!planner_prepare(&other, r->g, r->p, &changed, NULL) || !planner_microbatches(&other))
    return NULL;
  return plan_any(&other);
}

static void find_advice(const Planner *r, Diagnostic *d) {
  PlanRequest q = *r->request;
  q.stages = r->form.n_stages;
  q.plan = NULL;
  Plan *plan;
  bool generates = r->g->generation.context > 0;
  if (q.recompute == RECOMPUTE_OFF && !r->g->inference) {
    q.recompute = RECOMPUTE_AUTO;
    q.recomputed = NULL;
    if ((plan = instead(r, q)) != NULL)
      return advise(r, d, "'--recompute auto'", plan);
  }
  if (q.microbatch && !generates) {
    q.microbatch = 0;
    if ((plan = instead(r, q)) != NULL)
      return advise(r, d, format("'--microbatch %lld'", (long long)plan->pipeline.microbatch), plan);
  }
  if (q.split) {
    q.split = NULL;
    if ((plan = instead(r, q)) != NULL)
      return advise(r, d, "leaving '--split' away", plan);
  }
  int n_stages = r->form.n_stages;
  const Cluster *cluster = r->request->cluster;
  int most = !r->memory.shared && form_is_plain(&r->form) && !r->traits.spills ? 4 * n_stages : 0;
  if (cluster && most > cluster_devices(cluster))
    most = cluster_devices(cluster);
  const int step = n_stages < FEW_STAGES ? 1 : n_stages / (FEW_STAGES / 2);
  for (int stages = n_stages + step; stages <= most; stages += step) {
    q.stages = stages;
    if ((plan = instead(r, q)) != NULL)
      return advise(r, d, format("'-n %d'", stages), plan);
  }
  if ((plan = draining(r)) != NULL)
    return advise(r, d, "'--schedule flush', which keeps one version of the weights,", plan);
  help(d, "use a smaller model%s, or devices with more memory", generates ? " or fewer '--samples'" : " or batch");
}

void tell_nothing_fits(const Planner *r, const Plan *best) {
  ensure(best); /* without a limit every form has a partition, and its smallest plan is laid out */
  int64_t memory = 0;
  bool exact = false;
  const Refusal say = r->request->refusal;
  const bool looks = !r->request->plan && say != SAY_NOTHING;
  const Plan *least = looks ? plan_of_least_memory(r, best, &memory, &exact) : NULL;
  best = least ? least : best;
  int worst = largest_stage(best);
  const StagePlan *s = &best->stage[worst];
  Diagnostic *d =
      error_at(r->where, "PD0501", "no plan fits into %d device%s with %s; the smallest needs %s on stage %d",
               r->ranks, r->ranks == 1 ? "" : "s", bytes_text(memory_of_rank(r)),
               bytes_text(least ? memory : s->peak_bytes + r->memory.process), plan_stage_of(best, worst));
  int64_t rest = s->peak_bytes - s->weight_bytes - s->gradient_bytes - s->optimizer_bytes;
  const char *trains = r->g->inference ? ""
                                       : format(", gradients %s, optimizer %s", bytes_text(s->gradient_bytes),
                                                bytes_text(s->optimizer_bytes));
  note_at(d, NO_SPAN, "stage %d (%s .. %s): weights %s%s, activations and workspace %s at microbatch %lld%s",
          plan_stage_of(best, worst), r->p->at[s->first_piece].name,
          piece_last_instance(r->g, r->p, s->end_piece - 1), bytes_text(s->weight_bytes), trains,
          bytes_text(rest > 0 ? rest : 0), (long long)best->pipeline.microbatch,
          plan_recomputes(best, worst) || best->stage[worst].again ? " with recomputation" : "");
  if (r->memory.process)
    note_at(d, NO_SPAN, "%s of that is the process's own, for MPI and libraries", bytes_text(r->memory.process));
  if (least)
    help(d, "'--memory %lldKiB' is %s", (long long)memory / 1024,
         exact ? "the smallest sufficient limit" : "enough");
  if (say != SAY_ADVICE)
    return;
  find_advice(r, d);
  const Plan *parts = spilling(r);
  if (parts)
    help(d, "use '--schedule spilled%s', with %d offloaded parts: at most %s",
         r->rates->host > 0 ? "" : " --spill DIR", plan_parts(parts),
         bytes_text(largest_peak(parts) + r->memory.process));
}
