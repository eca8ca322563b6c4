/* A model on one rank in parts that come and go: for each size of microbatch the parts, and the memory for what stays, whose
 * simulated batch is shortest (spill_search.c); of these the fastest. How much memory passes work in is only estimated, and
 * set right by laying out what was found. */
#include <math.h>
#include <string.h>

#include "ops/op.h"
#include "plan/candidate.h"
#include "plan/spilling.h"

/* Seconds of a byte where no profile says it: a gigabyte a second, which disks of laptops reach. */
static const double ASSUMED = 1e-9;

static int64_t page_of(const Planner *r) { return backend_of(&r->target)->device->page; }

/* Into pinned memory of the device's host: that is where a GPU spills unless a directory is named. */
bool spills_to_host(const Planner *r) {
  return r->rates->host > 0 && (!r->request->spill || !strcmp(r->request->spill, "host"));
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

static SpillParam param_of(const Planner *r, int i, const Ints *readers, const int *piece) {
  const Param *p = &r->g->params.at[i];
  Held held = parameter_held(r, r->rates, i);
  Ints uses = uses_of_param(p, piece);
  bool masters = r->target.precision == PRECISION_BF16 && held.weights < held.masters;
  return (SpillParam){.frozen = p->frozen,
                      .elements = shape_elements(&p->shape),
                      .weights = held.weights + held.frozen,
                      .gradient = held.masters,
                      .state = held.moments + (masters ? held.masters : 0),
                      .update = held.update,
                      .n_readers = readers->n,
                      .reader = readers->at,
                      .n_uses = uses.n,
                      .use = uses.at};
}

/* Whether the profile has what the link to the host takes, of the device that is planned for. */
static bool knows_link(const Planner *r) { return r->profile && r->profile->to_device > 0 && !r->profile->device; }
static bool knows_place(const Planner *r) { return r->profile && r->profile->read > 0; }

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

static SpillProblem problem_of(const Planner *r, int64_t b) {
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
                          .page = page_of(r)};
  set_rates(r, &problem);
  return problem;
}

/* ---- plans ------------------------------------------------------------------------------------------------ */

/* What is between two parts is in memory for two microbatches, whatever the batch. */
static void set_between(Copies *c, int parts) {
  for (int i = 0; i < parts; i++) {
    c[i].received = i > 0 ? 2 : 1;
    c[i].sent = 1;
    c[i].gradients = 2;
  }
}

static Plan *plan_in_parts(const Planner *r, int64_t b, const SpillChoice *choice) {
  Pipeline *form = alloc(sizeof *form);
  *form = form_make(r, 1, NULL);
  form->chunks = choice->parts;
  form->memory = choice->parts > 1 ? r->limit : 0;
  form->kept = choice->parts > 1 ? choice->kept : 0;
  form->keeps = 0;
  for (int i = 0; i < choice->parts && choice->parts > 1; i++)
    form->keeps |= (uint64_t)!spill_reruns(choice, i) << i;
  form->page = page_of(r);
  Candidate c = candidate_of(r, form, &(Placement){0}, b, spans_at(r, b),
                             choice->parts > 1 ? RECOMPUTE_ON : RECOMPUTE_OFF, choice->start, 0);
  Partition part;
  set_between(c.copies, choice->parts);
  partition_pinned(c.spans, c.copies, choice->parts, choice->start, INT64_MAX, &part);
  for (int i = 0; i < choice->parts; i++)
    part.recompute[i] = spill_reruns(choice, i);
  Plan *plan = plan_of(r, &c, &part, INFINITY);
  find_peaks(r, plan, alloc(sizeof(int64_t)));
  return plan;
}

static SpillChoice choice_of(const Plan *plan) {
  SpillChoice c = {.parts = plan_parts(plan), .kept = plan->pipeline.kept};
  for (int i = 0; i < c.parts; i++)
    c.start[i] = plan->stage[i].first_piece, c.start[i + 1] = plan->stage[i].end_piece,
    c.keeps[i] = pipeline_keeps(&plan->pipeline, i);
  return c;
}

/* What a rank takes beside what the problem knows of: from laying it out with as little memory as works. */
static int64_t bytes_beside(const Planner *r, const Plan *plan, const SpillProblem *p, const SpillChoice *c) {
  SpillProblem least = *p;
  Plan tight = *plan;
  least.limit = least.beside = 0;
  tight.pipeline.memory = 1;
  int64_t known = spill_time(&least, c).least;
  return r->request->peak ? r->request->peak(r->request->peak_context, &tight, 0) - known : 0;
}

static SpillTime time_of(const Planner *r, const Plan *plan, SpillProblem *p) {
  SpillChoice c = choice_of(plan);
  *p = problem_of(r, plan->pipeline.microbatch);
  p->limit = plan->pipeline.memory;
  p->beside = bytes_beside(r, plan, p, &c);
  SpillTime time = spill_time(p, &c);
  if (!isinf(time.seconds) || time.least <= p->limit)
    return time;
  p->limit = time.least; /* it will have what it needs */
  return spill_time(p, &c);
}

double spilled_seconds(const Planner *r, const Plan *plan) {
  SpillProblem p;
  return time_of(r, plan, &p).seconds;
}

/* ---- the search ------------------------------------------------------------------------------------------- */

typedef struct Found {
  Plan *best;
  const Plan *miss; /* the smallest that was laid out and does not fit */
} Found;

static bool fits(const Planner *r, const Plan *plan, Found *f) {
  if (largest_peak(plan) <= r->limit)
    return true;
  if (!f->miss || largest_peak(plan) < largest_peak(f->miss))
    f->miss = plan;
  return false;
}

static SpillChoice choice_pinned(const Planner *r, int parts, const int *start) {
  SpillChoice c = {.parts = parts};
  for (int i = 0; i < parts; i++)
    c.start[i] = start ? start[i] : 0;
  c.start[parts] = r->subject.n;
  return c;
}

/* Of microbatches of b samples. NULL: nothing was found that fits. */
static Plan *fastest_parts(const Planner *r, int64_t b, Found *f) {
  enum { ROUNDS = 5 };
  SpillProblem p = problem_of(r, b);
  for (int round = 0; round < ROUNDS; round++) {
    SpillChoice c;
    SpillTime time;
    bool found;
    if (r->pinned) {
      c = choice_pinned(r, r->form.chunks, r->pinned);
      found = spill_search_kept(&p, &c, &time);
    } else {
      found = spill_search(&p, &c, &time);
    }
    if (c.parts < 2) /* a model of one piece */
      return NULL;
    Plan *plan = plan_in_parts(r, b, &c);
    int64_t beside = bytes_beside(r, plan, &p, &c);
    if (fits(r, plan, f))
      return plan;
    if (!found && beside >= p.beside)
      return NULL;
    p.beside = beside;
  }
  return NULL;
}

static Plan *best_of(const Planner *r, int64_t b, Found *f) {
  SpillChoice whole = choice_pinned(r, 1, NULL);
  if (!r->pinned) {
    Plan *plan = plan_in_parts(r, b, &whole);
    if (fits(r, plan, f))
      return plan;
  }
  return r->pinned && r->form.chunks == 1 ? NULL : fastest_parts(r, b, f);
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

/* The longer of computing and moving, and what a batch would take with twice the memory. */
static char *bound(const Planner *r, const Plan *plan) {
  SpillProblem p;
  SpillTime time = time_of(r, plan, &p), twice;
  SpillChoice c = choice_of(plan);
  p.limit = 2 * (r->limit + r->process) - r->process;
  bool found = r->pinned ? spill_search_kept(&p, &c, &twice) : spill_search(&p, &c, &twice);
  char *more =
      found ? format(" With %s it would be %.1f ms.", bytes_text(2 * (r->limit + r->process)), twice.seconds * 1e3)
            : "";
  return format(
      " Computing takes %.1f ms of a batch, moving %.1f ms: %s are read and %s written, at %s. No batch is "
      "shorter than the longer of both, and this one takes %.3f of it.%s",
      time.compute * 1e3, time.transfer * 1e3, bytes_text(time.read), bytes_text(time.written),
      rates_text(r, &p, &time), time.seconds / fmax(fmax(time.compute, time.transfer), 1e-12), more);
}

static char *why(const Planner *r, const Plan *plan) {
  int parts = plan_parts(plan);
  if (parts == 1)
    return format("Everything fits %s at microbatch %lld: nothing has to come and go.",
                  bytes_text(r->limit + r->process), (long long)plan->pipeline.microbatch);
  return format("%s %d parts in %s of %s; %d %% of what blocks have is for those that stay. Microbatch %lld%s.%s",
                r->pinned ? "The asked for" : "The fastest found:", parts,
                bytes_text(largest_peak(plan) + r->process), bytes_text(r->limit + r->process),
                plan->pipeline.kept, (long long)plan->pipeline.microbatch,
                r->request->microbatch ? " as asked" : " gives the shortest batch that fits", bound(r, plan));
}

Plan *plan_spilled(const Planner *r, NoPlan *none) {
  Found f = {0};
  for (int i = r->microbatches.n - 1; i >= 0; i--) {
    Plan *plan = best_of(r, r->microbatches.at[i], &f);
    if (plan && (!f.best || plan->batch_seconds < f.best->batch_seconds))
      f.best = plan;
  }
  if (f.best)
    f.best->why = why(r, f.best);
  *none = (NoPlan){.no_microbatch = r->microbatches.n == 0, .miss = f.miss};
  return f.best;
}
