/* Chooses the plan: the best partition for every microbatch and recomputation policy, exact peaks for the fastest
 * ones, then the fastest that fits. */
#include <math.h>

#include "plan/search/search.h"

/* The reason why the search ended, for the plan's `why`. */
typedef enum {
  END_BUDGET,   /* a faster plan may exist */
  END_COMPLETE, /* the exhaustive search compared all plans */
  END_BOUND     /* no plan can be faster, by the lower bound */
} SearchEnd;

typedef struct Choice {
  const Planner *r;
  Candidates candidates;
  Candidates smallest; /* refused candidates that do not fit, for the error */
  Vec(int64_t) microbatches;
  const Plan *stalling; /* NULL, or a plan that its schedule does not support */
  int left;             /* remaining layouts after the first plan that fits */
  double best;          /* seconds of the fastest batch known to fit; INFINITY: none */
  double close;         /* candidates slower than this factor are refused */
  SearchEnd end;
  int64_t compared; /* plans that the exhaustive search compared */
} Choice;

/* Layouts of many ranks or pieces are slow. With very many ranks a few forms are as good as all. */
static Choice choice_make(const Planner *r) {
  int left = BUDGET_LAYOUTS_RANKS / r->ranks, by_pieces = BUDGET_LAYOUTS_PIECES / r->subject.n;
  left = left < by_pieces ? left : by_pieces;
  return (Choice){.r = r,
                  .left = left > LEAST_LAYOUTS ? left : LEAST_LAYOUTS,
                  .best = INFINITY,
                  .close = r->ranks > MANY_RANKS ? CLOSE_MANY_RANKS : CLOSE};
}

static double seconds(const Candidate *c) { return c->plan ? c->plan->batch_seconds : c->bound; }

/* Slower plans are not searched. */
static double most_seconds(const Planner *r) { return r->known > 0 ? r->known : INFINITY; }

/* The same with room for refinement. */
static double most_close(const Choice *c) { return c->close * most_seconds(c->r); }

static bool before(const Candidate *a, const Candidate *b) {
  double x = seconds(a), y = seconds(b);
  if (fabs(x - y) > 1e-9 * (x + y))
    return x < y;
  if (a->microbatch != b->microbatch)
    return a->microbatch > b->microbatch;
  return form_is_plain(a->form) && !form_is_plain(b->form);
}

static bool equal_plans(const Plan *a, const Plan *b) {
  const Pipeline *x = &a->pipeline, *y = &b->pipeline;
  bool equal = x->microbatch == y->microbatch && x->n_stages == y->n_stages &&
               a->placement.adjacent == b->placement.adjacent && a->placement.backward == b->placement.backward;
  for (int i = 0; equal && i < x->n_stages; i++)
    equal &= x->recompute[i] == y->recompute[i] && a->stage[i].again == b->stage[i].again &&
             x->replicas[i] == y->replicas[i] && x->ahead[i] == y->ahead[i];
  for (int i = 0; equal && i < plan_parts(a); i++)
    equal &= a->stage[i].first_piece == b->stage[i].first_piece;
  return equal;
}

/* Whether two plans are the same to a reader: equal, or bound by the same stages. */
static bool alike(const Plan *a, const Plan *b) {
  return equal_plans(a, b) || (a->pipeline.microbatch == b->pipeline.microbatch &&
                               fabs(a->batch_seconds - b->batch_seconds) <= SAME_SECONDS * a->batch_seconds);
}

/* Computes the plan without memory limit: settling can only make it slower. */
static void consider(Choice *c, Candidate *candidate) {
  if (!candidate_plan(c->r, candidate, INT64_MAX, &candidate->plan)) {
    candidate->refused = true; /* slower than the limit */
    return;
  }
  if (schedulable(c->r, candidate->plan))
    return;
  c->stalling = candidate->plan;
  candidate->refused = true;
}

/* Whether no other candidate with this microbatch was laid out. Gains from moving cuts differ by microbatch. */
static bool is_first(const Choice *c, const Candidate *one) {
  bool first = c->r->ranks <= VERY_MANY_RANKS;
  for (int i = 0; i < c->candidates.n; i++) {
    const Candidate *other = &c->candidates.at[i];
    first &= other == one || other->microbatch != one->microbatch || !(other->settled || other->refined);
  }
  return first;
}

static double close_enough(const Choice *c, const Candidate *one) { return is_first(c, one) ? CLOSE : c->close; }

/* The fastest candidate by its current estimate, optionally among unrefined ones; NULL: none is left. */
static Candidate *least_seconds(const Choice *c, bool unrefined) {
  Candidate *best = NULL;
  for (int i = 0; i < c->candidates.n; i++) {
    Candidate *one = &c->candidates.at[i];
    if (!one->refused && !(unrefined && one->refined) && (!best || before(one, best)))
      best = one;
  }
  return best;
}

/* Advances a candidate from a bound to a plan, or from a plan to exact peaks; or refuses it. */
static void advance(Choice *c, Candidate *one) {
  const double close = close_enough(c, one);
  one->or_not = isfinite(c->best);
  const bool slow = seconds(one) > fmin(close * c->best, most_close(c));
  if (slow || (one->or_not && c->left == 0)) {
    one->refused = true;
    return;
  }
  one->most = close * c->best;
  if (!one->plan) {
    consider(c, one);
    return;
  }
  settle(c->r, one);
  c->left -= c->left > 0;
  if (one->settled)
    c->best = fmin(c->best, seconds(one));
  if (one->refused && !one->or_not)
    push(&c->smallest, *one);
}

/* The fastest candidate that fits, optionally among unrefined ones; NULL: none is left. */
static Candidate *leader(Choice *c, bool unrefined) {
  Candidate *best = least_seconds(c, unrefined);
  while (best && !best->settled) {
    advance(c, best);
    best = least_seconds(c, unrefined);
  }
  return best;
}

/* The fastest plan; removes it from the list. */
static Plan *next_best(Choice *c) {
  Candidate *best = leader(c, false);
  if (!best)
    return NULL;
  best->refused = true;
  return best->plan;
}

/* Lower bound of a batch's seconds: all ranks share the passes and never wait; under a serial schedule they take
 * turns. */
static double least_possible(const Planner *r) {
  double least = INFINITY;
  for (int i = 0; i < r->microbatches.n; i++) {
    const int64_t b = r->microbatches.at[i];
    const Spans *fastest = spans_at(r, b) + r->n_kinds - 1;
    const double passes = span_compute(fastest, 0, r->subject.n) / (r->traits.serial ? 1 : r->ranks);
    least = fmin(least, passes * turns_at_least(r, b));
  }
  return least;
}

/* Whether a plan could be clearly faster. */
static bool may_gain(const Planner *r, double best) { return least_possible(r) < WORTH_LAYOUT * best; }

typedef Vec(const Plan *) Plans;

/* Whether the plan is new; adds it. */
static bool is_new(Plans *known, const Plan *plan) {
  for (int i = 0; i < known->n; i++)
    if (equal_plans(known->at[i], plan))
      return false;
  push(known, plan);
  return true;
}

/* Refines candidates near the fastest, because moved cuts may overtake it. Cheap candidates may be farther away,
 * because searches minimize bounds, not simulations. */
static void refine_leaders(Choice *c) {
  const int LEADERS = c->close < 1.1 ? 2 : 6;
  double best = most_seconds(c->r);
  int refined[2] = {0, 0}; /* by [start == START_TOGETHER]: separate budgets */
  int64_t turns[2] = {0, 0};
  Plans started = {0};
  for (;;) {
    Candidate *one = leader(c, true);
    if (!one)
      return;
    bool first = is_first(c, one);
    one->refined = true;
    if (!may_gain(c->r, fmin(best, seconds(one))))
      return;
    if (seconds(one) > (first ? CLOSE : c->close) * best || !is_new(&started, one->plan))
      continue;
    const int of = one->start == START_TOGETHER;
    if (!first && refined[of]++ >= LEADERS && (refined[of] > MORE_LEADERS || turns[of] >= LITTLE_TURNS)) {
      if (of)
        continue;
      return;
    }
    turns[of] += refine(c->r, one, EFFORT_USUAL);
    best = fmin(best, seconds(one));
  }
}

/* The fastest refined candidate that is not known; adds it. */
static Candidate *next_refined(Choice *c, Plans *known) {
  Candidate *best = NULL;
  for (int i = 0; i < c->candidates.n; i++) {
    Candidate *one = &c->candidates.at[i];
    bool is_known = !one->refined || !one->settled || one->refused;
    for (int k = 0; k < known->n && !is_known; k++)
      is_known = equal_plans(known->at[k], one->plan);
    if (!is_known && (!best || before(one, best)))
      best = one;
  }
  if (best)
    push(known, best->plan);
  return best;
}

/* Several chunks per rank: refines the best few from other cuts, then the best of these. */
static void refine_chunks(Choice *c) {
  Plans known = {0};
  Candidate *one = leader(c, false);
  if (c->r->form.chunks == 1 || c->r->pinned || !one || !may_gain(c->r, seconds(one)))
    return;
  for (int i = 0; i < FEW_REFINED_CHUNKS && (one = next_refined(c, &known)) != NULL; i++)
    if (seconds(one) <= c->close * c->best)
      refine_again(c->r, one, BUDGET_AGAIN_CHUNKS), push(&known, one->plan);
  known.n = 0;
  if ((one = next_refined(c, &known)) != NULL)
    refine_again(c->r, one, FEW_REFINED_CHUNKS * BUDGET_AGAIN_CHUNKS);
}

/* Refines the best two with more effort while that shortens the batch. */
static void refine_on(Choice *c) {
  Plans known = {0};
  Candidate *one = leader(c, false);
  if (c->r->form.chunks > 1 || c->r->pinned || !one || !may_gain(c->r, seconds(one)))
    return;
  for (int i = 0; i < BEST_REFINED && (one = next_refined(c, &known)) != NULL; i++) {
    double before = INFINITY;
    for (int64_t turns = 0; turns < BUDGET_AGAIN && seconds(one) < WORTH_ANOTHER * before;) {
      before = seconds(one);
      turns += refine(c->r, one, EFFORT_THOROUGH);
    }
    push(&known, one->plan);
  }
}

/* Exhaustive search for a faster plan, within a budget. */
static void try_every(Choice *c) {
  const Candidate *best = leader(c, false);
  const double most = fmin(most_seconds(c->r), best ? seconds(best) : INFINITY);
  if (!may_gain(c->r, most)) {
    c->end = END_BOUND;
    return;
  }
  int64_t budget = BUDGET_OF_ALL;
  for (int round = 0; round < ROUNDS_OF_ALL; round++) {
    Candidate one;
    const bool found = fastest_of_all(c->r, most, &budget, &c->compared, &one),
               fits = found && fits_exactly(c->r, &one);
    if (fits) {
      one.settled = one.refined = true;
      one.pinned = c->r->pinned;
      push(&c->candidates, one);
    }
    if (!found || fits) {
      c->end = budget > 0 ? END_COMPLETE : END_BUDGET;
      return;
    }
  }
}

/* A pipeline of each possible depth, with one rank per stage. */
static bool add_depths(Choice *c, int64_t b, const Spans *spans) {
  const Planner *r = c->r;
  bool any = false;
  for (int stages = r->form.n_stages; stages > 0; stages--) {
    Pipeline *form = alloc(sizeof *form);
    *form = form_make(r, stages, NULL);
    if (stages == 1)
      form->chunks = 1; /* nothing to interleave */
    any |= add_form(r, &c->candidates, form, &(Placement){0}, b, spans, 0);
  }
  return any;
}

/* Sorted, ascending. */
static void list_microbatch(Choice *c, int64_t b) {
  int at = c->microbatches.n;
  for (int i = 0; i < c->microbatches.n; i++)
    if (c->microbatches.at[i] == b)
      return;
  push(&c->microbatches, b);
  for (; at > 0 && c->microbatches.at[at - 1] > b; at--)
    c->microbatches.at[at] = c->microbatches.at[at - 1];
  c->microbatches.at[at] = b;
}

/* Free replicas: the best form with equal ranks bounds the search for other forms. */
static void list_ways(Choice *c) {
  const Planner *r = c->r;
  double best = most_seconds(r);
  Equals equals = {&c->candidates, most_close(c) / CLOSE_EQUAL};
  for (int i = 0; i < r->microbatches.n; i++)
    if (add_equals(r, r->microbatches.at[i], &equals))
      list_microbatch(c, r->microbatches.at[i]);
  const Candidate *equal = leader(c, false);
  if (c->stalling && r->free_stages) {
    for (int i = 0; i < r->microbatches.n; i++)
      add_one_stage(r, r->microbatches.at[i], &c->candidates);
    equal = leader(c, false);
  }
  if (equal)
    best = fmin(best, seconds(equal));
  for (int i = 0; i < r->microbatches.n && !(r->first_will_do && isfinite(best)); i++)
    if (add_ways(r, r->microbatches.at[i], spans_at(r, r->microbatches.at[i]), &best, &c->candidates))
      list_microbatch(c, r->microbatches.at[i]);
}

/* False: no microbatch is possible. */
static bool list_candidates(Choice *c) {
  const Planner *r = c->r;
  if (r->free_replicas)
    list_ways(c);
  for (int i = 0; i < r->microbatches.n && !r->free_replicas; i++) {
    int64_t b = r->microbatches.at[i];
    Spans *spans = spans_at(r, b);
    if (r->free_depth ? add_depths(c, b, spans) : add_placements(r, &c->candidates, &r->form, b, spans))
      list_microbatch(c, b);
  }
  return c->candidates.n > 0;
}

static double part_time(const Plan *plan, int part) {
  const StagePlan *s = &plan->stage[part];
  return (s->forward_seconds * (plan_recomputes(plan, part) ? 2 : 1) + s->backward_seconds) /
         plan->pipeline.replicas[plan_stage_of(plan, part)];
}

static int slowest_part(const Plan *plan) {
  int slowest = 0;
  for (int i = 1; i < plan_parts(plan); i++)
    if (part_time(plan, i) > part_time(plan, slowest))
      slowest = i;
  return slowest;
}

/* Alternatives for comparison: full recomputation, and one cut of the slowest stage moved by a piece. */
static void list_neighbours(Choice *c, const Plan *chosen) {
  const Planner *r = c->r;
  const Spans *spans = spans_at(r, chosen->pipeline.microbatch);
  Pipeline *form = alloc(sizeof *form);
  *form = form_of(&chosen->pipeline);
  int slowest = slowest_part(chosen), parts = plan_parts(chosen);
  int64_t b = chosen->pipeline.microbatch;
  if (r->request->recompute == RECOMPUTE_AUTO && form->n_stages > 1 && schedule_traits(form->schedule).recomputes)
    push(&c->candidates, candidate_of(r, form, &chosen->placement, b, spans, RECOMPUTE_ON, r->pinned, 0));
  for (int i = slowest; i <= slowest + 1 && !r->pinned; i++)
    for (int step = -1; step <= 1 && i > 0 && i < parts; step += 2) {
      int at = chosen->stage[i].first_piece + step;
      int *start = alloc((size_t)parts * sizeof *start);
      for (int k = 0; k < parts; k++)
        start[k] = k == i ? at : chosen->stage[k].first_piece;
      if (at <= start[i - 1] || at >= chosen->stage[i].end_piece)
        continue;
      push(&c->candidates, candidate_of(r, form, &chosen->placement, b, spans, r->request->recompute, start, 0));
    }
}

static const char *ways_text(const Pipeline *p) {
  return form_is_plain(p)   ? "one rank per stage"
         : p->n_stages == 1 ? format("data parallelism with %s replicas of the whole model", replicas_text(p))
                            : format("replicas %s by stage", replicas_text(p));
}

/* The reason why the search ended. Simpler plans win within AS_FAST, so optimality is limited to that. */
static const char *end_text(const Choice *c, const Plan *plan) {
  const double within = 100 * (AS_FAST - 1);
  if (c->end == END_BOUND)
    return format("Optimal within %.1f %% of predicted time, by the lower bound of all plans.", within);
  if (c->end == END_COMPLETE)
    return format(
        "Optimal within %.1f %% of predicted time: an exhaustive search found no faster plan (%lld compared; "
        "bounds exclude all other plans).",
        within, (long long)c->compared);
  return format(
      "The search ended at its budget, after local improvements. A faster plan may exist, by at most %.1f %%.",
      100 * fmax(0, 1 - least_possible(c->r) / plan->batch_seconds));
}

static bool any_recomputes(const Plan *plan) {
  bool any = false;
  for (int i = 0; i < plan_parts(plan); i++)
    any |= part_recomputes(plan, i);
  return any;
}

/* The recomputed layers of the first stages, with their savings and costs. */
static void add_recomputation(Text *t, const Planner *r, const Plan *plan) {
  enum { LISTED = 3 };
  int listed = 0, more = 0;
  double longest = 0;
  for (int i = 0; i < plan_parts(plan) && !r->traits.spills; i++) {
    if (!part_recomputes(plan, i))
      continue;
    if (listed++ < LISTED) {
      const char *layers = r->g ? recomputed_text(r->g, r->p, plan, i) : "layers";
      text_add(t, " %s %d recomputes %s; this %s.", plan->pipeline.chunks > 1 ? "Part" : "Stage", i, layers,
               recomputed_worth(plan, i));
    } else {
      more++;
      longest = fmax(longest, recomputed_seconds(plan, i));
    }
  }
  if (more)
    text_add(t, " %d more recompute%s; this adds at most %.2f ms a microbatch.", more, more == 1 ? "s" : "",
             longest * 1e3);
}

static char *why(const Choice *c, const Plan *plan, double gain) {
  const Planner *r = c->r;
  const Pipeline *p = &plan->pipeline;
  int parts = plan_parts(plan), slowest = slowest_part(plan);
  double sum = 0, most = part_time(plan, slowest);
  for (int i = 0; i < parts; i++)
    sum += part_time(plan, i);
  Text t = {0};
  if (parts > 1)
    text_add(&t, "%s: the slowest %s, %d, works %.2f ms a microbatch, %.1f %% above the mean of all. ",
             r->pinned ? "Cuts as requested" : format("Cuts chosen among %d places", r->subject.n - 1),
             p->chunks > 1 ? "part" : "stage", slowest, most * 1e3, (most * parts / sum - 1) * 100);
  if (r->free_replicas && r->ranks > 1)
    text_add(&t, "%d ranks%s: %s. ", pipeline_ranks(p),
             r->free_stages ? "" : format(" in %d stages", r->form.n_stages), ways_text(p));
  text_add(&t, "Microbatch %lld", (long long)p->microbatch);
  if (c->microbatches.n > 1) {
    text_add(&t, " chosen among");
    for (int i = 0; i < c->microbatches.n; i++)
      text_add(&t, " %lld", (long long)c->microbatches.at[i]);
  } else {
    text_add(&t, r->request->microbatch ? " as requested" : " is the only possible size");
  }
  text_add(&t, "; %s.",
           r->subject.inference                                  ? "all stages fit"
           : r->request->recompute != RECOMPUTE_AUTO || r->again ? "recomputation as requested"
           : !any_recomputes(plan)                               ? "all stages fit without recomputation"
                                   : "recomputation only where a stage does not fit without it");
  add_recomputation(&t, r, plan);
  text_add(&t, " %s", end_text(c, plan));
  if (c->stalling && p->n_stages == 1 && r->free_stages)
    text_add(&t, " Pipelines of several stages would deadlock, because updates wait for other stages [PD0707]; "
                 "'vertical_sync = true' in the model allows them.");
  if (!r->request->ahead && p->ahead[0] > 1 && gain <= 0)
    text_add(&t, " One additional microbatch in flight between stages hides messages.");
  if (!r->request->ahead && p->ahead[0] > 1 && gain > 0)
    text_add(&t, " One additional microbatch in flight between stages makes a batch %.1f %% faster%s.", gain * 100,
             r->traits.drains ? "" : " if kernel times vary by 2 %");
  return t.at;
}

/* The refused plan with the smallest excess of memory; NULL: none was laid out. */
static const Plan *nearest_miss(const Choice *c) {
  const Plan *best = NULL;
  int64_t least = INT64_MAX;
  for (int i = 0; i < c->smallest.n; i++) {
    const Plan *plan = c->smallest.at[i].plan;
    int64_t most = largest_peak(plan);
    if (most < least)
      least = most, best = plan;
  }
  return best;
}

/* The nearest miss with other recomputed layers, if that fits: levels of the search are not every set of layers. */
static Plan *repaired(const Choice *c) {
  static const double NEAR = 2;
  const Plan *miss = nearest_miss(c);
  if (!miss || (double)largest_peak(miss) > NEAR * (double)c->r->memory.arena)
    return NULL;
  Plan *plan = plan_of_fewer_layers(c->r, alloc_copy(miss, sizeof *miss));
  return largest_peak(plan) <= c->r->memory.arena ? plan : NULL;
}

static Plan *fastest_of_levels(Choice *c) {
  if (!list_candidates(c))
    return NULL;
  refine_leaders(c);
  refine_chunks(c);
  refine_on(c);
  try_every(c);
  return next_best(c);
}

static Plan *fastest(Choice *c) {
  Plan *plan = fastest_of_levels(c);
  return plan ? plan : repaired(c);
}

Plan *plan_fastest(const Planner *r) {
  NoPlan none;
  if (r->traits.spills)
    return plan_spilled(r, &none);
  Choice c = choice_make(r);
  Plan *plan = fastest(&c);
  return plan ? plan_of_fewer_layers(r, plan) : NULL;
}

Plan *plan_any(const Planner *r) {
  NoPlan none;
  if (r->traits.spills) {
    Planner any = *r;
    any.any_will_do = true;
    return plan_spilled(&any, &none);
  }
  Choice c = choice_make(r);
  if (!list_candidates(&c))
    return NULL;
  if (!leader(&c, false))
    try_every(&c);
  Plan *plan = next_best(&c);
  return plan ? plan : repaired(&c);
}

static bool better(const Plan *a, const Plan *b) {
  bool plain = form_is_plain(&a->pipeline);
  if (plain != form_is_plain(&b->pipeline))
    return plain;
  return largest_peak(a) < largest_peak(b);
}

/* Among plans within AS_FAST of the fastest, prefers plans without replicas, then least memory. Returns all other
 * settled plans to the list. */
static Plan *simplest(Choice *c, Plan *first) {
  double most = AS_FAST * first->batch_seconds;
  Plan *best = first;
  for (int i = 0; i < c->candidates.n; i++) {
    Candidate *other = &c->candidates.at[i];
    if (!other->refused && !other->plan && other->bound <= most)
      consider(c, other);
    if (other->refused || seconds(other) > most)
      continue;
    if (!other->settled && c->left > 0) {
      settle(c->r, other);
      c->left--;
    }
    if (other->settled && seconds(other) <= most && better(other->plan, best))
      best = other->plan;
  }
  for (int i = 0; i < c->candidates.n; i++)
    if (c->candidates.at[i].settled)
      c->candidates.at[i].refused = c->candidates.at[i].plan == best;
  return best;
}

/* Whether some update has its own turn for exchanges with other stages. */
static bool exchanges_aside(const Planner *r, const Plan *plan) {
  return planned_programs(r, &plan->pipeline, r->subject.exchanges(r, plan))->lag > 0;
}

/* One additional microbatch in flight between stages, if it shortens a batch and fits. Updates must keep their
 * turn for exchanges, which is worth more. Results stay bit-identical. With weights that age with microbatches in
 * flight (every_round), only the request sets this. */
static Plan *look_ahead(const Choice *c, Plan *plan, double *gain) {
  const Planner *r = c->r;
  Pipeline form = form_of(&plan->pipeline);
  int64_t b = plan->pipeline.microbatch;
  int parts = plan_parts(plan);
  ScheduleTraits traits = schedule_traits(form.schedule);
  if (r->request->ahead || form.n_stages == 1 || form.ahead[0] > 1 || traits.every_round || !traits.looks_ahead)
    return plan;
  int *start = alloc((size_t)parts * sizeof *start);
  for (int i = 0; i < parts; i++)
    start[i] = plan->stage[i].first_piece;
  for (int i = 0; i < form.n_stages - 1; i++)
    form.ahead[i] = 2;
  if (!schedule_allows(&form, plan->pipeline.microbatches))
    return plan;
  Candidate other = candidate_of(r, &form, &plan->placement, b, spans_at(r, b), r->request->recompute, start, 0);
  settle(r, &other);
  if (!other.settled || exchanges_aside(r, plan) > exchanges_aside(r, other.plan))
    return plan;
  /* In draining pipelines, waiting messages lengthen every batch; in others, only uneven kernel times make
   * messages wait. */
  double before = traits.drains ? plan->batch_seconds : uneven_seconds(r, plan),
         after = traits.drains ? other.plan->batch_seconds : uneven_seconds(r, other.plan);
  *gain = 1 - after / before;
  return *gain >= WORTH_PLACES ? other.plan : plan;
}

/* The fallback if the fastest forms do not fit after layout. */
static Plan *however_slow(const Planner *r) {
  Planner any = *r;
  Prices none = {0};
  any.any_will_do = true;
  any.prices = alloc_copy(&none, sizeof none); /* without corrections, which would lead to other plans */
  return plan_any(&any);
}

Plan *plan_choose(const Planner *r, Plan **runners_up, int n, NoPlan *none) {
  if (r->traits.spills)
    return plan_spilled(r, none);
  Choice c = choice_make(r);
  Plan *plan = fastest(&c);
  if (!plan && r->free_replicas && r->known <= 0 && c.smallest.n > 0 && (plan = however_slow(r)) != NULL) {
    plan->why = why(&c, plan, 0);
    return plan;
  }
  if (!plan) {
    *none = (NoPlan){.no_microbatch = c.candidates.n == 0, .stalling = c.stalling, .miss = nearest_miss(&c)};
    return NULL;
  }
  double gain = 0;
  plan = plan_of_fewer_layers(r, look_ahead(&c, simplest(&c, plan), &gain));
  plan->why = why(&c, plan, gain);
  c.left = 3 * n; /* runners-up at any speed; some are equal */
  c.close = INFINITY;
  if (n > 0)
    list_neighbours(&c, plan);
  for (int found = 0; found < n;) {
    Plan *other = next_best(&c);
    if (!other)
      break;
    bool known = alike(plan, other);
    for (int i = 0; i < found; i++)
      known |= alike(runners_up[i], other);
    if (!known)
      runners_up[found++] = other;
  }
  return plan;
}
