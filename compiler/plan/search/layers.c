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

/* Single pieces, or whole blocks. */
static Items items_of(const Costs *c, const StagePlan *s, bool blocks) {
  Items items = {0};
  for (int i = s->first_piece, end; i < s->end_piece; i = end) {
    AgainItem x = {.first = i};
    for (end = i; end < s->end_piece && (end == i || (blocks && c->block[end] == c->block[i])); end++)
      x.bytes += (double)c->gain[end], x.seconds += c->repeat[end];
    x.end = end;
    if (x.bytes > 0 && (!blocks || c->within[i]))
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

static double seconds_of(const Costs *c, const StagePlan *s) {
  double seconds = 0;
  for (int i = s->first_piece; s->again && i < s->end_piece; i++)
    seconds += s->again[i - s->first_piece] == '1' ? c->repeat[i] : 0;
  return seconds;
}

/* Bisects the share of bytes to save, by exact peaks; keeps the fastest set that fits. */
static void recompute_less(const Planner *r, const Costs *c, Plan *plan, int stage, bool blocks) {
  enum { LARGE = 1000, STEPS = 7, FEW_STEPS = 3 };
  StagePlan *s = &plan->stage[stage], best = *s;
  const Items items = items_of(c, s, blocks);
  double low = 0, high = 1, least = seconds_of(c, s);
  const int steps = r->subject.n > LARGE ? FEW_STEPS : STEPS;
  for (int i = 0; i < steps; i++) {
    const double share = i == 0 && !blocks ? 1 : (low + high) / 2;
    const double seconds = take_share(r, s, items, share);
    const bool good = fits(r, plan, stage);
    if (good && seconds < least)
      best = *s, least = seconds;
    if (good)
      high = share;
    else if (share >= 1)
      break;
    else
      low = share;
  }
  *s = best;
}

/* A stage that repeats its whole forward pass can do so while it waits for gradients. */
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

Plan *plan_of_fewer_layers(const Planner *r, Plan *plan) {
  Plan *better = alloc_copy(plan, sizeof *plan);
  bool any = false;
  if (r->again || r->request->recompute != RECOMPUTE_AUTO || !r->request->peak || plan_parts(plan) > plan->pipeline.n_stages)
    return plan;
  const Spans *spans = spans_at(r, plan->pipeline.microbatch);
  better->stage = alloc_copy(plan->stage, (size_t)plan_parts(plan) * sizeof *plan->stage);
  for (int i = 0; i < plan->pipeline.n_stages; i++) {
    if (!plan->stage[i].again)
      continue;
    const Costs *c = spans[stage_kind(r, plan, i)].c;
    any = true;
    recompute_less(r, c, better, i, false);
    recompute_less(r, c, better, i, true);
  }
  if (!any)
    return plan;
  price_plan(r, better, INFINITY);
  for (int i = 0; i < plan->pipeline.n_stages; i++)
    if (better->stage[i].again && r->traits.recomputes)
      try_whole(r, better, i);
  return better->batch_seconds <= plan->batch_seconds ? better : plan;
}
