/* What pieces and stages cost: seconds from a profile or from counting. */
#include <math.h>

#include "ops/op.h"
#include "optimizers/optimizer.h"
#include "plan/planner.h"

/* Whatever the microbatch: a product reads its weights, adds to its weights' gradients. */
static double weight_traffic(const Graph *g, const Node *n, const OpCost *c, const Rates *rates) {
  double bytes = 0;
  for (int i = 0; i < n->n_in && c->matmul_flops > 0; i++)
    if (!g->values.at[n->in[i]].shape.batched)
      bytes += 4 * (double)shape_elements(&g->values.at[n->in[i]].shape);
  for (int i = 0; i < n->n_out && c->matmul_flops > 0; i++)
    if (!g->values.at[n->out[i]].shape.batched)
      bytes += 8 * (double)shape_elements(&g->values.at[n->out[i]].shape);
  return bytes / rates->stream;
}

double counted_seconds(const Graph *g, int node, int64_t b, const Rates *rates) {
  const Node *n = &g->nodes.at[node];
  if (n->op->kind == OP_SOURCE || n->op->kind == OP_VIEW || !n->op->cost)
    return 0;
  OpCost c = n->op->cost(g, node);
  bool call = n->op->kind == OP_CALL;
  double samples = (double)b;
  double t = c.matmul_flops / rates->product + c.other_flops / (call ? rates->inside : rates->pointwise);
  if (call && c.matmul_flops == 0)
    t = c.bytes / rates->copy;
  return (call ? rates->call : rates->loop) + t * samples / rates->threads + weight_traffic(g, n, &c, rates);
}

/* Seconds of an update as measured: its rule over elements, and where gradients are clipped their squares. */
static double measured_update(const Planner *r, const ParameterTables *t, size_t stage) {
  double elements = (double)t->held[stage] / 4;
  return elements * (r->profile->update + (r->g->train.clip_norm > 0 ? r->profile->norm : 0));
}

/* An update of a stage's parameters reads and writes the moments, and goes over as many bytes as the parameters have
 * as often as its rule says; clipping reads the gradient once more. Its products are like a node's. */
static double update_seconds(const Graph *g, const ParameterTables *t, size_t stage, const Rates *rates) {
  int traffic = update_rule(&g->train)->traffic + (g->train.clip_norm > 0);
  double bytes = (double)t->held[stage] * traffic + 2 * (double)t->moments[stage];
  return bytes / rates->stream + t->products[stage] / rates->product / rates->threads;
}

int *piece_of_nodes(const Graph *g, const Pieces *p) {
  int *piece = alloc((size_t)(g->nodes.n + 1) * sizeof *piece);
  for (int k = 0; k < p->n; k++)
    for (int i = p->at[k].first; i < p->at[k].end; i++)
      piece[i] = k;
  for (int i = g->n_forward; i < g->nodes.n; i++)
    piece[i] = piece[g->nodes.at[i].serves];
  return piece;
}

/* ---- all together -------------------------------------------------------------------------------- */

/* By scope: a call runs in it or in one within. */
static bool *scopes_with_calls(const Graph *g) {
  bool *calls = alloc((size_t)g->scopes.n + 1);
  for (int i = 0; i < g->n_forward; i++)
    if (g->nodes.at[i].op->kind == OP_CALL)
      for (int s = g->nodes.at[i].scope; s >= 0; s = g->scopes.at[s].parent)
        calls[s] = true;
  return calls;
}

/* Whether the cut before node `first` is within an instance that would be one loop. */
static bool parts_a_loop(const Graph *g, const bool *calls, int first) {
  for (int a = g->nodes.at[first - 1].scope; a > 0; a = g->scopes.at[a].parent)
    for (int b = g->nodes.at[first].scope; b > 0; b = g->scopes.at[b].parent)
      if (a == b)
        return !calls[a];
  return false;
}

static void crossing_costs(const Planner *r, int64_t b, Costs *c) {
  int n = r->p->n;
  const bool *calls = scopes_with_calls(r->g);
  int64_t *down = alloc((size_t)(n + 1) * sizeof *down), *up = alloc((size_t)(n + 1) * sizeof *up);
  double *receive = alloc((size_t)(n + 1) * sizeof *receive), *back = alloc((size_t)(n + 1) * sizeof *back);
  for (int i = 1; i < n; i++) {
    const Piece *piece = &r->p->at[i];
    for (int k = 0; k < piece->crossing.n; k++)
      down[i] += value_bytes(r, piece->crossing.at[k], b);
    for (int k = 0; k < piece->returned.n; k++)
      up[i] += value_bytes(r, piece->returned.at[k], b);
    if (r->rates.beside) { /* yet it is written into the memory that kernels read */
      receive[i] = (double)down[i] / r->rates.stream;
      back[i] = (double)up[i] / r->rates.stream;
    } else {
      receive[i] = r->latency + (double)down[i] / r->bandwidth;
      back[i] = r->latency + (double)up[i] / r->bandwidth;
    }
    if (parts_a_loop(r->g, calls, piece->first)) { /* each part stores or loads the rows once more */
      receive[i] += 2 * (double)down[i] / r->rates.copy;
      back[i] += 2 * (double)up[i] / r->rates.copy;
    }
  }
  c->activations = down, c->activation_gradients = up;
  c->receive = receive, c->receive_gradient = back;
}

/* Costs.fill */
static double fill_of(const Planner *r, int64_t b) {
  ScheduleTraits traits = schedule_traits(r->form.schedule);
  if (traits.serial)
    return 1;
  return traits.drains ? (double)b / (double)r->g->train.batch / r->form.chunks : 0;
}

Costs *price(const Planner *r, int64_t b) {
  const Graph *g = r->g;
  const Pieces *p = r->p;
  int side = p->n + 1, *piece = piece_of_nodes(g, p);
  size_t square = (size_t)side * side;
  Costs *c = alloc(sizeof *c);
  double *forward = alloc((size_t)p->n * sizeof *forward), *backward = alloc((size_t)p->n * sizeof *backward);
  double *products = alloc((size_t)p->n * sizeof *products);
  const bool *product = weight_products(g);
  for (int i = 0; i < g->nodes.n; i++) {
    double seconds = counted_seconds(g, i, b, &r->rates);
    (i < g->n_forward ? forward : backward)[piece[i]] += seconds;
    products[piece[i]] += product[i] ? seconds : 0;
  }
  const MeasuredSize *measured = r->profile ? profile_at(r->profile, b) : NULL;
  if (measured) {
    for (int i = 0; i < p->n; i++) /* a profile of an older pdc has no products */
      products[i] = measured->products ? measured->products[i]
                    : backward[i] > 0  ? products[i] / backward[i] * measured->backward[i]
                                       : 0;
    forward = measured->forward, backward = measured->backward;
  }
  double *update = alloc(square * sizeof *update);
  const ParameterTables t = parameter_tables(r);
  for (size_t i = 0; i < square && !g->inference; i++)
    update[i] =
        ((r->profile && r->profile->update > 0 ? measured_update(r, &t, i) : update_seconds(g, &t, i, &r->rates)) +
         (double)t.shared[i] / r->bandwidth) *
        (double)b / (double)g->train.batch;
  *c = (Costs){.n = p->n,
               .forward = forward,
               .backward = backward,
               .products = products,
               .update = update,
               .weights = t.weights,
               .frozen = t.frozen,
               .masters = t.held,
               .moments = t.moments,
               .gradients = accumulator_bytes(g, p, piece),
               .saved = saved_bytes(r, piece, b),
               .inputs = input_bytes(r, b),
               .deferred = deferred_bytes(r, piece, b),
               .work = work_bytes(r, piece, b),
               .reduce = (double)b / (double)g->train.batch / r->bandwidth,
               .fill = fill_of(r, b),
               .overlapped = !schedule_traits(r->form.schedule).drains};
  crossing_costs(r, b, c);
  return c;
}

/* Where stages keep versions of their own, an update cannot wait for figures of other stages. */
static bool may_exchange(const Planner *r) {
  return !schedule_traits(r->form.schedule).every_round || r->form.vertical_sync;
}

bool schedulable(const Planner *r, const Plan *plan) {
  const bool *exchanges = plan_exchanges(r->g, r->p, plan);
  for (int i = 0; i < plan->pipeline.n_stages; i++)
    if (exchanges[i] && !may_exchange(r))
      return false;
  return true;
}

Program *planned_programs(const Planner *r, const Pipeline *p, const bool *exchanges) {
  double start = seconds_now();
  Program *programs = schedule(p, exchanges, r->schedule_span);
  ensure(programs);
  if (r->request->watch)
    watch_add(&r->request->watch->schedule, start);
  return programs;
}

/* Whether updates wait for other stages wherever cuts are: for gradients of tied parameters or for squares. */
static bool may_be_tied(const Planner *r) {
  bool tied = r->g->train.clip_norm > 0 && !r->g->inference;
  for (int i = 0; i < r->g->params.n && !r->g->inference; i++)
    tied |= r->g->params.at[i].uses.n > 1 && !r->g->params.at[i].frozen;
  return tied;
}

/* Programs of a plan of this pipeline; where its cuts are does not matter but for tied parameters, which are
 * taken to be on several stages. */
static Program *programs_of_form(const Planner *r, const Pipeline *form, int64_t b) {
  bool tied = may_be_tied(r);
  bool *exchanges = alloc((size_t)form->n_stages);
  for (int i = 1; i < form->n_stages; i++)
    exchanges[i] = tied;
  Pipeline whole = pipeline_at(form, r->g->train.batch, b);
  if (!may_exchange(r))
    exchanges = NULL;
  return planned_programs(r, &whole, exchanges);
}

/* Of a stage whose pipeline is not known yet: an estimate, but for how far updates lag. */
Copies copies_of_stage(const Planner *r, int64_t microbatches, int64_t in_flight, int replicas, bool first,
                       bool last) {
  ScheduleTraits traits = schedule_traits(r->form.schedule);
  int64_t turns = microbatches / replicas;
  if (traits.drains && in_flight > turns)
    in_flight = turns;
  bool lags = traits.two_versions && (replicas > 1 || may_be_tied(r));
  bool may = in_flight > 1 && traits.recomputes;
  Recompute recompute = r->request->recompute;
  int kept = (int)in_flight;
  return (Copies){.replicas = replicas,
                  .exchanges = 1,
                  .weights = traits.two_versions  ? 2
                             : traits.every_round ? 1 + (int)((kept - 1 + turns - 1) / turns)
                                                  : 1,
                  .masters = r->target.precision == PRECISION_BF16 && !r->g->inference,
                  .accumulators = lags ? 2 : 1,
                  .saved = kept,
                  .received = first ? 1 : kept + 1,
                  .sent = last ? 1 : kept,
                  .gradients = first && last ? 1 : 2,
                  .inputs = kept,
                  .recompute_off = recompute != RECOMPUTE_ON || !may,
                  .recompute_on = recompute != RECOMPUTE_OFF && may};
}

Copies *copies(const Planner *r, const Pipeline *form, int64_t b, Recompute recompute) {
  const Program *program = programs_of_form(r, form, b);
  Copies *c = alloc((size_t)pipeline_parts(form) * sizeof *c);
  for (int i = 0; i < pipeline_parts(form); i++) {
    const Program *p = &program[stage_of_part(form->n_stages, i)];
    const Slots *slots = &p->slots[chunk_of_part(form->n_stages, i)];
    bool may = p->in_flight > 1 && schedule_traits(r->form.schedule).recomputes;
    c[i] = (Copies){.replicas = p->replicas,
                    .exchanges = p->exchanges,
                    .weights = p->versions,
                    .masters = r->target.precision == PRECISION_BF16 && !r->g->inference,
                    .accumulators = p->accumulators,
                    .saved = slots->saved,
                    .received = slots->received,
                    .sent = slots->sent,
                    .gradients = slots->gradients,
                    .inputs = slots->inputs,
                    .deferred = p->split_backward ? slots->deferred : 0,
                    .recompute_off = recompute != RECOMPUTE_ON || !may,
                    .recompute_on = recompute != RECOMPUTE_OFF && may};
  }
  return c;
}

/* ---- a whole plan -------------------------------------------------------------------------------- */

/* Marks or looks up the parameters of a stage's chunks; frozen ones are not exchanged. */
static bool shares_parameters(const Graph *g, const Pieces *p, const Plan *plan, int stage, bool *lower,
                              bool mark) {
  bool any = false;
  for (int part = stage; part < plan_parts(plan); part += plan->pipeline.n_stages)
    for (int k = plan->stage[part].first_piece; k < plan->stage[part].end_piece; k++)
      for (int m = 0; m < p->at[k].params.n; m++) {
        int q = p->at[k].params.at[m];
        any |= lower[q];
        lower[q] |= mark && !g->params.at[q].frozen;
      }
  return any;
}

bool *plan_exchanges(const Graph *g, const Pieces *p, const Plan *plan) {
  int n_stages = plan->pipeline.n_stages;
  bool *exchanges = alloc((size_t)n_stages), *lower = alloc((size_t)g->params.n + 1);
  for (int s = 0; s < n_stages && !g->inference; s++) {
    exchanges[s] = shares_parameters(g, p, plan, s, lower, false) || (s > 0 && g->train.clip_norm > 0);
    shares_parameters(g, p, plan, s, lower, true);
  }
  return exchanges;
}

int64_t stage_parameters(const Graph *g, const Pieces *p, const StagePlan *stage) {
  bool *held = alloc((size_t)g->params.n + 1);
  int64_t n = 0;
  for (int k = stage->first_piece; k < stage->end_piece; k++)
    for (int m = 0; m < p->at[k].params.n; m++)
      held[p->at[k].params.at[m]] = true;
  for (int i = 0; i < g->params.n; i++)
    if (held[i] && !g->params.at[i].buffer)
      n += shape_elements(&g->params.at[i].shape);
  return n;
}

/* Bytes of activations in the messages of a microbatch over the cut before a piece. */
static double message_bytes(const Planner *r, int piece, int64_t b) {
  double bytes = 0;
  for (int k = 0; piece < r->p->n && k < r->p->at[piece].crossing.n; k++) {
    int v = r->p->at[piece].crossing.at[k];
    bytes += (r->bf16[v] ? 2.0 : 4.0) * (double)b * (double)shape_elements(&r->g->values.at[v].shape);
  }
  return bytes;
}

/* What a part of the model takes and holds, by its plan's Programs. */
static void price_part(const Planner *r, const Costs *c, const Program *program, StagePlan *s, int64_t b,
                       int64_t microbatches) {
  int at = s->first_piece * (c->n + 1) + s->end_piece;
  int64_t gradients = 0;
  s->forward_seconds = s->backward_seconds = s->weights_seconds = 0;
  for (int k = s->first_piece; k < s->end_piece; k++) {
    s->forward_seconds += c->forward[k];
    s->backward_seconds += c->backward[k];
    s->weights_seconds += c->products[k];
    gradients += c->gradients[k];
  }
  s->weight_bytes = c->weights[at] * program->versions + c->frozen[at];
  s->optimizer_bytes = 0;
  if (!r->g->inference)
    s->optimizer_bytes = c->moments[at] + (c->weights[at] < c->masters[at] ? c->masters[at] : 0);
  s->gradient_bytes = gradients * program->accumulators;
  s->cache_bytes = cache_bytes(r, s->first_piece, s->end_piece, b);
  s->update_seconds = c->update[at] * (double)microbatches;
  s->send_bytes = message_bytes(r, s->end_piece, b);
}

/* A message's time where sender and receiver work on meanwhile. */
static double transfer_seconds(const Planner *r, const Costs *c, const StagePlan *part) {
  int64_t down = c->activations[part->end_piece], up = c->activation_gradients[part->first_piece];
  return (double)(down > up ? down : up) / r->bandwidth;
}

/* By part. On CPUs whoever receives copies: a transfer is work of its core, and only the latency passes beside it. */
static StageTimes *part_times(const Planner *r, const Costs *c, const Plan *plan, const Program *programs) {
  const Pipeline *p = &plan->pipeline;
  StageTimes *times = alloc((size_t)plan_parts(plan) * sizeof *times);
  int64_t *gradients = alloc((size_t)p->n_stages * sizeof *gradients);
  for (int i = 0; i < plan_parts(plan); i++) {
    const StagePlan *s = &plan->stage[i];
    int stage = plan_stage_of(plan, i);
    StageTimes *t = &times[i];
    t->weights = programs[stage].split_backward ? s->weights_seconds : 0;
    t->forward = s->forward_seconds + c->receive[s->first_piece];
    t->backward = s->backward_seconds - t->weights + c->receive_gradient[s->end_piece];
    t->recompute = p->recompute[stage] ? s->forward_seconds : 0;
    t->send = r->latency + (r->rates.beside ? transfer_seconds(r, c, s) : 0);
    times[stage].update += s->update_seconds;
    for (int k = s->first_piece; k < s->end_piece; k++)
      gradients[stage] += c->gradients[k];
  }
  for (int i = 0; i < p->n_stages; i++) {
    int w = p->replicas[i];
    if (w > 1) /* reduced by parts, which then go to all */
      times[i].reduce = 2 * (w - 1) * (r->latency + (double)gradients[i] / w / r->bandwidth);
  }
  return times;
}

/* A plan with what its simulation needs. */
typedef struct Timed {
  Program *programs;
  StageTimes *times;
} Timed;

static Timed timed(const Planner *r, const Costs *c, const Plan *plan) {
  Timed t = {.programs = planned_programs(r, &plan->pipeline, plan_exchanges(r->g, r->p, plan))};
  for (int i = 0; i < plan_parts(plan); i++)
    price_part(r, c, &t.programs[plan_stage_of(plan, i)], &plan->stage[i], plan->pipeline.microbatch,
               plan->pipeline.microbatches);
  t.times = part_times(r, c, plan, t.programs);
  return t;
}

/* Seconds that a rank works on a batch's microbatches, for each of them. */
static double busy_seconds(const Plan *plan, const StageTimes *times, int stage) {
  double busy = 0;
  for (int i = stage; i < plan_parts(plan); i += plan->pipeline.n_stages)
    busy += times[i].forward + times[i].backward + times[i].recompute + times[i].weights;
  return busy / plan->pipeline.replicas[stage];
}

/* So many microbatches fill the pipeline and hide what goes on beside them: a batch of more of them takes longer by
 * the pace of the steady state. */
static int64_t enough_microbatches(const Plan *plan, const StageTimes *times) {
  enum { ENOUGH = 64, FILLS = 4 };
  const Pipeline *p = &plan->pipeline;
  int64_t least, multiple;
  double slowest = 0, beside = 0;
  schedule_needs(p, &least, &multiple);
  for (int i = 0; i < p->n_stages; i++) {
    slowest = fmax(slowest, busy_seconds(plan, times, i));
    beside = fmax(beside, times[i].reduce + times[i].update);
  }
  double n = fmax(ENOUGH, fmax(2 * (double)least, FILLS * (double)plan_parts(plan)));
  n = fmax(n, slowest > 0 ? 2 * beside / slowest : 0);
  return n > MAX_MICROBATCHES ? p->microbatches : ((int64_t)n + multiple - 1) / multiple * multiple;
}

static double simulated(const Planner *r, const Pipeline *p, const bool *exchanges, const StageTimes *times) {
  const Program *programs = planned_programs(r, p, exchanges);
  double start = seconds_now(), seconds = simulate_schedule(programs, times, p->n_stages);
  if (r->request->watch)
    watch_add(&r->request->watch->simulate, start);
  return seconds;
}

void price_plan(const Planner *r, const Costs *c, Plan *plan) {
  Pipeline p = plan->pipeline;
  Timed t = timed(r, c, plan);
  const bool *exchanges = plan_exchanges(r->g, r->p, plan);
  int64_t enough = enough_microbatches(plan, t.times), all = p.microbatches;
  if (all <= 2 * enough || schedule_traits(p.schedule).every_round) {
    plan->batch_seconds = simulated(r, &p, exchanges, t.times);
    return;
  }
  p.microbatches = enough;
  double some = simulated(r, &p, exchanges, t.times);
  p.microbatches = 2 * enough;
  double twice = simulated(r, &p, exchanges, t.times);
  plan->batch_seconds = some + (twice - some) * (double)(all - enough) / (double)enough;
}

/* How much passes of one kind differ, as a share of their time: measured on an idle machine. */
static const double JITTER = 0.02;

double uneven_seconds(const Planner *r, const Costs *c, const Plan *plan) {
  Timed t = timed(r, c, plan);
  double start = seconds_now();
  double seconds = simulate_schedule_jitter(t.programs, t.times, plan->pipeline.n_stages, JITTER);
  if (r->request->watch)
    watch_add(&r->request->watch->simulate, start);
  return seconds;
}
