/* The choice of a plan: for every microbatch and policy of recomputation the best partition, exact peaks
 * for those that are fastest, the fastest that fits. */
#include <math.h>

#include "plan/planner.h"

typedef struct Candidate {
  const Form *form;
  int64_t microbatch;
  Recompute recompute;
  const Costs *costs;
  Copies *copies;
  const int *pinned; /* where parts start, or NULL */
  double bound;      /* seconds of a batch that no plan of the form can beat */
  Plan *plan;        /* NULL until the bound is the least left */
  bool settled; /* its peaks are exact and fit */
  bool refused;
} Candidate;

typedef struct Choice {
  const Planner *r;
  Vec(Candidate) candidates;
  Vec(Candidate) smallest; /* of those that fit nowhere: for the refusal */
  Vec(int64_t) microbatches;
  const Plan *stalling;    /* NULL, or one that its schedule does not take */
} Choice;

/* Estimates of a rank's chunks become the rank's. */
static void sum_of_chunks(Plan *plan) {
  for (int i = 0; i < plan->n_stages; i++) {
    int64_t sum = 0;
    for (int part = i; part < plan_parts(plan); part += plan->n_stages)
      sum += plan->stage[part].peak_bytes;
    for (int part = i; part < plan_parts(plan); part += plan->n_stages)
      plan->stage[part].peak_bytes = sum;
  }
}

static Plan *plan_of(const Planner *r, const Candidate *c, const Partition *part) {
  Plan *plan = alloc(sizeof *plan);
  *plan = plan_of_form(r, c->form, c->microbatch);
  plan->costs = r->profile ? internf("profile %s", r->profile->file) : intern("counted");
  for (int i = 0; i < c->form->stages; i++) {
    StagePlan *s = &plan->stage[i];
    s->first_piece = part->start[i];
    s->end_piece = part->start[i + 1];
    for (int k = i % c->form->positions; k < c->form->stages; k += c->form->positions)
      s->recompute |= part->recompute[k]; /* all of a rank's chunks or none */
    s->peak_bytes = stage_bytes(c->costs, &c->copies[i], s->first_piece, s->end_piece, s->recompute);
  }
  sum_of_chunks(plan);
  if (schedulable(r, plan))
    price_plan(r, c->costs, plan);
  return plan;
}

/* Best partition by estimated bytes; the smallest there is when none fits, and false. Each chunk of a rank has
 * an equal share of the limit. */
static bool partition(const Planner *r, const Candidate *c, int64_t limit, Plan **out) {
  Partition part;
  bool fits;
  int parts = c->form->stages;
  limit = limit == INT64_MAX ? limit : limit / r->chunks;
  if (c->pinned) {
    fits = partition_pinned(c->costs, c->copies, parts, c->pinned, limit, &part);
  } else {
    fits = partition_fastest(c->costs, c->copies, parts, limit, &part);
    if (!fits)
      partition_smallest(c->costs, c->copies, parts, &part);
  }
  *out = plan_of(r, c, &part);
  return fits;
}

/* Replaces the estimates by exact peaks, and fills by how much each rank's exceeded its estimate. */
static void measure_peaks(const Planner *r, Plan *plan, int64_t *error) {
  for (int i = 0; i < plan->n_stages; i++) {
    int64_t estimate = plan->stage[i].peak_bytes, peak = estimate;
    if (r->request->peak)
      peak = r->request->peak(r->request->peak_context, plan, i);
    error[i] = peak - estimate;
    for (int part = i; part < plan_parts(plan); part += plan->n_stages)
      plan->stage[part].peak_bytes = peak;
  }
}

static int64_t largest_peak(const Plan *plan) {
  int64_t most = 0;
  for (int i = 0; i < plan->n_stages; i++)
    most = plan->stage[i].peak_bytes > most ? plan->stage[i].peak_bytes : most;
  return most;
}

/* Even the smallest partition is estimated so far above the limit that no exact peak can make up for it: where
 * there are many ways to use the ranks, these need not be laid out. */
static bool hopeless(const Planner *r, const Plan *smallest, bool fits) {
  return !fits && largest_peak(smallest) / 2 > r->limit;
}

/* Finds the fastest partition whose exact peaks fit: stages whose estimates were wrong get the difference
 * added. Where even the smallest partition does not fit, keeps that one and refuses. */
static void settle(const Planner *r, Candidate *c) {
  enum { ROUNDS = 10 };
  int positions = c->form->positions, parts = c->form->stages;
  int64_t *error = alloc((size_t)positions * sizeof *error);
  Plan *smallest = NULL;
  c->copies = alloc_copy(c->copies, (size_t)parts * sizeof *c->copies);
  for (int round = 0; round < ROUNDS && !c->settled; round++) {
    bool fits = partition(r, c, r->limit, &c->plan), smaller = false;
    if (!schedulable(r, c->plan) || (r->free_replicas && hopeless(r, c->plan, fits)))
      break;
    measure_peaks(r, c->plan, error);
    bool exact = largest_peak(c->plan) <= r->limit;
    c->settled = fits && exact;
    if (!fits && exact)
      smallest = c->plan;
    for (int i = 0; i < parts; i++) {
      int64_t missed = error[i % positions] / r->chunks;
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

static double seconds(const Candidate *c) { return c->plan ? c->plan->batch_seconds : c->bound; }

static bool before(const Candidate *a, const Candidate *b) {
  double x = seconds(a), y = seconds(b);
  if (fabs(x - y) > 1e-9 * (x + y))
    return x < y;
  if (a->microbatch != b->microbatch)
    return a->microbatch > b->microbatch;
  return form_is_plain(a->form) && !form_is_plain(b->form);
}

static bool equal_plans(const Plan *a, const Plan *b) {
  bool equal = a->microbatch == b->microbatch && a->n_stages == b->n_stages;
  for (int i = 0; equal && i < plan_parts(a); i++) {
    const StagePlan *x = &a->stage[i], *y = &b->stage[i];
    equal &= x->first_piece == y->first_piece && x->recompute == y->recompute && x->replicas == y->replicas &&
             x->ahead == y->ahead;
  }
  return equal;
}

/* With the time it would take if memory were no matter: settling it can only make it slower. */
static void consider(Choice *c, Candidate *candidate) {
  partition(c->r, candidate, INT64_MAX, &candidate->plan);
  if (schedulable(c->r, candidate->plan))
    return;
  c->stalling = candidate->plan;
  candidate->refused = true;
}

/* The fastest candidate that fits, taken off the list; NULL when none is left. */
static Plan *next_best(Choice *c) {
  for (;;) {
    int best = -1;
    for (int i = 0; i < c->candidates.n; i++)
      if (!c->candidates.at[i].refused && (best < 0 || before(&c->candidates.at[i], &c->candidates.at[best])))
        best = i;
    if (best < 0)
      return NULL;
    Candidate *winner = &c->candidates.at[best];
    if (!winner->plan) {
      consider(c, winner);
      continue;
    }
    if (winner->settled) {
      winner->refused = true;
      return winner->plan;
    }
    settle(c->r, winner);
    if (winner->refused)
      push(&c->smallest, *winner);
  }
}

static void add_candidate(Choice *c, const Form *form, int64_t b, const Costs *costs, const int *pinned,
                          Recompute policy, double bound) {
  push(&c->candidates, ((Candidate){.form = form,
                                    .microbatch = b,
                                    .recompute = policy,
                                    .costs = costs,
                                    .copies = copies(c->r, form, b, policy),
                                    .pinned = pinned,
                                    .bound = bound}));
}

/* Unless its schedule does not take so many microbatches; with the policies of recomputation. */
static bool add_form(Choice *c, const Form *form, int64_t b, const Costs *costs, double bound) {
  const Planner *r = c->r;
  Recompute asked = r->request->recompute;
  if (!form_allows(r->schedule, form, r->g->train.batch / b))
    return false;
  add_candidate(c, form, b, costs, r->pinned, asked, bound);
  if (asked == RECOMPUTE_AUTO && form->positions > 1 && schedule_traits(r->schedule).recomputes)
    add_candidate(c, form, b, costs, r->pinned, RECOMPUTE_ON, bound);
  return true;
}

/* Ways to use all ranks: for each number of stages the one that would be fastest if memory and filling were no
 * matter, and equal numbers of ranks, which 2BW's planner considers. */
static bool add_forms(Choice *c, int64_t b, const Costs *costs) {
  const Planner *r = c->r;
  int64_t microbatches = r->g->train.batch / b;
  int least = r->free_stages ? 1 : r->form.positions, most = r->form.positions;
  Replication *best = replicate(costs, r->pinned, r->ranks, most, microbatches,
                                schedule_traits(r->schedule).every_round);
  bool any = false;
  for (int stages = least; stages <= most; stages++) {
    const Replication *found = &best[stages - 1];
    bool even = r->ranks % stages == 0, found_even = even;
    double bound = found->replicas ? found->slowest * (double)microbatches * (1 - 1e-9) : 0;
    Form *form = alloc(2 * sizeof *form);
    int *equal = alloc((size_t)stages * sizeof *equal);
    for (int i = 0; i < stages; i++) {
      equal[i] = r->ranks / stages;
      found_even &= found->replicas && found->replicas[i] == equal[i];
    }
    form[0] = form_make(r, stages, found->replicas);
    form[1] = form_make(r, stages, equal);
    any |= found->replicas && add_form(c, &form[0], b, costs, bound);
    any |= even && !found_even && add_form(c, &form[1], b, costs, bound);
  }
  return any;
}

/* False when no microbatch will do. */
static bool list_candidates(Choice *c) {
  const Planner *r = c->r;
  for (int i = 0; i < r->microbatches.n; i++) {
    int64_t b = r->microbatches.at[i];
    const Costs *costs = price(r, b);
    if (r->free_replicas ? add_forms(c, b, costs) : add_form(c, &r->form, b, costs, 0))
      push(&c->microbatches, b);
  }
  return c->candidates.n > 0;
}

static double stage_time(const StagePlan *s) {
  return (s->forward_seconds * (s->recompute ? 2 : 1) + s->backward_seconds) / s->replicas;
}

static int slowest_stage(const Plan *plan) {
  int slowest = 0;
  for (int i = 1; i < plan_parts(plan); i++)
    if (stage_time(&plan->stage[i]) > stage_time(&plan->stage[slowest]))
      slowest = i;
  return slowest;
}

/* The chosen plan with one cut of its slowest stage moved by a piece: what the choice is compared with. */
static void list_neighbours(Choice *c, const Plan *chosen) {
  const Planner *r = c->r;
  const Costs *costs = price(r, chosen->microbatch);
  Form *form = alloc(sizeof *form);
  *form = form_of_plan(chosen);
  int slowest = slowest_stage(chosen), parts = plan_parts(chosen);
  for (int i = slowest; i <= slowest + 1 && !r->pinned; i++)
    for (int step = -1; step <= 1 && i > 0 && i < parts; step += 2) {
      int at = chosen->stage[i].first_piece + step;
      int *start = alloc((size_t)parts * sizeof *start);
      for (int k = 0; k < parts; k++)
        start[k] = k == i ? at : chosen->stage[k].first_piece;
      if (at <= start[i - 1] || at >= chosen->stage[i].end_piece)
        continue;
      add_candidate(c, form, chosen->microbatch, costs, start, r->request->recompute, 0);
    }
}

static const char *ways_text(const Plan *plan) {
  Form form = form_of_plan(plan);
  return form_is_plain(&form)     ? "a pipeline of one each"
         : form.positions == 1    ? format("data parallelism, %s replicas of the whole model", form_text(&form))
                                  : format("replicas %s by stage", form_text(&form));
}

static char *why(const Choice *c, const Plan *plan, double gain) {
  const Planner *r = c->r;
  double sum = 0, most = stage_time(&plan->stage[slowest_stage(plan)]);
  int parts = plan_parts(plan);
  for (int i = 0; i < parts; i++)
    sum += stage_time(&plan->stage[i]);
  Text t = {0};
  if (parts > 1)
    text_add(&t, "%s: the slowest %s, %d, works %.2f ms a microbatch, %.1f %% above the mean of all. ",
             r->pinned ? "Cuts as asked" : format("Best of all ways to cut at %d places", r->p->n - 1),
             plan->chunks > 1 ? "part" : "stage", slowest_stage(plan), most * 1e3, (most * parts / sum - 1) * 100);
  if (r->free_replicas && r->ranks > 1)
    text_add(&t, "Of all ways to use %d ranks%s: %s. ", r->ranks,
             r->free_stages ? "" : format(" in %d stages", r->form.positions), ways_text(plan));
  text_add(&t, "Microbatch %lld", (long long)plan->microbatch);
  if (c->microbatches.n > 1) {
    text_add(&t, " of");
    for (int i = 0; i < c->microbatches.n; i++)
      text_add(&t, " %lld", (long long)c->microbatches.at[i]);
    text_add(&t, " gives the shortest batch that fits");
  } else {
    text_add(&t, r->request->microbatch ? " as asked" : " is the only one possible");
  }
  bool any = false;
  for (int i = 0; i < parts; i++)
    any |= plan->stage[i].recompute;
  text_add(&t, "; %s.",
           r->request->recompute != RECOMPUTE_AUTO ? "recomputation as asked"
           : any                                   ? "recomputation where memory asks for it"
                                                   : "everything fits without recomputation");
  if (!r->request->ahead && plan->stage[0].ahead > 1)
    text_add(&t, " One microbatch more in flight between stages: where kernels take 2 %% more or less time than "
                 "planned a batch takes %.1f %% less.", gain * 100);
  return t.at;
}

/* The refused plan that comes nearest to fitting. */
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

static void tell_why_none(const Choice *c) {
  const Planner *r = c->r;
  if (c->candidates.n == 0)
    tell_microbatches(r);
  else if (c->smallest.n == 0 && c->stalling)
    schedule(c->stalling, plan_exchanges(r->g, r->p, c->stalling), r->schedule_span); /* says why not */
  else
    tell_nothing_fits(r, nearest_miss(c));
}

Plan *plan_fastest(const Planner *r) {
  Choice c = {.r = r};
  return list_candidates(&c) ? next_best(&c) : NULL;
}

static bool better(const Plan *a, const Plan *b) {
  Form x = form_of_plan(a), y = form_of_plan(b);
  if (form_is_plain(&x) != form_is_plain(&y))
    return form_is_plain(&x);
  return largest_peak(a) < largest_peak(b);
}

/* Of plans that are as fast as the fastest, but for what no prediction can tell apart, one without replicas
 * before others, then the one that needs least memory; the rest go back on the list. */
static Plan *simplest(Choice *c, Plan *fastest) {
  static const double AS_FAST = 1.005;
  double most = AS_FAST * fastest->batch_seconds;
  Plan *best = fastest;
  for (int i = 0; i < c->candidates.n; i++) {
    Candidate *other = &c->candidates.at[i];
    if (!other->refused && !other->plan && other->bound <= most)
      consider(c, other);
    if (other->refused || seconds(other) > most)
      continue;
    if (!other->settled)
      settle(c->r, other);
    if (other->settled && seconds(other) <= most && better(other->plan, best))
      best = other->plan;
  }
  for (int i = 0; i < c->candidates.n; i++)
    if (c->candidates.at[i].settled)
      c->candidates.at[i].refused = c->candidates.at[i].plan == best;
  return best;
}

/* Whether some update has a turn for what it exchanges with other stages. */
static bool exchanges_aside(const Planner *r, const Plan *plan) {
  return schedule(plan, plan_exchanges(r->g, r->p, plan), r->schedule_span)->lag > 0;
}

/* One microbatch more in flight between neighbours, where it takes unevenness up and memory allows it, and updates
 * keep their turn for exchanges, which is worth more. Nothing else of the plan changes, nor what is computed: where
 * weights are as old as a microbatch is long in flight (every_round), only the request says so. */
static Plan *look_ahead(const Choice *c, Plan *plan, double *gain) {
  static const double WORTH = 0.005;
  const Planner *r = c->r;
  ScheduleTraits traits = schedule_traits(plan->schedule);
  if (r->request->ahead || plan->n_stages == 1 || traits.drains || traits.every_round)
    return plan;
  Form form = form_of_plan(plan);
  int *start = alloc((size_t)form.stages * sizeof *start);
  for (int i = 0; i < form.stages; i++)
    start[i] = plan->stage[i].first_piece;
  for (int i = 0; i < form.positions - 1; i++)
    form.ahead[i] = 2;
  if (!form_allows(plan->schedule, &form, plan->microbatches))
    return plan;
  Candidate other = {.form = &form,
                     .microbatch = plan->microbatch,
                     .recompute = r->request->recompute,
                     .costs = price(r, plan->microbatch),
                     .copies = copies(r, &form, plan->microbatch, r->request->recompute),
                     .pinned = start};
  settle(r, &other);
  if (!other.settled || exchanges_aside(r, plan) > exchanges_aside(r, other.plan))
    return plan;
  double before = uneven_seconds(r, other.costs, plan), after = uneven_seconds(r, other.costs, other.plan);
  *gain = 1 - after / before;
  return *gain >= WORTH ? other.plan : plan;
}

static Plan *choose(const Planner *r, Plan **runners_up, int n) {
  Choice c = {.r = r};
  Plan *plan = list_candidates(&c) ? next_best(&c) : NULL;
  if (!plan) {
    tell_why_none(&c);
    return NULL;
  }
  double gain = 0;
  plan = look_ahead(&c, simplest(&c, plan), &gain);
  plan->why = why(&c, plan, gain);
  if (n > 0)
    list_neighbours(&c, plan);
  for (int found = 0; found < n;) {
    Plan *other = next_best(&c);
    if (!other)
      break;
    /* The sum of all stages decides how long a pipeline fills: a slower slowest stage may fill faster. */
    bool known = equal_plans(plan, other) ||
                 (other->microbatch == plan->microbatch && other->batch_seconds < plan->batch_seconds);
    for (int i = 0; i < found; i++)
      known |= equal_plans(runners_up[i], other);
    if (!known)
      runners_up[found++] = other;
  }
  return plan;
}

static bool read_costs(Planner *r) {
  const PlanRequest *q = r->request;
  if (!q->profile)
    return true;
  ProfileSignature now = profile_signature(r->g, r->p, planner_target(r), q->compiler);
  r->profile = profile_read(q->profile, r->p, &now);
  return r->profile != NULL;
}

/* What programs are made for is said by the command line, for plans from files, too: cuts suit one target. */
static bool same_target(const Plan *plan, const PlanRequest *q) {
  if (plan->target == q->target && plan->precision == q->precision)
    return true;
  Diagnostic *d = error_at(NO_SPAN, "PD0603", "'%s' is a plan for '--target %s --precision %s', not for "
                           "'--target %s --precision %s'", q->plan, target_name(plan->target),
                           precision_name(plan->precision), target_name(q->target), precision_name(q->precision));
  help(d, "ask for the same, or plan anew");
  return false;
}

/* A plan from a file keeps its choices; its costs and bytes are those of today. */
static Plan *take(const Graph *g, const Pieces *p, const PlanRequest *request) {
  Plan *plan = plan_read(g, p, request->plan);
  if (!plan)
    return NULL;
  if (!same_target(plan, request))
    return NULL;
  Form form = form_of_plan(plan);
  PlanRequest pinned = *request;
  pinned.microbatch = plan->microbatch;
  pinned.threads = request->threads ? request->threads : plan->threads;
  Planner r;
  if (!planner_prepare(&r, g, p, &pinned, plan))
    return NULL;
  if (!read_costs(&r) || !planner_microbatches(&r))
    return NULL;
  const Costs *costs = price(&r, plan->microbatch);
  const Copies *kept = copies(&r, &form, plan->microbatch, RECOMPUTE_AUTO);
  for (int i = 0; i < form.stages; i++) {
    StagePlan *s = &plan->stage[i];
    s->recompute &= kept[i].recompute_on; /* with one microbatch in flight there is nothing to gain */
    s->peak_bytes = stage_bytes(costs, &kept[i], s->first_piece, s->end_piece, s->recompute);
  }
  sum_of_chunks(plan);
  plan->threads = r.threads;
  plan->costs = r.profile ? internf("profile %s", r.profile->file) : intern("counted");
  if (!schedulable(&r, plan)) {
    schedule(plan, plan_exchanges(g, p, plan), NO_SPAN);
    return NULL;
  }
  price_plan(&r, costs, plan);
  measure_peaks(&r, plan, alloc((size_t)form.positions * sizeof(int64_t)));
  if (largest_peak(plan) <= r.limit)
    return plan;
  tell_nothing_fits(&r, plan);
  return NULL;
}

Plan *plan_make(const Graph *g, const Pieces *p, const PlanRequest *request, Plan **runners_up, int n) {
  if (request->plan)
    return take(g, p, request);
  Planner r;
  if (!planner_prepare(&r, g, p, request, NULL))
    return NULL;
  return read_costs(&r) && planner_microbatches(&r) ? choose(&r, runners_up, n) : NULL;
}

void plan_verify(const Graph *g, const Pieces *p, const Plan *plan) {
  ensure(plan->n_stages > 0 && plan->batch == plan->microbatch * plan->microbatches);
  ensure(plan->batch == g->train.batch && schedule_known(plan->schedule));
  ensure(plan->chunks >= 1 && plan->chunks <= MAX_CHUNKS);
  ensure(plan->chunks == 1 || schedule_traits(plan->schedule).chunks);
  ensure(!plan->vertical_sync || schedule_traits(plan->schedule).every_round);
  Form form = form_of_plan(plan);
  ensure(form_is_plain(&form) || schedule_traits(plan->schedule).replicas);
  ensure(form_allows(plan->schedule, &form, plan->microbatches));
  int parts = plan_parts(plan);
  ensure(plan->stage[0].first_piece == 0 && plan->stage[parts - 1].end_piece == p->n);
  for (int i = 0; i < parts; i++) {
    const StagePlan *s = &plan->stage[i], *rank = &plan->stage[i % plan->n_stages];
    ensure(s->first_piece < s->end_piece && s->replicas >= 1 && s->replicas == rank->replicas);
    ensure((s->ahead == 1 || s->ahead == 2) && s->ahead == rank->ahead);
    ensure(i == 0 || s->first_piece == plan->stage[i - 1].end_piece);
    ensure(!s->recompute || schedule_traits(plan->schedule).recomputes);
    ensure(s->forward_seconds >= 0 && s->backward_seconds >= 0 && s->update_seconds >= 0 &&
           s->weights_seconds >= 0 && s->peak_bytes >= 0);
  }
}
