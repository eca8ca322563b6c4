/* Completes the devices of a request: kinds, rates, and links. */
#include <stdlib.h>

#include "plan/problem/problem.h"

static bool check_cluster(const Planner *r) {
  const Cluster *c = r->request->cluster;
  int devices = cluster_devices(c);
  const Backend *made_for = backend_of(&r->target);
  if (c->kind[0].backend != made_for) {
    Diagnostic *d =
        error_at(NO_SPAN, "PD0538", "cluster '%s' has devices '%s', and '--target %s' does not support them",
                 c->name, c->kind[0].name, made_for->name);
    help(d, "'--target %s'", c->kind[0].backend->name);
    return false;
  }
  if (r->ranks <= devices)
    return true;
  Diagnostic *d = error_at(NO_SPAN, "PD0538", "%d ranks, but cluster '%s' has %d device%s", r->ranks, c->name,
                           devices, devices == 1 ? "" : "s");
  help(d, "'-n %d' uses all of them", devices);
  return false;
}

/* The first device of a rank without a rate for this precision. */
static const DeviceKind *without_products(const Planner *r) {
  const Cluster *c = r->request->cluster;
  for (int i = 0; c && i < r->ranks; i++)
    if (cluster_kind(c, i)->product[r->target.precision] <= 0)
      return cluster_kind(c, i);
  return r->device;
}

/* Whether the device supports matrix products in the requested precision. */
static bool check_precision(const Planner *r) {
  Precision precision = r->target.precision;
  if (r->device->product[precision] > 0)
    return true;
  const DeviceKind *kind = without_products(r);
  Diagnostic *d = error_at(NO_SPAN, "PD0539", "the rate of '%s' for matrix products in %s is unknown", kind->name,
                           precision_name(precision));
  if (kind->product[PRECISION_F32] > 0)
    help(d, "'--precision f32'");
  help(d, "set 'peak_%s' in the 'device' of a cluster", precision_name(precision));
  return false;
}

/* ---- kinds ----------------------------------------------------------------------------------------- */

typedef struct Kinds {
  int n, number[MOST_KINDS]; /* indexes of the cluster's kinds in use, slowest first */
} Kinds;

static Kinds kinds_used(const Planner *r) {
  const Cluster *c = r->request->cluster;
  Kinds k = {0};
  bool used[MOST_KINDS] = {false};
  for (int i = 0; i < r->ranks; i++)
    used[c->kind_of ? c->kind_of[i] : 0] = true;
  for (int i = 0; i < c->n_kinds; i++) {
    int at = k.n;
    if (!used[i])
      continue;
    k.n++;
    for (; at > 0 &&
           c->kind[k.number[at - 1]].product[r->target.precision] > c->kind[i].product[r->target.precision];
         at--)
      k.number[at] = k.number[at - 1];
    k.number[at] = i;
  }
  return k;
}

static const uint8_t *kinds_of_devices(const Cluster *c, const Kinds *k) {
  int n = cluster_devices(c);
  uint8_t *kind = alloc((size_t)n), place[MOST_KINDS] = {0};
  for (int i = 0; i < k->n; i++)
    place[k->number[i]] = (uint8_t)i;
  for (int i = 0; i < n; i++)
    kind[i] = place[c->kind_of[i]];
  return kind;
}

static void set_link(Rates *rates, const Link *link) {
  rates->bandwidth = 1 / link->byte;
  rates->latency = link->latency;
}

static void take_cluster(Planner *r) {
  const PlanRequest *q = r->request;
  const Cluster *c = q->cluster;
  Kinds k = kinds_used(r);
  DeviceKind least = cluster_least(c, r->ranks);
  Rates *rates = alloc((size_t)k.n * sizeof *rates);
  const DeviceKind *kinds[MOST_KINDS];
  r->device = alloc_copy(&least, sizeof least);
  r->n_kinds = k.n;
  for (int i = 0; i < k.n; i++) {
    kinds[i] = &c->kind[k.number[i]];
    rates[i] = device_rates(kinds[i], &r->target);
  }
  r->rates = rates;
  settle_memory(r, kinds);
  r->topology = topology_of(c, r->ranks, q->link_bytes_per_second, q->link_latency);
  for (int i = 0; i < k.n; i++) /* a shard group is within the innermost level */
    set_link(&rates[i], &r->topology.link[0]);
  r->topology.kind_of = k.n > 1 ? kinds_of_devices(c, &k) : NULL;
}

/* One machine with equal devices. */
static void take_machine(Planner *r) {
  const PlanRequest *q = r->request;
  r->device = backend_of(&q->target)->device->kind(q->arch, &r->assumed);
  Rates rates = device_rates(r->device, &r->target);
  double bandwidth = q->link_bytes_per_second > 0 ? q->link_bytes_per_second : rates.bandwidth;
  Link link = {.latency = q->link_latency > 0 ? q->link_latency : rates.latency, .byte = 1 / bandwidth};
  r->n_kinds = 1;
  settle_memory(r, &r->device);
  set_link(&rates, &link);
  r->rates = alloc_copy(&rates, sizeof rates);
  r->topology = topology_flat(link, r->ranks);
}

/* Offload requires devices of one kind. */
static bool check_alike(const Planner *r) {
  if (!r->traits.spills || r->n_kinds == 1)
    return true;
  Diagnostic *d = error_at(r->schedule_span, "PD0710",
                           "'%s' runs on devices of one kind, but these %d devices are of %d kinds",
                           r->form.schedule, r->ranks, r->n_kinds);
  help(d, "use fewer ranks, or the schedule 'flush' or '2bw'");
  return false;
}

bool choose_devices(Planner *r) {
  const PlanRequest *q = r->request;
  if (q->cluster && !check_cluster(r))
    return false;
  if (q->cluster)
    take_cluster(r);
  else
    take_machine(r);
  return check_alike(r) && check_update(r) && check_precision(r);
}

/* ---- devices of a plan ----------------------------------------------------------------------------- */

int plan_device(const PlanRequest *q, const Plan *plan, int stage, int replica) {
  if (q->cluster) {
    const Topology t = topology_of(q->cluster, plan_ranks_asked(q, plan), 0, 0);
    const Stand stand = stand_of(&plan->pipeline, &plan->placement, stage);
    return device_of(&t, &plan->placement, &stand, replica, pipeline_ranks(&plan->pipeline));
  }
  for (int i = 0; i < stage; i++)
    replica += plan->pipeline.replicas[i];
  return replica;
}
