/* Runs all ranks' Programs together. Each buffer is modelled by its contents: a Program is correct if each action
 * finds the operands that its semantics require, without comparison with a generator. Ranks only wait for each
 * other and never choose, so their order of stepping does not matter, and one pass gives the times. A run in which
 * all ranks meet after every update covers every run with fewer meetings. */
#include "schedule/messages.h"
#include "schedule/spill.h"
#include "schedule/timing.h"

#include <math.h>
#include <string.h>

typedef struct Held {
  int64_t n, *at; /* the microbatch of its data; 0: none */
} Held;

/* Messages go one way (DOWN: activations, UP: gradients) between adjacent parts of the model. */
enum { DOWN, UP, N_WAYS };
typedef struct Message {
  int64_t microbatch; /* 0: none */
  bool arrived;
  double at, arrived_at; /* time of sending; time of arrival */
} Message;
typedef struct Outbox {
  int64_t n;
  Message *at;
} Outbox;

/* A rank has one posted receive per direction, for its next turn with a message. A message leaves only after its
 * receive is posted. */
typedef struct Inbox {
  int64_t turn; /* last posted, within the run */
  Turn posted;  /* microbatch 0: none is left */
  bool arrived;
  double posted_at, arrived_at;
} Inbox;

typedef struct Chunk {
  int64_t again; /* offload: the microbatch whose sent values were recomputed */
  Held inputs, received, saved, sent, gradient_in, gradient_out, deferred;
  Outbox out[N_WAYS];
} Chunk;

typedef struct Accumulators {
  int64_t batch, backwards, weights;
} Accumulators;

typedef struct Rank {
  const Program *p;
  int replica;
  const StageTimes *times; /* of all parts of the model */
  Stream stream;
  Step step;
  bool over;
  const char *waiting; /* the reason for waiting in the current step */
  double now, start;   /* seconds; start of the last step's work */
  int64_t forwarded, backwarded, weighted, updated, exchanged;
  Inbox in[N_WAYS];
  Chunk *chunk;
  int64_t *weights; /* by buffer: the version it holds, -1: none */
  Accumulators *accumulators;
  Spill *spill; /* NULL: no offload */
} Rank;

/* By batch: the ranks of a stage that have contributed gradients or updated weights, and the time of the last. */
typedef struct Exchange {
  int ranks;
  double at;
} Exchange;

typedef struct Machine {
  int n_stages, n_ranks;
  Rank *rank;
  int *first;             /* by stage: its first rank */
  Exchange **exchange;    /* [stage][batch] */
  Exchange **update;      /* by stage and batch: shards of the weights, if sharded */
  int *arrived_at_update; /* by batch: ranks that have updated */
  int64_t batches;
  bool meets; /* all ranks meet after every update */
  bool ended; /* the trace ended the run */
  Trace trace;
  void *context;
  char *why;
} Machine;

static double later(double a, double b) { return a > b ? a : b; }
static int64_t own_count(const Program *p, int64_t k) { return (k - 1) / p->replicas + 1; }
static int64_t *slot(const Rank *r, Held *s, int64_t k) { return &s->at[own_count(r->p, k) % s->n]; }
static Chunk *chunk_of(Rank *r) { return &r->chunk[r->step.chunk]; }

typedef enum { WENT, WAITS, FAILED } Outcome;

static char *rank_text(const Rank *r) {
  return r->p->replicas > 1 ? format("stage %d.%d", r->p->stage, r->replica) : format("stage %d", r->p->stage);
}

static Outcome fail(Machine *m, const Rank *r, const char *reason, int64_t number) {
  m->why = format("%s, %s %lld: %s (%lld)", rank_text(r), action_name(r->step.action), (long long)r->step.number,
                  reason, (long long)number);
  return FAILED;
}

static Outcome wait_for(Rank *r, const char *what) {
  r->waiting = what;
  return WAITS;
}

static void work(Rank *r, double seconds) {
  r->start = r->now;
  r->now += seconds;
}

static const StageTimes *times_at(const Rank *r, int chunk) { return &r->times[program_part(r->p, chunk)]; }

static void work_on_turn(Rank *r, double seconds) {
  work(r, turn_seconds(r->p, times_at(r, 0), r->replica, r->step, seconds));
}

/* ---- messages ------------------------------------------------------------------------------------------- */

/* Whether the turn has a message from that side. */
static bool has_message(const Rank *r, int way, Turn t) {
  return way == DOWN ? program_receives(r->p, t.chunk) : program_sends(r->p, t.chunk);
}

/* The rank with the turn's microbatch in the next part (to 1) or the previous part (to -1), and its chunk
 * there. */
static Rank *neighbour(Machine *m, const Rank *r, Turn t, int to, int *chunk) {
  int at = program_part(r->p, t.chunk) + to, stage = 0;
  Rank *first = m->rank;
  while ((*chunk = program_chunk(first->p, at)) < 0)
    first = &m->rank[m->first[++stage]];
  return first + (t.microbatch - 1) % first->p->replicas;
}

static Message *message(const Rank *r, Turn t, int way) {
  Outbox *o = &r->chunk[t.chunk].out[way];
  return &o->at[own_count(r->p, t.microbatch) % o->n];
}

static void deliver(Message *from, Inbox *to, double seconds) {
  from->arrived = to->arrived = true;
  from->arrived_at = to->arrived_at = message_arrival(from->at, to->posted_at, seconds);
}

static double message_seconds(const Rank *lower, int chunk) { return times_at(lower, chunk)->send; }

/* Posts the receive of the next turn with a message, which claims its slot from then on. */
static void post_next(Machine *m, Rank *r, int way) {
  Inbox *in = &r->in[way];
  int64_t turns = m->batches * program_turns(r->p);
  *in = (Inbox){.turn = in->turn, .posted_at = r->now};
  do {
    if (++in->turn > turns)
      return;
    in->posted = program_turn(r->p, r->replica, in->turn, way == UP);
  } while (!has_message(r, way, in->posted));
  Chunk *c = &r->chunk[in->posted.chunk];
  *slot(r, way == DOWN ? &c->received : &c->gradient_in, in->posted.microbatch) = 0;
  int chunk;
  Rank *sender = neighbour(m, r, in->posted, way == DOWN ? -1 : 1, &chunk);
  Message *sent = message(sender, (Turn){chunk, in->posted.microbatch}, way);
  if (sent->microbatch == in->posted.microbatch && !sent->arrived)
    deliver(sent, in, way == DOWN ? message_seconds(sender, chunk) : message_seconds(r, in->posted.chunk));
}

static void send(Machine *m, Rank *r, int way) {
  Turn t = {r->step.chunk, r->step.number};
  Message *sent = message(r, t, way);
  *sent = (Message){.microbatch = t.microbatch, .at = r->now};
  int chunk;
  Rank *receiver = neighbour(m, r, t, way == DOWN ? 1 : -1, &chunk);
  Inbox *in = &receiver->in[way];
  if (in->posted.microbatch == t.microbatch && in->posted.chunk == chunk && !in->arrived)
    deliver(sent, in, way == DOWN ? message_seconds(r, t.chunk) : message_seconds(receiver, chunk));
}

/* Whether the slot for sending the step's microbatch is free; `now` then becomes at least the time at which it was
 * freed. */
static bool slot_free(Rank *r, int way, int slots) {
  int64_t before = r->step.number - (int64_t)slots * r->p->replicas;
  if (before < 1)
    return true;
  const Message *sent = message(r, (Turn){r->step.chunk, before}, way);
  if (sent->microbatch != before || !sent->arrived)
    return false;
  r->now = later(r->now, sent->arrived_at);
  return true;
}

static Outcome receive(Machine *m, Rank *r, int way) {
  Inbox *in = &r->in[way];
  Turn t = {r->step.chunk, r->step.number};
  if (!has_message(r, way, t))
    return r->p->chunks > 1 ? WENT : fail(m, r, way == DOWN ? "no stage before" : "no stage after", r->p->stage);
  if (in->posted.microbatch != t.microbatch || in->posted.chunk != t.chunk)
    return fail(m, r, "received out of order, expected", in->posted.microbatch);
  if (!in->arrived)
    return wait_for(r, way == DOWN ? "activations from the stage before" : "gradients from the next stage");
  r->now = later(r->now, in->arrived_at);
  *slot(r, way == DOWN ? &chunk_of(r)->received : &chunk_of(r)->gradient_in, t.microbatch) = t.microbatch;
  post_next(m, r, way);
  return WENT;
}

/* ---- one turn -------------------------------------------------------------------------------------------- */

/* Whether the step's turn is number `done` + 1 of the rank's. */
static bool in_turn(const Rank *r, int64_t done, bool backward) {
  Turn t = program_turn(r->p, r->replica, done + 1, backward);
  return t.chunk == r->step.chunk && t.microbatch == r->step.number;
}

/* Checks the weight version that the microbatch must use. */
static Outcome check_version(Machine *m, Rank *r) {
  int64_t version = program_version(r->p, r->step.number), held = r->weights[version % r->p->versions];
  if (held < version)
    return fail(m, r, "uses weights that no update has made yet: version", version);
  if (held > version)
    return fail(m, r, "uses weights that an update has overwritten: version", version);
  return WENT;
}

static Outcome check_held(Machine *m, Rank *r, Held *h, const char *what) {
  int64_t held = *slot(r, h, r->step.number);
  if (held != r->step.number)
    return fail(m, r, format("the %s' slot holds another microbatch's", what), held);
  return WENT;
}

static bool gets(const Rank *r, int way) { return has_message(r, way, (Turn){r->step.chunk, r->step.number}); }

static Outcome check_received(Machine *m, Rank *r) {
  return gets(r, DOWN) ? check_held(m, r, &chunk_of(r)->received, "received activations") : WENT;
}

/* Under offload: checks that the action's operands are resident and correct. */
static Outcome check_spilled(Machine *m, Rank *r) {
  const char *why = r->spill ? spill_check(r->spill, &r->step) : NULL;
  return why ? fail(m, r, why, r->step.chunk) : WENT;
}

static Outcome do_promote(Machine *m, Rank *r) {
  if (!r->spill)
    return fail(m, r, "there is nothing to promote or demote", r->step.chunk);
  const char *why = (r->step.action == DO_PROMOTE ? spill_promote : spill_demote)(r->spill, &r->step);
  return why ? fail(m, r, why, r->step.chunk) : WENT;
}

/* Whether all shards of a version are there; `now` then becomes at least the time of the last. */
static bool has_all_parts(const Machine *m, Rank *r, int64_t version) {
  if (!r->p->sharded || version == 0)
    return true;
  const Exchange *e = &m->update[r->p->stage][version - 1];
  if (e->ranks < r->p->replicas)
    return false;
  r->now = later(r->now, e->at);
  return true;
}

static Outcome do_forward(Machine *m, Rank *r) {
  int64_t k = r->step.number;
  Chunk *c = chunk_of(r);
  if (!in_turn(r, r->forwarded, false))
    return fail(m, r, "forward out of order; turns done", r->forwarded);
  if (!r->p->forward_only && r->forwarded + 1 - r->backwarded > r->p->in_flight)
    return fail(m, r, "more in flight than", r->p->in_flight);
  if (check_version(m, r) == FAILED || check_received(m, r) == FAILED)
    return FAILED;
  if (gets(r, UP) && !slot_free(r, DOWN, r->p->slots[r->step.chunk].sent))
    return wait_for(r, "a free slot for activations to send");
  if (!has_all_parts(m, r, program_version(r->p, k)))
    return wait_for(r, "the parts of the weights that the stage's other replicas update");
  if (check_spilled(m, r) == FAILED)
    return FAILED;
  *slot(r, &c->inputs, k) = *slot(r, &c->saved, k) = *slot(r, &c->sent, k) = k;
  r->forwarded++;
  work_on_turn(r, times_at(r, r->step.chunk)->forward);
  return WENT;
}

static Outcome do_send(Machine *m, Rank *r) {
  int64_t computed = *slot(r, &chunk_of(r)->sent, r->step.number);
  if (!in_turn(r, r->forwarded - 1, false) || computed != r->step.number)
    return fail(m, r, "sent before it was computed; turns done", r->forwarded);
  if (gets(r, UP))
    send(m, r, DOWN);
  return WENT;
}

static Outcome do_recompute(Machine *m, Rank *r) {
  int64_t k = r->step.number;
  Chunk *c = chunk_of(r);
  if (!in_turn(r, r->backwarded, true) || r->backwarded >= r->forwarded)
    return fail(m, r, "recomputed out of order; turns done", r->backwarded);
  if (r->p->offload.on) /* reloads them */
    *slot(r, &c->inputs, k) = k;
  if (check_version(m, r) == FAILED || check_received(m, r) == FAILED || check_spilled(m, r) == FAILED ||
      check_held(m, r, &c->inputs, "inputs") == FAILED)
    return FAILED;
  if (r->p->offload.on) /* a recomputation writes sent values outside their slots */
    c->again = k;
  else if (gets(r, UP) && *slot(r, &c->sent, k) != k)
    return fail(m, r, "overwrites the activations to send of microbatch", *slot(r, &c->sent, k));
  *slot(r, &c->saved, k) = k;
  work_on_turn(r, times_at(r, r->step.chunk)->recompute);
  return WENT;
}

/* Checks that backward and the weights pass read their own microbatch's values and its forward's weights. */
static Outcome check_reads(Machine *m, Rank *r) {
  Chunk *c = chunk_of(r);
  if (check_version(m, r) == FAILED || check_received(m, r) == FAILED || check_spilled(m, r) == FAILED ||
      check_held(m, r, &c->inputs, "inputs") == FAILED || check_held(m, r, &c->saved, "saved values") == FAILED)
    return FAILED;
  if (!gets(r, UP))
    return WENT;
  if (r->p->offload.on && program_reruns(r->p, r->step.chunk)) {
    if (c->again != r->step.number)
      return fail(m, r, "its sent activations were not recomputed, but those of microbatch", c->again);
  } else if (check_held(m, r, &c->sent, "sent activations") == FAILED) {
    return FAILED;
  }
  return check_held(m, r, &c->gradient_in, "received gradients");
}

/* A batch's first microbatch overwrites the accumulators, later ones add to the sum. `done` counts turns. */
static Outcome check_accumulators(Machine *m, Rank *r, const Accumulators *a, int64_t counted, int64_t done) {
  int64_t batch = (r->step.number - 1) / r->p->period, before = done % program_turns(r->p);
  if (a->batch == batch ? counted != before : before > 0)
    return fail(m, r, "the accumulators hold another batch's gradients", a->batch);
  if (a->batch != batch && a->batch >= r->updated)
    return fail(m, r, "overwrites gradients that no update has read, of batch", a->batch);
  return WENT;
}

static Accumulators *accumulators_of(Rank *r, int64_t batch) {
  return &r->accumulators[batch % r->p->accumulators];
}

/* The batch's last turn begins the exchange of buckets. Checks that it is due, that its buffers are free, and that
 * all weight gradients precede it. */
static Outcome check_buckets(Machine *m, Rank *r, int64_t batch) {
  if (!r->p->bucket)
    return WENT;
  if (batch != r->exchanged)
    return fail(m, r, "begins an exchange out of order, due", r->exchanged);
  if (batch - r->updated >= r->p->exchanges)
    return fail(m, r, "begins an exchange whose buffers are still to be used; updates done", r->updated);
  if (r->p->split_backward)
    return fail(m, r, "begins to exchange gradients that are not complete; weights' gradients done", r->weighted);
  return WENT;
}

static Outcome do_backward(Machine *m, Rank *r) {
  int64_t k = r->step.number, batch = (k - 1) / r->p->period;
  Chunk *c = chunk_of(r);
  Accumulators *a = accumulators_of(r, batch);
  if (!in_turn(r, r->backwarded, true) || r->backwarded >= r->forwarded)
    return fail(m, r, "backward out of order; turns done", r->backwarded);
  if (gets(r, DOWN) && !slot_free(r, UP, r->p->slots[r->step.chunk].returned))
    return wait_for(r, "a free slot for gradients to send");
  if (check_reads(m, r) == FAILED || check_accumulators(m, r, a, a->backwards, r->backwarded) == FAILED)
    return FAILED;
  if (a->batch != batch)
    *a = (Accumulators){.batch = batch};
  a->backwards++;
  if (a->backwards == program_turns(r->p) && check_buckets(m, r, batch) == FAILED)
    return FAILED;
  *slot(r, &c->gradient_out, k) = *slot(r, &c->deferred, k) = k;
  r->backwarded++;
  work_on_turn(r, times_at(r, r->step.chunk)->backward);
  return WENT;
}

static Outcome do_send_gradient(Machine *m, Rank *r) {
  int64_t computed = *slot(r, &chunk_of(r)->gradient_out, r->step.number);
  if (!in_turn(r, r->backwarded - 1, true) || computed != r->step.number)
    return fail(m, r, "sent before it was computed; turns done", r->backwarded);
  if (gets(r, DOWN))
    send(m, r, UP);
  return WENT;
}

static Outcome do_weights(Machine *m, Rank *r) {
  Chunk *c = chunk_of(r);
  Accumulators *a = accumulators_of(r, (r->step.number - 1) / r->p->period);
  if (!in_turn(r, r->weighted, true) || r->weighted >= r->backwarded)
    return fail(m, r, "weights' gradients out of order; turns done", r->weighted);
  if (check_reads(m, r) == FAILED || check_held(m, r, &c->deferred, "deferred values") == FAILED ||
      check_held(m, r, &c->gradient_out, "gradients to send") == FAILED ||
      check_accumulators(m, r, a, a->weights, r->weighted) == FAILED)
    return FAILED;
  a->weights++;
  r->weighted++;
  work_on_turn(r, times_at(r, r->step.chunk)->weights);
  return WENT;
}

/* ---- updates --------------------------------------------------------------------------------------------- */

static Outcome check_complete(Machine *m, Rank *r) {
  const Accumulators *a = accumulators_of(r, r->step.number);
  int64_t turns = program_turns(r->p);
  if (a->batch != r->step.number || a->backwards != turns || (r->p->split_backward && a->weights != turns))
    return fail(m, r, "the batch's gradients are not complete; backward done", r->backwarded);
  return WENT;
}

/* Reductions among a stage's ranks run in sequence. */
static Outcome do_exchange(Machine *m, Rank *r) {
  int64_t batch = r->step.number;
  if (batch != r->exchanged)
    return fail(m, r, "exchanged out of order, due", r->exchanged);
  if (check_complete(m, r) == FAILED)
    return FAILED;
  if (check_spilled(m, r) == FAILED)
    return FAILED;
  if (batch - r->updated >= r->p->exchanges)
    return fail(m, r, "the exchange whose buffers it needs is still to be used; updates done", r->updated);
  Exchange *e = &m->exchange[r->p->stage][batch];
  const StageTimes *times = times_at(r, 0);
  e->at = later(e->at, r->now);
  if (++e->ranks == r->p->replicas && r->p->replicas > 1)
    e->at = later(e->at, (batch > 0 ? e[-1].at : 0) + times->hidden) + (times->reduce - times->hidden);
  r->exchanged++;
  return WENT;
}

/* Whether batch t's gradients of all ranks of a stage are there; `now` then becomes at least the time of the
 * last. */
static bool exchanged(Machine *m, int stage, int64_t batch, double *now) {
  const Exchange *e = &m->exchange[stage][batch];
  if (e->ranks < m->rank[m->first[stage]].p->replicas)
    return false;
  *now = later(*now, e->at);
  return true;
}

static Outcome do_update(Machine *m, Rank *r) {
  int64_t batch = r->step.number;
  if (batch != r->updated)
    return fail(m, r, "updated out of order, due", r->updated);
  if (check_complete(m, r) == FAILED)
    return FAILED;
  if (r->exchanged <= batch)
    return fail(m, r, "before the batch's exchange; exchanges done", r->exchanged);
  if (r->weights[batch % r->p->versions] != batch)
    return fail(m, r, "the weights to update are not there; their buffer holds version",
                r->weights[batch % r->p->versions]);
  double now = r->now;
  if (!exchanged(m, r->p->stage, batch, &now))
    return wait_for(r, "the gradients of the stage's other replicas");
  for (int i = 0; r->p->waits && i < m->n_stages; i++)
    if (!exchanged(m, i, batch, &now))
      return wait_for(r, "other stages' gradients of the batch");
  if (!has_all_parts(m, r, batch))
    return wait_for(r, "the parts of the last weights that the stage's other replicas updated");
  if (check_spilled(m, r) == FAILED)
    return FAILED;
  r->weights[(batch + 1) % r->p->versions] = batch + 1;
  r->updated++;
  m->arrived_at_update[batch]++;
  r->now = later(r->now, now);
  work(r, times_at(r, 0)->update);
  Exchange *e = &m->update[r->p->stage][batch];
  e->at = later(e->at, r->now);
  if (++e->ranks == r->p->replicas)
    e->at += times_at(r, 0)->gather;
  return WENT;
}

/* ---- all ranks ------------------------------------------------------------------------------------------- */

static Outcome rank_step(Machine *m, Rank *r) {
  if (m->meets && r->updated > 0 && m->arrived_at_update[r->updated - 1] < m->n_ranks)
    return wait_for(r, "all ranks to meet after their updates, to validate");
  switch (r->step.action) {
  case DO_RECEIVE: return receive(m, r, DOWN);
  case DO_FORWARD: return do_forward(m, r);
  case DO_SEND: return do_send(m, r);
  case DO_RECEIVE_GRADIENT: return receive(m, r, UP);
  case DO_RECOMPUTE: return do_recompute(m, r);
  case DO_BACKWARD: return do_backward(m, r);
  case DO_SEND_GRADIENT: return do_send_gradient(m, r);
  case DO_WEIGHTS: return do_weights(m, r);
  case DO_UPDATE: return do_update(m, r);
  case DO_EXCHANGE: return do_exchange(m, r);
  case DO_PROMOTE:
  case DO_DEMOTE: return do_promote(m, r);
  }
  BUG("action %d", r->step.action);
}

static int64_t event_version(const Rank *r) {
  switch (r->step.action) {
  case DO_UPDATE: return r->step.number + 1;
  case DO_EXCHANGE: return r->step.number;
  default: return program_version(r->p, r->step.number);
  }
}

/* Steps a rank until it waits, ends or fails; *moved becomes true after any progress. */
static bool rank_run(Machine *m, Rank *r, bool *moved) {
  while (!r->over) {
    r->start = INFINITY;
    Outcome outcome = rank_step(m, r);
    if (outcome == WAITS)
      return true;
    if (outcome == FAILED)
      return false;
    *moved = true;
    if (m->trace) {
      Event e = {r->p->stage, r->replica, r->step, event_version(r), fmin(r->start, r->now), r->now};
      m->ended = !m->trace(m->context, &e);
      if (m->ended)
        return true;
    }
    r->over = !stream_next(&r->stream, &r->step);
  }
  return true;
}

static void deadlock(Machine *m) {
  Text t = {0};
  text_add(&t, "no rank can go on:");
  for (int i = 0; i < m->n_ranks; i++) {
    const Rank *r = &m->rank[i];
    if (!r->over)
      text_add(&t, " %s, %s %lld, waits for %s;", rank_text(r), action_name(r->step.action),
               (long long)r->step.number, r->waiting);
  }
  t.at[t.n - 1] = 0;
  m->why = t.at;
}

static bool everything_done(Machine *m) {
  for (int i = 0; i < m->n_ranks; i++) {
    const Rank *r = &m->rank[i];
    int64_t turns = m->batches * program_turns(r->p), weighted = r->p->split_backward ? turns : 0;
    int64_t backwarded = r->p->forward_only ? 0 : turns, updated = r->p->forward_only ? 0 : m->batches;
    if (r->forwarded != turns || r->backwarded != backwarded || r->weighted != weighted || r->updated != updated ||
        r->exchanged != updated) {
      m->why = format("%s ends after %lld forwards, %lld backwards, %lld weights' gradients, %lld exchanges, "
                      "%lld updates of %lld turns in %lld batches",
                      rank_text(r), (long long)r->forwarded, (long long)r->backwarded, (long long)r->weighted,
                      (long long)r->exchanged, (long long)r->updated, (long long)turns, (long long)m->batches);
      return false;
    }
  }
  return true;
}

/* ---- the start ------------------------------------------------------------------------------------------- */

static Held held_new(int64_t n) { return (Held){n, alloc((size_t)n * sizeof(int64_t))}; }
static Outbox outbox_new(int64_t n) { return (Outbox){n, alloc((size_t)n * sizeof(Message))}; }

/* Slots beyond the number of microbatches make no difference. */
static Chunk chunk_new(const Slots *s, int64_t microbatches) {
  Chunk c = {0};
  const struct {
    Held *held;
    int slots;
  } all[] = {{&c.inputs, s->inputs},    {&c.received, s->received},     {&c.saved, s->saved},
             {&c.sent, s->sent},        {&c.gradient_in, s->gradients}, {&c.gradient_out, s->returned},
             {&c.deferred, s->deferred}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    *all[i].held = held_new(all[i].slots <= microbatches ? all[i].slots : microbatches + 1);
  c.out[DOWN] = outbox_new(c.sent.n + 1);
  c.out[UP] = outbox_new(c.gradient_out.n + 1);
  return c;
}

static void rank_start(Machine *m, Rank *r, const Program *p, int replica, const StageTimes *times) {
  *r = (Rank){.p = p,
              .replica = replica,
              .times = times,
              .stream = {.program = p, .replica = replica, .batches = m->batches}};
  r->chunk = alloc((size_t)p->chunks * sizeof *r->chunk);
  for (int c = 0; c < p->chunks; c++)
    r->chunk[c] = chunk_new(&p->slots[c], m->batches * p->period / p->replicas);
  r->weights = alloc((size_t)p->versions * sizeof *r->weights);
  for (int v = 1; v < p->versions; v++)
    r->weights[v] = -1;
  r->accumulators = alloc((size_t)p->accumulators * sizeof *r->accumulators);
  for (int a = 0; a < p->accumulators; a++)
    r->accumulators[a].batch = -1;
  if (p->offload.on)
    r->spill = spill_start(p);
  r->over = !stream_next(&r->stream, &r->step);
}

static void machine_start(Machine *m, const Program *programs, const StageTimes *times) {
  m->first = alloc((size_t)m->n_stages * sizeof *m->first);
  m->exchange = alloc((size_t)m->n_stages * sizeof *m->exchange);
  m->update = alloc((size_t)m->n_stages * sizeof *m->update);
  m->arrived_at_update = alloc((size_t)(m->batches + 1) * sizeof *m->arrived_at_update);
  for (int i = 0; i < m->n_stages; i++) {
    m->first[i] = m->n_ranks;
    m->n_ranks += programs[i].replicas;
    m->exchange[i] = alloc((size_t)(m->batches + 1) * sizeof **m->exchange);
    m->update[i] = alloc((size_t)(m->batches + 1) * sizeof **m->update);
  }
  m->rank = alloc((size_t)m->n_ranks * sizeof *m->rank);
  for (int i = 0; i < m->n_stages; i++)
    for (int r = 0; r < programs[i].replicas; r++)
      rank_start(m, &m->rank[m->first[i] + r], &programs[i], r, times);
  for (int i = 0; i < m->n_ranks; i++)
    for (int way = 0; way < (programs->forward_only ? UP : N_WAYS); way++)
      post_next(m, &m->rank[i], way);
}

static bool machine_run(Machine *m, const Program *programs, const StageTimes *times) {
  if (!programs_agree(programs, m->n_stages, &m->why))
    return false;
  machine_start(m, programs, times ? times : alloc((size_t)programs->parts * sizeof *times));
  for (bool moved = true; moved && !m->ended;) {
    moved = false;
    for (int i = 0; i < m->n_ranks && !m->ended; i++)
      if (!rank_run(m, &m->rank[i], &moved))
        return false;
  }
  if (m->ended)
    return true;
  for (int i = 0; i < m->n_ranks; i++)
    if (!m->rank[i].over)
      return deadlock(m), false;
  return everything_done(m);
}

bool run_schedule(const Program *programs, const StageTimes *times, int n_stages, int64_t batches, Trace trace,
                  void *context, char **why) {
  Machine m = {.n_stages = n_stages, .batches = batches, .trace = trace, .context = context};
  bool runs = machine_run(&m, programs, times);
  *why = m.why;
  return runs;
}

bool verify_schedule(const Program *programs, int n_stages, int64_t batches, char **why) {
  Machine m = {.n_stages = n_stages, .batches = batches, .meets = true};
  bool holds = machine_run(&m, programs, NULL);
  *why = m.why;
  return holds;
}
