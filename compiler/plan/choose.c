/* The choice of a plan: for every microbatch and policy of recomputation the best partition, exact peaks
 * for those that are fastest, the fastest that fits. */
#include <math.h>
#include <string.h>

#include "plan/planner.h"

typedef struct Candidate {
  const Pipeline *form;
  int64_t microbatch;
  Recompute recompute;
  const Spans *spans;
  Copies *copies;
  const int *pinned; /* where parts start, or NULL */
  double bound;      /* seconds of a batch that no plan of the form can beat */
  Plan *plan;        /* NULL until the bound is the least left */
  bool settled;      /* its peaks are exact and fit */
  bool refused;
} Candidate;

typedef struct Choice {
  const Planner *r;
  Vec(Candidate) candidates;
  Vec(Candidate) smallest; /* of those that fit nowhere: for the refusal */
  Vec(int64_t) microbatches;
  const Plan *stalling; /* NULL, or one that its schedule does not take */
} Choice;

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

static Spans *spans_at(const Planner *r, int64_t b) {
  Spans *spans = alloc(sizeof *spans);
  *spans = spans_make(price(r, b));
  return spans;
}

static Plan *plan_of(const Planner *r, const Candidate *c, const Partition *part) {
  Plan *plan = alloc(sizeof *plan);
  int parts = pipeline_parts(c->form);
  *plan = (Plan){.model = r->g->name, .pipeline = form_of(c->form), .target = r->target, .why = ""};
  plan->pipeline = pipeline_at(&plan->pipeline, r->g->train.batch, c->microbatch);
  plan->stage = alloc((size_t)parts * sizeof *plan->stage);
  plan->costs = r->profile ? internf("profile %s", r->profile->file) : intern("counted");
  for (int i = 0; i < parts; i++)
    plan->pipeline.recompute[plan_stage_of(plan, i)] |= part->recompute[i]; /* all of a rank's chunks or none */
  for (int i = 0; i < parts; i++) {
    StagePlan *s = &plan->stage[i];
    s->first_piece = part->start[i];
    s->end_piece = part->start[i + 1];
    s->peak_bytes = span_bytes(c->spans, &c->copies[i], s->first_piece, s->end_piece, plan_recomputes(plan, i));
  }
  sum_of_chunks(plan);
  if (schedulable(r, plan))
    price_plan(r, c->spans->c, plan);
  return plan;
}

/* Best partition by estimated bytes; the smallest there is when none fits, and false. Each chunk of a rank has
 * an equal share of the limit. */
static bool partition(const Planner *r, const Candidate *c, int64_t limit, Plan **out) {
  Partition part;
  bool fits;
  int parts = pipeline_parts(c->form);
  limit = limit == INT64_MAX ? limit : limit / c->form->chunks;
  if (c->pinned) {
    fits = partition_pinned(c->spans, c->copies, parts, c->pinned, limit, &part);
  } else {
    fits = partition_fastest(c->spans, c->copies, parts, limit, &part);
    if (!fits)
      partition_smallest(c->spans, c->copies, parts, &part);
  }
  *out = plan_of(r, c, &part);
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

/* Finds the fastest partition whose exact peaks fit: stages whose estimates were wrong get the difference
 * added. Where even the smallest partition does not fit, keeps that one and refuses. */
static void settle(const Planner *r, Candidate *c) {
  const int ROUNDS = r->free_replicas ? 3 : 10;
  int n_stages = c->form->n_stages, parts = pipeline_parts(c->form);
  int64_t *error = alloc((size_t)n_stages * sizeof *error);
  Plan *smallest = NULL;
  c->copies = alloc_copy(c->copies, (size_t)parts * sizeof *c->copies);
  for (int round = 0; round < ROUNDS && !c->settled; round++) {
    bool fits = partition(r, c, r->limit, &c->plan), smaller = false;
    if (!schedulable(r, c->plan) || (r->free_replicas && hopeless(r, c->plan, fits)))
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
  const Pipeline *x = &a->pipeline, *y = &b->pipeline;
  bool equal = x->microbatch == y->microbatch && x->n_stages == y->n_stages;
  for (int i = 0; equal && i < x->n_stages; i++)
    equal &= x->recompute[i] == y->recompute[i] && x->replicas[i] == y->replicas[i] && x->ahead[i] == y->ahead[i];
  for (int i = 0; equal && i < plan_parts(a); i++)
    equal &= a->stage[i].first_piece == b->stage[i].first_piece;
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

static void add_candidate(Choice *c, const Pipeline *form, int64_t b, const Spans *spans, const int *pinned,
                          Recompute policy, double bound) {
  push(&c->candidates, ((Candidate){.form = form,
                                    .microbatch = b,
                                    .recompute = policy,
                                    .spans = spans,
                                    .copies = copies(c->r, form, b, policy),
                                    .pinned = pinned,
                                    .bound = bound}));
}

/* Unless its schedule does not take so many microbatches; with the policies of recomputation. */
static bool add_form(Choice *c, const Pipeline *form, int64_t b, const Spans *spans, double bound) {
  const Planner *r = c->r;
  Recompute asked = r->request->recompute;
  if (!schedule_allows(form, r->g->train.batch / b))
    return false;
  add_candidate(c, form, b, spans, r->pinned, asked, bound);
  if (asked == RECOMPUTE_AUTO && form->n_stages > 1 && schedule_traits(form->schedule).recomputes)
    add_candidate(c, form, b, spans, r->pinned, RECOMPUTE_ON, bound);
  return true;
}

static Copies copies_at(const void *planner, int64_t microbatches, int64_t in_flight, int replicas, bool first,
                        bool last) {
  return copies_of_stage(planner, microbatches, in_flight, replicas, first, last);
}

static bool same_form(const Pipeline *form, const Replication *way) {
  return form->n_stages == way->stages &&
         !memcmp(form->replicas, way->replicas, (size_t)way->stages * sizeof *way->replicas);
}

static Ways ways_at(const Planner *r, int64_t b, const Spans *spans) {
  enum { MOST_FORMS = 24 };
  ScheduleTraits traits = schedule_traits(r->form.schedule);
  return (Ways){.spans = spans,
                .ranks = r->ranks,
                .least_stages = r->free_stages ? 1 : r->form.n_stages,
                .most_stages = r->form.n_stages,
                .pinned = r->pinned,
                .may_replicate = true,
                .microbatches = r->g->train.batch / b,
                .schedule = r->form.schedule,
                .ahead = r->request->ahead ? r->request->ahead : 1,
                .two_versions = traits.two_versions,
                .every_round = traits.every_round,
                .limit = INT64_MAX,
                .copies = copies_at,
                .context = r,
                .most_found = MOST_FORMS};
}

/* Those not among the candidates from `first` on. */
static void add_ways(Choice *c, int first, int64_t b, const Spans *spans, const Replications *found) {
  for (int i = 0; i < found->n; i++) {
    const Replication *way = &found->at[i];
    bool known = false;
    for (int k = first; k < c->candidates.n; k++)
      known |= same_form(c->candidates.at[k].form, way);
    if (known)
      continue;
    Pipeline *form = alloc(sizeof *form);
    *form = form_make(c->r, way->stages, way->replicas);
    add_form(c, form, b, spans, way->value * (double)(c->r->g->train.batch / b) * (1 - 1e-9));
  }
}

/* Lays out the way's plan, and corrects estimates by what they missed. Whether it fits. */
static bool try_way(const Planner *r, int64_t b, Spans *spans, const Replication *way) {
  Pipeline form = form_make(r, way->stages, way->replicas);
  Candidate c = {.form = &form,
                 .microbatch = b,
                 .recompute = r->request->recompute,
                 .spans = spans,
                 .copies = copies(r, &form, b, r->request->recompute),
                 .pinned = way->start};
  int64_t *error = alloc((size_t)form.n_stages * sizeof *error);
  partition(r, &c, r->limit, &c.plan);
  if (!schedulable(r, c.plan))
    return false;
  find_peaks(r, c.plan, error);
  for (int i = 0; i < form.n_stages; i++)
    spans_correct(spans, c.plan->stage[i].first_piece, c.plan->stage[i].end_piece, error[i]);
  return largest_peak(c.plan) <= r->limit;
}

/* Ways to use the ranks: those that would be fastest if memory were no matter, and those that fit. Where a layout
 * shows that estimates were wrong, the search is made again with better ones. */
static bool add_forms(Choice *c, int64_t b, Spans *spans) {
  enum { ROUNDS = 5 };
  const Planner *r = c->r;
  Ways w = ways_at(r, b, spans);
  int first = c->candidates.n;
  Replications found = replicate(&w);
  add_ways(c, first, b, spans, &found);
  w.limit = r->limit;
  for (int round = 0; round < ROUNDS; round++) {
    found = replicate(&w);
    add_ways(c, first, b, spans, &found);
    if (found.n == 0 || try_way(r, b, spans, &found.at[0]))
      break;
  }
  return c->candidates.n > first;
}

/* False when no microbatch will do. */
static bool list_candidates(Choice *c) {
  const Planner *r = c->r;
  for (int i = 0; i < r->microbatches.n; i++) {
    int64_t b = r->microbatches.at[i];
    Spans *spans = spans_at(r, b);
    if (r->free_replicas ? add_forms(c, b, spans) : add_form(c, &r->form, b, spans, 0))
      push(&c->microbatches, b);
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

/* The chosen plan with one cut of its slowest stage moved by a piece: what the choice is compared with. */
static void list_neighbours(Choice *c, const Plan *chosen) {
  const Planner *r = c->r;
  const Spans *spans = spans_at(r, chosen->pipeline.microbatch);
  Pipeline *form = alloc(sizeof *form);
  *form = form_of(&chosen->pipeline);
  int slowest = slowest_part(chosen), parts = plan_parts(chosen);
  for (int i = slowest; i <= slowest + 1 && !r->pinned; i++)
    for (int step = -1; step <= 1 && i > 0 && i < parts; step += 2) {
      int at = chosen->stage[i].first_piece + step;
      int *start = alloc((size_t)parts * sizeof *start);
      for (int k = 0; k < parts; k++)
        start[k] = k == i ? at : chosen->stage[k].first_piece;
      if (at <= start[i - 1] || at >= chosen->stage[i].end_piece)
        continue;
      add_candidate(c, form, chosen->pipeline.microbatch, spans, start, r->request->recompute, 0);
    }
}

static const char *ways_text(const Pipeline *p) {
  return form_is_plain(p)   ? "a pipeline of one each"
         : p->n_stages == 1 ? format("data parallelism, %s replicas of the whole model", replicas_text(p))
                            : format("replicas %s by stage", replicas_text(p));
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
             r->pinned ? "Cuts as asked" : format("Best of all ways to cut at %d places", r->p->n - 1),
             p->chunks > 1 ? "part" : "stage", slowest, most * 1e3, (most * parts / sum - 1) * 100);
  if (r->free_replicas && r->ranks > 1)
    text_add(&t, "Of all ways to use %d ranks%s: %s. ", r->ranks,
             r->free_stages ? "" : format(" in %d stages", r->form.n_stages), ways_text(p));
  text_add(&t, "Microbatch %lld", (long long)p->microbatch);
  if (c->microbatches.n > 1) {
    text_add(&t, " of");
    for (int i = 0; i < c->microbatches.n; i++)
      text_add(&t, " %lld", (long long)c->microbatches.at[i]);
    text_add(&t, " gives the shortest batch that fits");
  } else {
    text_add(&t, r->request->microbatch ? " as asked" : " is the only one possible");
  }
  bool any = false;
  for (int i = 0; i < p->n_stages; i++)
    any |= p->recompute[i];
  text_add(&t, "; %s.",
           r->request->recompute != RECOMPUTE_AUTO ? "recomputation as asked"
           : any                                   ? "recomputation where memory asks for it"
                                                   : "everything fits without recomputation");
  if (!r->request->ahead && p->ahead[0] > 1)
    text_add(&t,
             " One microbatch more in flight between stages: where kernels take 2 %% more or less time than "
             "planned a batch takes %.1f %% less.",
             gain * 100);
  return t.at;
}

/* The refused plan that comes nearest to fitting; NULL when none was laid out. */
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

Plan *plan_fastest(const Planner *r) {
  Choice c = {.r = r};
  return list_candidates(&c) ? next_best(&c) : NULL;
}

static bool better(const Plan *a, const Plan *b) {
  bool plain = form_is_plain(&a->pipeline);
  if (plain != form_is_plain(&b->pipeline))
    return plain;
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
  return planned_programs(r, &plan->pipeline, plan_exchanges(r->g, r->p, plan))->lag > 0;
}

/* One microbatch more in flight between neighbours, where it takes unevenness up and memory allows it, and updates
 * keep their turn for exchanges, which is worth more. Nothing else of the plan changes, nor what is computed:
 * where weights are as old as a microbatch is long in flight (every_round), only the request says so. */
static Plan *look_ahead(const Choice *c, Plan *plan, double *gain) {
  static const double WORTH = 0.005;
  const Planner *r = c->r;
  Pipeline form = form_of(&plan->pipeline);
  int64_t b = plan->pipeline.microbatch;
  int parts = plan_parts(plan);
  ScheduleTraits traits = schedule_traits(form.schedule);
  if (r->request->ahead || form.n_stages == 1 || traits.drains || traits.every_round || traits.forward_only)
    return plan;
  int *start = alloc((size_t)parts * sizeof *start);
  for (int i = 0; i < parts; i++)
    start[i] = plan->stage[i].first_piece;
  for (int i = 0; i < form.n_stages - 1; i++)
    form.ahead[i] = 2;
  if (!schedule_allows(&form, plan->pipeline.microbatches))
    return plan;
  Candidate other = {.form = &form,
                     .microbatch = b,
                     .recompute = r->request->recompute,
                     .spans = spans_at(r, b),
                     .copies = copies(r, &form, b, r->request->recompute),
                     .pinned = start};
  settle(r, &other);
  if (!other.settled || exchanges_aside(r, plan) > exchanges_aside(r, other.plan))
    return plan;
  double before = uneven_seconds(r, other.spans->c, plan), after = uneven_seconds(r, other.spans->c, other.plan);
  *gain = 1 - after / before;
  return *gain >= WORTH ? other.plan : plan;
}

Plan *plan_choose(const Planner *r, Plan **runners_up, int n, NoPlan *none) {
  Choice c = {.r = r};
  Plan *plan = list_candidates(&c) ? next_best(&c) : NULL;
  if (!plan) {
    *none = (NoPlan){.no_microbatch = c.candidates.n == 0, .stalling = c.stalling, .miss = nearest_miss(&c)};
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
    bool known = equal_plans(plan, other) || (other->pipeline.microbatch == plan->pipeline.microbatch &&
                                              other->batch_seconds < plan->batch_seconds);
    for (int i = 0; i < found; i++)
      known |= equal_plans(runners_up[i], other);
    if (!known)
      runners_up[found++] = other;
  }
  return plan;
}
