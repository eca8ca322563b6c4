/* Prices a whole plan: programs, times of parts, and a simulated batch. */
#include <math.h>

#include "base/table.h"
#include "plan/time/time.h"
#include "plan/offload/offload.h"

bool schedulable(const Planner *r, const Plan *plan) {
  const bool *exchanges = r->subject.exchanges(r, plan);
  for (int i = 0; i < plan->pipeline.n_stages; i++)
    if (exchanges[i] && !may_exchange(r))
      return false;
  return true;
}

int stage_kind(const Planner *r, const Plan *plan, int stage) {
  int kind = 0;
  if (r->n_kinds == 1)
    return 0;
  Stand stand = stand_of(&plan->pipeline, &plan->placement, stage);
  unsigned kinds = kinds_of(&r->topology, &plan->placement, &stand, pipeline_ranks(&plan->pipeline));
  while (!(kinds >> kind & 1))
    kind++;
  return kind;
}

/* Sets times and bytes of a part, under the plan's Programs. */
static void price_part(const Planner *r, const Spans *spans, const Program *program, const Slots *slots,
                       StagePlan *s) {
  const Costs *c = spans->c->plain ? spans->c->plain : spans->c;
  const int64_t repeated = program->offload.on ? 0 : slots->inputs - slots->saved; /* copies that are not saved */
  int first = s->first_piece, end = s->end_piece;
  Held held = holdings_of(c->holdings, first, end);
  s->forward_seconds = s->backward_seconds = s->weights_seconds = 0;
  s->cache_bytes = s->again_bytes = 0;
  s->again_seconds = 0;
  for (int k = first; k < end; k++) {
    s->forward_seconds += c->forward[k];
    s->backward_seconds += c->backward[k];
    s->weights_seconds += c->products[k];
    s->cache_bytes += c->cache ? c->cache[k] : 0;
    s->again_bytes += c->saved[k] * repeated;
    if (s->again && s->again[k - first] == '1') {
      s->again_seconds += c->repeat[k];
      s->again_bytes += c->gain[k] * slots->saved;
    }
  }
  s->backward_seconds += s->again_seconds;
  s->weight_bytes = held.weights * program->versions + held.frozen;
  s->optimizer_bytes = 0;
  if (!r->subject.inference)
    s->optimizer_bytes = held.moments + (held.weights < held.masters ? held.masters : 0);
  if (program->sharded)
    s->optimizer_bytes /= program->replicas;
  s->gradient_bytes = (spans->gradients[end] - spans->gradients[first]) * program->accumulators;
  s->update_seconds = r->subject.inference ? 0 : span_update(spans, first, end);
  if (program->sharded)
    s->update_seconds /= program->replicas;
  s->send_bytes = c->message[end];
}

/* Half of the traffic carries sums of gradients, half updated weights. */
static void share_exchange(const Plan *plan, const Program *program, const Wiring *w, StageTimes *times) {
  int64_t weights = 0;
  for (int k = 0; k < program->chunks; k++)
    weights += plan->stage[program_part(program, k)].weight_bytes / program->versions;
  times->reduce /= 2;
  times->gather = (w->reduce_latency + (double)weights * w->reduce) / 2;
}

static void set_hidden(const Spans *spans, const Program *program, Wiring w, const StagePlan *s,
                       StageTimes *times) {
  if (program->sharded)
    w.reduce /= 2, w.reduce_latency /= 2;
  const SpanReduction x = span_reduction(spans, &w, s->first_piece, s->end_piece, program->bucket);
  times->reduce = x.all;
  times->hidden = x.hidden;
}

/* By part. On CPUs the receiver copies: a transfer is work of its core, and only the latency overlaps. */
static StageTimes *part_times(const Planner *r, const Spans *spans, const Plan *plan, const Program *programs) {
  const Pipeline *p = &plan->pipeline;
  int parts = plan_parts(plan);
  StageTimes *times = alloc((size_t)parts * sizeof *times);
  const Wiring *place = wirings(r, p, &plan->placement);
  int64_t *gradients = alloc((size_t)p->n_stages * sizeof *gradients);
  for (int i = 0; i < parts; i++) {
    StagePlan *s = &plan->stage[i];
    int stage = plan_stage_of(plan, i);
    const Spans *own = spans + stage_kind(r, plan, stage);
    const Costs *c = own->c;
    StageTimes *t = &times[i];
    t->weights = programs[stage].split_backward ? s->weights_seconds : 0;
    t->forward = s->forward_seconds + receive_seconds(c, &place[i], s->first_piece);
    t->backward = s->backward_seconds - t->weights + receive_gradient_seconds(c, &place[i], s->end_piece);
    t->recompute = plan_recomputes(plan, i) ? s->forward_seconds : 0;
    if (i + 1 < parts)
      t->send =
          c->beside ? message_seconds(c, s->end_piece, place[i].out, place[i].out_sharing) : place[i].out->latency;
    s->send_seconds = t->send;
    times[programs[stage].part].update += s->update_seconds;
    gradients[stage] += own->gradients[s->end_piece] - own->gradients[s->first_piece];
  }
  for (int i = 0; i < p->n_stages; i++) {
    const int first = programs[i].part;
    StageTimes *t = &times[first];
    t->reduce = place[first].reduce_latency + (double)gradients[i] * place[first].reduce;
    if (programs[i].sharded)
      share_exchange(plan, &programs[i], &place[first], t);
    if (programs[i].bucket && !(programs[i].sharded && updates_whole(r)))
      set_hidden(spans + stage_kind(r, plan, i), &programs[i], place[first], &plan->stage[first], t);
    plan->stage[first].exchange_seconds = r->subject.inference ? 0 : t->reduce + t->gather;
    plan->stage[first].hidden_seconds = t->hidden;
  }
  return times;
}

/* Sets the cluster levels of each part. */
static void name_levels(const Planner *r, const Plan *plan) {
  const Cluster *c = r->request->cluster;
  const Pipeline *p = &plan->pipeline;
  for (int i = 0; c && i < plan_parts(plan); i++) {
    StagePlan *s = &plan->stage[i];
    const int stage = plan_stage_of(plan, i), next = i + 1 < plan_parts(plan) ? plan_stage_of(plan, i + 1) : 0;
    Stand self = stand_of(p, &plan->placement, stage), behind = stand_of(p, &plan->placement, next);
    s->spans = self.replicas > 1 ? c->level[level_spanned(&r->topology, &self)].name : NULL;
    s->crosses = i + 1 < plan_parts(plan) ? c->level[level_between(&r->topology, &self, &behind)].name : NULL;
  }
}

/* Input of a simulation. */
typedef struct Timed {
  Program *programs;
  StageTimes *times;
} Timed;

static Timed timed(const Planner *r, const Plan *plan) {
  const Spans *spans = spans_at(r, plan->pipeline.microbatch);
  Timed t = {.programs = planned_programs(r, &plan->pipeline, r->subject.exchanges(r, plan))};
  for (int i = 0; i < plan_parts(plan); i++) {
    int stage = plan_stage_of(plan, i);
    const Slots *slots = &t.programs[stage].slots[pipeline_chunk(&plan->pipeline, i)];
    price_part(r, spans + stage_kind(r, plan, stage), &t.programs[stage], slots, &plan->stage[i]);
  }
  name_levels(r, plan);
  t.times = part_times(r, spans, plan, t.programs);
  return t;
}

/* Seconds of a rank's work per microbatch. */
static double busy_seconds(const Plan *plan, const StageTimes *times, int stage) {
  double busy = 0;
  for (int k = 0; k < pipeline_chunks(&plan->pipeline, stage); k++) {
    const StageTimes *t = &times[plan_part_of(plan, stage, k)];
    busy += t->forward + t->backward + t->recompute + t->weights;
  }
  return busy / plan->pipeline.replicas[stage];
}

/* The busiest rank's work, with its updates. */
static double least_seconds(const Plan *plan, const StageTimes *times, int64_t microbatches) {
  double most = 0;
  for (int i = 0; i < plan->pipeline.n_stages; i++)
    most =
        fmax(most, busy_seconds(plan, times, i) * (double)microbatches + times[plan_part_of(plan, i, 0)].update);
  return most;
}

/* Microbatches that fill the pipeline and hide overlapping work. Beyond them a batch grows by the pace of the
 * steady state. */
static int64_t enough_microbatches(const Plan *plan, const StageTimes *times) {
  enum { ENOUGH = 64, FILLS = 4 };
  const Pipeline *p = &plan->pipeline;
  int64_t least, multiple;
  double slowest = 0, beside = 0;
  schedule_needs(p, &least, &multiple);
  for (int i = 0; i < p->n_stages; i++) {
    slowest = fmax(slowest, busy_seconds(plan, times, i));
    const StageTimes *first = &times[plan_part_of(plan, i, 0)];
    beside = fmax(beside, first->reduce + first->update);
  }
  double n = fmax(ENOUGH, fmax(2 * (double)least, FILLS * (double)plan_parts(plan)));
  n = fmax(n, slowest > 0 ? 2 * beside / slowest : 0);
  return n > MAX_MICROBATCHES ? p->microbatches : ((int64_t)n + multiple - 1) / multiple * multiple;
}

/* ---- cache of timed plans ----------------------------------------------------------------------------- */

/* Key of the cache: choices that searches change. refine.c revisits them often. */
typedef struct Choices {
  int64_t microbatch, stages, chunks, adjacent, backward;
  struct {
    int32_t replicas, ahead, recompute, first_piece;
    Name again;
  } part[32]; /* plans with more parts are not cached */
} Choices;

typedef struct Taken {
  double seconds; /* per batch; INFINITY: more than `most` */
  double most;    /* limit of the simulation; INFINITY: `seconds` is known */
} Taken;

struct TimedPlans {
  Arena *arena; /* survives releases of the current arena */
  Table taken;  /* by Choices */
};

TimedPlans *timed_plans_new(void) {
  TimedPlans *t = alloc(sizeof *t);
  *t = (TimedPlans){.arena = arena_new(), .taken = {.key_bytes = sizeof(Choices)}};
  return t;
}

/* False: too many parts. */
static bool choices_of(const Plan *plan, Choices *c) {
  const Pipeline *p = &plan->pipeline;
  if (plan_parts(plan) > (int)(sizeof c->part / sizeof *c->part))
    return false;
  *c = (Choices){.microbatch = p->microbatch,
                 .stages = p->n_stages,
                 .chunks = p->chunks,
                 .adjacent = plan->placement.adjacent,
                 .backward = plan->placement.backward};
  for (int i = 0; i < plan_parts(plan); i++) {
    int stage = plan_stage_of(plan, i);
    c->part[i].replicas = p->replicas[stage];
    c->part[i].ahead = p->ahead[stage];
    c->part[i].recompute = plan_recomputes(plan, i);
    c->part[i].first_piece = plan->stage[i].first_piece;
    c->part[i].again = plan->stage[i].again;
  }
  return true;
}

static void keep_seconds(TimedPlans *t, const Choices *choices, double seconds, double most) {
  const Taken taken = {seconds, isinf(seconds) ? most : INFINITY};
  Taken *known = table_find(&t->taken, choices);
  if (known) {
    *known = taken;
    return;
  }
  Arena *before = arena_use(t->arena);
  table_add(&t->taken, choices, alloc_copy(&taken, sizeof taken));
  arena_use(before);
}

/* ---- the simulation ------------------------------------------------------------------------------------ */

/* Simulates a batch of this number of microbatches; INFINITY: more than `most` seconds. */
static double shorter_batch(const Planner *r, const Plan *plan, const Timed *t, int64_t microbatches,
                            double most) {
  Pipeline p = plan->pipeline;
  p.microbatches = microbatches;
  return planned_seconds(r, &p, r->subject.exchanges(r, plan), t->times, most);
}

/* Simulates a batch; INFINITY: more than `most` seconds. A long batch is extrapolated from two shorter ones unless
 * the slowest rank never waits. */
static double batch_seconds(const Planner *r, const Plan *plan, const Timed *t, double most) {
  const double rounding = 1e-9;
  const int64_t all = plan->pipeline.microbatches, enough = enough_microbatches(plan, t->times);
  if (all <= 2 * enough || r->traits.every_round)
    return shorter_batch(r, plan, t, all, most);
  const double times = (double)(all - enough) / (double)enough;
  const double least = least_seconds(plan, t->times, enough), least_of_all = least_seconds(plan, t->times, all);
  const double most_of_some = most - (least_of_all - least) * (1 - rounding);
  double some = shorter_batch(r, plan, t, enough, most_of_some);
  if (some > most_of_some)
    return INFINITY;
  if (some <= least * (1 + rounding))
    return least_of_all;
  double twice = shorter_batch(r, plan, t, 2 * enough, some + (most - some) / times);
  return some + (twice - some) * times;
}

/* The arena releases programs and times, which would be large for many plans. */
void price_plan(const Planner *r, Plan *plan, double most) {
  spans_at(r, plan->pipeline.microbatch); /* cached, in the lasting arena */
  known_forms_trim(r->known_forms);
  ArenaMark mark = arena_mark();
  const Timed t = timed(r, plan);
  Choices choices;
  const bool spills = r->traits.spills && plan->pipeline.chunks > 1, keeps = !spills && choices_of(plan, &choices);
  const Taken *known = keeps ? table_find(&r->timed_plans->taken, &choices) : NULL;
  if (known && most > known->most) /* the cached limit is too low */
    known = NULL;
  plan->links_seconds = links_seconds(r, plan, t.programs);
  plan->batch_seconds = known ? known->seconds : spills ? 0 : batch_seconds(r, plan, &t, most);
  if (plan->batch_seconds < plan->links_seconds)
    plan->batch_seconds = plan->links_seconds > most ? INFINITY : plan->links_seconds;
  arena_release(mark);
  if (spills) /* may lay out the plan, which lasts */
    plan->batch_seconds = spilled_seconds(r, plan);
  if (keeps && !known)
    keep_seconds(r->timed_plans, &choices, plan->batch_seconds, most);
}

/* Variation of equal passes, as a share of their time: measured on an idle machine. */
static const double JITTER = 0.02;

double uneven_seconds(const Planner *r, const Plan *plan) {
  Timed t = timed(r, plan);
  double start = seconds_now();
  double seconds = simulate_schedule_jitter(t.programs, t.times, plan->pipeline.n_stages, JITTER);
  if (r->request->watch)
    watch_add(&r->request->watch->simulate, start);
  return fmax(seconds, plan->links_seconds);
}
