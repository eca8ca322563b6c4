/* What a batch takes whose blocks come and go: steps compute, one after the other, and beside them a thread reads and
 * writes, writing first, as runtime/host/spill_moves.c does. Steps wait for what they read, and for memory that is still to
 * be written. */
#include <math.h>

#include "plan/spilling.h"

/* ---- the blocks ------------------------------------------------------------------------------------------ */

typedef Vec(struct pd_block) Blocks;

/* Those of parameters that come and go alike are one. */
static void add(Blocks *blocks, int first, enum pd_block_kind kind, uint64_t parts, int group, int64_t bytes) {
  if (bytes <= 0)
    return;
  for (int i = first; i < blocks->n; i++) {
    struct pd_block *b = &blocks->at[i];
    if (b->kind == kind && b->parts == parts && b->group == group) {
      b->bytes += (size_t)bytes;
      return;
    }
  }
  push(blocks, ((struct pd_block){.kind = kind, .parts = parts, .group = group, .bytes = (size_t)bytes}));
}

static int part_of_piece(const SpillChoice *c, int piece) {
  int part = 0;
  while (c->start[part + 1] <= piece)
    part++;
  return part;
}

/* By parameter its group; -1: it is not updated. */
static int *groups(const SpillProblem *p, int *n) {
  int *group = alloc((size_t)(p->n_params + 1) * sizeof *group);
  int64_t most = 0, elements = 0;
  *n = 0;
  for (int i = 0; i < p->n_params; i++)
    most = !p->param[i].frozen && p->param[i].elements > most ? p->param[i].elements : most;
  for (int i = 0; i < p->n_params; i++) {
    const SpillParam *q = &p->param[i];
    group[i] = -1;
    if (q->frozen)
      continue;
    if (*n == 0 || pd_group_ends(elements, q->elements, most))
      ++*n, elements = 0;
    elements += q->elements;
    group[i] = *n - 1;
  }
  return group;
}

static void add_parameters(const SpillProblem *p, const SpillChoice *c, const int *group, Blocks *blocks) {
  int first = 0, last = -1;
  for (int i = 0; i < p->n_params; i++) {
    const SpillParam *q = &p->param[i];
    uint64_t parts = 0;
    if (group[i] >= 0 && group[i] != last) /* those of another group are not alike */
      first = blocks->n, last = group[i];
    for (int k = 0; k < q->n_readers; k++)
      parts |= (uint64_t)1 << part_of_piece(c, q->reader[k]);
    add(blocks, q->frozen ? 0 : first, PD_BLOCK_WEIGHTS, parts, group[i], q->weights);
    if (q->frozen)
      continue;
    for (int k = 0; k < q->n_uses; k++)
      add(blocks, first, PD_BLOCK_GRADIENT, (uint64_t)1 << part_of_piece(c, q->use[k]), group[i], q->gradient);
    add(blocks, first, PD_BLOCK_STATE, 0, group[i], q->state);
  }
}

static void add_between(const SpillProblem *p, const SpillChoice *c, Blocks *blocks) {
  for (int part = 1; part < c->parts; part++)
    for (int slot = 0; slot < p->microbatches; slot++) {
      struct pd_block b = {.kind = PD_BLOCK_ACTIVATIONS, .part = part, .slot = slot, .group = -1};
      b.rereads = c->keeps[part - 1];
      if ((b.bytes = (size_t)p->activations[c->start[part]]) > 0)
        push(blocks, b);
      b.kind = PD_BLOCK_RETURNED;
      if ((b.bytes = (size_t)p->returned[c->start[part]]) > 0)
        push(blocks, b);
    }
}

static int64_t saved_by(const SpillProblem *p, const SpillChoice *c, int part) {
  int64_t bytes = 0;
  for (int k = c->start[part]; k < c->start[part + 1]; k++)
    bytes += p->saved[k];
  return bytes;
}

static void add_saved(const SpillProblem *p, const SpillChoice *c, Blocks *blocks) {
  for (int part = 0; part < c->parts; part++)
    for (int slot = 0; slot < p->microbatches && spill_keeps(c, part); slot++) {
      struct pd_block b = {.kind = PD_BLOCK_SAVED, .part = part, .slot = slot, .group = -1};
      if ((b.bytes = (size_t)saved_by(p, c, part)) > 0)
        push(blocks, b);
    }
}

/* Of a part that keeps what it saves, samples of a batch are in memory; of another those of a microbatch. */
static int64_t inputs(const SpillProblem *p, const SpillChoice *c) {
  int64_t bytes = 0;
  for (int part = 0; part < c->parts; part++)
    for (int k = c->start[part]; k < c->start[part + 1]; k++)
      bytes += p->inputs[k] * (spill_keeps(c, part) ? p->microbatches : 1);
  return bytes;
}

/* What passes of the largest part work in. */
static int64_t workspace(const SpillProblem *p, const SpillChoice *c) {
  int64_t most = 0;
  for (int part = 0; part < c->parts; part++) {
    int64_t saved = spill_keeps(c, part) ? 0 : saved_by(p, c, part), work = 0;
    for (int k = c->start[part]; k < c->start[part + 1]; k++)
      work = p->work[k] > work ? p->work[k] : work;
    most = saved + work > most ? saved + work : most;
  }
  return most;
}

/* ---- seconds of steps ------------------------------------------------------------------------------------ */

typedef struct StepTimes {
  double *forward, *backward; /* by part */
  double *update;             /* by group, with its squares */
} StepTimes;

static StepTimes step_times(const SpillProblem *p, const SpillChoice *c, const int *group, int n_groups) {
  StepTimes t = {alloc((size_t)c->parts * sizeof(double)), alloc((size_t)c->parts * sizeof(double)),
                 alloc((size_t)(n_groups + 1) * sizeof(double))};
  for (int part = 0; part < c->parts; part++) {
    t.forward[part] = p->receive[c->start[part]];
    for (int k = c->start[part]; k < c->start[part + 1]; k++)
      t.forward[part] += p->forward[k], t.backward[part] += p->backward[k];
    t.backward[part] += (spill_keeps(c, part) ? p->receive[c->start[part]] : t.forward[part]) +
                        p->receive_gradient[c->start[part + 1]];
  }
  for (int i = 0; i < p->n_params; i++)
    if (group[i] >= 0)
      t.update[group[i]] += p->param[i].update;
  return t;
}

static double step_seconds(const StepTimes *t, const struct pd_step *s) {
  switch (s->kind) {
  case PD_STEP_FORWARD: return t->forward[s->part];
  case PD_STEP_BACKWARD: return t->backward[s->part];
  case PD_STEP_UPDATE: return t->update[s->group];
  default: return 0;
  }
}

/* ---- the thread ------------------------------------------------------------------------------------------ */

typedef struct Request {
  int block;
  int64_t needed; /* of reading: the step */
  double at;
} Request;
typedef struct Queue {
  Request *at; /* a ring */
  int first, n, room;
} Queue;

typedef struct Transfers {
  const SpillProblem *p;
  const struct pd_holding *of;
  Queue writes, reads;
  double free_at[2], busy[2]; /* seconds; by whether it writes. Where the two take turns, both are those of both */
  double *written;            /* by block; INFINITY: on its way */
  int *awaited;               /* by step: blocks that are still to be read for it */
  int64_t bytes_read, bytes_written;
} Transfers;

static void put(Queue *q, Request r) {
  ensure(q->n < q->room);
  q->at[(q->first + q->n++) % q->room] = r;
}

static Request next(Queue *q) {
  Request r = q->at[q->first];
  q->first = (q->first + 1) % q->room;
  q->n--;
  return r;
}

/* What is on its way out comes in again after that. */
static double could_begin(const Transfers *t, bool writes) {
  const Queue *q = writes ? &t->writes : &t->reads;
  if (!q->n)
    return INFINITY;
  const Request *r = &q->at[q->first];
  double begin = fmax(t->free_at[writes], r->at);
  return writes ? begin : fmax(begin, t->written[r->block]);
}

/* One thing that the thread begins before `until`; false: it has none. */
static bool transfer(Transfers *t, double until) {
  double write = could_begin(t, true), read = could_begin(t, false);
  bool writes = write <= read;
  if (fmin(write, read) >= until)
    return false;
  Request r = next(writes ? &t->writes : &t->reads);
  double bytes = (double)t->of->block[r.block].bytes, seconds = bytes * (writes ? t->p->write : t->p->read);
  const double end = fmin(write, read) + seconds;
  for (int way = 0; way < 2; way++)
    if (way == writes || !t->p->both_ways)
      t->free_at[way] = end, t->busy[way] += seconds;
  *(writes ? &t->bytes_written : &t->bytes_read) += (int64_t)bytes;
  if (writes)
    t->written[r.block] = end;
  else
    t->awaited[r.needed]--;
  return true;
}

/* ---- a batch --------------------------------------------------------------------------------------------- */

typedef struct Run {
  Transfers t;
  const struct pd_holding *of;
  const struct pd_moves *moves;
  const StepTimes *times;
  double now, compute;
} Run;

static double await_written(Run *r, int block, double now) {
  while (isinf(r->t.written[block]) && transfer(&r->t, INFINITY))
    ;
  return fmax(now, isinf(r->t.written[block]) ? now : r->t.written[block]);
}

static void leave(Run *r, int64_t step) {
  const int *block;
  int n = pd_moves_at(r->moves, PD_LEAVES, step, &block);
  for (int i = 0; i < n; i++)
    if (r->moves->changed[r->moves->first[PD_LEAVES][step] + i]) {
      r->t.written[block[i]] = INFINITY;
      put(&r->t.writes, (Request){block[i], 0, r->now});
    }
}

static void do_step(Run *r, int64_t step) {
  const int *block;
  int n = pd_moves_at(r->moves, PD_DUE, step, &block);
  double now = r->now;
  for (int i = 0; i < n; i++)
    now = await_written(r, block[i], now);
  while (transfer(&r->t, now)) /* what it did meanwhile */
    ;
  n = pd_moves_at(r->moves, PD_ASKED, step, &block);
  for (int i = 0; i < n; i++) {
    int64_t needed = r->moves->needed[r->moves->first[PD_ASKED][step] + i];
    r->t.awaited[needed]++;
    put(&r->t.reads, (Request){block[i], needed, now});
  }
  while (r->t.awaited[step] > 0 && transfer(&r->t, INFINITY))
    now = r->t.awaited[step] > 0 ? now : fmax(now, r->t.free_at[false]);
  struct pd_step s = pd_batch_step(r->of->parts, r->of->microbatches, r->of->groups, step);
  double seconds = step_seconds(r->times, &s);
  r->compute += seconds;
  r->now = now + seconds;
  while (transfer(&r->t, r->now))
    ;
  leave(r, step);
}

static Queue queue_of(int room) { return (Queue){.at = alloc((size_t)room * sizeof(Request)), .room = room}; }

/* Of the third batch, and of it alone: what stays from batch to batch is there, and the thread has what it always has to
 * do. */
static void simulate(const SpillProblem *p, const struct pd_holding *of, const struct pd_moves *moves,
                     const StepTimes *times, SpillTime *out) {
  enum { BATCHES = 3 };
  Run r = {.of = of, .moves = moves, .times = times};
  r.t = (Transfers){.p = p, .of = of, .writes = queue_of(2 * of->n + 1), .reads = queue_of(2 * of->n + 1)};
  r.t.written = alloc((size_t)(of->n + 1) * sizeof(double));
  r.t.awaited = alloc((size_t)moves->steps * sizeof(int));
  for (int batch = 0; batch < BATCHES; batch++) {
    double began = r.now;
    r.t.bytes_read = r.t.bytes_written = 0;
    r.t.busy[false] = r.t.busy[true] = r.compute = 0;
    for (int64_t i = 0; i < moves->steps; i++)
      do_step(&r, i);
    out->seconds = r.now - began;
  }
  out->compute = r.compute;
  out->transfer = fmax(r.t.busy[false], r.t.busy[true]);
  out->read = r.t.bytes_read;
  out->written = r.t.bytes_written;
}

SpillTime spill_time(const SpillProblem *p, const SpillChoice *c) {
  ArenaMark mark = arena_mark();
  Blocks blocks = {0};
  int n_groups;
  const int *group = groups(p, &n_groups);
  add_parameters(p, c, group, &blocks);
  add_between(p, c, &blocks);
  add_saved(p, c, &blocks);
  int64_t beside = p->beside + workspace(p, c) + inputs(p, c), room = p->limit - beside;
  struct pd_holding of = {.block = blocks.at,
                          .n = blocks.n,
                          .parts = c->parts,
                          .microbatches = p->microbatches,
                          .groups = n_groups,
                          .page = (size_t)p->page,
                          .room = room > 0 ? (size_t)room : 0,
                          .kept = c->kept};
  struct pd_moves moves;
  pd_moves_make(&of, alloc, &moves);
  SpillTime time = {.seconds = INFINITY, .least = beside + (int64_t)moves.most};
  for (int i = 0; i < blocks.n; i++)
    time.home += (int64_t)blocks.at[i].bytes;
  StepTimes times = step_times(p, c, group, n_groups);
  if ((int64_t)moves.most <= room)
    simulate(p, &of, &moves, &times, &time);
  arena_release(mark);
  return time;
}
