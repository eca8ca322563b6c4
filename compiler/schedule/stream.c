/* Unrolls a Program: the actions of one stage in sequence, with their numbers. */
#include "schedule/program.h"

#include "shared/turns.h"

static const char *const action_names[] = {
    [DO_RECEIVE] = "RECEIVE",
    [DO_FORWARD] = "FORWARD",
    [DO_SEND] = "SEND",
    [DO_RECEIVE_GRADIENT] = "RECEIVE_GRADIENT",
    [DO_RECOMPUTE] = "RECOMPUTE",
    [DO_BACKWARD] = "BACKWARD",
    [DO_SEND_GRADIENT] = "SEND_GRADIENT",
    [DO_UPDATE] = "UPDATE",
    [DO_EXCHANGE] = "EXCHANGE",
    [DO_WEIGHTS] = "WEIGHTS",
    [DO_PROMOTE] = "PROMOTE",
    [DO_DEMOTE] = "DEMOTE",
};

const char *action_name(Action a) { return action_names[a]; }

int64_t program_version(const Program *p, int64_t k) {
  int64_t version = (k - 1) / p->period - p->delay;
  return version > 0 && !p->forward_only ? version : 0;
}

int64_t program_turns(const Program *p) { return p->period / p->replicas * p->chunks; }

bool program_recomputes(const Program *p) {
  for (int i = 0; i < N_LOOPS; i++)
    for (int j = 0; j < p->loop[i].n; j++)
      if (p->loop[i].action[j] == DO_RECOMPUTE)
        return true;
  return false;
}

bool program_recomputes_chunk(const Program *p, int chunk) {
  return program_recomputes(p) && (!p->offload.on || program_reruns(p, chunk));
}

/* Microbatches that pass a chunk before the next chunk's turn. */
static int64_t turns_together(const Program *p) { return p->offload.on ? p->period : p->n_stages; }

Turn program_turn(const Program *p, int replica, int64_t turn, bool backward) {
  const struct pd_turn t = pd_turn_of(turn, p->chunks, turns_together(p), backward);
  return (Turn){t.chunk, p->chunks == 1 ? (t.k - 1) * p->replicas + replica + 1 : t.k};
}

Turn program_turn_after(const Program *p, Turn t, bool backward) {
  if (p->chunks == 1)
    return (Turn){0, t.microbatch + p->replicas};
  const uint32_t together = (uint32_t)turns_together(p);
  if ((uint32_t)t.microbatch % together > 0)
    return (Turn){t.chunk, t.microbatch + 1};
  if (t.chunk == (backward ? 0 : p->chunks - 1))
    return (Turn){p->chunks - 1 - t.chunk, t.microbatch + 1};
  return (Turn){t.chunk + (backward ? -1 : 1), t.microbatch + 1 - together};
}

/* ---- well-formed ------------------------------------------------------------------------------------- */

static int count(const Loop *l, Action a) {
  int n = 0;
  for (int i = 0; i < l->n; i++)
    n += l->action[i] == a;
  return n;
}

static bool sizes_in_range(const Program *p, char **why) {
  enum { MOST = 2 * MAX_MICROBATCHES };
  const int64_t numbers[] = {p->in_flight, p->period,   p->versions,       p->accumulators,
                             p->exchanges, p->replicas, p->chunks,         p->n_stages,
                             p->delay + 1, p->lag + 1,  p->weights_lag + 1};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (numbers[i] < 1 || numbers[i] > MOST)
      return *why = format("stage %d: %lld is out of range", p->stage, (long long)numbers[i]), false;
  if (p->chunks > MAX_CHUNKS)
    return *why = format("stage %d: %d chunks, and at most %d can be", p->stage, p->chunks, MAX_CHUNKS), false;
  for (int c = 0; c < p->chunks; c++) {
    const Slots *s = &p->slots[c];
    const int64_t slots[] = {s->saved, s->sent, s->received, s->gradients, s->returned, s->inputs, s->deferred};
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++)
      if (slots[i] < 1 || slots[i] > MOST)
        return *why = format("stage %d: %lld is out of range", p->stage, (long long)slots[i]), false;
  }
  return true;
}

/* Checks that every rank has the same number of turns per batch, with chunks whole groups. */
static bool turns_come_out(const Program *p, char **why) {
  if (p->chunks > 1 && p->replicas > 1)
    return *why = format("stage %d has both chunks and replicas", p->stage), false;
  int64_t group = p->chunks > 1 && !p->offload.on ? p->n_stages : p->replicas;
  if (p->period % group)
    return *why = format("stage %d: %lld microbatches per update are not divisible by %lld", p->stage,
                         (long long)p->period, (long long)group),
           false;
  return true;
}

static bool loop_may_be_empty(const Program *p, int loop) {
  static const int steady = 1, weights = 3;
  if (p->offload.on && loop == steady)
    return !program_ends_model(p) && p->in_flight > program_turns(p);
  return loop == weights ? !p->split_backward || p->weights_lag == 0 : loop != steady && p->in_flight == 1;
}

/* Checks a program with one loop, whose turns end with DO_SEND. */
static bool forward_loop(const Program *p, char **why) {
  static const int steady = 1;
  bool alone = p->chunks == 1 && !p->per_batch && !p->split_backward;
  for (int i = 0; i < N_LOOPS; i++)
    for (int a = 0; a < p->loop[i].n; a++)
      alone &= i == steady && p->loop[i].action[a] <= DO_SEND;
  if (alone && count(&p->loop[steady], DO_SEND) == 1)
    return true;
  return *why = format("stage %d: a program without backward passes is one loop that receives, computes and sends",
                       p->stage),
         false;
}

/* Values between two parts, and saved values of a part that keeps them, need slots for all microbatches of a
 * batch. */
static bool slots_suffice(const Program *p, char **why) {
  for (int c = 0; c < p->chunks && p->offload.on; c++)
    if ((c > 0 && p->slots[c].received < p->period) || (c + 1 < p->chunks && p->slots[c].gradients < p->period))
      return *why = format("part %d: fewer slots between parts than the %lld microbatches of a batch", c,
                           (long long)p->period),
             false;
    else if (program_keeps(p, c) && (p->slots[c].saved < p->period || p->slots[c].inputs < p->period))
      return *why = format("part %d: fewer slots for saved values than the %lld microbatches of a batch", c,
                           (long long)p->period),
             false;
  if (p->offload.keeps && !p->offload.on)
    return *why = format("stage %d: saved values of single parts are kept only under --spill", p->stage), false;
  if (p->offload.host_updates && !p->offload.on)
    return *why = format("stage %d: updates on the host need --spill", p->stage), false;
  if (program_ends_model(p) && program_keeps(p, p->chunks - 1))
    return *why =
               format("part %d: the last part runs backward at once, so it keeps no saved values", p->chunks - 1),
           false;
  if (p->offload.on && (p->chunks < 2 || p->replicas > 1 || !p->per_batch))
    return *why = format("stage %d: offload needs one rank, two parts or more, and a drain after each batch",
                         p->stage),
           false;
  return true;
}

bool program_well_formed(const Program *p, char **why) {
  static const struct {
    int sends, gradients, weights;
  } moves[N_LOOPS] = {{1, 0, 0}, {1, 1, 1}, {0, 1, 1}, {0, 0, 1}};
  if (!sizes_in_range(p, why) || !turns_come_out(p, why) || !slots_suffice(p, why))
    return false;
  if (p->forward_only)
    return forward_loop(p, why);
  for (int i = 0; i < N_LOOPS; i++) {
    const Loop *l = &p->loop[i];
    if (l->n == 0 && loop_may_be_empty(p, i))
      continue;
    if (count(l, DO_SEND) != moves[i].sends || count(l, DO_SEND_GRADIENT) != moves[i].gradients ||
        count(l, DO_WEIGHTS) != (p->split_backward ? moves[i].weights : 0))
      return *why = format("stage %d: loop %d (%s) does not move its cursors by one", p->stage, i, l->name), false;
  }
  return true;
}

/* ---- the stream ---------------------------------------------------------------------------------------- */

/* Enters the next scope; false when the run is over. */
static bool next_scope(Stream *s) {
  bool first = s->f == 0;
  if (!first)
    s->scope++;
  if (s->scope >= (s->program->per_batch ? s->batches : s->batches > 0))
    return false;
  s->f = s->b = s->w = 1;
  s->u = 0;
  s->loop = s->at = 0;
  return true;
}

static bool loop_goes_on(const Stream *s, int64_t turns) {
  switch (s->loop) {
  case 0: return s->f <= turns && s->f - s->b < s->program->in_flight - 1;
  case 1: return s->f <= turns;
  case 2: return s->b <= turns;
  default: return s->program->split_backward && s->w <= turns;
  }
}

static Step turn_step(const Stream *s, Action a, int64_t cursor, bool backward) {
  int64_t base = s->scope * program_turns(s->program);
  Turn t = program_turn(s->program, s->replica, base + cursor, backward);
  return (Step){a, t.chunk, t.microbatch};
}

/* The step of one action at the cursors; false if its condition does not hold. */
static bool take(Stream *s, Action a, Step *step) {
  const Program *p = s->program;
  int64_t turns = program_turns(p), done = (p->split_backward ? s->w : s->b) - 1;
  switch (a) {
  case DO_RECEIVE:
  case DO_FORWARD: return *step = turn_step(s, a, s->f, false), true;
  case DO_SEND: return *step = turn_step(s, a, s->f++, false), true;
  case DO_RECOMPUTE: *step = turn_step(s, a, s->b, true); return !program_keeps(p, step->chunk);
  case DO_RECEIVE_GRADIENT:
  case DO_BACKWARD: return *step = turn_step(s, a, s->b, true), true;
  case DO_SEND_GRADIENT: return *step = turn_step(s, a, s->b++, true), true;
  case DO_WEIGHTS:
    if (s->loop < 3 && s->b - s->w <= p->weights_lag)
      return false;
    return *step = turn_step(s, a, s->w++, true), true;
  case DO_PROMOTE:
  case DO_DEMOTE: return *step = turn_step(s, a, s->loop == 0 ? s->f : s->b, s->loop != 0), true;
  case DO_UPDATE:
    done -= p->lag;
    *step = (Step){a, 0, s->scope + done / turns - 1};
    if (done <= 0 || done % turns)
      return false;
    s->u++;
    return true;
  case DO_EXCHANGE: *step = (Step){a, 0, s->scope + done / turns - 1}; return done > 0 && done % turns == 0;
  }
  BUG("action %d", a);
}

bool stream_next(Stream *s, Step *step) {
  const Program *p = s->program;
  if (s->f == 0 && !next_scope(s))
    return false;
  for (;;) {
    int64_t batches = p->per_batch ? 1 : s->batches;
    if (s->loop == N_LOOPS) {
      if (s->u < batches && !p->forward_only) {
        *step = (Step){DO_UPDATE, 0, s->scope + s->u++};
        return true;
      }
      if (!next_scope(s))
        return false;
      continue;
    }
    const Loop *l = &p->loop[s->loop];
    if (s->at == 0 && (l->n == 0 || !loop_goes_on(s, batches * program_turns(p)))) {
      s->loop++;
      continue;
    }
    Action a = l->action[s->at];
    s->at = (s->at + 1) % l->n;
    if (take(s, a, step))
      return true;
  }
}
