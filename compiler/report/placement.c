/* Where a plan's ranks are: the devices, in the groups that links make of them, and which rank is on which. */
#include "plan/device.h"
#include "plan/topology.h"
#include "report/report.h"

/* As the plan's placement lays them out; without a cluster in order, stage 0's replicas first. */
static int device_at(const PlanPage *page, int stage, int replica, int rank) {
  const Plan *plan = page->plan;
  if (!page->request->cluster)
    return rank;
  Topology t = topology_of(page->request->cluster, ranks_asked(page), 0, 0);
  Stand stand = stand_of(&plan->pipeline, &plan->placement, stage);
  return device_of(&t, &plan->placement, &stand, replica, pipeline_ranks(&plan->pipeline));
}

int ranks_asked(const PlanPage *page) {
  const PlanRequest *q = page->request;
  int used = pipeline_ranks(&page->plan->pipeline);
  int all = q->cluster && !q->stages && !q->split && !q->replicas ? cluster_devices(q->cluster) : 0;
  int asked = q->workers ? q->workers : all;
  return asked > used && !q->plan ? asked : used;
}

/* Bytes that the arena of the rank on a device may take: as the planner bounds it. */
static int64_t memory_of(const PlanPage *page, int device) {
  const PlanRequest *q = page->request;
  const Device *target = backend_of(&page->plan->target)->device;
  bool assumed;
  if (q->memory)
    return q->memory - target->process;
  const DeviceKind *kind = q->cluster ? cluster_kind(q->cluster, device) : target->kind(q->arch, &assumed);
  return (kind->memory ? kind->memory : target->memory(ranks_asked(page))) - target->process;
}

static void add_name(Text *out, const char *name) {
  if (name)
    json_string(out, name);
  else
    text_add(out, "null");
}

static void add_levels(const Cluster *c, Text *out) {
  text_add(out, "\"levels\":[");
  for (int i = 0; i < c->n; i++) {
    text_add(out, "%s{\"name\":", i ? "," : "");
    add_name(out, c->level[i].name);
    text_add(out, ",\"count\":%d,\"bandwidth\":", c->level[i].count);
    json_double(out, c->level[i].bandwidth);
    text_add(out, ",\"latency\":");
    json_double(out, c->level[i].latency);
    text_add(out, "}");
  }
  text_add(out, "],\"kinds\":[");
  for (int i = 0; i < c->n_kinds; i++) {
    text_add(out, "%s{\"name\":", i ? "," : "");
    add_name(out, c->kind[i].name);
    text_add(out, ",\"memory\":%lld}", (long long)c->kind[i].memory);
  }
  text_add(out, "],\"kind_of\":[");
  for (int i = 0; c->kind_of && i < cluster_devices(c); i++)
    text_add(out, "%s%d", i ? "," : "", c->kind_of[i]);
  text_add(out, "]");
}

void add_placement(const PlanPage *page, Text *out) {
  const Cluster *given = page->request->cluster;
  const Pipeline *l = &page->plan->pipeline;
  const Cluster machine = {.n = 1, .level = {{.name = "machine", .count = ranks_asked(page)}}};
  text_add(out, ",\n\"cluster\":{\"given\":%s,\"name\":", given ? "true" : "false");
  add_name(out, given ? given->name : NULL);
  text_add(out, ",");
  add_levels(given ? given : &machine, out);
  Ints device = {0};
  for (int stage = 0; stage < l->n_stages; stage++)
    for (int replica = 0; replica < l->replicas[stage]; replica++)
      push(&device, device_at(page, stage, replica, device.n));
  text_add(out, "},\n\"device_of\":[");
  for (int rank = 0; rank < device.n; rank++)
    text_add(out, "%s%d", rank ? "," : "", device.at[rank]);
  text_add(out, "],\n\"limits\":[");
  for (int rank = 0; rank < device.n; rank++)
    text_add(out, "%s%lld", rank ? "," : "", (long long)memory_of(page, device.at[rank]));
  text_add(out, "]");
}
