/* The table of schedules, and their requirements on a pipeline. */
#include "schedule/generators.h"

#include <string.h>

static const Generator generators[] = {
    {.name = "sequential",
     .summary = "one microbatch in the whole pipeline at a time; newest weights",
     .staleness = NEWEST,
     .drains = true,
     .serial = true,
     .replicas = true,
     .tensor = true,
     .recomputes = true,
     .in_flight = in_flight_one},
    {.name = "gpipe",
     .summary = "all forward passes of a batch, then all backward passes; newest weights",
     .staleness = NEWEST,
     .drains = true,
     .replicas = true,
     .tensor = true,
     .recomputes = true,
     .in_flight = in_flight_all},
    {.name = "flush",
     .summary = "1F1B, drained after every batch (PipeDream-Flush); newest weights",
     .staleness = NEWEST,
     .drains = true,
     .replicas = true,
     .tensor = true,
     .recomputes = true,
     .in_flight = in_flight_1f1b},
    {.name = "2bw",
     .summary = "1F1B, never drained (PipeDream-2BW); weights one update old",
     .staleness = ONE_OLD,
     .replicas = true,
     .tensor = true,
     .recomputes = true,
     .in_flight = in_flight_1f1b},
    {.name = "pipedream",
     .summary = "1F1B, never drained, an update per round (PipeDream); older weights",
     .staleness = STASHED,
     .replicas = true,
     .tensor = true,
     .recomputes = true,
     .in_flight = in_flight_1f1b},
    {.name = "interleaved",
     .summary = "1F1B over several chunks per rank, drained; newest weights",
     .staleness = NEWEST,
     .drains = true,
     .tensor = true,
     .chunks = true,
     .recomputes = true,
     .in_flight = in_flight_interleaved},
    {.name = "spilled",
     .summary = "offload: parts are loaded for a batch, one after the other; newest weights",
     .staleness = NEWEST,
     .drains = true,
     .chunks = true,
     .spills = true,
     .recomputes = true,
     .serial = true,
     .in_flight = in_flight_spilled},
    {.name = "zb_h1",
     .summary = "1F1B with the backward pass in two, drained; newest weights",
     .staleness = NEWEST,
     .drains = true,
     .tensor = true,
     .split = true,
     .in_flight = in_flight_1f1b},
    {.name = "forward",
     .summary = "forward passes only: the schedule of inference and generation",
     .staleness = NEWEST,
     .forward_only = true,
     .replicas = true,
     .in_flight = in_flight_one},
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

const char *schedule_summary(const char *name) { return generator(name)->summary; }

bool schedule_known(const char *name) { return generator(name) != NULL; }

const char *schedule_period(const char *name) {
  return schedule_traits(name).forward_only ? "per batch" : "per update";
}

ScheduleTraits schedule_traits(const char *name) {
  const Generator *g = generator(name);
  ensure(g);
  return (ScheduleTraits){.forward_only = g->forward_only,
                          .drains = g->drains,
                          .replicas = g->replicas,
                          .tensor = g->tensor,
                          .chunks = g->chunks,
                          .split = g->split,
                          .recomputes = g->recomputes,
                          .layers = !g->forward_only && !g->spills,
                          .looks_ahead = g->in_flight == in_flight_1f1b,
                          .spills = g->spills,
                          .serial = g->serial,
                          .two_versions = g->staleness == ONE_OLD,
                          .every_round = g->staleness == STASHED,
                          .generator = g};
}

int64_t stage_in_flight(const ScheduleTraits *traits, int replicas, int ahead, int next, int64_t queue,
                        int64_t microbatches) {
  const Generator *g = traits->generator;
  ensure(!g->chunks);
  Pipeline p = {.n_stages = next ? 2 : 1,
                .chunks = 1,
                .microbatches = microbatches,
                .replicas = (int[]){replicas, next},
                .ahead = (int[]){ahead, 1}};
  return g->in_flight(&p, 0, next ? queue / next : 0);
}

/* ---- number of microbatches --------------------------------------------------------------------- */

int64_t common_multiple(int64_t a, int64_t b) {
  int64_t x = a, y = b;
  while (y) {
    int64_t rest = x % y;
    x = y;
    y = rest;
  }
  return a / x * b;
}

/* One stage per prime power: the sum of coprime numbers is less than their product. */
int64_t round_ranks(int64_t round, int64_t done) {
  int64_t ranks = 0, left = round;
  for (int64_t p = 2; left > 1; p++) {
    int64_t power = 1;
    p = p > left / p ? left : p; /* the remaining factor is prime */
    while (left % p == 0)
      left /= p, power *= p;
    ranks += done % power ? power : 0;
  }
  return ranks;
}

/* With a delay of one update, batch t + 2 needs W(t + 1). Its first turn runs forward n - 1 turns before batch t +
 * 1 has gone backward, and update t follows batch t: M / w >= n - 1 (Narayanan et al. 2021, section 3.1, for w =
 * 1). */
void schedule_needs(const Pipeline *p, int64_t *least, int64_t *multiple) {
  const Generator *g = generator(p->schedule);
  ensure(g && p->n_stages > 0);
  *least = *multiple = g->chunks && !g->spills ? p->n_stages : 1;
  for (int i = 0; i < p->n_stages; i++)
    *multiple = common_multiple(*multiple, p->replicas[i]);
  if (g->staleness == ONE_OLD) {
    const int64_t *n = turns_in_flight(g, p);
    for (int i = 0; i < p->n_stages; i++)
      if (*least < (n[i] - 1) * p->replicas[i])
        *least = (n[i] - 1) * p->replicas[i];
  }
  *least = (*least + *multiple - 1) / *multiple * *multiple;
}

bool schedule_allows(const Pipeline *p, int64_t microbatches) {
  int64_t least, multiple;
  schedule_needs(p, &least, &multiple);
  if (schedule_traits(p->schedule).every_round)
    return microbatches == multiple;
  return microbatches % multiple == 0 && microbatches >= least;
}

/* ---- requests that cannot be met ------------------------------------------------------------------------- */

static char *stages_text(const Pipeline *p) {
  Text t = {0};
  text_add(&t, "%d stage%s", p->n_stages, p->n_stages == 1 ? "" : "s");
  bool replicated = false;
  for (int i = 0; i < p->n_stages; i++)
    replicated |= p->replicas[i] > 1;
  for (int i = 0; replicated && i < p->n_stages; i++)
    text_add(&t, i ? ",%d" : " of replicas %d", p->replicas[i]);
  return t.at;
}

static void tell_needs(Diagnostic *d, const Pipeline *p, int64_t least, int64_t multiple) {
  note_at(d, NO_SPAN, "a batch of %lld samples in microbatches of %lld", (long long)p->batch,
          (long long)p->microbatch);
  for (int64_t n = least; n <= p->batch; n += multiple)
    if (p->batch % n == 0) {
      help(d, "use '--microbatch %lld'%s, a larger batch, or fewer stages", (long long)(p->batch / n),
           multiple == 1 ? " or less" : "");
      return;
    }
  help(d, "use a batch that is larger or divisible, or fewer stages");
}

static bool microbatches_suffice(const Pipeline *p, Span where) {
  int64_t least, multiple;
  schedule_needs(p, &least, &multiple);
  if (p->microbatches % multiple) {
    Diagnostic *d =
        error_at(where, "PD0704", "'%s' with %s needs a multiple of %lld microbatches %s, has %lld", p->schedule,
                 stages_text(p), (long long)multiple, schedule_period(p->schedule), (long long)p->microbatches);
    tell_needs(d, p, least, multiple);
    return false;
  }
  if (p->microbatches < least) {
    Diagnostic *d =
        error_at(where, "PD0701", "'%s' with %s needs at least %lld microbatches %s, has %lld", p->schedule,
                 stages_text(p), (long long)least, schedule_period(p->schedule), (long long)p->microbatches);
    tell_needs(d, p, least, multiple);
    return false;
  }
  return true;
}

static bool replicas_allowed(const Generator *g, const Pipeline *p, Span where) {
  for (int i = 0; i < p->n_stages; i++)
    if (!g->replicas && p->replicas[i] > 1) {
      Diagnostic *d = error_at(where, "PD0705", "'%s' does not support replicas, but stage %d has %d", g->name, i,
                               p->replicas[i]);
      help(d, "use one replica per stage, or the schedule 'flush' or '2bw'");
      return false;
    }
  return true;
}

/* Under offload the limit applies to the chunks of all ranks together. */
static int most_chunks(const Generator *g) { return g->spills ? MAX_CHUNKS : g->chunks ? MOST_INTERLEAVED : 1; }

static bool chunks_allowed(const Generator *g, const Pipeline *p, Span where) {
  const int chunks = g->spills ? pipeline_parts(p) : p->chunks, limit = most_chunks(g);
  if (p->first_part && !g->spills) {
    error_at(where, "PD0708", "'%s' needs the same number of chunks on every rank", g->name);
    return false;
  }
  if (chunks <= limit)
    return true;
  Diagnostic *d = error_at(where, "PD0708", "'%s' supports at most %d chunk%s%s, not %d", g->name, limit,
                           limit == 1 ? "" : "s", g->spills ? "" : " a rank", chunks);
  if (!g->chunks)
    help(d, "use the schedule 'interleaved' for several chunks per rank");
  return false;
}

static bool recomputation_allowed(const Generator *g, const Pipeline *p, Span where) {
  for (int i = 0; i < p->n_stages; i++)
    if (p->recompute[i] && !g->recomputes) {
      Diagnostic *d =
          error_at(where, "PD0706", "'%s' does not support recomputation, but stage %d recomputes", g->name, i);
      help(d, "use '--recompute off', or the schedule 'flush' or '2bw'");
      return false;
    }
  return true;
}

/* Without vertical sync a stage's update is due before lower stages' gradients arrive. */
static bool exchanges_allowed(const Generator *g, const Pipeline *p, const bool *exchanges, Span where) {
  for (int i = 0; i < p->n_stages; i++)
    if (g->staleness == STASHED && !p->vertical_sync && exchanges[i]) {
      Diagnostic *d = error_at(
          where, "PD0707",
          "'%s' would deadlock: the update of stage %d waits for gradients of earlier stages (global norm clipping, or a shared parameter)",
          g->name, i);
      help(d, "set 'vertical_sync = true': all stages then use weights of the same version");
      return false;
    }
  return true;
}

Program *schedule(const Pipeline *p, const bool *exchanges, Span where) {
  const Generator *g = generator(p->schedule);
  if (!g) {
    int n;
    const char *const *names = schedule_names(&n);
    Diagnostic *d = error_at(where, "PD0702", "unknown schedule '%s'", p->schedule);
    const char *near = nearest(p->schedule, names, n);
    if (near)
      help(d, "did you mean '%s'?", near);
    return NULL;
  }
  ensure(p->n_stages > 0 && p->microbatches > 0);
  if (!exchanges)
    exchanges = alloc((size_t)p->n_stages);
  if (!replicas_allowed(g, p, where) || !chunks_allowed(g, p, where) || !recomputation_allowed(g, p, where) ||
      !exchanges_allowed(g, p, exchanges, where) || !microbatches_suffice(p, where))
    return NULL;
  return generate(g, p, exchanges);
}
