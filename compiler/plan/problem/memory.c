/* The memory limit of ranks. All other steps read the decision: the searches Planner.memory, the schedule and the
 * program Pipeline.memory, which offload sets from it. */
#include "plan/problem/problem.h"

/* Bytes of a rank's arena: from --memory, the device, or the machine's share per rank; minus the process's own. */
static int64_t arena_of(const Graph *g, const PlanRequest *q, const DeviceKind *kind, int ranks) {
  const Device *target = backend_of(&q->target)->device;
  int64_t bytes = q->memory ? q->memory : kind->memory ? kind->memory : target->memory(ranks * shards_of(g));
  return bytes - target->process;
}

void settle_memory(Planner *r, const DeviceKind *const *kind) {
  const PlanRequest *q = r->request;
  int64_t *arenas = alloc((size_t)r->n_kinds * sizeof *arenas);
  Memory m = {.process = backend_of(&q->target)->device->process,
              .arenas = arenas,
              .shared = !q->memory && !r->device->memory};
  for (int i = 0; i < r->n_kinds; i++) {
    arenas[i] = arena_of(r->g, q, kind[i], r->ranks);
    m.arena = i == 0 || arenas[i] > m.arena ? arenas[i] : m.arena;
  }
  r->memory = m;
}

int64_t plan_device_memory(const Graph *g, const PlanRequest *q, const Plan *plan, int device) {
  bool assumed;
  const DeviceKind *kind =
      q->cluster ? cluster_kind(q->cluster, device) : backend_of(&q->target)->device->kind(q->arch, &assumed);
  return arena_of(g, q, kind, plan_ranks_asked(q, plan));
}
