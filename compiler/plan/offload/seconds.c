/* Converts a plan with offload to a problem over plain numbers, and predicts the seconds of its batch. */
#include <math.h>

#include "ops/op.h"
#include "optimizers/optimizer.h"
#include "plan/offload/offload.h"

/* Defaults without a profile, in seconds per byte. ASSUMED: files at 1 GB/s, which laptop disks reach.
 * ASSUMED_AT_HOME: host updates at 50 GB/s, a rank's share with eight ranks on two sockets with eight channels
 * DDR4-3200 (205 GB/s a socket). */
static const double ASSUMED = 1e-9, ASSUMED_AT_HOME = 1 / 50e9;

int64_t spill_page(const Planner *r) { return backend_of(&r->target)->device->page; }

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

/* Whether the profile measured the link to the host on the planned device. */
bool knows_link(const Planner *r) { return r->profile && r->profile->to_device > 0 && !r->profile->device; }
bool knows_place(const Planner *r) { return r->profile && r->profile->read > 0; }
bool knows_host(const Planner *r) { return knows_link(r) && r->profile->at_home > 0; }

double home_byte(const Planner *r) { return knows_host(r) ? r->profile->at_home : ASSUMED_AT_HOME; }

static SpillParam param_of(const Planner *r, int i, const Ints *readers, const int *piece) {
  const Param *p = &r->g->params.at[i];
  Held held = parameter_held(r, r->rates, i);
  Ints uses = uses_of_param(p, piece);
  bool masters = r->target.precision == PRECISION_BF16 && held.weights < held.masters;
  const double at_home = home_byte(r);
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

/* With device memory, all transfers use the link to the host, in both directions at once. A file adds its own
 * limit. */
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
                          .limit = r->memory.arena,
                          .page = spill_page(r),
                          .at_home = at_home};
  set_rates(r, &problem);
  return problem;
}

/* The pieces within a stage, relative to its first. */
static Ints pieces_within(const int *piece, int n, int first, int end) {
  Ints within = {0};
  for (int i = 0; i < n; i++)
    if (piece[i] >= first && piece[i] < end)
      push(&within, piece[i] - first);
  return within;
}

/* The problem of one stage. Each stage that uses a parameter has its own copy. */
SpillProblem problem_of_stage(const Planner *r, int64_t b, int first, int end, bool at_home) {
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

SpillChoice choice_of(const Plan *plan, int stage) {
  SpillChoice c = {.parts = pipeline_chunks(&plan->pipeline, stage), .kept = plan->pipeline.kept[stage]};
  const int first = plan_part_of(plan, stage, 0), base = plan->stage[first].first_piece;
  for (int i = 0; i < c.parts; i++) {
    const StagePlan *part = &plan->stage[first + i];
    c.start[i] = part->first_piece - base, c.start[i + 1] = part->end_piece - base;
    c.keeps[i] = !plan_recomputes(plan, first + i);
  }
  return c;
}

/* Bytes of a rank that the problem does not count, from a layout with the smallest possible memory. */
int64_t bytes_beside(const Planner *r, const Plan *plan, int stage, const SpillProblem *p, const SpillChoice *c) {
  SpillProblem least = *p;
  Plan tight = *plan;
  least.limit = least.beside = 0;
  tight.pipeline.memory = 1;
  int64_t known = spill_time(&least, c).least;
  return r->request->peak ? r->request->peak(r->request->peak_context, &tight, stage) - known : 0;
}

/* ---- times ------------------------------------------------------------------------------------------------ */

bool updates_meet(const Planner *r, const Plan *plan) {
  const bool *exchanges = r->subject.exchanges(r, plan);
  bool any = false;
  for (int i = 0; i < plan->pipeline.n_stages; i++)
    any |= exchanges[i];
  return any;
}

/* Uses the plan's memory limit, or the smallest sufficient one. */
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

SpillStage *spill_stages_of(const Planner *r, const Plan *plan) {
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
  const double seconds = spill_pipeline_seconds(spill_stages_of(r, plan), n, updates_meet(r, plan), time);
  for (int i = 0; i < n; i++)
    for (int k = 0; k < pipeline_chunks(&plan->pipeline, i) && time[i].host > 0; k++)
      plan->stage[plan_part_of(plan, i, k)].update_seconds = k ? 0 : time[i].host;
  return seconds;
}
