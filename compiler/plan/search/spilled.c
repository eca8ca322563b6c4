/* A model whose parts come and go, on one rank or as stages on several: for each size of microbatch the parts of each stage, and
 * the memory for what stays, whose simulated batch is shortest (spill_search.c); of these the fastest. Where stages start is
 * changed step by step, from even shares of the work, for as long as the batch gets shorter. How much memory passes work in
 * is only estimated, and set right by laying out what was found. A stage that fits its rank is one part of it. */
#include <math.h>
#include <string.h>

#include "ops/op.h"
#include "optimizers/optimizer.h"
#include "plan/search/candidate.h"
#include "plan/offload/spilling.h"

enum { MOST_TRIES = 16 }; /* of where stages start, for a size of microbatch */

/* Seconds of a byte where no profile says it. Of a file: a gigabyte a second, which disks of laptops reach. Of what the host of a
 * GPU reads and writes in an update: 50 gigabytes a second, the share of a rank where eight have two sockets with eight channels
 * of DDR4-3200 each, 205 GB/s a socket. */
static const double ASSUMED = 1e-9, ASSUMED_AT_HOME = 1 / 50e9;

static int64_t page_of(const Planner *r) { return backend_of(&r->target)->device->page; }

/* Into pinned memory of the device's host: that is where a GPU spills unless a directory is named. */
bool spills_to_host(const Planner *r) {
  return r->rates->host > 0 && (!r->request->spill || !strcmp(r->request->spill, "host"));
}

/* Whether the host may update parameters where they are at home. */
static bool may_update_at_home(const Planner *r) {
  return spills_to_host(r) && r->g && !update_rule(&r->g->train)->whole_tensors;
}

/* Plans come with what they need, or say why they cannot be. */
bool check_update(const Planner *r) {
  const bool asked = r->request->update == UPDATE_HOST || r->form.at_home;
  Diagnostic *d = NULL;
  if (r->request->update != UPDATE_FREE && !r->traits.spills) {
    d = error_at(r->schedule_span, "PD0714", "--update: under '%s' parameters stay where they are updated",
                 r->form.schedule);
    help(d, "leave it out, or '--schedule spilled'");
  } else if (r->request->update != UPDATE_FREE && r->rates->host <= 0) {
    d = error_at(NO_SPAN, "PD0714",
                 "--update: the target's ranks are processors, which update in their own memory");
    help(d, "leave it out, or '--target cuda'");
  } else if (asked && !spills_to_host(r)) {
    d = error_at(NO_SPAN, "PD0714", "parameters are not updated on the host where %s",
                 r->rates->host > 0 ? "a file has them, as '--spill' says" : "its memory is the ranks' own");
    help(d, "'--spill host', or '--update device'");
  } else if (asked && !may_update_at_home(r)) {
    d = error_at(NO_SPAN, "PD0714", "'%s' looks at whole parameters, and is not made on the host",
                 update_rule(&r->g->train)->name);
    help(d, "'--update device', or an optimizer that goes by elements, such as 'adamw'");
  }
  return !d;
}

/* ---- the problem ------------------------------------------------------------------------------------------ */

static Ints *readers_of_params(const Planner *r) {
  Ints *readers = alloc((size_t)(r->g->params.n + 1) * sizeof *readers);
  for (int k = 0; k < r->p->n; k++)
    for (int m = 0; m < r->p->at[k].params.n; m++)
      push(&readers[r->p->at[k].params.at[m]], k);
  return readers;
}

static Ints uses_of_param(const Param *p, const int *piece) {
  Ints uses = {0};
  for (int k = 0; k < p->uses.n && k < p->gradients.n; k++)
    if (p->gradients.at[k] >= 0)
      push(&uses, piece[p->uses.at[k]]);
  return uses;
}

/* Whether the profile has what the link to the host takes, of the device that is planned for. */
static bool knows_link(const Planner *r) { return r->profile && r->profile->to_device > 0 && !r->profile->device; }
static bool knows_place(const Planner *r) { return r->profile && r->profile->read > 0; }
static bool knows_host(const Planner *r) { return knows_link(r) && r->profile->at_home > 0; }

static SpillParam param_of(const Planner *r, int i, const Ints *readers, const int *piece) {
  const Param *p = &r->g->params.at[i];
  Held held = parameter_held(r, r->rates, i);
  Ints uses = uses_of_param(p, piece);
  bool masters = r->target.precision == PRECISION_BF16 && held.weights < held.masters;
  const double at_home = knows_host(r) ? r->profile->at_home : ASSUMED_AT_HOME;
  const int64_t updated = update_rule(&r->g->train)->traffic * held.masters + 2 * held.moments;
  return (SpillParam){.frozen = p->frozen,
                      .elements = shape_elements(&p->shape),
                      .weights = held.weights + held.frozen,
                      .gradient = held.masters,
                      .state = held.moments + (masters ? held.masters : 0),
                      .update = held.update,
                      .square_at_home = at_home * (double)((uses.n + (uses.n > 1)) * held.masters),
                      .update_at_home = at_home * (double)(updated + (masters ? held.weights : 0)),
                      .n_readers = readers->n,
                      .reader = readers->at,
                      .n_uses = uses.n,
                      .use = uses.at};
}

/* Where the device has memory of its own, all that moves crosses the link to its host's, each way beside the other; from and
 * to a file it takes what the file takes. */
static void set_rates(const Planner *r, SpillProblem *p) {
  const double sheet = r->rates->host > 0 ? 1 / r->rates->host : 0;
  const bool link = knows_link(r), place = knows_place(r);
  p->both_ways = spills_to_host(r);
  p->read = link ? r->profile->to_device : sheet;
  p->write = link ? r->profile->from_device : sheet;
  if (p->both_ways)
    return;
  p->read = fmax(p->read, place ? r->profile->read : ASSUMED);
  p->write = fmax(p->write, place ? r->profile->write : ASSUMED);
}

static SpillProblem problem_of(const Planner *r, int64_t b, bool at_home) {
  const Costs *c = spans_at(r, b)->c;
  const int *piece = piece_of_nodes(r->g, r->p);
  const Ints *readers = readers_of_params(r);
  SpillParam *param = alloc((size_t)(r->g->params.n + 1) * sizeof *param);
  for (int i = 0; i < r->g->params.n; i++)
    param[i] = param_of(r, i, &readers[i], piece);
  SpillProblem problem = {.n = c->n,
                          .forward = c->forward,
                          .backward = c->backward,
                          .receive = c->receive,
                          .receive_gradient = c->receive_gradient,
                          .saved = c->saved,
                          .inputs = c->inputs,
                          .work = c->work,
                          .activations = c->activations,
                          .returned = c->activation_gradients,
                          .param = param,
                          .n_params = r->g->params.n,
                          .keeping = r->request->recompute == RECOMPUTE_ON    ? KEEP_NONE
                                     : r->request->recompute == RECOMPUTE_OFF ? KEEP_ALL
                                                                              : KEEP_FREE,
                          .microbatches = r->subject.batch / b,
                          .limit = r->limit,
                          .page = page_of(r),
                          .at_home = at_home};
  set_rates(r, &problem);
  return problem;
}

/* Those of a list that are in a stage, counted from its first. */
static Ints pieces_within(const int *piece, int n, int first, int end) {
  Ints within = {0};
  for (int i = 0; i < n; i++)
    if (piece[i] >= first && piece[i] < end)
      push(&within, piece[i] - first);
  return within;
}

/* Of the pieces of a stage alone. Where others use a parameter, too, they have their own copy of it. */
static SpillProblem problem_of_stage(const Planner *r, int64_t b, int first, int end, bool at_home) {
  SpillProblem p = problem_of(r, b, at_home);
  SpillParam *param = alloc((size_t)(p.n_params + 1) * sizeof *param);
  int n = 0;
  if (first == 0 && end == p.n)
    return p;
  for (int i = 0; i < p.n_params; i++) {
    SpillParam own = p.param[i];
    Ints readers = pieces_within(own.reader, own.n_readers, first, end),
         uses = pieces_within(own.use, own.n_uses, first, end);
    own.shared = readers.n < own.n_readers;
    own.reader = readers.at, own.n_readers = readers.n;
    own.use = uses.at, own.n_uses = uses.n;
    if (readers.n)
      param[n++] = own;
  }
  p.hands_on = end < p.n;
  p.n = end - first;
  p.param = param, p.n_params = n;
  p.forward += first, p.backward += first;
  p.receive += first, p.receive_gradient += first;
  p.saved += first, p.inputs += first, p.work += first;
  p.activations += first, p.returned += first;
  return p;
}

/* ---- plans ------------------------------------------------------------------------------------------------ */

/* Stages, and the parts of each. */
typedef struct Stages {
  int n;
  const int *start; /* by stage, and one more: its first piece */
  SpillChoice *choice;
  bool at_home; /* of those in several parts */
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
  form.memory = most > 1 ? r->limit : 0;
  form.page = page_of(r);
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

static SpillChoice choice_of(const Plan *plan, int stage) {
  SpillChoice c = {.parts = pipeline_chunks(&plan->pipeline, stage), .kept = plan->pipeline.kept[stage]};
  const int first = plan_part_of(plan, stage, 0), base = plan->stage[first].first_piece;
  for (int i = 0; i < c.parts; i++) {
    const StagePlan *part = &plan->stage[first + i];
    c.start[i] = part->first_piece - base, c.start[i + 1] = part->end_piece - base;
    c.keeps[i] = !plan_recomputes(plan, first + i);
  }
  return c;
}

/* Bytes in memory of a stage's rank, from laying it out, where somebody does, else estimated. */
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

/* What a rank takes beside what the problem knows of: from laying it out with as little memory as works. */
static int64_t bytes_beside(const Planner *r, const Plan *plan, int stage, const SpillProblem *p,
                            const SpillChoice *c) {
  SpillProblem least = *p;
  Plan tight = *plan;
  least.limit = least.beside = 0;
  tight.pipeline.memory = 1;
  int64_t known = spill_time(&least, c).least;
  return r->request->peak ? peak_of(r, &tight, stage) - known : 0;
}

/* ---- times ------------------------------------------------------------------------------------------------ */

static bool updates_meet(const Planner *r, const Plan *plan) {
  const bool *exchanges = r->subject.exchanges(r, plan);
  bool any = false;
  for (int i = 0; i < plan->pipeline.n_stages; i++)
    any |= exchanges[i];
  return any;
}

/* With the plan's memory, or as much as works. */
static void set_stage(const Planner *r, const Plan *plan, const Program *programs, int i, SpillStage *s) {
  const Pipeline *l = &plan->pipeline;
  const int first = plan_part_of(plan, i, 0), parts = pipeline_chunks(l, i);
  const StagePlan *last = &plan->stage[first + parts - 1];
  *s = (SpillStage){.choice = choice_of(plan, i), .in_flight = programs[i].in_flight, .send = last->send_seconds};
  s->problem = problem_of_stage(r, l->microbatch, plan->stage[first].first_piece, last->end_piece, l->at_home);
  s->problem.limit = l->memory;
  if (parts == 1)
    return;
  s->problem.beside = bytes_beside(r, plan, i, &s->problem, &s->choice);
  SpillTime time = spill_time(&s->problem, &s->choice);
  if (isinf(time.seconds) && time.least > l->memory)
    s->problem.limit = time.least;
}

static SpillStage *stages_of(const Planner *r, const Plan *plan) {
  const int n = plan->pipeline.n_stages;
  SpillStage *s = alloc((size_t)n * sizeof *s);
  const Program *programs = planned_programs(r, &plan->pipeline, r->subject.exchanges(r, plan));
  for (int i = 0; i < n; i++)
    set_stage(r, plan, programs, i, &s[i]);
  return s;
}

double spilled_seconds(const Planner *r, Plan *plan) {
  const int n = plan->pipeline.n_stages;
  SpillTime *time = alloc((size_t)n * sizeof *time);
  const double seconds = spill_pipeline_seconds(stages_of(r, plan), n, updates_meet(r, plan), time);
  for (int i = 0; i < n; i++)
    for (int k = 0; k < pipeline_chunks(&plan->pipeline, i) && time[i].host > 0; k++)
      plan->stage[plan_part_of(plan, i, k)].update_seconds = k ? 0 : time[i].host;
  return seconds;
}

/* ---- the search ------------------------------------------------------------------------------------------- */

typedef struct Found {
  Plan *best;
  const Plan *miss; /* the smallest that was laid out and does not fit */
  bool at_home;     /* what is looked for: parameters are updated there; ... */
  bool thorough;    /* ... all that is promising is followed to the end */
} Found;

/* Whether the stage does. */
static bool fits(const Planner *r, Plan *plan, int stage, Found *f) {
  if (peak_of(r, plan, stage) <= r->limit)
    return true;
  set_peaks(r, plan);
  if (!f->miss || largest_peak(plan) < largest_peak(f->miss))
    f->miss = plan;
  return false;
}

/* Keeping what it saves, or, where microbatches wait for their gradients, recomputing. */
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

/* Parts as --split or the plan say. */
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

/* Parts, near those of `c` or of all; or where they are given what is kept. */
static bool search(const Planner *r, const SpillProblem *p, bool near, SpillChoice *c, SpillTime *time) {
  if (r->pinned)
    return spill_search_kept(p, c, time);
  return (near && c->parts > 1 && spill_search_near(p, c, time)) || spill_search(p, c, time);
}

/* The parts of a plan's stage whose start or end is another now. */
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

/* Of a stage, where those behind it are settled. The second round is the first that knows what the rank takes beside its
 * blocks, so that it looks at all again, but for what is near another plan. False: nothing was found that fits. */
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
    if (c.parts < 2 || parts_of(s) > PD_MAX_PARTS) /* one piece; too many */
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

/* Of stages that start there, in parts near those of a plan whose stages start elsewhere; NULL: that is open. NULL: one does
 * not fit. */
static Plan *plan_of_stages(const Planner *r, int64_t b, const int *start, int n, const Plan *near, Found *f) {
  Stages s = {.n = n, .start = start, .choice = alloc((size_t)n * sizeof(SpillChoice)), .at_home = f->at_home};
  for (int i = 0; i < n; i++) /* until it is that stage's turn */
    s.choice[i] = (SpillChoice){.parts = 1, .start = {0, start[i + 1] - start[i]}, .keeps = {true}};
  for (int i = n - 1; i >= 0; i--) {
    const int asked = r->pinned ? pipeline_chunks(&r->form, i) : 0; /* parts; 0: as many as are best */
    const bool one = asked <= 1, several = r->g && asked != 1;
    if (!(one && fits_in_one_part(r, b, &s, i, f)) && !(several && find_parts(r, b, &s, i, near, f)))
      return NULL;
  }
  Plan *plan = plan_in_stages(r, b, &s);
  price_plan(r, plan, INFINITY);
  set_peaks(r, plan);
  return plan;
}

/* Stages of about as much work each. */
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

/* From even stages on: one start is moved at a time, by fewer pieces each round. */
static Plan *best_stages(const Planner *r, int64_t b, int n, Found *f) {
  int tries = r->any_will_do ? 0 : MOST_TRIES, *start = even_stages(r, b, n);
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

/* ---- what is said ----------------------------------------------------------------------------------------- */

static char *rates_text(const Planner *r, const SpillProblem *p, const SpillTime *time) {
  const char *home = bytes_text(time->home);
  if (p->both_ways && !knows_link(r))
    return format("%.0f GB/s each way, to %s of the host's memory, which is pinned", 1e-9 / p->read, home);
  if (p->both_ways)
    return format("%.2f and %.2f GB/s, both at once, to %s of the host's memory, which is pinned", 1e-9 / p->read,
                  1e-9 / p->write, home);
  return format("%.2f and %.2f GB/s%s", 1e-9 / p->read, 1e-9 / p->write,
                knows_place(r) ? "" : ", assumed: 'pdc profile --spill DIR' measures");
}

/* Where parameters are updated, if that may be either. */
static const char *update_text(const Planner *r, const Plan *plan, double seconds) {
  if (!may_update_at_home(r))
    return "";
  const char *how = r->request->update != UPDATE_FREE || r->request->plan ? "as asked" : "which is faster";
  if (!plan->pipeline.at_home)
    return format(" The device updates, %s.", how);
  if (knows_host(r))
    return format(" The host updates, %s: %.1f ms of a batch at %.1f GB/s.", how, seconds * 1e3,
                  1e-9 / r->profile->at_home);
  return format(
      " The host updates, %s: %.1f ms of a batch at %.0f GB/s, assumed: 'pdc profile --spill host' measures.", how,
      seconds * 1e3, 1e-9 / ASSUMED_AT_HOME);
}

/* What a batch would take with twice the memory, and stages that start where they do. */
static char *with_more(const Planner *r, const Plan *plan, SpillStage *s) {
  const int n = plan->pipeline.n_stages;
  SpillTime *twice = alloc((size_t)n * sizeof *twice);
  bool found = true;
  for (int i = 0; i < n && found; i++) {
    s[i].problem.limit = 2 * (r->limit + r->process) - r->process;
    if (s[i].choice.parts > 1)
      found = (r->pinned ? spill_search_kept : spill_search)(&s[i].problem, &s[i].choice, &twice[i]);
  }
  if (!found)
    return "";
  double seconds = spill_pipeline_seconds(s, n, updates_meet(r, plan), twice);
  return format(" With %s it would be %.1f ms.", bytes_text(2 * (r->limit + r->process)), seconds * 1e3);
}

/* The longer of computing and moving, and of what the host takes to update. */
static char *bound(const Planner *r, const Plan *plan) {
  const int n = plan->pipeline.n_stages;
  SpillStage *s = stages_of(r, plan);
  SpillTime *time = alloc((size_t)n * sizeof *time);
  const double seconds = spill_pipeline_seconds(s, n, updates_meet(r, plan), time);
  double least = 1e-12, host = 0;
  SpillTime all = {0};
  Text each = {0};
  for (int i = 0; i < n; i++) {
    all.home += time[i].home, all.read += time[i].read, all.written += time[i].written;
    least = fmax(least, fmax(time[i].compute, fmax(time[i].transfer, time[i].host)));
    host = fmax(host, time[i].host);
    text_add(&each, n == 1 ? "Computing takes %.1f ms of a batch, moving %.1f ms" : "%.1f and %.1f ms",
             time[i].compute * 1e3, time[i].transfer * 1e3);
    if (i + 1 < n)
      text_add(&each, ", ");
  }
  return format(
      " %s%s: %s are read and %s written, at %s.%s No batch is shorter than the %s, and this one takes %.3f of "
      "it.%s",
      n > 1 ? "Computing and moving take, stage by stage, " : "", each.at, bytes_text(all.read),
      bytes_text(all.written), rates_text(r, &s->problem, &all), update_text(r, plan, host),
      n > 1 || host > 0 ? "longest of these" : "longer of both", seconds / least, with_more(r, plan, s));
}

/* By stage. */
static char *shares_text(const Pipeline *p) {
  Text t = {0};
  for (int i = 0; i < p->n_stages; i++)
    text_add(&t, "%s%d", i ? ", " : "", p->kept[i]);
  return t.at;
}

static char *why(const Planner *r, const Plan *plan) {
  int parts = plan_parts(plan);
  if (parts == plan->pipeline.n_stages)
    return format("Everything fits %s at microbatch %lld: nothing has to come and go.",
                  bytes_text(r->limit + r->process), (long long)plan->pipeline.microbatch);
  return format(
      "%s %d parts%s in %s of %s; %s %% of what blocks have is for those that stay. Microbatch %lld%s.%s",
      r->pinned ? "The asked for" : "The fastest found:", parts,
      plan->pipeline.n_stages > 1 ? format(" on %d ranks", plan->pipeline.n_stages) : "",
      bytes_text(largest_peak(plan) + r->process), bytes_text(r->limit + r->process), shares_text(&plan->pipeline),
      (long long)plan->pipeline.microbatch,
      r->request->microbatch ? " as asked" : " gives the shortest batch that fits", bound(r, plan));
}

static void take_shorter(Found *f, Plan *plan) {
  if (is_shorter(plan, f->best))
    f->best = plan;
}

/* Of all microbatches, with parameters updated where f->at_home says: quickly, then thoroughly of the best, or, where
 * nothing fits, of the smallest. */
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

/* On the device first: where both ways take as long, it is that one's. */
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
