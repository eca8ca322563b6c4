/* Places of ranks in a cluster. Exchanges among replicas are hierarchical: gradients are reduced within a group,
 * then among groups, then distributed. With n members each link carries 2 (n - 1) / n of the gradients. */
#include <math.h>

#include "device/topology.h"

static int ceil_div(int a, int b) { return (a + b - 1) / b; }
static int least(int a, int b) { return a < b ? a : b; }
static int most(int a, int b) { return a > b ? a : b; }

Topology topology_flat(Link link, int ranks) {
  return (Topology){.n = 1, .link = {link}, .devices = {1, ranks}, .ranks = ranks};
}

Topology topology_of(const Cluster *c, int ranks, double bandwidth, double latency) {
  Topology t = {.n = c->n, .devices = {1}, .ranks = ranks, .kind_of = c->n_kinds > 1 ? c->kind_of : NULL};
  for (int i = 0; i < c->n; i++) {
    double rate = bandwidth > 0 ? bandwidth : c->level[i].bandwidth;
    double of_device = bandwidth > 0 ? 0 : c->level[i].device_bandwidth;
    t.link[i] = (Link){.latency = latency > 0 ? latency : c->level[i].latency,
                       .byte = 1 / rate,
                       .device_byte = of_device > 0 ? 1 / of_device : 0};
    t.devices[i + 1] = t.devices[i] * c->level[i].count;
  }
  return t;
}

Stand stand_of(const Pipeline *p, const Placement *at, int stage) {
  Stand s = {.replicas = p->replicas[stage], .adjacent = p->replicas[stage]};
  for (int i = stage + 1; i < p->n_stages; i++)
    s.first += at->adjacent ? at->adjacent : p->replicas[i];
  if (at->adjacent) {
    s.adjacent = at->adjacent;
    s.stride = at->adjacent * p->n_stages;
  }
  return s;
}

int place_of_replica(const Stand *s, int replica) {
  return s->first + replica / s->adjacent * s->stride + s->adjacent - 1 - replica % s->adjacent;
}

int level_of_places(const Topology *t, int a, int b) {
  int level = 0;
  while (level + 1 < t->n && a / t->devices[level + 1] != b / t->devices[level + 1])
    level++;
  return level;
}

int level_between(const Topology *t, const Stand *a, const Stand *b) {
  int level = 0, blocks = most(a->replicas / a->adjacent, 1);
  for (int i = 0; i < blocks; i++) {
    int first = least(a->first, b->first) + i * a->stride;
    int last = most(a->first + a->adjacent, b->first + b->adjacent) - 1 + i * a->stride;
    level = most(level, level_of_places(t, first, last));
  }
  return level;
}

int level_spanned(const Topology *t, const Stand *s) {
  int blocks = s->replicas / s->adjacent;
  return level_of_places(t, s->first, s->first + (blocks - 1) * s->stride + s->adjacent - 1);
}

/* Simultaneous messages of a cut over a member's link. */
static double sharing(const Topology *t, const Stand *a, const Stand *b, int level) {
  return level == 0 ? 1 : least(least(a->adjacent, b->adjacent), t->devices[level]);
}

/* The stage's ranks in a group of this number of devices, if it has any. */
static int ranks_within(const Stand *s, int devices) {
  if (!s->stride || s->adjacent == s->replicas) {
    int groups = (s->first + s->replicas - 1) / devices - s->first / devices + 1;
    return ceil_div(s->replicas, groups);
  }
  if (s->stride <= devices)
    return least(s->replicas, s->adjacent * (devices / s->stride));
  return least(s->adjacent, devices);
}

int members_that_reduce(const Topology *t, const Stand *s, int level) {
  int outer = level + 1 == t->n ? s->replicas : ranks_within(s, t->devices[level + 1]);
  return ceil_div(outer, ranks_within(s, t->devices[level]));
}

static void set_exchange(const Topology *t, const Stand *s, int stages, Wiring *p) {
  for (int level = 0; level < t->n && s->replicas > 1; level++) {
    int members = members_that_reduce(t, s, level);
    if (members < 2)
      continue;
    int inner = ranks_within(s, t->devices[level]);
    int at_once = level > 0 && s->stride ? most(1, least(stages, t->devices[level] / inner)) : 1;
    double byte = fmax(t->link[level].byte * at_once, t->link[level].device_byte / inner);
    p->reduce += 2.0 * (members - 1) / members * byte;
    p->reduce_latency += 2.0 * (members - 1) * t->link[level].latency;
  }
}

Wiring wiring_of(const Topology *t, const Stand *stage, const Stand *before, const Stand *behind, int stages) {
  Wiring p = {.in_sharing = 1, .out_sharing = 1};
  if (before) {
    int level = level_between(t, before, stage);
    p.in = &t->link[level];
    p.in_sharing = sharing(t, before, stage, level);
  }
  if (behind) {
    int level = level_between(t, stage, behind);
    p.out = &t->link[level];
    p.out_sharing = sharing(t, stage, behind, level);
  }
  set_exchange(t, stage, stages, &p);
  return p;
}

/* Devices of the used groups; those before the first rank stay idle. */
static int padded(const Topology *t, int used) {
  int level = t->n;
  while (level > 0 && t->devices[level] >= used)
    level--;
  return ceil_div(used, t->devices[level]) * t->devices[level];
}

int device_of(const Topology *t, const Placement *at, const Stand *s, int replica, int used) {
  int place = place_of_replica(s, replica);
  int last = least(padded(t, used), most(t->devices[t->n], used)) - 1;
  return at->backward ? place : last - place;
}

unsigned kinds_of(const Topology *t, const Placement *at, const Stand *s, int used) {
  unsigned kinds = 0;
  for (int i = 0; i < s->replicas && t->kind_of; i++)
    kinds |= 1u << t->kind_of[device_of(t, at, s, i, used)];
  return t->kind_of ? kinds : 1;
}
