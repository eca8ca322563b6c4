/* Forms of pipelines for the available ranks: the results of replicate.c, with estimates corrected by layouts. */
#include <math.h>
#include <string.h>

#include "plan/search/search.h"

static const Placement neighbours;

/* Adds the form with one additional microbatch in flight between stages, which hides messages. With weights that
 * age with microbatches in flight (every_round), only the request sets this. */
static void add_ahead(const Planner *r, Candidates *candidates, const Pipeline *form, const Placement *at,
                      int64_t b, const Spans *spans, double bound) {
  if (r->request->ahead || !r->traits.looks_ahead || r->traits.every_round || !spans->c->beside ||
      form->n_stages == 1)
    return;
  Pipeline *ahead = alloc(sizeof *ahead);
  *ahead = pipeline_copy(form);
  for (int i = 0; i + 1 < form->n_stages; i++)
    ahead->ahead[i] = 2;
  if (schedule_allows(ahead, r->subject.batch / b))
    push(candidates, candidate_of(r, ahead, at, b, spans, r->request->recompute, r->pinned, bound));
}

/* Adds starting cuts (chunks.c). Starts that ignore the memory limit also work with smaller shares of memory.
 * rounds.c takes longer and depends less on the share, so it gets fewer, as all do with many stages. */
static void add_starts(Candidates *candidates, const Candidate *first) {
  enum { EVERY_FOURTH = 4 };
  static const double SHARE[] = {0, 0.9, 0.8, 0.72, 0.65, 0.58, 0.5, 0.42};
  const bool few = first->form->n_stages > MANY_STAGES;
  Candidate other = *first;
  for (int start = 0; start < N_CHUNK_STARTS; start++)
    for (int i = 0; i < (int)(sizeof SHARE / sizeof *SHARE);
         i += few || start == START_TOGETHER ? EVERY_FOURTH : 1) {
      other.start = (ChunkStart)start;
      other.tight = SHARE[i];
      if (start > 0 || i > 0)
        push(candidates, other);
    }
}

/* Candidates without recomputation share the starts that ignore memory. */
static void add_chunks(const Planner *r, Candidates *candidates, const Candidate *first) {
  Candidate other = candidate_of(r, first->form, &first->placement, first->microbatch, first->spans, RECOMPUTE_OFF,
                                 r->pinned, first->bound);
  other.balanced = first->balanced;
  const bool may_recompute = r->request->recompute == RECOMPUTE_AUTO;
  if (may_recompute)
    push(candidates, other);
  if (may_recompute && !r->pinned)
    add_starts(candidates, &other);
  if (!r->pinned)
    add_starts(candidates, first);
}

bool add_form(const Planner *r, Candidates *candidates, const Pipeline *form, const Placement *at, int64_t b,
              const Spans *spans, double bound) {
  if (!schedule_allows(form, r->subject.batch / b))
    return false;
  Candidate first = candidate_of(r, form, at, b, spans, r->request->recompute, r->pinned, bound);
  const Spans *fastest = spans + r->n_kinds - 1;
  double value = spans_least_value(fastest, form->n_stages, form->replicas, form->chunks);
  first.bound = fmax(bound, value * candidate_turns(r, &first));
  push(candidates, first);
  if (form->chunks > 1)
    add_chunks(r, candidates, &first);
  add_ahead(r, candidates, form, at, b, spans, first.bound);
  return true;
}

bool add_placements(const Planner *r, Candidates *candidates, const Pipeline *form, int64_t b,
                    const Spans *spans) {
  const int w = form->replicas[0];
  bool equal = form->n_stages > 1 && r->topology.n > 1;
  for (int i = 0; i < form->n_stages; i++)
    equal &= form->replicas[i] == w;
  if (!add_form(r, candidates, form, &neighbours, b, spans, 0))
    return false;
  for (int k = 1; equal && k < w; k++)
    if (w % k == 0)
      add_form(r, candidates, form, &(Placement){.adjacent = k}, b, spans, 0);
  if (r->n_kinds > 1)
    add_form(r, candidates, form, &(Placement){.backward = true}, b, spans, 0);
  return true;
}

/* ---- equal ranks per stage ----------------------------------------------------------------------- */

/* A partition whose value is at most `most` seconds per microbatch. */
static bool partition_below(const Planner *r, const Candidate *c, int64_t limit, double most, Partition *out) {
  if (c->pinned)
    return candidate_partition(r, c, limit, out) && out->value <= most;
  return best_partition(r, c, limit, most, out);
}

/* Adds a form bounded by its best partition, unless that is slower than CLOSE_EQUAL times the best so far. */
static bool add_equal(const Planner *r, const Pipeline *form, const Placement *at, int64_t b, const Spans *spans,
                      Equals *e) {
  const double microbatches = (double)r->subject.batch / (double)b;
  int first = e->candidates->n;
  Partition part;
  if (!add_form(r, e->candidates, form, at, b, spans, 0))
    return false;
  if (partition_below(r, &e->candidates->at[first], r->memory.arena, CLOSE_EQUAL * e->best / microbatches,
                      &part)) {
    for (int i = first; i < e->candidates->n; i++)
      e->candidates->at[i].bound = part.value * microbatches * (1 - 1e-9);
    e->best = fmin(e->best, part.value * microbatches);
  } else if (first > 0) {
    e->candidates->n = first; /* keep the first, for the error that nothing fits */
  }
  return true;
}

/* Adds the maximal number of stages with w ranks each. */
static bool add_width(const Planner *r, int w, int64_t b, const Spans *spans, Equals *e) {
  int d = r->ranks / w < r->form.n_stages ? r->ranks / w : r->form.n_stages;
  if (r->free_stages ? d > 1 && 5 * w * d < 4 * r->ranks : d < r->form.n_stages) /* too few ranks or stages */
    return false;
  int *replicas = alloc((size_t)d * sizeof *replicas);
  for (int i = 0; i < d; i++)
    replicas[i] = w;
  Pipeline *form = alloc(sizeof *form);
  *form = form_make(r, d, replicas);
  bool any = add_equal(r, form, &neighbours, b, spans, e);
  for (int k = 1; any && k < w && d > 1 && r->topology.n > 1; k++)
    if (w % k == 0)
      add_equal(r, form, &(Placement){.adjacent = k}, b, spans, e);
  return any;
}

/* From few stages on many ranks to many stages on few. */
bool add_equals(const Planner *r, int64_t b, Equals *e) {
  const int64_t microbatches = r->subject.batch / b;
  const Spans *spans = spans_at(r, b);
  bool any = false;
  for (int w = r->ranks; w > 0; w--)
    if (microbatches % w == 0)
      any |= add_width(r, w, b, spans, e);
  return any;
}

void add_one_stage(const Planner *r, int64_t b, Candidates *candidates) {
  for (int w = r->ranks / 2; w > 0; w--)
    if (r->subject.batch / b % w == 0) {
      Pipeline *form = alloc(sizeof *form);
      *form = form_make(r, 1, &w);
      add_form(r, candidates, form, &neighbours, b, spans_at(r, b), 0);
    }
}

/* ---- any numbers of ranks --------------------------------------------------------------------------------- */

typedef struct Laid { /* Ways.context */
  const Planner *r;
  const Placement *at;
} Laid;

static Copies copies_at(const void *laid, const StageAhead *stage) {
  const Laid *l = laid;
  return copies_of_stage(l->r, l->at, stage);
}

static bool same_form(const Candidate *c, const Placement *at, const Replication *way) {
  return c->placement.adjacent == at->adjacent && c->placement.backward == at->backward &&
         c->form->n_stages == way->stages &&
         !memcmp(c->form->replicas, way->replicas, (size_t)way->stages * sizeof *way->replicas);
}

static Ways ways_at(const Laid *laid, int64_t b, const Spans *spans) {
  const Planner *r = laid->r;
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
                .limit = r->memory.arena,
                .most = INFINITY,
                .any = r->any_will_do,
                .copies = copies_at,
                .context = laid,
                .most_found = MOST_FORMS};
}

/* Adds the results that are not among the candidates from `first` on. */
static void add_found(const Laid *laid, Candidates *candidates, int first, int64_t b, const Spans *spans,
                      const Replications *found) {
  const Planner *r = laid->r;
  const int64_t microbatches = r->subject.batch / b;
  for (int i = 0; i < found->n; i++) {
    const Replication *way = &found->at[i];
    bool known = false;
    for (int k = first; k < candidates->n; k++)
      known |= candidates->at[k].microbatch == b && same_form(&candidates->at[k], laid->at, way);
    if (known)
      continue;
    Pipeline *form = alloc(sizeof *form);
    *form = form_make(r, way->stages, way->replicas);
    add_form(r, candidates, form, laid->at, b, spans, way->value * (double)microbatches * (1 - 1e-9));
  }
}

/* Lays out the plan and corrects estimates by its error. Returns seconds; INFINITY: it does not fit. */
static double try_way(const Laid *laid, int64_t b, Spans *spans, const Replication *way) {
  const Planner *r = laid->r;
  Pipeline form = form_make(r, way->stages, way->replicas);
  Candidate c = candidate_of(r, &form, laid->at, b, spans, r->request->recompute, way->start, 0);
  int64_t *error = alloc((size_t)form.n_stages * sizeof *error);
  candidate_plan(r, &c, r->memory.arena, &c.plan);
  if (!schedulable(r, c.plan))
    return INFINITY;
  find_peaks(r, c.plan, error);
  for (int i = 0; i < form.n_stages; i++)
    spans_correct(spans + c.copies[i].kind, c.plan->stage[i].first_piece, c.plan->stage[i].end_piece, error[i]);
  return largest_peak(c.plan) <= r->memory.arena ? c.plan->batch_seconds : INFINITY;
}

/* Searches again whenever a layout corrects an estimate. If nothing fits by estimates, searches once with a larger
 * limit, because estimates may be too large. Adds one plan that does not fit, for the error message. */
static void add_laid(const Laid *laid, int64_t b, Spans *spans, double *best, Candidates *candidates) {
  const Planner *r = laid->r;
  const int64_t more_room = r->memory.arena / 3 * 4;
  const int rounds = r->ranks <= MANY_RANKS ? 6 : 2;
  int first = candidates->n;
  Ways w = ways_at(laid, b, spans);
  for (int round = 0; round < rounds; round++) {
    w.most = AS_FAST_WAY * *best / (double)w.microbatches;
    Replications found = replicate(&w);
    add_found(laid, candidates, 0, b, spans, &found);
    double seconds = found.n > 0 ? try_way(laid, b, spans, &found.at[0]) : INFINITY;
    *best = fmin(*best, seconds);
    if (isfinite(seconds) || (found.n == 0 && w.limit == more_room))
      break;
    w.limit = found.n == 0 ? more_room : w.limit;
  }
  if (candidates->n == first && !isfinite(*best) && !r->first_will_do) {
    w.limit = INT64_MAX;
    w.most_found = 1;
    Replications found = replicate(&w);
    add_found(laid, candidates, first, b, spans, &found);
  }
}

bool add_ways(const Planner *r, int64_t b, Spans *spans, double *best, Candidates *candidates) {
  static const Placement backward = {.backward = true};
  int first = candidates->n;
  add_laid(&(Laid){r, &neighbours}, b, spans, best, candidates);
  if (r->n_kinds > 1)
    add_laid(&(Laid){r, &backward}, b, spans, best, candidates);
  return candidates->n > first;
}
