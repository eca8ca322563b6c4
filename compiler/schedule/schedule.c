/* Generators of Programs. A schedule is a row of a table: whether it drains, how far its weights lag,
 * how many microbatches a stage holds; the loops follow from those. Sources: docs/schedules.md. */
#include "schedule/program.h"

#include <string.h>

typedef struct Generator {
  const char *name;
  bool drains;                                                 /* at every batch */
  int64_t (*delay)(int stage, int n_stages);                   /* updates between the weights used and the newest */
  int64_t (*in_flight)(int stage, int n_stages, int64_t period);
  int64_t (*least)(int n_stages);                              /* microbatches an update */
} Generator;

static int64_t no_delay(int stage, int n_stages) {
  (void)stage, (void)n_stages;
  return 0;
}

static int64_t one_update(int stage, int n_stages) {
  (void)stage, (void)n_stages;
  return 1;
}

static int64_t one_at_a_time(int stage, int n_stages, int64_t period) {
  (void)stage, (void)n_stages, (void)period;
  return 1;
}

/* 1F1B: a microbatch is in flight at stage i while it visits the d - i stages from here to the end. */
static int64_t one_forward_one_backward(int stage, int n_stages, int64_t period) {
  (void)period;
  return n_stages - stage;
}

static int64_t one_forward_one_backward_drained(int stage, int n_stages, int64_t period) {
  int64_t n = n_stages - stage;
  return n < period ? n : period;
}

static int64_t one(int n_stages) {
  (void)n_stages;
  return 1;
}

/* Batch t + 2 needs W(t + 1) at stage i after backward M (t + 2) + 1 - (d - i), and update t comes after
 * backward M (t + 1) + lag with lag <= i: M >= d - 1 (Narayanan et al. 2021, section 3.1). */
static int64_t stages_less_one(int n_stages) { return n_stages > 1 ? n_stages - 1 : 1; }

static const Generator generators[] = {
  {"sequential", true, no_delay, one_at_a_time, one},
  {"flush", true, no_delay, one_forward_one_backward_drained, one},
  {"2bw", false, one_update, one_forward_one_backward, stages_less_one},
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

int64_t schedule_least_microbatches(const char *name, int n_stages) {
  const Generator *g = generator(name);
  ensure(g);
  return g->least(n_stages);
}

static void add(Loop *l, Action a) {
  ensure(l->n < MAX_ACTIONS);
  l->action[l->n++] = a;
}

static void add_forward(const Program *p, Loop *l) {
  if (p->stage > 0)
    add(l, DO_RECEIVE);
  add(l, DO_FORWARD);
  add(l, DO_SEND);
}

static void add_backward(const Program *p, bool recompute, Loop *l) {
  if (p->stage < p->n_stages - 1)
    add(l, DO_RECEIVE_GRADIENT);
  if (recompute)
    add(l, DO_RECOMPUTE);
  add(l, DO_BACKWARD);
  add(l, DO_SEND_GRADIENT);
}

static void add_update(const Program *p, Loop *l) {
  if (p->lag > 0) {
    add(l, DO_UPDATE);
    add(l, DO_EXCHANGE);
  } else {
    add(l, DO_EXCHANGE);
    add(l, DO_UPDATE);
  }
}

/* With one microbatch in flight the steady state is all there is. A batch that drains ends in the last
 * loop that runs, so that only this one needs the update. */
static void add_loops(Program *p, bool recompute) {
  Loop *warm_up = &p->loop[0], *steady = &p->loop[1], *drain = &p->loop[2];
  *warm_up = (Loop){.name = "warm-up", .comment = "fill the pipeline"};
  *steady = (Loop){.name = "steady state", .comment = "one forward, one backward"};
  *drain = (Loop){.name = "drain", .comment = "the backwards that are left"};
  add_forward(p, steady);
  add_backward(p, recompute, steady);
  if (p->in_flight > 1) {
    add_forward(p, warm_up);
    add_backward(p, recompute, drain);
    add_update(p, drain);
  }
  if (!p->per_batch || p->in_flight == 1)
    add_update(p, steady);
}

/* lags: some stage waits. Then all do, each by its distance: in a validation after update t, when every stage
 * stands still there, each has the activations and gradients that its neighbours needed to come there. */
static Program generate(const Generator *g, int stage, int n_stages, int64_t period, bool recompute, bool waits,
                        bool lags) {
  Program p = {.stage = stage, .n_stages = n_stages, .replicas = 1, .chunks = 1, .exchanges = 1, .per_batch = g->drains, .period = period};
  p.in_flight = g->in_flight(stage, n_stages, period);
  p.delay = g->delay(stage, n_stages);
  p.versions = (int)p.delay + 1;
  p.waits = waits;
  /* Stage 0 ends a batch's backward i hops after stage i: i microbatches later it is sure to have. */
  p.lag = lags && !p.per_batch ? stage : 0;
  p.accumulators = p.lag > 0 ? 2 : 1;
  recompute = recompute && p.in_flight > 1;
  p.slots[0].saved = recompute ? 1 : (int)p.in_flight;
  p.slots[0].received = stage > 0 ? (int)p.in_flight + 1 : 1;
  p.slots[0].sent = stage < n_stages - 1 ? (int)p.in_flight : 1;
  p.slots[0].gradients = n_stages > 1 ? 2 : 1;
  p.slots[0].inputs = (int)p.in_flight;
  p.slots[0].deferred = 1;
  add_loops(&p, recompute);
  return p;
}

static void too_few(const Plan *plan, const Generator *g, Span where) {
  int64_t least = g->least(plan->n_stages);
  Diagnostic *d = error_at(where, "PD0701", "'%s' with %d stages needs at least %lld microbatches an update, has %lld",
                           g->name, plan->n_stages, (long long)least, (long long)plan->microbatches);
  note_at(d, NO_SPAN, "a batch of %lld samples in microbatches of %lld", (long long)plan->batch,
          (long long)plan->microbatch);
  if (plan->batch >= least)
    help(d, "'--microbatch %lld' or less, a larger batch, or fewer stages", (long long)(plan->batch / least));
  else
    help(d, "a larger batch or fewer stages");
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
  if (plan->microbatches < g->least(plan->n_stages)) {
    too_few(plan, g, where);
    return NULL;
  }
  Program *p = alloc((size_t)plan->n_stages * sizeof *p);
  bool lags = false;
  for (int i = 0; exchanges && i < plan->n_stages; i++)
    lags |= exchanges[i];
  for (int i = 0; i < plan->n_stages; i++)
    p[i] = generate(g, i, plan->n_stages, plan->microbatches, plan->stage[i].recompute, exchanges && exchanges[i],
                    lags);
  return p;
}
