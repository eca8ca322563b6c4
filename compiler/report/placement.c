/* Placement of a plan's ranks: the devices, grouped by links, and each rank's device. Follows the planner's rules
 * (plan/problem/devices.c). */
#include "report/report.h"

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
  const Cluster machine = {.n = 1,
                           .level = {{.name = "machine", .count = plan_ranks_asked(page->request, page->plan)}}};
  text_add(out, ",\n\"cluster\":{\"given\":%s,\"name\":", given ? "true" : "false");
  add_name(out, given ? given->name : NULL);
  text_add(out, ",");
  add_levels(given ? given : &machine, out);
  Ints device = {0};
  for (int stage = 0; stage < l->n_stages; stage++)
    for (int replica = 0; replica < l->replicas[stage]; replica++)
      push(&device, plan_device(page->request, page->plan, stage, replica));
  text_add(out, "},\n\"device_of\":[");
  for (int rank = 0; rank < device.n; rank++)
    text_add(out, "%s%d", rank ? "," : "", device.at[rank]);
  text_add(out, "],\n\"limits\":[");
  for (int rank = 0; rank < device.n; rank++)
    text_add(out, "%s%lld", rank ? "," : "",
             (long long)plan_device_memory(page->g, page->request, page->plan, device.at[rank]));
  text_add(out, "]");
}
