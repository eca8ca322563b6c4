/* A choice as blocks, with the seconds of its steps. */
#include "plan/offload/spilling.h"

/* Merges blocks of parameters with identical transfers. */
static void add(SpillBlocks *blocks, int first, struct pd_block of, int64_t bytes) {
  if (bytes <= 0)
    return;
  for (int i = first; i < blocks->n; i++) {
    struct pd_block *b = &blocks->at[i];
    if (b->kind == of.kind && b->parts == of.parts && b->group == of.group && b->added == of.added &&
        b->shared == of.shared) {
      b->bytes += (size_t)bytes;
      return;
    }
  }
  of.bytes = (size_t)bytes;
  push(blocks, of);
}

static int part_of_piece(const SpillChoice *c, int piece) {
  int part = 0;
  while (c->start[part + 1] <= piece)
    part++;
  return part;
}

/* The first part with a gradient of the parameter; -1: other stages have it. */
static int first_part(const SpillParam *q, const SpillChoice *c) {
  int piece = q->n_uses && !q->shared ? q->use[0] : -1;
  for (int k = 1; k < q->n_uses && piece >= 0; k++)
    piece = q->use[k] < piece ? q->use[k] : piece;
  return piece < 0 ? -1 : part_of_piece(c, piece);
}

/* Group by parameter; -1: not updated. */
static int *groups(const SpillProblem *p, const SpillChoice *c, int *n) {
  int *group = alloc((size_t)(p->n_params + 1) * sizeof *group);
  struct pd_grouping g = {0};
  for (int i = 0; i < p->n_params; i++)
    g.most = !p->param[i].frozen && p->param[i].elements > g.most ? p->param[i].elements : g.most;
  for (int i = 0; i < p->n_params; i++) {
    const SpillParam *q = &p->param[i];
    group[i] = q->frozen ? -1 : pd_group_of(&g, q->elements, first_part(q, c));
  }
  *n = g.groups;
  return group;
}

static void add_parameters(const SpillProblem *p, const SpillChoice *c, const int *group, SpillBlocks *blocks) {
  int first = 0, last = -1;
  for (int i = 0; i < p->n_params; i++) {
    const SpillParam *q = &p->param[i];
    uint64_t parts = 0;
    if (group[i] >= 0 && group[i] != last) /* blocks of other groups cannot merge */
      first = blocks->n, last = group[i];
    for (int k = 0; k < q->n_readers; k++)
      parts |= (uint64_t)1 << part_of_piece(c, q->reader[k]);
    struct pd_block b = {.kind = PD_BLOCK_WEIGHTS, .parts = parts, .shared = q->shared, .group = group[i]};
    add(blocks, q->frozen ? 0 : first, b, q->weights);
    if (q->frozen)
      continue;
    b.kind = PD_BLOCK_GRADIENT;
    b.shared = false;
    for (int k = 0; k < q->n_uses; k++) {
      b.parts = (uint64_t)1 << part_of_piece(c, q->use[k]);
      b.added = spill_at_home(p, c) && k + 1 < q->n_uses;
      add(blocks, first, b, q->gradient);
    }
    add(blocks, first, (struct pd_block){.kind = PD_BLOCK_STATE, .group = group[i]}, q->state);
  }
}

static void add_between(const SpillProblem *p, const SpillChoice *c, SpillBlocks *blocks) {
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

static void add_saved(const SpillProblem *p, const SpillChoice *c, SpillBlocks *blocks) {
  for (int part = 0; part < c->parts; part++)
    for (int slot = 0; slot < p->microbatches && spill_keeps(p, c, part); slot++) {
      struct pd_block b = {.kind = PD_BLOCK_SAVED, .part = part, .slot = slot, .group = -1};
      if ((b.bytes = (size_t)saved_by(p, c, part)) > 0)
        push(blocks, b);
    }
}

/* Sample bytes: of the batch in parts that save activations, else of a microbatch. */
static int64_t inputs(const SpillProblem *p, const SpillChoice *c) {
  int64_t bytes = 0;
  for (int part = 0; part < c->parts; part++)
    for (int k = c->start[part]; k < c->start[part + 1]; k++)
      bytes += p->inputs[k] * (spill_keeps(p, c, part) ? p->microbatches : 1);
  return bytes;
}

/* Bytes of the largest part's passes. */
static int64_t workspace(const SpillProblem *p, const SpillChoice *c) {
  int64_t most = 0;
  for (int part = 0; part < c->parts; part++) {
    int64_t saved = spill_keeps(p, c, part) ? 0 : saved_by(p, c, part), work = 0;
    for (int k = c->start[part]; k < c->start[part + 1]; k++)
      work = p->work[k] > work ? p->work[k] : work;
    most = saved + work > most ? saved + work : most;
  }
  return most;
}

/* ---- seconds of steps ------------------------------------------------------------------------------------ */

static void add_seconds(const SpillProblem *p, const SpillChoice *c, const int *group, SpillWork *w) {
  const bool at_home = spill_at_home(p, c);
  w->forward = alloc((size_t)c->parts * sizeof(double)), w->backward = alloc((size_t)c->parts * sizeof(double));
  w->square = alloc((size_t)(w->groups + 1) * sizeof(double));
  w->update = alloc((size_t)(w->groups + 1) * sizeof(double));
  for (int part = 0; part < c->parts; part++) {
    w->forward[part] = p->receive[c->start[part]];
    for (int k = c->start[part]; k < c->start[part + 1]; k++)
      w->forward[part] += p->forward[k], w->backward[part] += p->backward[k];
    w->backward[part] += (spill_keeps(p, c, part) ? p->receive[c->start[part]] : w->forward[part]) +
                         p->receive_gradient[c->start[part + 1]];
  }
  for (int i = 0; i < p->n_params; i++)
    if (group[i] >= 0) {
      const SpillParam *q = &p->param[i];
      w->square[group[i]] += at_home ? q->square_at_home : 0;
      w->update[group[i]] += at_home ? q->update_at_home : q->update;
    }
}

SpillWork spill_work(const SpillProblem *p, const SpillChoice *c) {
  SpillWork w = {.beside = p->beside + workspace(p, c) + inputs(p, c)};
  const int *group = groups(p, c, &w.groups);
  add_parameters(p, c, group, &w.blocks);
  add_between(p, c, &w.blocks);
  add_saved(p, c, &w.blocks);
  add_seconds(p, c, group, &w);
  return w;
}
