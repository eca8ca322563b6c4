/* Candidates: a form of a pipeline with microbatches of a size, from its partition to exact peaks. */
#include <math.h>

#include "plan/candidate.h"

Candidate candidate_of(const Planner *r, const Pipeline *form, const Placement *at, int64_t b, const Spans *spans,
                       Recompute policy, const int *pinned, double bound) {
  return (Candidate){.form = form,
                     .placement = *at,
                     .microbatch = b,
                     .recompute = policy,
                     .spans = spans,
                     .copies = copies(r, form, at, b, policy),
                     .pinned = pinned,
                     .bound = bound};
}

void sum_of_chunks(Plan *plan) {
  int n_stages = plan->pipeline.n_stages;
  for (int i = 0; i < n_stages; i++) {
    int64_t sum = 0;
    for (int part = i; part < plan_parts(plan); part += n_stages)
      sum += plan->stage[part].peak_bytes;
    for (int part = i; part < plan_parts(plan); part += n_stages)
      plan->stage[part].peak_bytes = sum;
  }
}

Plan *plan_of(const Planner *r, const Candidate *c, const Partition *part) {
  Plan *plan = alloc(sizeof *plan);
  int parts = pipeline_parts(c->form);
  *plan = (Plan){.model = r->subject.name, .pipeline = form_of(c->form), .target = r->target, .why = ""};
  plan->placement = c->placement;
  plan->pipeline = pipeline_at(&plan->pipeline, r->subject.batch, c->microbatch);
  plan->stage = alloc((size_t)parts * sizeof *plan->stage);
  plan->costs = r->profile ? internf("profile %s", r->profile->file) : intern("counted");
  for (int i = 0; i < parts; i++)
    plan->pipeline.recompute[plan_stage_of(plan, i)] |= part->recompute[i]; /* all of a rank's chunks or none */
  for (int i = 0; i < parts; i++) {
    StagePlan *s = &plan->stage[i];
    s->first_piece = part->start[i];
    s->end_piece = part->start[i + 1];
    s->peak_bytes = span_bytes(c->spans + c->copies[i].kind, &c->copies[i], s->first_piece, s->end_piece,
                               plan_recomputes(plan, i));
  }
  sum_of_chunks(plan);
  if (schedulable(r, plan))
    price_plan(r, plan);
  return plan;
}

static double alone_seconds(const Candidate *c, const Partition *part, int i) {
  const Copies *at = &c->copies[i];
  return span_seconds(c->spans + at->kind, at, part->start[i], part->start[i + 1], part->recompute[i]);
}

/* A rank works on all its chunks: what each takes is beside the others. False: nobody changed by much. */
static bool set_beside(const Candidate *c, const Partition *part, Copies *at) {
  int parts = pipeline_parts(c->form), n_stages = c->form->n_stages;
  double *rank = alloc((size_t)n_stages * sizeof *rank);
  bool changed = false;
  for (int i = 0; i < parts; i++)
    rank[i % n_stages] += alone_seconds(c, part, i);
  for (int i = 0; i < parts; i++) {
    double own = alone_seconds(c, part, i);
    double beside = rank[i % n_stages] - own;
    changed |= fabs(beside - at[i].beside) > 1e-6 * (own + beside);
    at[i].beside = beside;
  }
  return changed;
}

/* Where ranks hold several chunks: partitions of parts that are each as fast as what its rank has beside it allows,
 * one after the other, and the plan of the best. */
static void balance_ranks(const Planner *r, const Candidate *c, int64_t limit, Plan **best) {
  enum { ROUNDS = 8 };
  int parts = pipeline_parts(c->form);
  Copies *at = alloc_copy(c->copies, (size_t)parts * sizeof *at);
  Partition part;
  bool fits = partition_fastest(c->spans, at, parts, limit, INFINITY, &part);
  for (int round = 0; fits && round < ROUNDS && set_beside(c, &part, at); round++) {
    fits = partition_fastest(c->spans, at, parts, limit, INFINITY, &part);
    Plan *plan = fits ? plan_of(r, c, &part) : *best;
    if (plan->batch_seconds < (*best)->batch_seconds)
      *best = plan;
  }
}

/* Where cuts are given a rank's chunks have its memory together: it recomputes where it must. */
static bool fit_ranks(const Candidate *c, int64_t limit, Partition *part) {
  int n_stages = c->form->n_stages, parts = pipeline_parts(c->form);
  bool fits = true;
  for (int stage = 0; stage < n_stages; stage++) {
    const Copies *first = &c->copies[stage];
    int64_t off = 0, on = 0;
    for (int i = stage; i < parts; i += n_stages) {
      const Copies *at = &c->copies[i];
      off += span_bytes(c->spans + at->kind, at, part->start[i], part->start[i + 1], false);
      on += span_bytes(c->spans + at->kind, at, part->start[i], part->start[i + 1], true);
    }
    bool stays = first->recompute_off && (off <= limit || !first->recompute_on || (on > limit && off <= on));
    fits &= (stays ? off : on) <= limit;
    for (int i = stage; i < parts; i += n_stages)
      part->recompute[i] = !stays;
  }
  return fits;
}

bool candidate_partition(const Candidate *c, int64_t limit, Partition *out) {
  int parts = pipeline_parts(c->form);
  if (c->pinned) {
    partition_pinned(c->spans, c->copies, parts, c->pinned, limit, out);
    return fit_ranks(c, limit, out);
  }
  limit = limit == INT64_MAX ? limit : limit / c->form->chunks;
  double most = c->or_not ? c->most * c->spans->c->share : INFINITY;
  if (partition_fastest(c->spans, c->copies, parts, limit, most, out))
    return true;
  if (!c->or_not)
    partition_smallest(c->spans, c->copies, parts, out);
  return false;
}

bool candidate_plan(const Planner *r, const Candidate *c, int64_t limit, Plan **out) {
  Partition part;
  bool fits = candidate_partition(c, limit, &part);
  if (!fits && c->or_not)
    return false;
  *out = plan_of(r, c, &part);
  if (fits && !c->pinned && c->form->chunks > 1 && schedulable(r, *out))
    balance_ranks(r, c, limit == INT64_MAX ? limit : limit / c->form->chunks, out);
  return fits;
}

void find_peaks(const Planner *r, Plan *plan, int64_t *error) {
  int n_stages = plan->pipeline.n_stages;
  for (int i = 0; i < n_stages; i++) {
    int64_t estimate = plan->stage[i].peak_bytes, peak = estimate;
    if (r->request->peak)
      peak = r->request->peak(r->request->peak_context, plan, i);
    error[i] = peak - estimate;
    for (int part = i; part < plan_parts(plan); part += n_stages)
      plan->stage[part].peak_bytes = peak;
  }
}

int64_t largest_peak(const Plan *plan) {
  int64_t most = 0;
  for (int i = 0; i < plan->pipeline.n_stages; i++)
    most = plan->stage[i].peak_bytes > most ? plan->stage[i].peak_bytes : most;
  return most;
}

/* Even the smallest partition is estimated so far above the limit that no exact peak can make up for it: where
 * there are many ways to use the ranks, these need not be laid out. */
static bool hopeless(const Planner *r, const Plan *smallest, bool fits) {
  return !fits && largest_peak(smallest) / 2 > r->limit;
}

void settle(const Planner *r, Candidate *c) {
  const int ROUNDS = r->free_replicas ? 3 : 10;
  int n_stages = c->form->n_stages, parts = pipeline_parts(c->form);
  int64_t *error = alloc((size_t)n_stages * sizeof *error);
  Plan *smallest = NULL;
  c->copies = alloc_copy(c->copies, (size_t)parts * sizeof *c->copies);
  for (int round = 0; round < ROUNDS && !c->settled; round++) {
    bool fits = candidate_plan(r, c, r->limit, &c->plan), smaller = false;
    if ((!fits && c->or_not) || !schedulable(r, c->plan) || (r->free_replicas && hopeless(r, c->plan, fits)))
      break;
    find_peaks(r, c->plan, error);
    bool exact = largest_peak(c->plan) <= r->limit;
    c->settled = fits && exact;
    if (!fits && exact)
      smallest = c->plan;
    for (int i = 0; i < parts; i++) {
      int64_t missed = error[stage_of_part(n_stages, i)] / c->form->chunks;
      smaller |= missed < 0;
      if (!fits || c->plan->stage[i].peak_bytes > r->limit)
        c->copies[i].extra += missed;
    }
    if (!fits && !smaller)
      break;
  }
  if (!c->settled && smallest) {
    c->plan = smallest;
    c->settled = true;
  }
  c->refused = !c->settled;
}
