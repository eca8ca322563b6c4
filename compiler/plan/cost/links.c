/* Busy time of links in a batch. Single messages and exchanges assume an unloaded link, or one shared by equal
 * traffic (topology.c). Here all traffic of a link adds up. */
#include <math.h>

#include "plan/cost/cost.h"

/* Busy seconds per batch of a member's link at one level, by direction. */
typedef struct Busy {
  double out, in;
} Busy;

typedef struct Links {
  const Planner *r;
  const Plan *plan;
  Stand *stand;            /* by stage */
  Busy *busy[MOST_LEVELS]; /* by level and member */
  int members[MOST_LEVELS];
  Busy *own; /* by place: a device's own link out of its member */
  int places;
} Links;

static int last_place(const Stand *s) {
  int blocks = s->replicas / s->adjacent;
  return s->first + (blocks - 1) * s->stride + s->adjacent - 1;
}

static Links links_of(const Planner *r, const Plan *plan) {
  const Topology *t = &r->topology;
  const Pipeline *p = &plan->pipeline;
  Links l = {.r = r, .plan = plan, .stand = alloc((size_t)p->n_stages * sizeof *l.stand)};
  int last = 0;
  for (int i = 0; i < p->n_stages; i++) {
    l.stand[i] = stand_of(p, &plan->placement, i);
    last = last > last_place(&l.stand[i]) ? last : last_place(&l.stand[i]);
  }
  for (int level = 0; level < t->n; level++) {
    l.members[level] = last / t->devices[level] + 1;
    l.busy[level] = alloc((size_t)l.members[level] * sizeof **l.busy);
  }
  l.places = last + 1;
  l.own = alloc((size_t)l.places * sizeof *l.own);
  return l;
}

/* Adds bytes in both directions between two ends. */
static void pass(Busy *sends, Busy *receives, double byte, double forward, double backward) {
  sends->out += forward * byte, receives->in += forward * byte;
  receives->out += backward * byte, sends->in += backward * byte;
}

/* Messages after a part, spread over a round of both stages' replicas. */
static void add_messages(Links *l, const Costs *c, int part) {
  const Topology *t = &l->r->topology;
  const Pipeline *p = &l->plan->pipeline;
  const Stand *a = &l->stand[plan_stage_of(l->plan, part)], *b = &l->stand[plan_stage_of(l->plan, part + 1)];
  const int cut = l->plan->stage[part].end_piece;
  const int64_t round = common_multiple(a->replicas, b->replicas);
  const double times = (double)p->microbatches / (double)round;
  for (int64_t k = 0; k < round; k++) {
    const int from = place_of_replica(a, (int)(k % a->replicas)), to = place_of_replica(b, (int)(k % b->replicas));
    const int level = level_of_places(t, from, to);
    if (from == to || (level == 0 && !c->beside)) /* otherwise the ranks copy, without a link */
      continue;
    const double forward = times * (double)c->activations[cut];
    const double backward = times * (double)c->activation_gradients[cut];
    pass(&l->busy[level][from / t->devices[level]], &l->busy[level][to / t->devices[level]], t->link[level].byte,
         forward, backward);
    pass(&l->own[from], &l->own[to], t->link[level].device_byte, forward, backward);
  }
}

/* Exchange of a stage's gradients between members that contain its replicas. */
static void add_exchange(Links *l, int stage, double bytes) {
  const Topology *t = &l->r->topology;
  const Stand *s = &l->stand[stage];
  for (int level = 0; level < t->n && s->replicas > 1; level++) {
    const int n = members_that_reduce(t, s, level);
    if (n < 2)
      continue;
    const double reduced = 2.0 * (n - 1) / n * bytes;
    int *within = alloc((size_t)l->members[level] * sizeof *within);
    for (int i = 0; i < s->replicas; i++)
      within[place_of_replica(s, i) / t->devices[level]]++;
    for (int m = 0; m < l->members[level]; m++)
      if (within[m])
        pass(&l->busy[level][m], &l->busy[level][m], t->link[level].byte, reduced, 0);
    for (int i = 0; i < s->replicas; i++) { /* the replicas in a member share its traffic */
      const int place = place_of_replica(s, i), sharers = within[place / t->devices[level]];
      pass(&l->own[place], &l->own[place], t->link[level].device_byte, reduced / sharers, 0);
    }
  }
}

/* Bytes that replicas reduce. With sharded optimizer state, half of the traffic carries sums and half updated
 * weights. */
static double exchanged_bytes(const Links *l, const Costs *c, const Program *program, const int64_t *gradients) {
  const Plan *plan = l->plan;
  double sums = 0, weights = 0;
  for (int k = 0; k < program->chunks; k++) {
    const StagePlan *s = &plan->stage[program_part(program, k)];
    sums += (double)(gradients[s->end_piece] - gradients[s->first_piece]);
    weights += (double)holdings_of(c->holdings, s->first_piece, s->end_piece).weights;
  }
  return program->sharded ? (sums + weights) / 2 : sums;
}

double links_seconds(const Planner *r, const Plan *plan, const Program *programs) {
  const Spans *spans = spans_at(r, plan->pipeline.microbatch);
  const Costs *c = spans->c;
  double most = 0;
  if (r->subject.inference || r->traits.spills || pipeline_ranks(&plan->pipeline) == 1)
    return 0;
  Links l = links_of(r, plan);
  for (int i = 0; i + 1 < plan_parts(plan); i++)
    add_messages(&l, c, i);
  for (int i = 0; i < plan->pipeline.n_stages; i++)
    add_exchange(&l, i, exchanged_bytes(&l, c, &programs[i], spans->gradients));
  for (int level = 0; level < r->topology.n; level++)
    for (int i = 0; i < l.members[level]; i++)
      most = fmax(most, fmax(l.busy[level][i].out, l.busy[level][i].in));
  for (int i = 0; i < l.places; i++)
    most = fmax(most, fmax(l.own[i].out, l.own[i].in));
  return most;
}
