/* A Program unrolled: the actions of one stage, one after the other, with their numbers. */
#include "schedule/program.h"

static const char *const action_names[] = {
  [DO_RECEIVE] = "RECEIVE",   [DO_FORWARD] = "FORWARD",
  [DO_SEND] = "SEND",         [DO_RECEIVE_GRADIENT] = "RECEIVE_GRADIENT",
  [DO_RECOMPUTE] = "RECOMPUTE", [DO_BACKWARD] = "BACKWARD",
  [DO_SEND_GRADIENT] = "SEND_GRADIENT", [DO_UPDATE] = "UPDATE",
  [DO_EXCHANGE] = "EXCHANGE", [DO_WEIGHTS] = "WEIGHTS",
};

const char *action_name(Action a) { return action_names[a]; }

int64_t program_version(const Program *p, int64_t k) {
  int64_t version = (k - 1) / p->period - p->delay;
  return version > 0 ? version : 0;
}

int64_t program_turns(const Program *p) { return p->period / p->replicas * p->chunks; }

static int count(const Loop *l, Action a) {
  int n = 0;
  for (int i = 0; i < l->n; i++)
    n += l->action[i] == a;
  return n;
}

bool program_well_formed(const Program *p, char **why) {
  enum { MAX_SLOTS = 1 << 20 };
  const int64_t numbers[] = {p->in_flight,  p->period,         p->versions,   p->accumulators,  p->slots[0].saved,
                             p->slots[0].sent, p->slots[0].received, p->slots[0].gradients, p->slots[0].inputs};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (numbers[i] < 1 || numbers[i] > MAX_SLOTS)
      return *why = format("stage %d: %lld is out of range", p->stage, (long long)numbers[i]), false;
  if (p->delay < 0 || p->delay > MAX_SLOTS || p->lag < 0 || p->lag > MAX_SLOTS)
    return *why = format("stage %d: delay %lld or lag %lld is out of range", p->stage, (long long)p->delay,
                         (long long)p->lag), false;
  static const struct { int sends, gradients; } moves[3] = {{1, 0}, {1, 1}, {0, 1}};
  for (int i = 0; i < 3; i++) {
    const Loop *l = &p->loop[i];
    if (l->n == 0 && i != 1 && p->in_flight == 1)
      continue;
    if (count(l, DO_SEND) != moves[i].sends || count(l, DO_SEND_GRADIENT) != moves[i].gradients)
      return *why = format("stage %d: loop %d (%s) does not move its cursors by one", p->stage, i, l->name), false;
  }
  return true;
}

/* Enters the next scope; false when the run is over. */
static bool next_scope(Stream *s) {
  bool first = s->f == 0;
  if (!first)
    s->scope++;
  if (s->scope >= (s->program->per_batch ? s->batches : s->batches > 0))
    return false;
  s->f = s->b = 1;
  s->u = 0;
  s->loop = s->at = 0;
  return true;
}

static bool loop_goes_on(const Stream *s, int64_t microbatches) {
  switch (s->loop) {
  case 0: return s->f <= microbatches && s->f < s->program->in_flight;
  case 1: return s->f <= microbatches;
  default: return s->b <= microbatches;
  }
}

/* The step of one action at the cursors; false when its condition does not hold. */
static bool take(Stream *s, Action a, Step *step) {
  const Program *p = s->program;
  int64_t base = s->scope * p->period, batch = s->scope, done;
  switch (a) {
  case DO_RECEIVE:
  case DO_FORWARD:
    *step = (Step){a, 0, base + s->f};
    return true;
  case DO_SEND:
    *step = (Step){a, 0, base + s->f++};
    return true;
  case DO_RECEIVE_GRADIENT:
  case DO_RECOMPUTE:
  case DO_BACKWARD:
    *step = (Step){a, 0, base + s->b};
    return true;
  case DO_SEND_GRADIENT:
    *step = (Step){a, 0, base + s->b++};
    return true;
  case DO_UPDATE:
    done = s->b - 1 - p->lag;
    *step = (Step){a, 0, batch + done / p->period - 1};
    if (done <= 0 || done % p->period)
      return false;
    s->u++;
    return true;
  case DO_EXCHANGE:
    done = s->b - 1;
    *step = (Step){a, 0, batch + done / p->period - 1};
    return done > 0 && done % p->period == 0;
  case DO_WEIGHTS: break;
  }
  BUG("action %d", a);
}

bool stream_next(Stream *s, Step *step) {
  const Program *p = s->program;
  if (s->f == 0 && !next_scope(s))
    return false;
  for (;;) {
    int64_t batches = p->per_batch ? 1 : s->batches;
    if (s->loop == 3) {
      if (s->u < batches) {
        *step = (Step){DO_UPDATE, 0, s->scope + s->u++};
        return true;
      }
      if (!next_scope(s))
        return false;
      continue;
    }
    const Loop *l = &p->loop[s->loop];
    if (s->at == 0 && (l->n == 0 || !loop_goes_on(s, batches * p->period))) {
      s->loop++;
      continue;
    }
    Action a = l->action[s->at];
    s->at = (s->at + 1) % l->n;
    if (take(s, a, step))
      return true;
  }
}
