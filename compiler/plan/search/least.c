/* The least memory per device for which a plan exists, for the error message. Bisects to 64 KiB, or to 1 % for
 * large problems. Large problems with open stages and replicas accept the first plan that fits. */
#include "plan/search/search.h"

static int64_t to_steps(int64_t bytes) { return (bytes + MEMORY_STEP - 1) / MEMORY_STEP * MEMORY_STEP; }

static bool is_large(const Planner *r) { return (int64_t)r->ranks * r->subject.n >= LARGE_PROBLEM; }

static const Plan *plan_sharing(const Planner *r, int64_t memory, bool shares) {
  PlanRequest changed = *r->request;
  Planner other;
  changed.memory = memory;
  changed.shard_optimizer = shares;
  if (!planner_prepare(&other, r->g, r->p, &changed, NULL))
    return NULL;
  other.profile = r->profile;
  other.any_will_do = other.first_will_do = is_large(r);
  return planner_microbatches(&other) ? plan_any(&other) : NULL;
}

/* NULL: no plan fits this memory per device. */
static const Plan *with_memory(const Planner *r, int64_t memory) {
  const Plan *plan = plan_sharing(r, memory, r->request->shard_optimizer);
  return !plan && planner_may_shard(r) ? plan_sharing(r, memory, true) : plan;
}

/* Tolerance of the bisection, in bytes. */
static int64_t nearness(const Planner *r, int64_t high) {
  return !is_large(r) || high / MEMORY_PARTS < MEMORY_NEAR ? MEMORY_NEAR : high / MEMORY_PARTS;
}

const Plan *plan_of_least_memory(const Planner *r, const Plan *miss, int64_t *memory, bool *exact) {
  int64_t low = memory_of_rank(r) / MEMORY_STEP * MEMORY_STEP,
          high = to_steps(largest_peak(miss) + r->memory.process);
  const Plan *best = NULL;
  for (int i = 0; i < MEMORY_TRIES && !best; i++) {
    high = high > low ? high : low + MEMORY_NEAR;
    best = with_memory(r, high);
    if (!best) {
      low = high;
      high = to_steps(high + high / 8);
    }
  }
  while (best && high - low > nearness(r, high)) {
    int64_t middle = to_steps(low + (high - low) / 2);
    const Plan *plan = with_memory(r, middle);
    if (plan) {
      int64_t enough = to_steps(largest_peak(plan) + r->memory.process);
      best = plan;
      high = enough > low && enough < middle ? enough : middle;
    } else {
      low = middle;
    }
  }
  *memory = high;
  *exact = nearness(r, high) == MEMORY_NEAR;
  return best;
}
