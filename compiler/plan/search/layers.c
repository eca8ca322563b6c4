/* Recomputes as few layers of a chosen plan as exact memory allows. The search knows levels of recomputation
 * (spans_add_levels) and estimated bytes; here each stage gets the fastest set of pieces whose layout fits. */
#include <math.h>
#include <stdlib.h>

#include "plan/search/search.h"

/* ---- the fastest set that saves enough -------------------------------------------------------------------- */

static int by_density(const void *a, const void *b) {
  const AgainItem *x = a, *y = b;
  const double left = x->bytes * y->seconds, right = y->bytes * x->seconds;
  return left != right ? (left < right ? 1 : -1) : x->first - y->first;
}

/* A depth-first search over items by falling bytes a second. */
typedef struct Pick {
  const AgainItem *item;
  int n;
  double need; /* bytes */
  double best; /* seconds */
  bool *now, *taken;
  int left; /* visits */
} Pick;

/* Lower bound of the seconds that save `need` more bytes with items from i on, taken in parts. */
static double least_for(const Pick *p, int i, double need) {
  double seconds = 0;
  for (; i < p->n && need > 0; i++) {
    const double share = fmin(1, need / p->item[i].bytes);
    seconds += share * p->item[i].seconds;
    need -= p->item[i].bytes;
  }
  return need > 0 ? INFINITY : seconds;
}

static void pick(Pick *p, int i, double saved, double seconds) {
  if (saved >= p->need) {
    if (seconds < p->best) {
      p->best = seconds;
      for (int k = 0; k < p->n; k++)
        p->taken[k] = k < i && p->now[k];
    }
    return;
  }
  if (i == p->n || p->left-- <= 0 || seconds + least_for(p, i, p->need - saved) >= p->best * (1 - 1e-12))
    return;
  p->now[i] = true;
  pick(p, i + 1, saved + p->item[i].bytes, seconds + p->item[i].seconds);
  p->now[i] = false;
  pick(p, i + 1, saved, seconds);
}

double again_pick(AgainItem *item, int n, double need, bool *taken) {
  enum { VISITS = 20000 };
  if (n > 0)
    qsort(item, (size_t)n, sizeof *item, by_density);
  Pick p = {item, n, need, INFINITY, alloc((size_t)n + 1), taken, VISITS};
  pick(&p, 0, 0, 0);
  return p.best;
}

/* ---- stages ------------------------------------------------------------------------------------------------ */

typedef Vec(AgainItem) Items;

/* How pieces are chosen: by units or as whole blocks, with or without the stage's last block. With one microbatch in
 * flight, the backward pass reads that block's values directly after the forward pass. */
typedef struct Choice {
  bool blocks, without_last;
} Choice;

static Items items_of(const Costs *c, const StagePlan *s, Choice how) {
  Items items = {0};
  int last = s->end_piece;
  while (how.without_last && last > s->first_piece && !c->within[last - 1])
    last--;
  const int end_block = last > s->first_piece ? c->block[last - 1] : -1;
  while (how.without_last && last > s->first_piece && c->block[last - 1] == end_block)
    last--;
  for (int i = s->first_piece, end; i < last; i = end) {
    AgainItem x = {.first = i};
    for (end = i; end < last && (how.blocks ? c->block[end] == c->block[i] : c->unit[end] == c->unit[i]); end++)
      x.bytes += (double)c->gain[end], x.seconds += c->repeat[end];
    x.end = end;
    if (x.bytes > 0 && (!how.blocks || c->within[i]))
      push(&items, x);
  }
  return items;
}

static bool fits(const Planner *r, Plan *plan, int stage) {
  StagePlan *s = &plan->stage[stage];
  s->peak_bytes = r->request->peak(r->request->peak_context, plan, stage);
  return s->peak_bytes <= r->memory.arena;
}

/* Sets the stage's fastest pieces that save this share of all bytes; the seconds that they add. */
static double take_share(const Planner *r, StagePlan *s, Items items, double share) {
  bool *again = alloc((size_t)r->subject.n), *taken = alloc((size_t)items.n + 1);
  double all = 0;
  for (int i = 0; i < items.n; i++)
    all += items.at[i].bytes;
  const double seconds = again_pick(items.at, items.n, share * all, taken);
  for (int i = 0; i < items.n; i++)
    for (int k = items.at[i].first; taken[i] && k < items.at[i].end; k++)
      again[k] = true;
  set_recomputed(s, again);
  return seconds;
}

static bool is_again(const StagePlan *s, int piece) { return s->again && s->again[piece - s->first_piece] == '1'; }

static double seconds_of(const Costs *c, const StagePlan *s) {
  double seconds = 0;
  for (int i = s->first_piece; i < s->end_piece; i++)
    seconds += is_again(s, i) ? c->repeat[i] : 0;
  return seconds;
}

/* A stage whose recomputed pieces are searched. */
typedef struct Fewer {
  const Planner *r;
  const Costs *c;
  Plan *plan;
  int stage;
  StagePlan best;
  double least; /* seconds that it adds; INFINITY: nothing fits yet */
} Fewer;

static bool try_set(Fewer *f, double seconds) {
  const StagePlan *s = &f->plan->stage[f->stage];
  const bool good = fits(f->r, f->plan, f->stage);
  if (good && seconds < f->least)
    f->best = *s, f->least = seconds;
  return good;
}

/* Bisects the share of bytes to save, by exact peaks. */
static void bisect(Fewer *f, Choice how) {
  enum { LARGE = 1000, STEPS = 6, FEW_STEPS = 3 };
  StagePlan *s = &f->plan->stage[f->stage];
  const Items items = items_of(f->c, s, how);
  const int steps = f->r->subject.n > LARGE ? FEW_STEPS : STEPS;
  double low = 0, high = 1;
  for (int i = 0; i < steps && items.n > 0; i++) {
    const double share = i == 0 ? 1 : (low + high) / 2, seconds = take_share(f->r, s, items, share);
    if (try_set(f, seconds))
      high = share;
    else if (share >= 1)
      return;
    else
      low = share;
  }
}

/* Leaves out classes of equal units that are not needed, those that take longest first. */
static void leave_out(Fewer *f) {
  enum { STEPS = 8 };
  StagePlan *s = &f->plan->stage[f->stage];
  const Items units = items_of(f->c, s, (Choice){0});
  bool *tried = alloc((size_t)units.n + 1);
  for (int step = 0; step < STEPS; step++) {
    const AgainItem *longest = NULL;
    for (int i = 0; i < units.n; i++)
      if (is_again(&f->best, units.at[i].first) && !tried[i] &&
          (!longest || units.at[i].seconds > longest->seconds))
        longest = &units.at[i];
    if (!longest)
      return;
    bool *again = alloc((size_t)f->c->n);
    for (int i = s->first_piece; i < s->end_piece; i++)
      again[i] = is_again(&f->best, i);
    for (int i = 0; i < units.n; i++) {
      const AgainItem *x = &units.at[i];
      if (x->seconds != longest->seconds || x->bytes != longest->bytes)
        continue;
      tried[i] = true;
      for (int k = x->first; k < x->end; k++)
        again[k] = false;
    }
    set_recomputed(s, again);
    try_set(f, seconds_of(f->c, s));
  }
}

/* The fastest recomputed pieces of a stage whose layout fits; without any, as before. */
static void recompute_less(const Planner *r, const Costs *c, Plan *plan, int stage, bool alone) {
  const StagePlan before = plan->stage[stage];
  Fewer f = {r, c, plan, stage, before, INFINITY};
  try_set(&f, seconds_of(c, &before));
  for (int i = 0; i < (alone ? 4 : 2); i++)
    bisect(&f, (Choice){i & 1, i & 2});
  if (isfinite(f.least))
    leave_out(&f);
  plan->stage[stage] = f.best;
}

/* A stage that repeated its forward pass and was too large tries layers alone, then both. */
static void recompute_stage(const Planner *r, const Costs *c, Plan *plan, int stage, bool alone) {
  const StagePlan before = plan->stage[stage];
  const bool whole = plan->pipeline.recompute[stage];
  plan->pipeline.recompute[stage] = whole && before.again;
  recompute_less(r, c, plan, stage, alone);
  if (!whole || before.again || plan->stage[stage].peak_bytes <= r->memory.arena)
    return;
  plan->stage[stage] = before;
  plan->pipeline.recompute[stage] = true;
  recompute_less(r, c, plan, stage, alone);
}

/* A stage that repeats its whole forward pass does so while it waits for gradients. */
static void try_whole(const Planner *r, Plan *plan, int stage) {
  Plan other = *plan;
  other.pipeline = pipeline_copy(&plan->pipeline);
  other.stage = alloc_copy(plan->stage, (size_t)plan_parts(plan) * sizeof *plan->stage);
  other.pipeline.recompute[stage] = true;
  other.stage[stage].again = NULL;
  if (!schedulable(r, &other) || !fits(r, &other, stage))
    return;
  price_plan(r, &other, INFINITY);
  if (other.batch_seconds < plan->batch_seconds)
    *plan = other;
}

/* Whether one microbatch is in flight on the stage. */
static bool is_alone(const Planner *r, const Plan *plan, int stage) {
  return planned_programs(r, &plan->pipeline, r->subject.exchanges(r, plan))[stage].in_flight == 1;
}

Plan *plan_of_fewer_layers(const Planner *r, Plan *plan) {
  Plan *better = alloc_copy(plan, sizeof *plan);
  bool any = false;
  if (r->again || r->request->recompute != RECOMPUTE_AUTO || !r->request->peak || r->request->brief ||
      plan_parts(plan) > plan->pipeline.n_stages)
    return plan;
  const Spans *spans = spans_at(r, plan->pipeline.microbatch);
  better->stage = alloc_copy(plan->stage, (size_t)plan_parts(plan) * sizeof *plan->stage);
  better->pipeline = pipeline_copy(&plan->pipeline);
  for (int i = 0; i < plan->pipeline.n_stages; i++)
    if (plan->stage[i].again || (plan->stage[i].peak_bytes > r->memory.arena && r->traits.layers)) {
      recompute_stage(r, spans[stage_kind(r, plan, i)].c, better, i, is_alone(r, plan, i));
      any = true;
    }
  if (!any)
    return plan;
  price_plan(r, better, INFINITY);
  for (int i = 0; i < plan->pipeline.n_stages; i++)
    if (better->stage[i].again && r->traits.recomputes && !is_alone(r, plan, i))
      try_whole(r, better, i);
  const bool fits_now = largest_peak(better) <= r->memory.arena, fitted = largest_peak(plan) <= r->memory.arena;
  return fits_now && (!fitted || better->batch_seconds <= plan->batch_seconds) ? better : plan;
}
