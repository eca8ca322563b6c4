/* The table of schedules, and what each asks of a plan. */
#include "schedule/generators.h"

#include <string.h>

static const Generator generators[] = {
  {"sequential", true, NEWEST, true, false, false, true, in_flight_one},
  {"gpipe", true, NEWEST, true, false, false, true, in_flight_all},
  {"flush", true, NEWEST, true, false, false, true, in_flight_1f1b},
  {"2bw", false, ONE_OLD, true, false, false, true, in_flight_1f1b},
  {"pipedream", false, STASHED, true, false, false, true, in_flight_1f1b},
  {"interleaved", true, NEWEST, false, true, false, true, in_flight_interleaved},
  {"zb_h1", true, NEWEST, false, false, true, false, in_flight_1f1b},
};
enum { N_GENERATORS = sizeof generators / sizeof *generators };

static const Generator *generator(const char *name) {
  for (int i = 0; i < N_GENERATORS; i++)
    if (!strcmp(generators[i].name, name))
      return &generators[i];
  return NULL;
}

const char *const *schedule_names(int *n) {
  static const char *names[N_GENERATORS];
  for (int i = 0; i < N_GENERATORS; i++)
    names[i] = generators[i].name;
  *n = N_GENERATORS;
  return names;
}

bool schedule_known(const char *name) { return generator(name) != NULL; }

ScheduleTraits schedule_traits(const char *name) {
  const Generator *g = generator(name);
  ensure(g);
  return (ScheduleTraits){.drains = g->drains,
                          .replicas = g->replicas,
                          .chunks = g->chunks,
                          .recomputes = g->recomputes,
                          .every_round = g->staleness == STASHED};
}

/* ---- how many microbatches ---------------------------------------------------------------------------- */

int64_t common_multiple(int64_t a, int64_t b) {
  int64_t x = a, y = b;
  while (y) {
    int64_t rest = x % y;
    x = y;
    y = rest;
  }
  return a / x * b;
}

/* Under a delay of one update batch t + 2 needs W(t + 1): its first turn runs forward n - 1 turns before batch
 * t + 1 has gone backward, and update t comes after batch t has: M / w >= n - 1 (Narayanan et al. 2021,
 * section 3.1, for w = 1). */
void schedule_needs(const Plan *plan, int64_t *least, int64_t *multiple) {
  const Generator *g = generator(plan->schedule);
  ensure(g && plan->n_stages > 0);
  *least = *multiple = g->chunks ? plan->n_stages : 1;
  for (int i = 0; i < plan->n_stages; i++)
    *multiple = common_multiple(*multiple, stage_replicas(plan, i));
  if (g->staleness == ONE_OLD) {
    int64_t *n = alloc((size_t)plan->n_stages * sizeof *n);
    g->in_flight(plan, n);
    for (int i = 0; i < plan->n_stages; i++)
      if (*least < (n[i] - 1) * stage_replicas(plan, i))
        *least = (n[i] - 1) * stage_replicas(plan, i);
  }
  *least = (*least + *multiple - 1) / *multiple * *multiple;
}

int64_t schedule_least_microbatches(const char *name, int n_stages) {
  Plan plan = {.schedule = intern(name), .chunks = 1, .n_stages = n_stages};
  plan.stage = alloc((size_t)n_stages * sizeof *plan.stage);
  int64_t least, multiple;
  schedule_needs(&plan, &least, &multiple);
  return least;
}

/* ---- requests that cannot be met ------------------------------------------------------------------------- */

static char *stages_text(const Plan *plan) {
  Text t = {0};
  text_add(&t, "%d stage%s", plan->n_stages, plan->n_stages == 1 ? "" : "s");
  bool replicated = false;
  for (int i = 0; i < plan->n_stages; i++)
    replicated |= stage_replicas(plan, i) > 1;
  for (int i = 0; replicated && i < plan->n_stages; i++)
    text_add(&t, i ? ",%d" : " of replicas %d", stage_replicas(plan, i));
  return t.at;
}

static void tell_microbatches(Diagnostic *d, const Plan *plan, int64_t least, int64_t multiple) {
  note_at(d, NO_SPAN, "a batch of %lld samples in microbatches of %lld", (long long)plan->batch,
          (long long)plan->microbatch);
  for (int64_t n = least; n <= plan->batch; n += multiple)
    if (plan->batch % n == 0) {
      help(d, "'--microbatch %lld'%s, a larger batch, or fewer stages", (long long)(plan->batch / n),
           multiple == 1 ? " or less" : "");
      return;
    }
  help(d, "a batch that is larger or divides, or fewer stages");
}

static bool microbatches_suffice(const Plan *plan, Span where) {
  int64_t least, multiple;
  schedule_needs(plan, &least, &multiple);
  if (plan->microbatches % multiple) {
    Diagnostic *d = error_at(where, "PD0704",
                             "'%s' with %s needs a multiple of %lld microbatches an update, has %lld",
                             plan->schedule, stages_text(plan), (long long)multiple,
                             (long long)plan->microbatches);
    tell_microbatches(d, plan, least, multiple);
    return false;
  }
  if (plan->microbatches < least) {
    Diagnostic *d = error_at(where, "PD0701", "'%s' with %s needs at least %lld microbatches an update, has %lld",
                             plan->schedule, stages_text(plan), (long long)least, (long long)plan->microbatches);
    tell_microbatches(d, plan, least, multiple);
    return false;
  }
  return true;
}

static bool replicas_allowed(const Generator *g, const Plan *plan, Span where) {
  for (int i = 0; i < plan->n_stages; i++)
    if (!g->replicas && stage_replicas(plan, i) > 1) {
      Diagnostic *d = error_at(where, "PD0705", "'%s' cannot have replicated stages: stage %d has %d replicas",
                               g->name, i, stage_replicas(plan, i));
      help(d, "one replica of every stage, or another schedule: 'flush' or '2bw'");
      return false;
    }
  return true;
}

static bool chunks_allowed(const Generator *g, const Plan *plan, Span where) {
  int chunks = plan_chunks(plan), limit = g->chunks ? MAX_CHUNKS : 1;
  if (chunks <= limit)
    return true;
  Diagnostic *d = error_at(where, "PD0708", "'%s' takes at most %d chunk%s a rank, has %d", g->name, limit,
                           limit == 1 ? "" : "s", chunks);
  if (!g->chunks)
    help(d, "'interleaved' is the schedule whose ranks hold several chunks");
  return false;
}

/* One Program runs all chunks of a rank, with one list of actions. */
static bool recomputation_allowed(const Generator *g, const Plan *plan, Span where) {
  int d = plan->n_stages;
  for (int i = 0; i < d * (g->chunks ? plan_chunks(plan) : 1); i++) {
    if (plan->stage[i].recompute && !g->recomputes) {
      Diagnostic *e = error_at(where, "PD0706", "'%s' cannot recompute, as stage %d should", g->name, i);
      help(e, "'--recompute off', or another schedule: 'flush' or '2bw'");
      return false;
    }
    if (plan->stage[i].recompute != plan->stage[i % d].recompute) {
      Diagnostic *e = error_at(where, "PD0706", "of rank %d's chunks some recompute and some do not", i % d);
      help(e, "all of a rank's chunks or none: here stages %d and %d", i % d, i);
      return false;
    }
  }
  return true;
}

/* Without vertical sync a stage's update is due at once, when lower stages' gradients are not there yet. */
static bool exchanges_allowed(const Generator *g, const Plan *plan, const bool *exchanges, Span where) {
  for (int i = 0; i < plan->n_stages; i++)
    if (g->staleness == STASHED && !plan->vertical_sync && exchanges[i]) {
      Diagnostic *d = error_at(where, "PD0707", "'%s' would stall: stage %d's update waits for gradients of "
                               "earlier stages (clipping by the global norm, or a parameter that both use)",
                               g->name, i);
      help(d, "'vertical_sync = true': all stages then use weights of the same age, and the update has time");
      return false;
    }
  return true;
}

Program *schedule(const Plan *plan, const bool *exchanges, Span where) {
  const Generator *g = generator(plan->schedule);
  if (!g) {
    int n;
    const char *const *names = schedule_names(&n);
    Diagnostic *d = error_at(where, "PD0702", "unknown schedule '%s'", plan->schedule);
    const char *near = nearest(plan->schedule, names, n);
    if (near)
      help(d, "a schedule with a similar name exists: '%s'", near);
    return NULL;
  }
  ensure(plan->n_stages > 0 && plan->microbatches > 0);
  if (!exchanges)
    exchanges = alloc((size_t)plan->n_stages);
  if (!replicas_allowed(g, plan, where) || !chunks_allowed(g, plan, where) ||
      !recomputation_allowed(g, plan, where) || !exchanges_allowed(g, plan, exchanges, where) ||
      !microbatches_suffice(plan, where))
    return NULL;
  return generate(g, plan, exchanges);
}
