/* Exhaustive search over forms and cuts, for small problems. Lower bounds of the simulation exclude plans that
 * cannot be faster than the best known plan. A budget limits the work: with many ranks or cuts, refine.c finds the
 * plan instead. */
#include <math.h>

#include "plan/search/search.h"

typedef struct Every {
  const Planner *r;
  double best;      /* seconds of the best batch; slower plans are excluded */
  int64_t left;     /* remaining budget, in units of about 50 ns */
  int64_t compared; /* complete plans, by bounds or by simulation */
  bool found;
  Candidate fastest; /* valid if `found` */

  /* The form under construction, cut from its last part to its first. */
  Candidate at;
  int *start;   /* by part: first piece */
  double *busy; /* by rank: seconds per microbatch of the parts already cut */
  double bar;   /* `best` per microbatch */
} Every;

/* ---- a plan ------------------------------------------------------------------------------------------- */

static int64_t cost_of_simulation(const Every *e) {
  enum { A_PLAN = 300, A_TURN = 15, FEW = 48, MANY = 256 };
  int64_t microbatches = e->r->subject.batch / e->at.microbatch;
  microbatches = microbatches < FEW ? FEW : microbatches > MANY ? MANY : microbatches;
  return A_PLAN + A_TURN * microbatches * pipeline_parts(e->at.form);
}

static void set_bar(Every *e) { e->bar = e->best / candidate_turns(e->r, &e->at); }

/* All parts are cut. */
static bool is_better(Every *e, const Candidate *next, Partition *part) {
  if (!candidate_partition(e->r, next, e->r->memory.arena, part) ||
      candidate_least_seconds(e->r, next, part) >= WORTH_EVERY * e->best)
    return false;
  e->left -= cost_of_simulation(e);
  const Plan *plan = plan_of(e->r, next, part, WORTH_EVERY * e->best);
  return schedulable(e->r, plan) && plan->batch_seconds < WORTH_EVERY * e->best;
}

static void try_plan(Every *e) {
  Candidate next = e->at;
  Partition part;
  next.pinned = e->start;
  e->compared++;
  ArenaMark mark = arena_mark();
  bool better = is_better(e, &next, &part);
  arena_release(mark);
  if (!better)
    return;
  next.pinned = alloc_copy(e->start, (size_t)pipeline_parts(next.form) * sizeof *e->start);
  candidate_plan(e->r, &next, e->r->memory.arena, &next.plan);
  e->best = next.plan->batch_seconds;
  set_bar(e);
  e->found = true;
  e->fastest = next;
}

/* ---- cuts --------------------------------------------------------------------------------------------- */

/* Tries each start of part i before `end`. `behind`: the StageEnd of the later parts, for one part per rank. */
static void try_cuts(Every *e, int i, int end, StageEnd behind) {
  enum { A_CUT = 4 };
  const Candidate *c = &e->at;
  const Copies *at = &c->copies[i];
  const Spans *spans = c->spans + at->kind;
  const int rank = stage_of_part(c->form->n_stages, i);
  const double before = e->busy[rank];
  for (int first = i > 0 ? end - 1 : 0; first >= i && e->left > 0; first--) {
    e->left -= A_CUT;
    if (before + span_compute(spans, first, end) / at->replicas >= e->bar)
      break;
    StageEnd from_here = {0};
    if (c->form->chunks == 1) {
      int recompute;
      if (!span_fit(spans, at, first, end, e->r->memory.arena, &recompute))
        continue;
      StageShare share = span_share(spans, at, first, end, recompute);
      from_here = stage_end(&share, behind);
      if (from_here.late >= e->bar)
        continue;
    }
    e->busy[rank] = before + span_passage(spans, &at->wiring, first, end, false) / at->replicas;
    e->start[i] = first;
    if (i > 0)
      try_cuts(e, i - 1, first, from_here);
    else
      try_plan(e);
  }
  e->busy[rank] = before;
}

static void try_form(Every *e, const Candidate *c) {
  enum { A_FORM = 1000 };
  const Planner *r = e->r;
  int parts = pipeline_parts(c->form), n = r->subject.n;
  Partition part;
  e->left -= A_FORM;
  e->at = *c;
  set_bar(e);
  if (c->pinned) {
    for (int i = 0; i < parts; i++)
      e->start[i] = c->pinned[i];
    try_plan(e);
    return;
  }
  if (c->form->chunks == 1) {
    e->left -= (int64_t)n * n * parts;
    if (!best_partition(r, c, r->memory.arena, e->bar, &part))
      return;
  }
  for (int i = 0; i < c->form->n_stages; i++)
    e->busy[i] = 0;
  try_cuts(e, parts - 1, n, (StageEnd){0});
}

/* ---- forms -------------------------------------------------------------------------------------------- */

/* Tries every placement. */
static void try_placements(Every *e, int64_t b, const Pipeline *as) {
  const double best = e->best;
  Candidates placed = {0};
  ArenaMark mark = arena_mark();
  const Pipeline *form = alloc_copy(as, sizeof *as);
  if (pipeline_parts(form) <= e->r->subject.n)
    add_placements(e->r, &placed, form, b, spans_at(e->r, b));
  for (int i = 0; i < placed.n && e->left > 0; i++)
    if (placed.at[i].recompute == e->r->request->recompute && placed.at[i].start == 0 && placed.at[i].tight <= 0)
      try_form(e, &placed.at[i]); /* variants with another start or limit have the same form */
  if (e->best >= best)
    arena_release(mark);
}

static void try_stages(Every *e, int64_t b, int stages, const int *replicas) {
  Pipeline form = form_make(e->r, stages, replicas);
  if (stages == 1)
    form.chunks = 1; /* nothing to interleave */
  try_placements(e, b, &form);
}

/* Tries all distributions of the remaining ranks; the first `stages` stages have theirs. */
static void try_replicas(Every *e, int64_t b, int *replicas, int stages, int left) {
  enum { A_WAY = 20 };
  const Planner *r = e->r;
  const int64_t microbatches = r->subject.batch / b;
  const Spans *fastest = spans_at(r, b) + r->n_kinds - 1;
  bool enough =
      (double)(r->ranks - left) * e->best > span_compute(fastest, 0, r->subject.n) * (double)microbatches;
  e->left -= A_WAY;
  if (enough && (r->free_stages || stages == r->form.n_stages))
    try_stages(e, b, stages, replicas);
  for (int more = 1; stages < r->form.n_stages && more <= left && e->left > 0; more++)
    if (microbatches % more == 0) {
      replicas[stages] = more;
      try_replicas(e, b, replicas, stages + 1, left - more);
    }
}

bool fastest_of_all(const Planner *r, double most, int64_t *budget, int64_t *compared, Candidate *out) {
  const int parts = r->form.n_stages * r->form.chunks;
  Every e = {.r = r,
             .best = most,
             .left = *budget,
             .start = alloc((size_t)parts * sizeof *e.start),
             .busy = alloc((size_t)parts * sizeof *e.busy)};
  int *replicas = alloc((size_t)parts * sizeof *replicas);
  for (int i = r->microbatches.n - 1; i >= 0 && e.left > 0; i--) {
    int64_t b = r->microbatches.at[i];
    spans_at(r, b); /* prices the microbatch in the lasting arena */
    if (r->free_replicas)
      try_replicas(&e, b, replicas, 0, r->ranks);
    else if (r->free_depth)
      for (int stages = r->form.n_stages; stages > 0; stages--)
        try_stages(&e, b, stages, NULL);
    else
      try_placements(&e, b, &r->form);
  }
  *budget = e.left;
  *compared += e.compared;
  *out = e.fastest;
  return e.found;
}
