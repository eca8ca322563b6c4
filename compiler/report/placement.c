/* Where a plan's ranks are: the devices, in the groups that links make of them, and which rank is on which. */
#include "cluster/cluster.h"
#include "plan/device.h"
#include "report/report.h"

/* Ranks in order, stage 0's replicas first, are on devices in order. */
static int device_of(const Plan *plan, int rank) {
  (void)plan;
  return rank;
}

/* The ranks that were asked for: some may not be used. */
static int ranks_of(const PlanPage *page) {
  int workers = page->request->workers, used = pipeline_ranks(&page->plan->pipeline);
  return workers > used && !page->request->plan ? workers : used;
}

/* Bytes that the rank on a device may take: as the planner bounds it. */
static int64_t memory_of(const PlanPage *page, int device) {
  const struct Cluster *c = page->request->cluster;
  if (page->request->memory)
    return page->request->memory;
  if (c && c->n_kinds > 0 && device < cluster_devices(c)) {
    int64_t memory = c->kind[c->kind_of ? c->kind_of[device] : 0].memory;
    if (memory)
      return memory;
  }
  return backend_of(&page->plan->target)->device->memory(ranks_of(page));
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
  const struct Cluster *given = page->request->cluster;
  const Cluster machine = {.n = 1, .level = {{.name = "machine", .count = ranks_of(page)}}};
  text_add(out, ",\n\"cluster\":{\"given\":%s,\"name\":", given ? "true" : "false");
  add_name(out, given ? given->name : NULL);
  text_add(out, ",");
  add_levels(given ? given : &machine, out);
  text_add(out, "},\n\"device_of\":[");
  int ranks = pipeline_ranks(&page->plan->pipeline);
  for (int rank = 0; rank < ranks; rank++)
    text_add(out, "%s%d", rank ? "," : "", device_of(page->plan, rank));
  text_add(out, "],\n\"limits\":[");
  for (int rank = 0; rank < ranks; rank++)
    text_add(out, "%s%lld", rank ? "," : "", (long long)memory_of(page, device_of(page->plan, rank)));
  text_add(out, "]");
}
