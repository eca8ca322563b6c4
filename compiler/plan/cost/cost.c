/* Memory and place of a stage, from its schedule and its position in the pipeline. */

#include "optimizers/optimizer.h"
#include "plan/cost/cost.h"

static int64_t larger_of(int64_t a, int64_t b) { return a > b ? a : b; }

/* Costs.fill */
static double fill_of(const Planner *r, int64_t b) {
  const ScheduleTraits *traits = &r->traits;
  if (traits->serial)
    return 1;
  return traits->drains ? (double)b / (double)r->subject.batch / r->form.chunks : 0;
}

/* Whether stages may recompute by layer, and memory may need it: as a bound, all stages on one device with the most
 * microbatches in flight. */
static bool may_recompute_layers(const Planner *r, const Spans *s, int64_t b) {
  static const double SCRATCH = 1 << 28; /* bytes; costs do not include it */
  const Costs *c = s->c;
  const int64_t turns = r->subject.batch / b, in_1f1b = 2 * (int64_t)r->ranks;
  const int64_t in_flight = r->traits.looks_ahead && in_1f1b < turns ? in_1f1b : larger_of(r->ranks, turns);
  if (!r->traits.layers || r->again || r->request->recompute == RECOMPUTE_OFF)
    return false;
  if (r->request->recompute == RECOMPUTE_ON)
    return true;
  const Held held = holdings_of(c->holdings, 0, c->n);
  const double parameters = (double)(held.weights + held.frozen) * (double)(1 + in_flight) + (double)held.moments +
                            (double)held.masters + 3 * (double)s->gradients[c->n];
  const double values = (double)s->saved[c->n] + (double)s->inputs[c->n] + (double)span_work(s, 0, c->n);
  return parameters + 3 * values * (double)(in_flight + 1) + SCRATCH > (double)r->memory.arena;
}

/* The costs, with the recomputed layers of the request, or with levels if memory may need them. */
static Spans spans_of_kind(const Planner *r, int64_t b, int kind) {
  Costs *c = r->subject.price(r, b, kind);
  c->fill = fill_of(r, b);
  c->overlapped = !r->traits.drains;
  Spans s = spans_make(c);
  const bool levels = may_recompute_layers(r, &s, b);
  if ((levels || r->again) && r->subject.price_again)
    r->subject.price_again(r, b, kind, c);
  if (levels && c->gain && r->g) /* few parts: stages of equal blocks then mostly have equal layouts */
    spans_add_levels(&s, c, MOST_AGAIN_LEVELS, AGAIN_PARTS);
  else if (levels && c->gain) /* layer profiles have no layouts */
    spans_add_levels(&s, c, c->n > FEW_LAYERS ? MOST_AGAIN_LEVELS : FEW_LAYERS, FEW_LAYERS);
  return r->again ? spans_make(costs_recomputing(c, r->again)) : s;
}

/* One entry per kind of device. */
Spans *spans_at(const Planner *r, int64_t b) {
  Prices *known = r->prices;
  for (int i = 0; i < known->n; i++)
    if (known->at[i].b == b)
      return known->at[i].spans;
  Spans *spans = alloc((size_t)r->n_kinds * sizeof *spans);
  for (int kind = 0; kind < r->n_kinds; kind++)
    spans[kind] = spans_of_kind(r, b, kind);
  push(known, (Priced){b, spans});
  return spans;
}

/* Programs of a plan of this form. Cuts matter only for tied parameters, which are assumed to be on several
 * stages. */
static Program *programs_of_form(const Planner *r, const Pipeline *form, int64_t b) {
  bool *exchanges = alloc((size_t)form->n_stages);
  for (int i = 1; i < form->n_stages; i++)
    exchanges[i] = r->subject.tied;
  Pipeline whole = pipeline_at(form, r->subject.batch, b);
  if (!may_exchange(r))
    exchanges = NULL;
  return planned_programs(r, &whole, exchanges);
}

/* Whether the stage may recompute. With one microbatch in flight, repeating the whole forward pass saves nothing. */
static void set_recomputation(const Planner *r, Recompute recompute, int64_t in_flight, Copies *c) {
  bool may = in_flight > 1 && r->traits.recomputes && !r->again;
  c->layers = !r->traits.layers || r->again || recompute == RECOMPUTE_OFF ? LAYERS_NO
              : recompute == RECOMPUTE_AUTO                               ? LAYERS_MAY
              : may                                                       ? LAYERS_NO
                                                                          : LAYERS_MUST;
  c->recompute_off = recompute != RECOMPUTE_ON || !may;
  c->recompute_on = recompute != RECOMPUTE_OFF && may;
}

/* Sets the slowest kind of device of the stage; `extra` has the deficit of the smallest one against the limit. */
static void set_device(const Planner *r, const Placement *at, const Stand *stand, int used, Copies *c) {
  unsigned kinds = r->n_kinds == 1 ? 1 : kinds_of(&r->topology, at, stand, used);
  int64_t least = r->memory.arena;
  for (int kind = r->n_kinds - 1; kind >= 0; kind--)
    if (kinds >> kind & 1) {
      c->kind = kind; /* kinds are sorted, slowest first */
      least = r->memory.arenas[kind] < least ? r->memory.arenas[kind] : least;
    }
  c->extra = (r->memory.arena - least) / r->form.chunks;
}

bool updates_whole(const Planner *r) { return r->g && update_rule(&r->g->train)->whole_tensors; }

/* Copies of a stage when only later stages are known: an estimate that ignores the delay of updates. */
Copies copies_of_stage(const Planner *r, const Placement *at, const StageAhead *s) {
  const ScheduleTraits *traits = &r->traits;
  int64_t turns = s->microbatches / s->replicas, in_flight = s->in_flight;
  if (traits->drains && in_flight > turns)
    in_flight = turns;
  bool lags = traits->two_versions && (s->replicas > 1 || r->subject.tied);
  int kept = (int)in_flight;
  Copies c = {.replicas = s->replicas,
              .exchanges = 1,
              .weights = traits->two_versions  ? 2
                         : traits->every_round ? 1 + (int)((kept - 1 + turns - 1) / turns)
                                               : 1,
              .masters = r->target.precision == PRECISION_BF16 && !r->subject.inference,
              .sharded = r->form.shard_optimizer && s->replicas > 1,
              .buckets = traits->drains && s->replicas > 1 && !(r->form.shard_optimizer && updates_whole(r)),
              .accumulators = lags ? 2 : 1,
              .saved = kept,
              .received = s->first ? 1 : kept + 1,
              .sent = s->behind == 0 ? 1 : kept,
              .gradients = s->first && s->behind == 0 ? 1 : 2,
              .inputs = kept};
  set_recomputation(r, r->request->recompute, in_flight, &c);
  Stand self = {.first = s->ranks_behind, .replicas = s->replicas, .adjacent = s->replicas};
  Stand behind = {.first = s->ranks_behind - s->behind, .replicas = s->behind, .adjacent = s->behind};
  /* The previous stage is unknown; assumes the next rank. */
  Stand before = {.first = s->ranks_behind + s->replicas, .replicas = 1, .adjacent = 1};
  c.wiring = wiring_of(&r->topology, &self, s->first ? NULL : &before, s->behind ? &behind : NULL, 1);
  set_device(r, at, &self, r->ranks, &c);
  return c;
}

Wiring *wirings(const Planner *r, const Pipeline *form, const Placement *at) {
  int parts = pipeline_parts(form), n = form->n_stages;
  Wiring *p = alloc((size_t)parts * sizeof *p);
  for (int i = 0; i < parts; i++) {
    Stand self = stand_of(form, at, pipeline_stage(form, i)),
          before = stand_of(form, at, pipeline_stage(form, (i + parts - 1) % parts)),
          behind = stand_of(form, at, pipeline_stage(form, (i + 1) % parts));
    p[i] = wiring_of(&r->topology, &self, i > 0 ? &before : NULL, i + 1 < parts ? &behind : NULL, n);
  }
  return p;
}

Copies *copies(const Planner *r, const Pipeline *form, const Placement *at, int64_t b, Recompute recompute) {
  const Program *program = programs_of_form(r, form, b);
  const Wiring *place = wirings(r, form, at);
  Copies *c = alloc((size_t)pipeline_parts(form) * sizeof *c);
  for (int i = 0; i < pipeline_parts(form); i++) {
    int stage = pipeline_stage(form, i);
    const Program *p = &program[stage];
    const Slots *slots = &p->slots[pipeline_chunk(form, i)];
    c[i] = (Copies){.replicas = p->replicas,
                    .exchanges = p->exchanges,
                    .weights = p->versions,
                    .masters = r->target.precision == PRECISION_BF16 && !r->subject.inference,
                    .sharded = p->sharded,
                    .buckets = p->bucket > 0 && !(p->sharded && updates_whole(r)),
                    .accumulators = p->accumulators,
                    .saved = slots->saved,
                    .received = slots->received,
                    .sent = slots->sent,
                    .gradients = slots->gradients,
                    .inputs = slots->inputs,
                    .deferred = p->split_backward ? slots->deferred : 0,
                    .wiring = place[i]};
    set_recomputation(r, recompute, p->in_flight, &c[i]);
    Stand stand = stand_of(form, at, stage);
    set_device(r, at, &stand, pipeline_ranks(form), &c[i]);
  }
  return c;
}

const char *costs_text(const Planner *r) {
  const Profile *p = r->profile;
  return !p                     ? intern("counted")
         : r->request->profiled ? internf("profile %s of whole activations, scaled", p->file)
         : !p->device           ? internf("profile %s", p->file)
                                : internf("profile %s of a %s, scaled", p->file, p->device->name);
}
