/* Generates Programs from a schedule's row: turns in flight, weight delays, update lags, slots, loops. Derivations
 * and sources: docs/guide/schedules.md. */
#include "schedule/generators.h"

#include "schedule/messages.h"

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* ---- turns in flight ------------------------------------------------------------------------------ */

int64_t in_flight_one(const Pipeline *p, int stage, int64_t next) {
  (void)p, (void)stage, (void)next;
  return 1;
}

int64_t in_flight_all(const Pipeline *p, int stage, int64_t next) {
  (void)next;
  return p->microbatches / p->replicas[stage];
}

/* When the next stage holds all that it may, one additional microbatch is under way for each replica of the larger
 * stage; with `ahead` 2 one in each direction. */
int64_t in_flight_1f1b(const Pipeline *p, int stage, int64_t next) {
  if (stage == p->n_stages - 1)
    return 1;
  int64_t w = p->replicas[stage], after = p->replicas[stage + 1];
  return ceil_div(next * after + p->ahead[stage] * most(w, after), w);
}

/* Narayanan et al. 2021 (SC), section 2.2: stage i warms up by 2 (d - i - 1) + (chunks - 1) d turns. */
int64_t in_flight_interleaved(const Pipeline *p, int stage, int64_t next) {
  (void)next;
  int d = p->n_stages;
  return 2 * (d - stage - 1) + (p->chunks - 1) * d + 1;
}

/* Under offload, a promoted part processes all its microbatches: all parts but the model's last run forward first.
 * A stage with one part continues as under 1F1B or, before a stage with several parts, holds all microbatches. */
int64_t in_flight_spilled(const Pipeline *p, int stage, int64_t next) {
  const int parts = pipeline_chunks(p, stage);
  const bool last = stage == p->n_stages - 1;
  if (parts > 1 || last)
    return p->microbatches * (parts - last) + 1;
  return pipeline_chunks(p, stage + 1) > 1 ? p->microbatches : next + 1;
}

int64_t *turns_in_flight(const Generator *g, const Pipeline *p) {
  int64_t *n = alloc((size_t)(p->n_stages + 1) * sizeof *n);
  for (int i = p->n_stages - 1; i >= 0; i--)
    n[i] = g->in_flight(p, i, n[i + 1]);
  return n;
}

/* ---- weights and updates ---------------------------------------------------------------------------- */

/* Turn j runs forward after backward j - n; update t is done if (t + 1) m <= j - n, with m turns per batch. For a
 * batch's first turn the newest version is therefore ceil((n - 1) / m) updates back. */
static int64_t stashed_delay(const Program *p) { return ceil_div(p->in_flight - 1, program_turns(p)); }

static void set_delays(const Generator *g, const Pipeline *pipeline, Program *p) {
  int64_t oldest = 0;
  for (int i = 0; i < pipeline->n_stages; i++) {
    p[i].delay = g->staleness == NEWEST ? 0 : g->staleness == ONE_OLD ? 1 : stashed_delay(&p[i]);
    oldest = most(oldest, p[i].delay);
  }
  for (int i = 0; i < pipeline->n_stages; i++) {
    if (g->staleness == STASHED && pipeline->vertical_sync)
      p[i].delay = oldest;
    p[i].versions = (int)p[i].delay + 1;
  }
}

/* An update that waits for other ranks lags its batch's last turn by some turns, which hide the exchange. If one
 * stage lags, all do, so that they can meet to validate. Each stage then stops at the latest after forward
 * `meeting` of the next batch, counted over all replicas. That is before the first turn that needs the update's
 * weights if replicas exchange gradients, else at the end of the batch on stage 0. A stage lags its predecessor by
 * at most its slots for gradients to send, because the predecessor receives none while it waits. */
/* If replicas gather updated weights before use, reducing and gathering get half of the available time each. Time
 * is counted, as `meeting`, in microbatches of all replicas; the first stages hold the most. */
static int64_t leave_half(const Program *p, int n_stages, int64_t needed) {
  int64_t held = 0;
  for (int i = 0; i < n_stages; i++)
    held = most(held, p[i].in_flight * p[i].replicas);
  return held < needed ? needed - (needed - held) / 2 : needed;
}

static void set_lags(const Generator *g, const Pipeline *pipeline, const bool *exchanges, Program *p) {
  bool waits = false, replicated = false, stale = true;
  for (int i = 0; i < pipeline->n_stages; i++) {
    waits |= exchanges[i];
    replicated |= p[i].replicas > 1;
    stale &= p[i].delay == p[0].delay;
  }
  int64_t needed = p->delay * pipeline->microbatches, meeting = replicated ? needed : least(needed, p->in_flight);
  if (replicated && pipeline->shard_optimizer)
    meeting = leave_half(p, pipeline->n_stages, meeting);
  for (int i = 0; i < pipeline->n_stages; i++) {
    int64_t turns = program_turns(&p[i]);
    p[i].waits = exchanges[i] || (waits && replicated);
    if (!g->drains && stale && (waits || replicated))
      p[i].lag = meeting / p[i].replicas - p[i].in_flight + 1;
    if (i > 0)
      p[i].lag = least(p[i].lag, p[i - 1].lag * p[i - 1].replicas / p[i].replicas + GRADIENT_SLOTS);
    meeting = least(meeting, (p[i].lag + p[i].in_flight - 1) * p[i].replicas);
    p[i].accumulators = (int)(1 + ceil_div(p[i].lag, turns));
    p[i].exchanges = (int)most(1, ceil_div(p[i].lag, turns));
  }
}

/* Replicas exchange buckets during a batch's last turn if the exchange buffers are free then, that is, no update
 * that uses them follows directly. */
static void set_buckets(const Pipeline *pipeline, Program *p) {
  const bool free = p->lag / program_turns(p) < p->exchanges;
  if (p->replicas > 1 && p->chunks == 1 && !p->forward_only && !p->split_backward && free)
    p->bucket = pipeline_bucket(pipeline);
}

/* ---- copies --------------------------------------------------------------------------------------------- */

/* Microbatches of one chunk from the oldest without backward to k. */
static int alive(const int64_t *backwarded, Turn t) { return (int)(t.microbatch - backwarded[t.chunk]); }

static bool has_message(const Program *p, Turn t) { return p->stage > 0 || t.chunk > 0; }

static void take_most(int *slots, int n) { *slots = *slots > n ? *slots : n; }

/* The most live microbatches of each chunk, counted along the turns, because chunks share in_flight unevenly.
 * Received activations need an additional slot, for the next turn with a message. Four groups suffice to reach the
 * maximum. */
static void count_chunk_slots(Program *p) {
  int64_t turns = least(program_turns(p), 4LL * p->n_stages * p->chunks), backwarded[MAX_CHUNKS] = {0};
  for (int64_t f = 1, b = 1; f <= turns; f++) {
    Turn t = program_turn(p, 0, f, false), next;
    for (; b <= f - p->in_flight; b++)
      backwarded[program_turn(p, 0, b, true).chunk]++;
    take_most(&p->slots[t.chunk].saved, alive(backwarded, t));
    if (!has_message(p, t))
      continue;
    int64_t ahead = f;
    do
      next = program_turn(p, 0, ++ahead, false);
    while (!has_message(p, next));
    take_most(&p->slots[t.chunk].received, alive(backwarded, t));
    take_most(&p->slots[next.chunk].received, alive(backwarded, next));
  }
}

/* With a split backward, operands of DO_WEIGHTS stay until it runs. */
static void set_slots(Program *p, bool recompute) {
  int64_t kept = p->in_flight + p->weights_lag;
  if (p->per_batch)
    kept = least(kept, program_turns(p));
  p->slots[0] = (Slots){.saved = (int)kept, .received = (int)kept + 1};
  if (p->chunks > 1) {
    p->slots[0] = (Slots){0};
    count_chunk_slots(p);
  }
  for (int c = 0; c < p->chunks; c++) {
    Slots *s = &p->slots[c];
    int gradients = p->parts > 1 ? GRADIENT_SLOTS + (int)p->weights_lag : 1;
    *s = (Slots){.saved = recompute ? 1 : s->saved,
                 .received = program_receives(p, c) ? s->received : 1,
                 .sent = program_sends(p, c) ? s->saved : 1,
                 .gradients = gradients,
                 .returned = gradients,
                 .inputs = s->saved,
                 .deferred = (int)p->weights_lag + 1};
  }
}

static int slots_to_return(const Pipeline *pipeline, const int64_t *in_flight, int stage) {
  if (stage == 0 || !pipeline->first_part || pipeline_chunks(pipeline, stage) > 1)
    return GRADIENT_SLOTS;
  return returned_slots(in_flight[stage - 1], in_flight[stage], pipeline->microbatches);
}

/* Values between two parts have a slot for each of the batch's microbatches, and so do saved values of a part that
 * keeps them. All further slots are shared by successive turns: inputs are reloaded when the forward pass reruns.
 * Activations from another stage are kept for the backward pass, as are those that a part with kept values sends
 * there. */
static void set_spilled_slots(Program *p) {
  const int all = (int)p->period;
  for (int c = 0; c < p->chunks; c++) {
    int kept = program_keeps(p, c) ? all : 1;
    p->slots[c] = (Slots){.saved = kept,
                          .received = program_receives(p, c) ? all + 1
                                      : c > 0                ? all
                                                             : 1,
                          .sent = !program_sends(p, c)  ? 1
                                  : program_keeps(p, c) ? all
                                                        : SENT_SLOTS,
                          .gradients = program_sends(p, c) ? GRADIENT_SLOTS
                                       : c + 1 < p->chunks ? all
                                                           : 1,
                          .returned = program_receives(p, c) ? GRADIENT_SLOTS : 1,
                          .inputs = kept,
                          .deferred = 1};
  }
}

/* Values that cross a cut need two slots: one in use, one on its way. */
static void set_forward_slots(Program *p) {
  int crossing = 2, last = p->n_stages - 1;
  p->slots[0] = (Slots){.saved = 1,
                        .received = p->stage > 0 ? crossing : 1,
                        .sent = p->stage < last ? crossing : 1,
                        .gradients = 1,
                        .returned = 1,
                        .inputs = 1,
                        .deferred = 1};
}

/* ---- loops ------------------------------------------------------------------------------------------------ */

static void add(Loop *l, Action a) {
  ensure(l->n < MAX_ACTIONS);
  l->action[l->n++] = a;
}

/* Whether some chunk has a neighbour on that side. */
static bool receives(const Program *p) { return p->stage > 0 || p->chunks > 1; }
static bool sends(const Program *p) { return p->stage < p->n_stages - 1 || p->chunks > 1; }

static void add_forward(const Program *p, Loop *l) {
  if (receives(p))
    add(l, DO_RECEIVE);
  add(l, DO_FORWARD);
  add(l, DO_SEND);
}

/* Recomputation needs no gradients: a stage repeats the forward pass before it waits for them. */
static void add_backward(const Program *p, bool recompute, Loop *l) {
  if (recompute)
    add(l, DO_RECOMPUTE);
  if (sends(p))
    add(l, DO_RECEIVE_GRADIENT);
  add(l, DO_BACKWARD);
  add(l, DO_SEND_GRADIENT);
  if (p->split_backward)
    add(l, DO_WEIGHTS);
}

static void add_update(const Program *p, Loop *l) {
  if (p->lag > 0) {
    add(l, DO_UPDATE);
    add(l, DO_EXCHANGE);
  } else {
    add(l, DO_EXCHANGE);
    add(l, DO_UPDATE);
  }
}

/* Without backward passes the pipeline neither fills nor drains. */
static void set_forward_loop(Program *p) {
  Loop *steady = &p->loop[1];
  *steady = (Loop){.name = "stream", .comment = "microbatch after microbatch"};
  add_forward(p, steady);
}

static void add_last_part(const Program *p, Loop *last) {
  if (!program_ends_model(p))
    return;
  add(last, DO_PROMOTE);
  add(last, DO_FORWARD);
  add(last, DO_SEND);
  add(last, DO_BACKWARD);
  add(last, DO_DEMOTE);
  add(last, DO_SEND_GRADIENT);
}

static void set_spilled_loops(Program *p) {
  bool recomputes = false;
  for (int c = 0; c < p->chunks; c++)
    recomputes |= program_reruns(p, c);
  Loop *forward = &p->loop[0], *last = &p->loop[1], *backward = &p->loop[2];
  *forward = (Loop){.name = "forward", .comment = "part after part, each with all microbatches of the batch"};
  *last = (Loop){.name = "the last part", .comment = "each microbatch forward and backward"};
  *backward =
      (Loop){.name = "backward",
             .comment = program_ends_model(p) ? "all microbatches again, from the last part but one to the first"
                                              : "all microbatches again, from the last part to the first"};
  add(forward, DO_PROMOTE);
  if (p->stage > 0)
    add(forward, DO_RECEIVE);
  add(forward, DO_FORWARD);
  add(forward, DO_DEMOTE);
  add(forward, DO_SEND);
  add_last_part(p, last);
  add(backward, DO_PROMOTE);
  if (p->stage < p->n_stages - 1)
    add(backward, DO_RECEIVE_GRADIENT);
  if (recomputes)
    add(backward, DO_RECOMPUTE);
  add(backward, DO_BACKWARD);
  add(backward, DO_DEMOTE);
  add(backward, DO_SEND_GRADIENT);
  add_update(p, backward);
}

/* With one turn in flight there is only the steady state. A batch that drains ends in the last loop that runs, so
 * only that loop needs the update. */
static void set_loops(Program *p, bool recompute) {
  Loop *warm_up = &p->loop[0], *steady = &p->loop[1], *drain = &p->loop[2], *weights = &p->loop[3];
  *warm_up = (Loop){.name = "warm-up", .comment = "fill the pipeline"};
  *steady = (Loop){.name = "steady state", .comment = "one forward, one backward"};
  *drain = (Loop){.name = "drain", .comment = "the backwards that are left"};
  *weights = (Loop){.name = "weights", .comment = "the gradients of weights that are left"};
  add_forward(p, steady);
  add_backward(p, recompute, steady);
  if (p->in_flight > 1) {
    add_forward(p, warm_up);
    add_backward(p, recompute, drain);
  }
  if (p->weights_lag > 0)
    add(weights, DO_WEIGHTS);
  Loop *last = p->weights_lag > 0 ? weights : p->in_flight > 1 ? drain : steady;
  add_update(p, last);
  if (!p->per_batch && last != steady)
    add_update(p, steady);
}

/* The chunks of a stage with several parts that keep saved values. The model's last part neither keeps nor
 * recomputes: its backward pass follows its forward pass. */
static uint64_t chunks_that_keep(const Pipeline *p, int stage) {
  uint64_t keeps = 0;
  for (int c = 0; c < pipeline_chunks(p, stage) && pipeline_chunks(p, stage) > 1; c++) {
    const int part = pipeline_part(p, stage, c);
    keeps |= (uint64_t)(pipeline_keeps(p, part) && part + 1 < pipeline_parts(p)) << c;
  }
  return keeps;
}

Program *generate(const Generator *g, const Pipeline *pipeline, const bool *exchanges) {
  int d = pipeline->n_stages;
  Program *programs = alloc((size_t)d * sizeof *programs);
  int64_t *in_flight = turns_in_flight(g, pipeline);
  for (int i = 0; i < d; i++) {
    Program *p = &programs[i];
    *p = (Program){.stage = i,
                   .n_stages = d,
                   .replicas = pipeline->replicas[i],
                   .chunks = pipeline_chunks(pipeline, i),
                   .part = pipeline_part(pipeline, i, 0),
                   .parts = pipeline_parts(pipeline),
                   .forward_only = g->forward_only,
                   .per_batch = g->drains,
                   .sharded = pipeline->shard_optimizer && pipeline->replicas[i] > 1,
                   .offload.on = g->spills && pipeline_chunks(pipeline, i) > 1,
                   .offload.keeps = g->spills ? chunks_that_keep(pipeline, i) : 0,
                   .offload.memory = pipeline->memory,
                   .offload.pinned = pipeline->kept[i],
                   .offload.page = pipeline->page,
                   .offload.host_updates = pipeline->at_home && g->spills && pipeline_chunks(pipeline, i) > 1,
                   .split_backward = g->split,
                   .in_flight = in_flight[i],
                   .period = pipeline->microbatches,
                   .accumulators = 1,
                   .exchanges = 1};
    if (g->drains && !p->offload.on)
      p->in_flight = least(p->in_flight, program_turns(p));
    /* Qi et al. 2024, ZB-H1: stage i has i fewer turns in flight than stage 0, and its weights pass lags by i
     * turns. */
    p->weights_lag = g->split ? least(i, program_turns(p) - 1) : 0;
  }
  set_delays(g, pipeline, programs);
  if (!g->forward_only)
    set_lags(g, pipeline, exchanges, programs);
  for (int i = 0; i < d; i++) {
    bool recompute = pipeline->recompute[i] && programs[i].in_flight > 1;
    set_buckets(pipeline, &programs[i]);
    if (programs[i].offload.on) {
      set_spilled_slots(&programs[i]);
      set_spilled_loops(&programs[i]);
    } else if (g->forward_only) {
      set_forward_slots(&programs[i]);
      set_forward_loop(&programs[i]);
    } else {
      set_slots(&programs[i], recompute);
      if (g->spills)
        programs[i].slots->returned = slots_to_return(pipeline, in_flight, i);
      set_loops(&programs[i], recompute);
    }
  }
  return programs;
}
