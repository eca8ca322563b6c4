/* A plan under one schedule: chosen, or read from a file and priced again. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/answer.h"

static bool read_costs(Planner *r) {
  const PlanRequest *q = r->request;
  if (!q->profile)
    return true;
  const Profiled of = q->profiled ? *q->profiled : (Profiled){r->g, r->p};
  ProfileSignature now = profile_signature(of.g, of.p, r->target, q->compiler);
  now.arch = q->arch ? (int)strtol(q->arch + strlen("sm_"), NULL, 10) : 0;
  r->profile = profile_read(q->profile, of.p, &now, q->cluster != NULL);
  if (r->profile && !r->profile->device && !r->target.workspaces)
    r->target.workspaces = profile_workspaces(r->profile);
  return r->profile != NULL;
}

/* Data sheets do not replace measurements on the planned device. */
static void tell_scaled(const Planner *r) {
  if (!r->profile || !r->profile->device)
    return;
  Diagnostic *d = warning_at(NO_SPAN, "PD0541", "times measured on '%s' are scaled to '%s'",
                             r->profile->device->name, r->device->name);
  note_at(d, NO_SPAN, "each piece is scaled by the two devices' rates for its operations and bytes");
}

/* Takes algorithms from the profile, unless the plan's file has them or another device was measured. */
static void choose_algorithms(const Planner *r, Plan *plan) {
  if (r->profile && !r->profile->device && !plan->algorithms)
    plan->algorithms = profile_algorithms(r->profile, plan->pipeline.microbatch);
  if (r->profile && !r->profile->device && !plan->attentions)
    plan->attentions = profile_attentions(r->profile, plan->pipeline.microbatch);
}

/* Price and power of the devices of the ranks, which are the first of the cluster. */
static void add_expenses(const Cluster *c, Plan *plan) {
  bool priced = true, powered = true;
  plan->price = plan->watts = 0;
  for (int i = 0; i < pipeline_ranks(&plan->pipeline); i++) {
    const DeviceKind *k = cluster_kind(c, i);
    priced &= k->price > 0, powered &= k->watts > 0;
    plan->price += k->price, plan->watts += k->watts;
  }
  plan->price = priced ? plan->price : 0;
  plan->watts = powered ? plan->watts : 0;
}

/* Records the devices of the plan's ranks, for reports. */
static void name_devices(const Planner *r, Plan *plan) {
  const Cluster *c = r->request->cluster;
  plan->spill = r->request->spill ? intern(r->request->spill) : NULL;
  plan->cluster = c ? c->name : NULL;
  plan->assumed = r->assumed;
  plan->device = r->device->name;
  if (!c)
    return;
  add_expenses(c, plan);
  bool used[MOST_KINDS] = {false};
  for (int i = 0; i < pipeline_ranks(&plan->pipeline); i++)
    used[cluster_kind(c, i) - c->kind] = true;
  Text all = {0};
  for (int k = 0; k < c->n_kinds; k++)
    if (used[k])
      text_add(&all, "%s%s", all.n ? ", " : "", c->kind[k].name);
  plan->device = intern(all.at);
}

/* The command line sets the target, for plan files too, because cuts suit one target. */
static bool same_target(const Plan *plan, const PlanRequest *q) {
  const Target *made = &plan->target, *asked = &q->target;
  if (backend_of(made) == backend_of(asked) && made->precision == asked->precision &&
      made->residual == asked->residual)
    return true;
  Diagnostic *d =
      error_at(NO_SPAN, "PD0603",
               "the plan '%s' is for '--target %s --precision %s', not for '--target %s --precision %s'", q->plan,
               backend_of(made)->name, numbers_name(made), backend_of(asked)->name, numbers_name(asked));
  help(d, "use the options of the plan, or plan again");
  return false;
}

/* A plan from a file keeps its choices, except --update. Costs and bytes are computed again. */
Plan *plan_taken(const Graph *g, const Pieces *p, const PlanRequest *request) {
  Plan *plan = plan_read(g, p, request->plan);
  if (!plan)
    return NULL;
  if (!same_target(plan, request))
    return NULL;
  if (request->update != UPDATE_FREE && plan->pipeline.memory)
    plan->pipeline.at_home = request->update == UPDATE_HOST;
  Pipeline form = form_of(&plan->pipeline);
  int64_t b = plan->pipeline.microbatch;
  PlanRequest pinned = *request;
  pinned.microbatch = b;
  pinned.target.workspaces = plan->attentions ? attention_workspaces(&plan->attentions->of) : NULL;
  pinned.target.threads = request->target.threads ? request->target.threads : plan->target.threads;
  Planner r;
  if (!planner_prepare(&r, g, p, &pinned, plan))
    return NULL;
  if (!read_costs(&r) || !planner_microbatches(&r))
    return NULL;
  const Copies *free = copies(&r, &form, &plan->placement, b, RECOMPUTE_AUTO);
  for (int i = 0; i < form.n_stages;
       i++) /* with one microbatch in flight, repeating a forward pass saves nothing */
    plan->pipeline.recompute[i] &= free[plan_part_of(plan, i, 0)].recompute_on;
  r.again = plan_recomputed(p, plan);
  const Spans *spans = spans_at(&r, b);
  const Candidate c = candidate_of(&r, &form, &plan->placement, b, spans, RECOMPUTE_AUTO, NULL, 0);
  int *start = alloc((size_t)(plan_parts(plan) + 1) * sizeof *start);
  for (int i = 0; i < plan_parts(plan); i++)
    start[i] = plan->stage[i].first_piece, start[i + 1] = plan->stage[i].end_piece;
  for (int i = 0; i < plan_parts(plan); i++)
    plan->stage[i].peak_bytes =
        chunks_bytes(&c, &(Partition){.start = start}, plan_stage_of(plan, i), plan_recomputes(plan, i));
  plan->target = r.target;
  plan->costs = costs_text(&r);
  if (!schedulable(&r, plan)) {
    schedule(&plan->pipeline, plan_exchanges(g, p, plan), NO_SPAN);
    return NULL;
  }
  name_devices(&r, plan);
  choose_algorithms(&r, plan);
  price_plan(&r, plan, INFINITY);
  find_peaks(&r, plan, alloc((size_t)form.n_stages * sizeof(int64_t)));
  if (largest_peak(plan) <= r.memory.arena)
    return plan;
  tell_nothing_fits(&r, plan);
  return NULL;
}

static void tell_why_none(const Planner *r, const NoPlan *none) {
  if (none->no_microbatch)
    tell_microbatches(r);
  else if (!none->miss && none->stalling) /* schedule() reports the reason */
    schedule(&none->stalling->pipeline, plan_exchanges(r->g, r->p, none->stalling), r->schedule_span);
  else
    tell_nothing_fits(r, none->miss);
}

/* Reports ranks that stay idle because they would not shorten a batch: the launch must use the smaller number. */
static void tell_unused_ranks(const Planner *r, const Plan *plan) {
  int used = pipeline_ranks(&plan->pipeline);
  if (used == r->ranks)
    return;
  Diagnostic *d = warning_at(NO_SPAN, "PD0510", "of %d ranks, the plan uses only %d", r->ranks, used);
  if (r->free_replicas || r->free_depth)
    note_at(d, NO_SPAN,
            "more ranks would not make a batch faster: the ranks of a stage share its microbatches evenly");
  else
    note_at(d, NO_SPAN, "'%s' runs each stage on one rank, and the model can be cut at only %d place%s",
            r->form.schedule, r->subject.n - 1, r->subject.n == 2 ? "" : "s");
  help(d, "launch the programs with 'mpirun -n %d'", used);
}

static bool is_sharded(const Plan *plan) {
  return plan->pipeline.shard_optimizer && !form_is_plain(&plan->pipeline);
}

/* Warns of options that only affect replicas. */
static void tell_no_replicas(const Planner *r, const Plan *plan) {
  const bool shards = r->request->shard_optimizer && !is_sharded(plan);
  if (!shards && !(r->request->bucket && form_is_plain(&plan->pipeline)))
    return;
  Diagnostic *d = warning_at(NO_SPAN, "PD0512", "%s",
                             shards ? "--shard-optimizer has no effect: no stage has replicas"
                                    : "--bucket has no effect: no stage has replicas that exchange gradients");
  help(d, "use '--replicas 2' to run every stage on two ranks");
}

/* Warns of an explicit delay correction under a schedule without delay, and of `auto` that corrects nothing. */
static void tell_no_delay(const Planner *r, const Plan *plan) {
  const Train *t = &r->g->train;
  if (r->g->inference)
    return;
  if (t->correction_given && r->traits.drains)
    help(warning_at(t->correction_span, "PD0417",
                    "'delay_correction' has no effect: schedule '%s' has no weight delay",
                    plan->pipeline.schedule),
         "use 'delay_correction = auto', which is off for schedules without delay");
  if (t->correction_lost && !r->traits.drains)
    help(warning_at(t->correction_span, "PD0417",
                    "'delay_correction' has no effect: the optimizer has no momentum to extrapolate"),
         "use a momentum above 0, or 'delay_correction = none'");
}

/* A planned request, before diagnostics. */
struct Attempt {
  Planner r;
  NoPlan none;
  bool ready; /* false: diagnostics have the reason */
  Plan *plan;
  Plan **runners_up;
};

/* known: seconds per batch; slower plans are excluded. 0: no limit. */
static Attempt attempt(const Graph *g, const Pieces *p, const PlanRequest *request, double known, int n) {
  Attempt a = {.runners_up = alloc((size_t)n * sizeof(Plan *))};
  a.ready = planner_prepare(&a.r, g, p, request, NULL) && read_costs(&a.r) && planner_microbatches(&a.r);
  if (!a.ready)
    return a;
  a.r.known = known;
  a.plan = plan_choose(&a.r, a.runners_up, n, &a.none);
  return a;
}

static Plan *tell(const Attempt *a, Plan **runners_up, int n) {
  const Planner *r = &a->r;
  if (!a->ready)
    return NULL;
  if (!a->plan) {
    tell_why_none(r, &a->none);
    return NULL;
  }
  for (int i = 0; i < n; i++)
    runners_up[i] = a->runners_up[i];
  name_devices(r, a->plan);
  choose_algorithms(r, a->plan);
  tell_no_replicas(r, a->plan);
  tell_no_delay(r, a->plan);
  tell_unused_ranks(r, a->plan);
  tell_scaled(r);
  if (!r->request->microbatch)
    tell_chosen_microbatch(r, a->plan);
  return a->plan;
}

/* ---- variations ---- */

/* A setting that holds for a whole search, tried if the request leaves it open. Results are the same bits. */
typedef struct Variation {
  bool (*suits)(const PlanRequest *asked, const Attempt *best, int value);
  void (*set)(PlanRequest *q, int value);
  int value;
  double worth;       /* ratio of batch times from which the variation is taken */
  const char *unless; /* the setting without it, for `why` */
} Variation;

/* Seconds of an update of the whole model by one rank. */
static double whole_update(const Plan *plan) {
  double sum = 0;
  for (int i = 0; i < plan_parts(plan); i++)
    sum += plan->stage[i].update_seconds * plan->pipeline.replicas[plan_stage_of(plan, i)];
  return sum;
}

/* Sharded optimizer state saves memory and update time. */
static bool may_shard(const PlanRequest *asked, const Attempt *best, int value) {
  (void)value;
  return planner_may_shard(&best->r) &&
         (asks_for_memory(best->plan, asked) ||
          (!asked->brief && whole_update(best->plan) > (1 - WORTH_STATES) * best->plan->batch_seconds));
}

static void set_sharded(PlanRequest *q, int value) { q->shard_optimizer = value; }

/* In pipelines that drain, waiting messages lengthen every batch. Others: choose.c, look_ahead(). */
static bool may_look_ahead(const PlanRequest *asked, const Attempt *best, int value) {
  const ScheduleTraits *traits = &best->r.traits;
  (void)value;
  return best->plan && best->plan->pipeline.n_stages > 1 && best->plan->pipeline.ahead[0] == 1 &&
         traits->looks_ahead && traits->drains && !asked->ahead && !asked->brief && best->r.ranks <= MANY_RANKS;
}

static void set_ahead(PlanRequest *q, int value) { q->ahead = value; }

/* More chunks shorten the bubble and send more messages. Tries one chunk, then three and four as long as each is
 * faster: searches for several chunks are slow. */
static bool may_chunk(const PlanRequest *asked, const Attempt *best, int value) {
  const Planner *r = &best->r;
  return r->traits.chunks && !r->traits.spills && r->g->train.chunks == 0 && !asked->split && !asked->chunks &&
         !asked->brief && r->form.n_stages > 1 && (value == 1 || value == r->form.chunks + 1) &&
         r->ranks <= (value > 1 ? FEW_WORKERS : MANY_RANKS) && value * r->form.n_stages <= r->subject.n;
}

static void set_chunks(PlanRequest *q, int value) { q->chunks = value; }

static const Variation variations[] = {{may_chunk, set_chunks, 1, 1 / AS_FAST, "two chunks a rank"},
                                       {may_chunk, set_chunks, 3, 1 / AS_FAST, "fewer chunks a rank"},
                                       {may_chunk, set_chunks, 4, 1 / AS_FAST, "fewer chunks a rank"},
                                       {may_shard, set_sharded, true, WORTH_STATES, "whole optimizer state"},
                                       {may_look_ahead, set_ahead, 2, 1 - WORTH_PLACES,
                                        "one microbatch less in flight between stages"}};

/* The attempt with the variation, if it is better by what the variation is worth; otherwise `best`. */
static Attempt vary(const Variation *v, const PlanRequest *asked, Attempt best, int n) {
  if (!v->suits(asked, &best, v->value))
    return best;
  PlanRequest *varied = alloc_copy(best.r.request, sizeof *varied);
  v->set(varied, v->value);
  int mark = diagnostics_mark();
  const double seconds = best.plan ? best.plan->batch_seconds : INFINITY;
  const Attempt other = attempt(best.r.g, best.r.p, varied, best.plan ? BESIDE_VARIED * seconds : 0, n);
  diagnostics_forget(mark); /* repeats earlier diagnostics */
  if (!other.plan || (v->set == set_sharded && !is_sharded(other.plan)) ||
      other.plan->batch_seconds >= v->worth * seconds)
    return best;
  if (best.plan)
    other.plan->why = format("%s %.1f %% faster than with %s.", other.plan->why,
                             100 * (seconds / other.plan->batch_seconds - 1), v->unless);
  return other;
}

/* The attempt of the request, or of its best variation. */
static Attempt best_attempt(const Graph *g, const Pieces *p, const PlanRequest *request, double known, int n) {
  Attempt best = attempt(g, p, request, known, n);
  for (size_t i = 0; best.ready && i < sizeof variations / sizeof *variations; i++)
    best = vary(&variations[i], request, best, n);
  return best;
}

Plan *plan_one(const Graph *g, const Pieces *p, const PlanRequest *request, Plan **runners_up, int n) {
  const Attempt best = best_attempt(g, p, request, 0, n);
  return tell(&best, runners_up, n);
}

/* ---- schedules ---- */

static PlanRequest under_schedule(PlanRequest q, const char *schedule) {
  q.schedule = schedule;
  q.delay = DELAY_FREE;
  if (q.recompute == RECOMPUTE_ON && !schedule_traits(schedule).recomputes && !schedule_traits(schedule).layers)
    q.recompute = RECOMPUTE_AUTO;
  if (!schedule_traits(schedule).spills)
    q.update = UPDATE_FREE;
  return q;
}

const Attempt *attempt_schedule(const Graph *g, const Pieces *p, const PlanRequest *request, const char *schedule,
                                double known, int n) {
  const PlanRequest under = under_schedule(*request, schedule), *q = alloc_copy(&under, sizeof under);
  const int mark = diagnostics_mark();
  const Attempt made = best_attempt(g, p, q, known, n);
  diagnostics_forget(mark);
  return made.plan ? alloc_copy(&made, sizeof made) : NULL;
}

const Plan *attempted_plan(const Attempt *a) { return a->plan; }

Plan *take_attempt(const Attempt *a, Plan **runners_up, int n) { return tell(a, runners_up, n); }

Plan *try_schedule(const Graph *g, const Pieces *p, PlanRequest q, const char *schedule, const char **why) {
  int mark = diagnostics_mark();
  q = under_schedule(q, schedule);
  q.refusal = why ? SAY_LEAST : SAY_NOTHING;
  Plan *plan = plan_one(g, p, &q, NULL, 0);
  const char *error = diagnostics_forget(mark);
  if (why)
    *why = error;
  return plan;
}
