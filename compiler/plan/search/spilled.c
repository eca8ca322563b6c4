/* The search for plans with offload, on one rank or in stages on several ranks. For each microbatch,
 * offload/spill_search.c chooses the parts of a stage and their resident share. Cuts between stages start with
 * even work and move while the simulated batch gets shorter. Layouts correct the estimated workspace. A stage that
 * fits its rank has one part. */
#include <math.h>

#include "plan/search/search.h"

/* ---- plans ------------------------------------------------------------------------------------------------ */

/* Stages and their parts. */
typedef struct Stages {
  int n;
  const int *start; /* by stage: first piece; n + 1 entries */
  SpillChoice *choice;
  bool at_home; /* the host updates stages of several parts */
} Stages;

static Pipeline form_of_stages(const Planner *r, const Stages *s) {
  Pipeline form = form_make(r, s->n, NULL);
  int *parts = alloc((size_t)s->n * sizeof *parts), all = 0, most = 0;
  for (int i = 0; i < s->n; i++) {
    parts[i] = s->choice[i].parts;
    most = parts[i] > most ? parts[i] : most;
  }
  form.chunks = most;
  form.first_part = NULL;
  if (s->n > 1)
    pipeline_set_parts(&form, parts);
  form.keeps = 0;
  for (int i = 0; i < s->n; i++) {
    const SpillChoice *c = &s->choice[i];
    const SpillProblem of = {.hands_on = i < s->n - 1};
    form.kept[i] = c->parts > 1 ? c->kept : 0;
    for (int part = 0; part < c->parts; part++, all++) {
      form.keeps |= (uint64_t)(most > 1 && all < PD_MAX_PARTS && !spill_reruns(&of, c, part))
                    << (all % PD_MAX_PARTS);
      form.recompute[i] |= spill_reruns(&of, c, part);
    }
  }
  form.memory = most > 1 ? r->memory.arena : 0;
  form.page = spill_page(r);
  form.at_home = s->at_home && most > 1;
  return form;
}

/* Without times. */
static Plan *plan_in_stages(const Planner *r, int64_t b, const Stages *s) {
  Plan *plan = alloc(sizeof *plan);
  const Pipeline form = form_of_stages(r, s);
  *plan = (Plan){.model = r->subject.name, .target = r->target, .costs = costs_text(r), .why = ""};
  plan->pipeline = pipeline_at(&form, r->subject.batch, b);
  plan->stage = alloc((size_t)plan_parts(plan) * sizeof *plan->stage);
  for (int i = 0; i < s->n; i++)
    for (int k = 0; k < s->choice[i].parts; k++) {
      StagePlan *part = &plan->stage[plan_part_of(plan, i, k)];
      part->first_piece = s->start[i] + s->choice[i].start[k];
      part->end_piece = s->start[i] + s->choice[i].start[k + 1];
    }
  return plan;
}

/* Peak bytes of a stage's rank: exact if the request has a layout function, else estimated. */
static int64_t peak_of(const Planner *r, const Plan *plan, int stage) {
  if (r->request->peak)
    return r->request->peak(r->request->peak_context, plan, stage);
  const int64_t b = plan->pipeline.microbatch;
  const Pipeline form = form_of(&plan->pipeline);
  const Candidate c = candidate_of(r, &form, &plan->placement, b, spans_at(r, b), RECOMPUTE_AUTO, NULL, 0);
  int *start = alloc((size_t)(plan_parts(plan) + 1) * sizeof *start);
  for (int i = 0; i < plan_parts(plan); i++)
    start[i] = plan->stage[i].first_piece, start[i + 1] = plan->stage[i].end_piece;
  return chunks_bytes(&c, &(Partition){.start = start}, stage, plan->pipeline.recompute[stage]);
}

static void set_peaks(const Planner *r, Plan *plan) {
  for (int i = 0; i < plan->pipeline.n_stages; i++)
    for (int k = 0; k < pipeline_chunks(&plan->pipeline, i); k++)
      plan->stage[plan_part_of(plan, i, k)].peak_bytes = peak_of(r, plan, i);
}

/* ---- the search ------------------------------------------------------------------------------------------- */

typedef struct Found {
  Plan *best;
  const Plan *miss; /* smallest plan that was laid out and does not fit */
  bool at_home;     /* the host updates parameters */
  bool thorough;    /* refine all leaders, not only the best */
} Found;

/* Whether the stage fits; if not, records the plan as a miss. */
static bool fits(const Planner *r, Plan *plan, int stage, Found *f) {
  if (peak_of(r, plan, stage) <= r->memory.arena)
    return true;
  set_peaks(r, plan);
  if (!f->miss || largest_peak(plan) < largest_peak(f->miss))
    f->miss = plan;
  return false;
}

/* Tries one part without recomputation, then with recomputation unless it is the last stage. */
static bool fits_in_one_part(const Planner *r, int64_t b, const Stages *s, int i, Found *f) {
  const int n = s->start[i + 1] - s->start[i];
  const Recompute said = r->request->recompute;
  for (int again = said == RECOMPUTE_ON; again <= (said != RECOMPUTE_OFF); again++) {
    s->choice[i] = (SpillChoice){.parts = 1, .start = {0, n}, .keeps = {!again}};
    if (fits(r, plan_in_stages(r, b, s), i, f))
      return true;
    if (i == s->n - 1)
      break;
  }
  return false;
}

/* Parts from --split or the given plan. */
static SpillChoice choice_pinned(const Planner *r, const Stages *s, int i) {
  SpillChoice c = {.parts = pipeline_chunks(&r->form, i)};
  for (int k = 0; k < c.parts; k++)
    c.start[k] = r->pinned[pipeline_part(&r->form, i, k)] - s->start[i];
  c.start[c.parts] = s->start[i + 1] - s->start[i];
  return c;
}

static int parts_of(const Stages *s) {
  int parts = 0;
  for (int i = 0; i < s->n; i++)
    parts += s->choice[i].parts;
  return parts;
}

/* Searches parts near `c`, or all parts; with pinned cuts only the resident share and saved activations. */
static bool search(const Planner *r, const SpillProblem *p, bool near, SpillChoice *c, SpillTime *time) {
  if (r->pinned)
    return spill_search_kept(p, c, time);
  return (near && c->parts > 1 && spill_search_near(p, c, time)) || spill_search(p, c, time);
}

/* The parts of a plan's stage, adapted to a new start or end. */
static SpillChoice choice_near(const Plan *near, const Stages *s, int i) {
  const SpillChoice from = choice_of(near, i);
  const int later = near->stage[plan_part_of(near, i, 0)].first_piece - s->start[i],
            n = s->start[i + 1] - s->start[i];
  SpillChoice c = {.kept = from.kept};
  for (int k = 0; k < from.parts; k++) {
    const int start = k > 0 ? from.start[k] + later : 0, part = start > 0 ? c.parts : 0;
    if (start >= n)
      break;
    c.start[part] = start > 0 ? start : 0;
    c.keeps[part] = from.keeps[k];
    c.parts = part + 1;
  }
  c.start[c.parts] = n;
  return c;
}

/* Finds parts of stage i; later stages are settled. The first round does not know the rank's other memory, so the
 * second searches all parts again. With `near`, all rounds stay near that plan. False: no parts fit. */
static bool find_parts(const Planner *r, int64_t b, const Stages *s, int i, const Plan *near, Found *f) {
  enum { ROUNDS = 5 };
  SpillProblem p = problem_of_stage(r, b, s->start[i], s->start[i + 1], s->at_home);
  p.thorough = f->thorough;
  for (int round = 0; round < ROUNDS; round++) {
    SpillChoice c = r->pinned            ? choice_pinned(r, s, i)
                    : near && round == 0 ? choice_near(near, s, i)
                                         : s->choice[i];
    SpillTime time;
    bool found = search(r, &p, near || round > 1, &c, &time);
    s->choice[i] = c;
    if (c.parts < 2 || parts_of(s) > PD_MAX_PARTS) /* one piece, or too many parts */
      return false;
    Plan *plan = plan_in_stages(r, b, s);
    int64_t beside = bytes_beside(r, plan, i, &p, &c);
    if (fits(r, plan, i, f))
      return true;
    if (!found && beside >= p.beside)
      return false;
    p.beside = beside;
  }
  return false;
}

/* The plan of stages with these starts, with parts near those of `near` unless that is NULL. NULL: a stage does
 * not fit. */
static Plan *plan_of_stages(const Planner *r, int64_t b, const int *start, int n, const Plan *near, Found *f) {
  Stages s = {.n = n, .start = start, .choice = alloc((size_t)n * sizeof(SpillChoice)), .at_home = f->at_home};
  for (int i = 0; i < n; i++) /* placeholders until the stage's turn */
    s.choice[i] = (SpillChoice){.parts = 1, .start = {0, start[i + 1] - start[i]}, .keeps = {true}};
  for (int i = n - 1; i >= 0; i--) {
    const int asked = r->pinned ? pipeline_chunks(&r->form, i) : 0; /* parts; 0: free */
    const bool one = asked <= 1, several = r->g && asked != 1;
    if (!(one && fits_in_one_part(r, b, &s, i, f)) && !(several && find_parts(r, b, &s, i, near, f)))
      return NULL;
  }
  Plan *plan = plan_in_stages(r, b, &s);
  price_plan(r, plan, INFINITY);
  set_peaks(r, plan);
  return plan;
}

/* Stages with nearly equal work. */
static int *even_stages(const Planner *r, int64_t b, int n) {
  const Costs *c = spans_at(r, b)->c;
  int *start = alloc((size_t)(n + 1) * sizeof *start);
  double all = 0, sum = 0;
  for (int k = 0; k < c->n; k++)
    all += c->forward[k] + c->backward[k];
  for (int k = 0, i = 1; k < c->n && i < n; k++) {
    double own = c->forward[k] + c->backward[k];
    if (k >= i && (sum + own / 2 >= all * i / n || c->n - k == n - i))
      start[i++] = k;
    sum += own;
  }
  start[n] = c->n;
  return start;
}

static int *moved(const int *start, int n, int i, int by) {
  int *other = alloc_copy(start, (size_t)(n + 1) * sizeof *other);
  other[i] += by;
  return other[i] > other[i - 1] && other[i] < other[i + 1] ? other : NULL;
}

static bool is_shorter(const Plan *a, const Plan *b) { return a && (!b || a->batch_seconds < b->batch_seconds); }

/* Moves one start at a time from even stages, by half the distance each round. */
static Plan *best_stages(const Planner *r, int64_t b, int n, Found *f) {
  int tries = r->any_will_do ? 0 : MOST_SPILLED_TRIES, *start = even_stages(r, b, n);
  Plan *best = plan_of_stages(r, b, start, n, NULL, f);
  for (int step = r->subject.n / (2 * n); step > 0 && tries > 0; step /= 2)
    for (int k = 0; k < 2 * (n - 1) && tries > 0; k++) {
      int *other = moved(start, n, 1 + k / 2, k % 2 ? step : -step);
      Plan *plan = other ? plan_of_stages(r, b, other, n, best, f) : NULL;
      tries -= other != NULL;
      if (is_shorter(plan, best))
        best = plan, start = other;
    }
  return best;
}

static Plan *best_of(const Planner *r, int64_t b, Found *f) {
  const int n = r->form.n_stages;
  int *start = alloc((size_t)(n + 1) * sizeof *start);
  start[n] = r->subject.n;
  if (!r->pinned && !r->stage_starts && n > 1)
    return best_stages(r, b, n, f);
  for (int i = 0; i < n; i++)
    start[i] = r->pinned ? r->pinned[pipeline_part(&r->form, i, 0)] : r->stage_starts ? r->stage_starts[i] : 0;
  return plan_of_stages(r, b, start, n, NULL, f);
}

/* ---- reports ----------------------------------------------------------------------------------------------- */

static char *rates_text(const Planner *r, const SpillProblem *p, const SpillTime *time) {
  const char *home = bytes_text(time->home);
  if (p->both_ways && !knows_link(r))
    return format("%.0f GB/s in each direction, to %s of pinned host memory", 1e-9 / p->read, home);
  if (p->both_ways)
    return format("%.2f and %.2f GB/s at the same time, to %s of pinned host memory", 1e-9 / p->read,
                  1e-9 / p->write, home);
  return format("%.2f and %.2f GB/s%s", 1e-9 / p->read, 1e-9 / p->write,
                knows_place(r) ? "" : " (assumed; measure with 'pdc profile --spill DIR')");
}

/* The device or host that updates parameters; empty if only the device can. */
static const char *update_text(const Planner *r, const Plan *plan, double seconds) {
  if (!may_update_at_home(r))
    return "";
  const char *how = r->request->update != UPDATE_FREE || r->request->plan ? "as requested" : "which is faster";
  if (!plan->pipeline.at_home)
    return format(" The device updates, %s.", how);
  if (knows_host(r))
    return format(" The host updates, %s: %.1f ms of a batch at %.1f GB/s.", how, seconds * 1e3,
                  1e-9 / home_byte(r));
  return format(
      " The host updates, %s: %.1f ms of a batch at %.0f GB/s (assumed; measure with 'pdc profile --spill host').",
      how, seconds * 1e3, 1e-9 / home_byte(r));
}

/* Predicted batch time with twice the memory and the same starts of stages. */
static char *with_more(const Planner *r, const Plan *plan, SpillStage *s) {
  const int n = plan->pipeline.n_stages;
  SpillTime *twice = alloc((size_t)n * sizeof *twice);
  bool found = true;
  for (int i = 0; i < n && found; i++) {
    s[i].problem.limit = 2 * memory_of_rank(r) - r->memory.process;
    if (s[i].choice.parts > 1)
      found = (r->pinned ? spill_search_kept : spill_search)(&s[i].problem, &s[i].choice, &twice[i]);
  }
  if (!found)
    return "";
  double seconds = spill_pipeline_seconds(s, n, updates_meet(r, plan), twice);
  return format(" With %s of memory a batch would take %.1f ms.", bytes_text(2 * memory_of_rank(r)),
                seconds * 1e3);
}

/* The lower bound of a batch: the longest of computation, transfers and host updates. */
static char *bound(const Planner *r, const Plan *plan) {
  const int n = plan->pipeline.n_stages;
  SpillStage *s = spill_stages_of(r, plan);
  SpillTime *time = alloc((size_t)n * sizeof *time);
  const double seconds = spill_pipeline_seconds(s, n, updates_meet(r, plan), time);
  double least = 1e-12, host = 0;
  SpillTime all = {0};
  Text each = {0};
  for (int i = 0; i < n; i++) {
    all.home += time[i].home, all.read += time[i].read, all.written += time[i].written;
    least = fmax(least, fmax(time[i].compute, fmax(time[i].transfer, time[i].host)));
    host = fmax(host, time[i].host);
    text_add(&each, n == 1 ? "Computation takes %.1f ms of a batch, transfers %.1f ms" : "%.1f and %.1f ms",
             time[i].compute * 1e3, time[i].transfer * 1e3);
    if (i + 1 < n)
      text_add(&each, ", ");
  }
  return format(
      " %s%s: %s are read and %s written, at %s.%s Lower bound of a batch: the %s; this plan takes %.3f times the "
      "bound.%s",
      n > 1 ? "Computation and transfers by stage: " : "", each.at, bytes_text(all.read), bytes_text(all.written),
      rates_text(r, &s->problem, &all), update_text(r, plan, host),
      n > 1 || host > 0 ? "longest of these times" : "longer of both times", seconds / least,
      with_more(r, plan, s));
}

/* Resident share by stage. */
static char *shares_text(const Pipeline *p) {
  Text t = {0};
  for (int i = 0; i < p->n_stages; i++)
    text_add(&t, "%s%d", i ? ", " : "", p->kept[i]);
  return t.at;
}

static char *why(const Planner *r, const Plan *plan) {
  int parts = plan_parts(plan);
  if (parts == plan->pipeline.n_stages)
    return format("All parts fit into %s at microbatch %lld: everything is resident, without offload.",
                  bytes_text(memory_of_rank(r)), (long long)plan->pipeline.microbatch);
  return format("%s %d parts%s use %s of %s; %s %% of the block budget is resident. Microbatch %lld%s.%s",
                r->pinned ? "As requested," : "The fastest plan found by local search:", parts,
                plan->pipeline.n_stages > 1 ? format(" on %d ranks", plan->pipeline.n_stages) : "",
                bytes_text(largest_peak(plan) + r->memory.process), bytes_text(memory_of_rank(r)),
                shares_text(&plan->pipeline), (long long)plan->pipeline.microbatch,
                r->request->microbatch ? " as requested" : " is the fastest size found", bound(r, plan));
}

static void take_shorter(Found *f, Plan *plan) {
  if (is_shorter(plan, f->best))
    f->best = plan;
}

/* Searches all microbatches, with updates as f->at_home says. Then searches the best microbatch thoroughly, or the
 * smallest one if nothing fits. */
static void look(const Planner *r, Found *f) {
  const int n = r->microbatches.n;
  Found found = {.miss = f->miss, .at_home = f->at_home, .thorough = n == 1};
  for (int i = n - 1; i >= 0; i--)
    take_shorter(&found, best_of(r, r->microbatches.at[i], &found));
  if (n > 1 && !(found.best && r->any_will_do)) {
    found.thorough = true;
    take_shorter(&found, best_of(r, found.best ? found.best->pipeline.microbatch : r->microbatches.at[0], &found));
  }
  f->miss = found.miss;
  take_shorter(f, found.best);
}

/* Searches device updates first, so that they win ties. */
Plan *plan_spilled(const Planner *r, NoPlan *none) {
  Found f = {0};
  if (r->request->update != UPDATE_HOST)
    look(r, &f);
  f.at_home = true;
  const bool enough = f.best && (r->any_will_do || f.best->pipeline.chunks == 1);
  if (r->request->update != UPDATE_DEVICE && may_update_at_home(r) && !enough)
    look(r, &f);
  if (f.best)
    f.best->why = why(r, f.best);
  *none = (NoPlan){.no_microbatch = r->microbatches.n == 0, .miss = f.miss};
  return f.best;
}
