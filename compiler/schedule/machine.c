/* All stages' Programs run together. Every buffer is modelled by what it holds, so that a Program is
 * right when each action finds what semantics say it needs; nothing here compares with a generator.
 * The stages only wait for each other, never choose, so the order in which they are stepped does not
 * matter, and times follow from one pass. */
#include "schedule/program.h"

#include <string.h>

/* One direction across one cut. Messages travel in order, one at a time, and none leaves before its
 * receive is posted. Times are kept of the last `ring` messages. */
typedef struct Link {
  int64_t sent, posted, arrived; /* numbers of the last microbatches */
  int64_t ring;
  double *sent_at, *posted_at, *arrived_at;
  double seconds;
} Link;

typedef struct Held {
  int64_t n, *at; /* the microbatch whose data it holds; 0: none's */
} Held;

typedef struct Stage {
  const Program *p;
  const StageTimes *times;
  Stream stream;
  Step step;
  bool over;
  const char *waiting; /* what the step at hand waits for */
  double now;
  int64_t forwarded, backwarded, received, gradients_received, updated, exchanged;
  Held in, received_in, saved, out, gradient_in, gradient_out;
  int64_t *weights;    /* by buffer: the version it holds, -1: none */
  int64_t *used;       /* by microbatch % used_n: the version of its forward */
  int64_t used_n;
  struct { int64_t batch, count; } *accumulators;
  double *exchanged_at; /* by batch % exchange_ring */
  struct { int64_t forwarded, backwarded; } *at_update; /* likewise */
} Stage;

typedef struct Machine {
  int n;
  Stage *stage;
  Link *down, *up; /* [i]: from stage i to i + 1, and back */
  int64_t microbatches, exchange_ring;
  Trace trace;
  void *context;
  char *why;
} Machine;

static Held held_new(int64_t n) { return (Held){n, alloc((size_t)n * sizeof(int64_t))}; }
static int64_t *slot(Held *s, int64_t k) { return &s->at[k % s->n]; }

static Link link_new(int64_t slots, double seconds) {
  size_t bytes = (size_t)(slots + 2) * sizeof(double);
  return (Link){.ring = slots + 2, .sent_at = alloc(bytes), .posted_at = alloc(bytes), .arrived_at = alloc(bytes),
                .seconds = seconds};
}

static double later(double a, double b) { return a > b ? a : b; }

static void link_move(Link *l) {
  while (l->arrived < l->sent && l->arrived < l->posted) {
    int64_t k = l->arrived + 1, i = k % l->ring;
    double start = later(l->sent_at[i], l->posted_at[i]);
    if (k > 1)
      start = later(start, l->arrived_at[(k - 1) % l->ring]);
    l->arrived_at[i] = start + l->seconds;
    l->arrived = k;
  }
}

static void link_send(Link *l, int64_t k, double now) {
  l->sent = k;
  l->sent_at[k % l->ring] = now;
  link_move(l);
}

static void link_post(Link *l, int64_t k, double now) {
  l->posted = k;
  l->posted_at[k % l->ring] = now;
  link_move(l);
}

/* Whether message k is through (numbers below 1 are); then `now` is not before that. */
static bool link_through(const Link *l, int64_t k, double *now) {
  if (k > l->arrived)
    return false;
  if (k > 0)
    *now = later(*now, l->arrived_at[k % l->ring]);
  return true;
}

typedef enum { WENT, WAITS, FAILED } Outcome;

static Outcome fail(Machine *m, const Stage *s, const char *reason, int64_t number) {
  m->why = format("stage %d, %s %lld: %s (%lld)", s->p->stage, action_name(s->step.action), (long long)s->step.number,
                  reason, (long long)number);
  return FAILED;
}

static Outcome wait_for(Stage *s, const char *what) {
  s->waiting = what;
  return WAITS;
}

/* The receive of microbatch k's message claims its slot from now on, whatever that held. */
static void post_receive(Machine *m, Link *l, Held *slots, int64_t k, double now) {
  if (k > m->microbatches)
    return;
  *slot(slots, k) = 0;
  link_post(l, k, now);
}

static Outcome do_receive(Machine *m, Stage *s) {
  int64_t k = s->step.number;
  int i = s->p->stage;
  if (i == 0)
    return fail(m, s, "stage 0 has no stage before it", i);
  if (k != s->received + 1)
    return fail(m, s, "received out of order, after", s->received);
  if (!link_through(&m->down[i - 1], k, &s->now))
    return wait_for(s, "activations from the stage before");
  s->received = k;
  *slot(&s->received_in, k) = k;
  post_receive(m, &m->down[i - 1], &s->received_in, k + 1, s->now);
  return WENT;
}

static Outcome do_receive_gradient(Machine *m, Stage *s) {
  int64_t k = s->step.number;
  int i = s->p->stage;
  if (i == m->n - 1)
    return fail(m, s, "the last stage has no stage after it", i);
  if (k != s->gradients_received + 1)
    return fail(m, s, "received out of order, after", s->gradients_received);
  if (!link_through(&m->up[i], k, &s->now))
    return wait_for(s, "gradients from the next stage");
  s->gradients_received = k;
  *slot(&s->gradient_in, k) = k;
  post_receive(m, &m->up[i], &s->gradient_in, k + 1, s->now);
  return WENT;
}

/* The weights that microbatch k must see are there. */
static Outcome check_version(Machine *m, Stage *s) {
  int64_t version = program_version(s->p, s->step.number), held = s->weights[version % s->p->versions];
  if (held < version)
    return fail(m, s, "uses weights that no update has made yet: version", version);
  if (held > version)
    return fail(m, s, "uses weights that an update has overwritten: version", version);
  return WENT;
}

static Outcome check_inputs(Machine *m, Stage *s) {
  int64_t k = s->step.number;
  if (s->p->stage > 0 && *slot(&s->received_in, k) != k)
    return fail(m, s, "the received activations' slot holds another microbatch's", *slot(&s->received_in, k));
  return WENT;
}

static Outcome do_forward(Machine *m, Stage *s) {
  int64_t k = s->step.number;
  int i = s->p->stage;
  if (k != s->forwarded + 1)
    return fail(m, s, "forward out of order, after", s->forwarded);
  if (k - s->backwarded > s->p->in_flight)
    return fail(m, s, "more microbatches in flight than", s->p->in_flight);
  if (check_version(m, s) == FAILED || check_inputs(m, s) == FAILED)
    return FAILED;
  if (i < m->n - 1 && !link_through(&m->down[i], k - s->out.n, &s->now))
    return wait_for(s, "a free slot for activations to send");
  *slot(&s->in, k) = *slot(&s->saved, k) = *slot(&s->out, k) = k;
  s->used[k % s->used_n] = program_version(s->p, k);
  s->forwarded = k;
  s->now += s->times->forward;
  return WENT;
}

static Outcome do_send(Machine *m, Stage *s) {
  int64_t k = s->step.number;
  int i = s->p->stage;
  if (k != s->forwarded || *slot(&s->out, k) != k)
    return fail(m, s, "sent before it was computed; computed last", s->forwarded);
  if (i < m->n - 1)
    link_send(&m->down[i], k, s->now);
  return WENT;
}

static Outcome do_recompute(Machine *m, Stage *s) {
  int64_t k = s->step.number;
  if (k != s->backwarded + 1 || k > s->forwarded)
    return fail(m, s, "recomputed out of order, after", s->backwarded);
  if (check_version(m, s) == FAILED || check_inputs(m, s) == FAILED)
    return FAILED;
  if (*slot(&s->in, k) != k)
    return fail(m, s, "the inputs' slot holds another microbatch's", *slot(&s->in, k));
  if (s->p->stage < m->n - 1 && *slot(&s->out, k) != k)
    return fail(m, s, "overwrites the activations to send of microbatch", *slot(&s->out, k));
  *slot(&s->saved, k) = k;
  s->now += s->times->recompute;
  return WENT;
}

/* What the backward reads is the microbatch's own, and the weights are its forward's. */
static Outcome check_backward(Machine *m, Stage *s) {
  int64_t k = s->step.number;
  int i = s->p->stage;
  if (k != s->backwarded + 1 || k > s->forwarded)
    return fail(m, s, "backward out of order, after", s->backwarded);
  if (check_version(m, s) == FAILED || check_inputs(m, s) == FAILED)
    return FAILED;
  if (s->used[k % s->used_n] != program_version(s->p, k))
    return fail(m, s, "its forward used other weights: version", s->used[k % s->used_n]);
  if (*slot(&s->in, k) != k)
    return fail(m, s, "the inputs' slot holds another microbatch's", *slot(&s->in, k));
  if (*slot(&s->saved, k) != k)
    return fail(m, s, "the saved values' slot holds another microbatch's", *slot(&s->saved, k));
  if (i < m->n - 1 && *slot(&s->out, k) != k)
    return fail(m, s, "the sent activations' slot holds another microbatch's", *slot(&s->out, k));
  if (i < m->n - 1 && *slot(&s->gradient_in, k) != k)
    return fail(m, s, "the received gradients' slot holds another microbatch's", *slot(&s->gradient_in, k));
  return WENT;
}

static Outcome do_backward(Machine *m, Stage *s) {
  int64_t k = s->step.number, batch = (k - 1) / s->p->period;
  int i = s->p->stage, set = (int)(batch % s->p->accumulators);
  if (check_backward(m, s) == FAILED)
    return FAILED;
  if ((k - 1) % s->p->period == 0) {
    if (s->accumulators[set].batch >= s->updated)
      return fail(m, s, "overwrites gradients that no update has read, of batch", s->accumulators[set].batch);
  } else if (s->accumulators[set].batch != batch || s->accumulators[set].count != (k - 1) % s->p->period) {
    return fail(m, s, "the accumulators hold another batch's gradients", s->accumulators[set].batch);
  }
  if (i > 0 && !link_through(&m->up[i - 1], k - s->gradient_out.n, &s->now))
    return wait_for(s, "a free slot for gradients to send");
  s->accumulators[set].batch = batch;
  s->accumulators[set].count = (k - 1) % s->p->period + 1;
  *slot(&s->gradient_out, k) = k;
  s->backwarded = k;
  s->now += s->times->backward;
  return WENT;
}

static Outcome do_send_gradient(Machine *m, Stage *s) {
  int64_t k = s->step.number;
  int i = s->p->stage;
  if (k != s->backwarded || *slot(&s->gradient_out, k) != k)
    return fail(m, s, "sent before it was computed; computed last", s->backwarded);
  if (i > 0)
    link_send(&m->up[i - 1], k, s->now);
  return WENT;
}

static bool batch_complete(const Stage *s, int64_t batch) {
  int set = (int)(batch % s->p->accumulators);
  return s->accumulators[set].batch == batch && s->accumulators[set].count == s->p->period;
}

/* Sums of squares and of tied uses need the higher stages' gradients first. */
static Outcome do_exchange(Machine *m, Stage *s) {
  int64_t batch = s->step.number;
  if (batch != s->exchanged)
    return fail(m, s, "exchanged out of order, due", s->exchanged);
  if (!batch_complete(s, batch))
    return fail(m, s, "the batch's gradients are not complete; backward done", s->backwarded);
  if (batch != s->updated)
    return fail(m, s, "the exchange before is still to be used; updates done", s->updated);
  double now = s->now;
  for (int i = s->p->stage + 1; i < m->n; i++) {
    if (m->stage[i].exchanged <= batch)
      return wait_for(s, "higher stages' gradients of the batch");
    now = later(now, m->stage[i].exchanged_at[batch % m->exchange_ring]);
  }
  s->now = now;
  s->exchanged_at[batch % m->exchange_ring] = now;
  s->exchanged++;
  return WENT;
}

/* After its update a stage may validate, and stands still until all others have come to theirs: what a
 * neighbour needs on its way there must have been sent before. */
static Outcome check_meeting(Machine *m, Stage *s, int64_t batch) {
  int64_t at = batch % m->exchange_ring;
  s->at_update[at].forwarded = s->forwarded;
  s->at_update[at].backwarded = s->backwarded;
  for (int i = 0; i < m->n; i++) {
    const Stage *other = &m->stage[i];
    if (other == s || other->updated <= batch)
      continue;
    const Stage *lower = i < s->p->stage ? other : s, *higher = lower == s ? other : s;
    if (lower->at_update[at].forwarded < higher->at_update[at].forwarded)
      return fail(m, s, "no validation can follow: activations are missing that come after the update of stage",
                  lower->p->stage);
    if (higher->at_update[at].backwarded < lower->at_update[at].backwarded)
      return fail(m, s, "no validation can follow: gradients are missing that come after the update of stage",
                  higher->p->stage);
  }
  return WENT;
}

static Outcome do_update(Machine *m, Stage *s) {
  int64_t batch = s->step.number;
  if (batch != s->updated)
    return fail(m, s, "updated out of order, due", s->updated);
  if (!batch_complete(s, batch))
    return fail(m, s, "the batch's gradients are not complete; backward done", s->backwarded);
  if (s->exchanged <= batch)
    return fail(m, s, "before the batch's exchange; exchanges done", s->exchanged);
  if (s->weights[batch % s->p->versions] != batch)
    return fail(m, s, "the weights to update are not there; their buffer holds version",
                s->weights[batch % s->p->versions]);
  double now = s->now;
  for (int i = 0; s->p->waits && i < m->n; i++) {
    if (m->stage[i].exchanged <= batch)
      return wait_for(s, "other stages' gradients of the batch");
    now = later(now, m->stage[i].exchanged_at[batch % m->exchange_ring]);
  }
  if (check_meeting(m, s, batch) == FAILED)
    return FAILED;
  s->weights[(batch + 1) % s->p->versions] = batch + 1;
  s->updated++;
  s->now = now + s->times->update;
  return WENT;
}

static Outcome stage_step(Machine *m, Stage *s) {
  switch (s->step.action) {
  case DO_RECEIVE: return do_receive(m, s);
  case DO_FORWARD: return do_forward(m, s);
  case DO_SEND: return do_send(m, s);
  case DO_RECEIVE_GRADIENT: return do_receive_gradient(m, s);
  case DO_RECOMPUTE: return do_recompute(m, s);
  case DO_BACKWARD: return do_backward(m, s);
  case DO_SEND_GRADIENT: return do_send_gradient(m, s);
  case DO_UPDATE: return do_update(m, s);
  case DO_EXCHANGE: return do_exchange(m, s);
  case DO_WEIGHTS: break;
  }
  BUG("action %d", s->step.action);
}

/* Steps a stage until it waits, ends or fails; *moved becomes true if it did anything. */
static bool stage_run(Machine *m, Stage *s, bool *moved) {
  while (!s->over) {
    double start = s->now;
    Outcome outcome = stage_step(m, s);
    if (outcome == WAITS)
      return true;
    if (outcome == FAILED)
      return false;
    if (m->trace)
      m->trace(m->context, &(Event){s->p->stage, 0, s->step, program_version(s->p, s->step.number), start, s->now});
    *moved = true;
    s->over = !stream_next(&s->stream, &s->step);
  }
  return true;
}

static void deadlock(Machine *m) {
  Text t = {0};
  text_add(&t, "no stage can go on:");
  for (int i = 0; i < m->n; i++)
    if (!m->stage[i].over)
      text_add(&t, " stage %d, %s %lld, waits for %s;", i, action_name(m->stage[i].step.action),
               (long long)m->stage[i].step.number, m->stage[i].waiting);
  t.at[t.n - 1] = 0;
  m->why = t.at;
}

static bool everything_done(Machine *m, int64_t batches) {
  for (int i = 0; i < m->n; i++) {
    const Stage *s = &m->stage[i];
    if (s->forwarded != m->microbatches || s->backwarded != m->microbatches || s->updated != batches ||
        s->exchanged != batches) {
      m->why = format("stage %d ends after %lld forwards, %lld backwards, %lld exchanges, %lld updates of %lld "
                      "microbatches in %lld batches", i, (long long)s->forwarded, (long long)s->backwarded,
                      (long long)s->exchanged, (long long)s->updated, (long long)m->microbatches, (long long)batches);
      return false;
    }
  }
  return true;
}

/* A schedule that drains at every batch uses W(t), one that never drains W(t - 1) (docs/schedules.md);
 * all stages agree, and none holds more versions than that takes. */
static bool check_definition(const Program *p, int n_stages, char **why) {
  for (int i = 0; i < n_stages; i++) {
    if (p[i].stage != i || p[i].n_stages != n_stages)
      return *why = format("program %d is of stage %d of %d", i, p[i].stage, p[i].n_stages), false;
    if (!program_well_formed(&p[i], why))
      return false;
    if (p[i].period != p[0].period || p[i].per_batch != p[0].per_batch)
      return *why = format("stages 0 and %d differ in their microbatches an update", i), false;
    if (p[i].delay != (p[i].per_batch ? 0 : 1))
      return *why = format("stage %d: weights are %lld updates old", i, (long long)p[i].delay), false;
    if (p[i].versions != p[i].delay + 1)
      return *why = format("stage %d: %d versions of weights for a delay of %lld", i, p[i].versions,
                           (long long)p[i].delay), false;
  }
  return true;
}

static void stage_start(Machine *m, Stage *s, const Program *p, const StageTimes *times, int64_t batches) {
  *s = (Stage){.p = p, .times = times, .stream = {.program = p, .batches = batches}};
  s->in = held_new(p->slots[0].inputs);
  s->received_in = held_new(p->slots[0].received);
  s->saved = held_new(p->slots[0].saved);
  s->out = held_new(p->slots[0].sent);
  s->gradient_in = held_new(p->slots[0].gradients);
  s->gradient_out = held_new(p->slots[0].gradients);
  s->weights = alloc((size_t)p->versions * sizeof *s->weights);
  for (int v = 1; v < p->versions; v++)
    s->weights[v] = -1;
  s->used_n = p->in_flight + 1;
  s->used = alloc((size_t)s->used_n * sizeof *s->used);
  s->accumulators = alloc((size_t)p->accumulators * sizeof *s->accumulators);
  for (int a = 0; a < p->accumulators; a++)
    s->accumulators[a].batch = -1;
  s->exchanged_at = alloc((size_t)m->exchange_ring * sizeof *s->exchanged_at);
  s->at_update = alloc((size_t)m->exchange_ring * sizeof *s->at_update);
  s->over = !stream_next(&s->stream, &s->step);
}

/* A stage is ahead of stage 0 by at most the microbatches stage 0 may have in flight. */
static int64_t batches_apart(const Program *p, int n_stages) {
  int64_t most = 0;
  for (int i = 0; i < n_stages; i++)
    most += p[i].in_flight + p[i].lag;
  return most / p->period + 3;
}

bool run_schedule(const Program *programs, const StageTimes *times, int n_stages, int64_t batches, Trace trace,
                  void *context, char **why) {
  if (!check_definition(programs, n_stages, why))
    return false;
  if (!times)
    times = alloc((size_t)n_stages * sizeof *times);
  Machine m = {.n = n_stages, .microbatches = batches * programs->period, .trace = trace, .context = context};
  m.exchange_ring = batches_apart(programs, n_stages);
  m.stage = alloc((size_t)n_stages * sizeof *m.stage);
  m.down = alloc((size_t)n_stages * sizeof *m.down);
  m.up = alloc((size_t)n_stages * sizeof *m.up);
  for (int i = 0; i < n_stages; i++)
    stage_start(&m, &m.stage[i], &programs[i], &times[i], batches);
  for (int i = 0; i + 1 < n_stages; i++) {
    m.down[i] = link_new(programs[i].slots[0].sent, times[i].send);
    m.up[i] = link_new(programs[i + 1].slots[0].gradients, times[i].send);
    post_receive(&m, &m.down[i], &m.stage[i + 1].received_in, 1, 0);
    post_receive(&m, &m.up[i], &m.stage[i].gradient_in, 1, 0);
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (int i = 0; i < n_stages; i++)
      if (!stage_run(&m, &m.stage[i], &moved))
        return *why = m.why, false;
  }
  for (int i = 0; i < n_stages; i++)
    if (!m.stage[i].over) {
      deadlock(&m);
      return *why = m.why, false;
    }
  if (!everything_done(&m, batches))
    return *why = m.why, false;
  return true;
}

bool verify_schedule(const Program *programs, int n_stages, int64_t batches, char **why) {
  return run_schedule(programs, NULL, n_stages, batches, NULL, NULL, why);
}
