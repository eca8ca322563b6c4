/* Candidates: a form of a pipeline with a microbatch, from its partition to exact peaks. */
#include <math.h>

#include "plan/search/search.h"

Candidate candidate_of(const Planner *r, const Pipeline *form, const Placement *at, int64_t b, const Spans *spans,
                       Recompute policy, const int *pinned, double bound) {
  return (Candidate){.form = form,
                     .placement = *at,
                     .microbatch = b,
                     .recompute = policy,
                     .spans = spans,
                     .copies = copies(r, form, at, b, policy),
                     .pinned = pinned,
                     .balanced = alloc(N_CHUNK_STARTS * sizeof(Partition)),
                     .bound = bound};
}

Plan *plan_of(const Planner *r, const Candidate *c, const Partition *part, double most) {
  Plan *plan = alloc(sizeof *plan);
  int parts = pipeline_parts(c->form);
  *plan = (Plan){.model = r->subject.name, .pipeline = form_of(c->form), .target = r->target, .why = ""};
  plan->placement = c->placement;
  plan->pipeline = pipeline_at(&plan->pipeline, r->subject.batch, c->microbatch);
  plan->stage = alloc((size_t)parts * sizeof *plan->stage);
  plan->costs = costs_text(r);
  for (int i = 0; i < parts; i++)
    plan->pipeline.recompute[plan_stage_of(plan, i)] |= repeats_all(part->recompute[i]); /* for all its chunks */
  for (int i = 0; i < parts; i++) {
    StagePlan *s = &plan->stage[i];
    s->first_piece = part->start[i];
    s->end_piece = part->start[i + 1];
    const int level = level_of(part->recompute[i]);
    if (r->again || level >= 0)
      set_recomputed(s, r->again ? r->again : c->spans[c->copies[i].kind].again[level]);
  }
  for (int i = 0; i < parts; i++)
    plan->stage[i].peak_bytes = chunks_bytes(c, part, plan_stage_of(plan, i), part->recompute[i]);
  if (schedulable(r, plan))
    price_plan(r, plan, most);
  return plan;
}

bool candidate_partition(const Planner *r, const Candidate *c, int64_t limit, Partition *out) {
  int parts = pipeline_parts(c->form);
  if (c->pinned) {
    partition_pinned(c->spans, c->copies, parts, c->pinned, limit, out);
    return chunks_fit(c, limit, out);
  }
  double most = c->or_not ? c->most * c->spans->c->share : INFINITY;
  if (best_partition(r, c, limit, most, out))
    return true;
  if (!c->or_not)
    partition_smallest(c->spans, c->copies, parts, out);
  return false;
}

double candidate_least_seconds(const Planner *r, const Candidate *c, const Partition *part) {
  double value = c->form->chunks > 1 ? chunks_value(c, part) : part->value;
  return value * candidate_turns(r, c);
}

double candidate_turns(const Planner *r, const Candidate *c) { return turns_at_least(r, c->microbatch); }

double turns_at_least(const Planner *r, int64_t b) {
  enum { SHORT = 16 };
  static const double ROUNDING = 1 - 1e-9, UNSTEADY = 0.95;
  double turns = (double)r->subject.batch / (double)b;
  return turns * (r->traits.drains || turns >= SHORT ? ROUNDING : UNSTEADY);
}

bool candidate_plan(const Planner *r, const Candidate *c, int64_t limit, Plan **out) {
  Partition part;
  if (c->form->chunks > 1 && !c->pinned)
    return chunks_plan(r, c, limit, out);
  bool fits = candidate_partition(r, c, limit, &part);
  if (fits || !c->or_not)
    *out = plan_of(r, c, &part, INFINITY);
  return fits;
}

void find_peaks(const Planner *r, Plan *plan, int64_t *error) {
  int n_stages = plan->pipeline.n_stages;
  for (int i = 0; i < n_stages; i++) {
    int64_t estimate = plan->stage[plan_part_of(plan, i, 0)].peak_bytes, peak = estimate;
    if (r->request->peak)
      peak = r->request->peak(r->request->peak_context, plan, i);
    error[i] = peak - estimate;
    for (int k = 0; k < pipeline_chunks(&plan->pipeline, i); k++)
      plan->stage[plan_part_of(plan, i, k)].peak_bytes = peak;
  }
}

bool fits_exactly(const Planner *r, Candidate *c) {
  const Pipeline *form = c->form;
  Spans *spans = spans_at(r, c->microbatch);
  int64_t *error = alloc((size_t)form->n_stages * sizeof *error);
  find_peaks(r, c->plan, error);
  if (largest_peak(c->plan) <= r->memory.arena)
    return true;
  for (int i = 0; i < pipeline_parts(form); i++) {
    const StagePlan *s = &c->plan->stage[i];
    if (s->peak_bytes > r->memory.arena)
      spans_correct(spans + c->copies[i].kind, s->first_piece, s->end_piece,
                    error[stage_of_part(form->n_stages, i)] / form->chunks);
  }
  return false;
}

/* Whether even the smallest partition is estimated at more than twice the limit. With free replicas such forms are
 * not laid out. */
static bool hopeless(const Planner *r, const Plan *smallest, bool fits) {
  return !fits && largest_peak(smallest) / 2 > r->memory.arena;
}

static void settle_once(const Planner *r, Candidate *c) {
  const int ROUNDS = c->tight > 0 ? 8 : r->free_replicas ? 3 : 10;
  int n_stages = c->form->n_stages, parts = pipeline_parts(c->form);
  int64_t *error = alloc((size_t)n_stages * sizeof *error);
  int64_t limit = r->memory.arena;
  Plan *smallest = NULL;
  c->copies = alloc_copy(c->copies, (size_t)parts * sizeof *c->copies);
  for (int round = 0; round < ROUNDS && !c->settled; round++) {
    bool fits = candidate_plan(r, c, limit, &c->plan), smaller = false;
    if ((!fits && c->or_not) || !schedulable(r, c->plan) || (r->free_replicas && hopeless(r, c->plan, fits)))
      break;
    find_peaks(r, c->plan, error);
    bool exact = largest_peak(c->plan) <= r->memory.arena;
    c->settled = fits && exact;
    if (!fits && exact)
      smallest = c->plan;
    if (fits && !exact && c->tight > 0) { /* an error at these cuts says little about others */
      limit -= limit / 16;
      continue;
    }
    limit = r->memory.arena;
    for (int i = 0; i < parts; i++) {
      int64_t missed = error[stage_of_part(n_stages, i)] / c->form->chunks;
      smaller |= missed < 0;
      if (!fits || c->plan->stage[i].peak_bytes > r->memory.arena)
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

/* Layout errors of recomputation by layer say nothing about repeating whole stages, which is tried separately. */
void settle(const Planner *r, Candidate *c) {
  const int parts = pipeline_parts(c->form);
  Candidate whole = *c;
  bool layers = false;
  settle_once(r, c);
  if (c->settled)
    return;
  whole.copies = alloc_copy(whole.copies, (size_t)parts * sizeof *whole.copies);
  for (int i = 0; i < parts; i++) {
    layers |= whole.copies[i].layers == LAYERS_MAY && whole.copies[i].recompute_on &&
              c->spans[whole.copies[i].kind].n_levels > 0;
    whole.copies[i].layers = LAYERS_NO;
  }
  if (!layers)
    return;
  settle_once(r, &whole);
  if (whole.settled)
    *c = whole;
}
