/* Forms of pipelines for the ranks that there are: what replicate.c finds, with estimates corrected by layouts. */
#include <math.h>
#include <string.h>

#include "plan/candidate.h"

bool add_form(const Planner *r, Candidates *candidates, const Pipeline *form, int64_t b, const Spans *spans,
              double bound) {
  Recompute asked = r->request->recompute;
  if (!schedule_allows(form, r->subject.batch / b))
    return false;
  push(candidates, candidate_of(r, form, b, spans, asked, r->pinned, bound));
  return true;
}

static Copies copies_at(const void *planner, const StageAhead *stage) {
  static const Placement neighbours;
  return copies_of_stage(planner, &neighbours, stage);
}

static bool same_form(const Pipeline *form, const Replication *way) {
  return form->n_stages == way->stages &&
         !memcmp(form->replicas, way->replicas, (size_t)way->stages * sizeof *way->replicas);
}

static Ways ways_at(const Planner *r, int64_t b, const Spans *spans) {
  enum { MOST_FORMS = 8 };
  return (Ways){.spans = spans,
                .n_kinds = r->n_kinds,
                .ranks = r->ranks,
                .alike = r->topology.n == 1 && r->n_kinds == 1,
                .least_stages = r->free_stages ? 1 : r->form.n_stages,
                .most_stages = r->form.n_stages,
                .pinned = r->pinned,
                .may_replicate = true,
                .microbatches = r->subject.batch / b,
                .traits = &r->traits,
                .ahead = r->request->ahead ? r->request->ahead : 1,
                .limit = INT64_MAX,
                .most = INFINITY,
                .copies = copies_at,
                .context = r,
                .most_found = MOST_FORMS};
}

/* Those not among the candidates from `first` on. */
static void add_found(const Planner *r, Candidates *candidates, int first, int64_t b, const Spans *spans,
                      const Replications *found) {
  const int64_t microbatches = r->subject.batch / b;
  for (int i = 0; i < found->n; i++) {
    const Replication *way = &found->at[i];
    bool known = false;
    for (int k = first; k < candidates->n; k++)
      known |= same_form(candidates->at[k].form, way);
    if (known)
      continue;
    Pipeline *form = alloc(sizeof *form);
    *form = form_make(r, way->stages, way->replicas);
    add_form(r, candidates, form, b, spans, way->value * (double)microbatches * (1 - 1e-9));
  }
}

/* Lays out the way's plan, and corrects estimates by what they missed. Whether it fits. */
static bool try_way(const Planner *r, int64_t b, Spans *spans, const Replication *way) {
  Pipeline form = form_make(r, way->stages, way->replicas);
  Candidate c = candidate_of(r, &form, b, spans, r->request->recompute, way->start, 0);
  int64_t *error = alloc((size_t)form.n_stages * sizeof *error);
  candidate_plan(r, &c, r->limit, &c.plan);
  if (!schedulable(r, c.plan))
    return false;
  find_peaks(r, c.plan, error);
  for (int i = 0; i < form.n_stages; i++)
    spans_correct(spans, c.plan->stage[i].first_piece, c.plan->stage[i].end_piece, error[i]);
  return largest_peak(c.plan) <= r->limit;
}

/* Those worth a look beside the best of other microbatches, that takes so many seconds of a batch. */
static Replications find_ways(Ways *w, double best) {
  const double CLOSE = 1.5;
  w->most = CLOSE * best / (double)w->microbatches;
  return replicate(w);
}

/* Where a layout shows that estimates were wrong, the search is made again with better ones; where they say that
 * nothing fits, once with more room, for they may be too large. What never fits is added for the message. */
bool add_ways(const Planner *r, int64_t b, Spans *spans, double *best, Candidates *candidates) {
  enum { ROUNDS = 6 };
  const int64_t more_room = r->limit / 3 * 4;
  Ways w = ways_at(r, b, spans);
  int first = candidates->n;
  w.limit = r->limit;
  for (int round = 0; round < ROUNDS; round++) {
    Replications found = find_ways(&w, *best);
    add_found(r, candidates, first, b, spans, &found);
    if (found.n > 0 && try_way(r, b, spans, &found.at[0])) {
      *best = fmin(*best, found.at[0].value * (double)w.microbatches);
      return true;
    }
    if (found.n == 0 && w.limit == more_room)
      break;
    w.limit = found.n == 0 ? more_room : w.limit;
  }
  if (candidates->n == first && !isfinite(*best)) {
    w.limit = INT64_MAX;
    w.most_found = 1;
    Replications found = find_ways(&w, *best);
    add_found(r, candidates, first, b, spans, &found);
  }
  return candidates->n > first;
}
