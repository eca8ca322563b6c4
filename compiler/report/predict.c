/* The timeline that a plan expects: its schedule's programs run with its stages' planned times. */
#include <string.h>

#include "plan/plan.h"
#include "report/report.h"
#include "schedule/program.h"

enum { MOST_STAGES = 4096, MOST_EVENTS = 200000 };

static bool has(const JsonPlace *at, const char *key) {
  return cJSON_GetObjectItemCaseSensitive(at->object, key) != NULL;
}

static bool read_stage(const JsonPlace *at, StagePlan *s) {
  int64_t replicas = 1, ahead = 1;
  bool good = json_get_seconds(at, "forward_seconds", &s->forward_seconds) &&
              json_get_seconds(at, "backward_seconds", &s->backward_seconds);
  if (good && has(at, "weights_seconds"))
    good = json_get_seconds(at, "weights_seconds", &s->weights_seconds);
  if (good && has(at, "update_seconds"))
    good = json_get_seconds(at, "update_seconds", &s->update_seconds);
  if (good && has(at, "recompute"))
    good = json_get_bool(at, "recompute", &s->recompute);
  if (good && has(at, "replicas"))
    good = json_get_int(at, "replicas", 1, MOST_RANKS, &replicas);
  if (good && has(at, "ahead"))
    good = json_get_int(at, "ahead", 1, 2, &ahead);
  s->replicas = (int)replicas;
  s->ahead = (int)ahead;
  return good;
}

static bool read_plan(const JsonPlace *top, Plan *plan) {
  int64_t chunks = 1;
  const char *schedule = json_get_string(top, "schedule");
  const cJSON *stages = json_get_array(top, "stages", 1);
  bool good = schedule && stages && json_get_int(top, "batch", 1, (int64_t)1 << 53, &plan->batch) &&
              json_get_int(top, "microbatch", 1, plan->batch, &plan->microbatch);
  if (good && has(top, "chunks"))
    good = json_get_int(top, "chunks", 1, MAX_CHUNKS, &chunks);
  if (good && has(top, "vertical_sync"))
    good = json_get_bool(top, "vertical_sync", &plan->vertical_sync);
  if (!good)
    return false;
  int n = cJSON_GetArraySize(stages);
  if (n > MOST_STAGES || n % chunks != 0 || plan->batch % plan->microbatch != 0) {
    error_at((Span){.file = top->file}, "PD0603",
             "%d 'stages' in %lld 'chunks', or microbatches of %lld in a batch of %lld: that does not go up", n,
             (long long)chunks, (long long)plan->microbatch, (long long)plan->batch);
    return false;
  }
  plan->schedule = intern(schedule);
  plan->chunks = (int)chunks;
  plan->n_stages = n / (int)chunks;
  plan->microbatches = plan->batch / plan->microbatch;
  plan->stage = alloc((size_t)n * sizeof *plan->stage);
  int64_t ranks = 0;
  for (int i = 0; i < n; i++) {
    JsonPlace at = json_element(top, "stages", stages, i);
    if (!read_stage(&at, &plan->stage[i]))
      return false;
    ranks += i < plan->n_stages ? plan->stage[i].replicas : 0;
  }
  if (ranks > MOST_RANKS)
    error_at((Span){.file = top->file}, "PD0603", "'stages' have %lld replicas together: at most %d ranks can run",
             (long long)ranks, MOST_RANKS);
  return ranks <= MOST_RANKS;
}

/* Of one rank; with chunks a turn takes what they take on average. */
static StageTimes times_of(const Plan *plan, const Program *p, int stage) {
  StageTimes t = {0};
  for (int c = 0; c < plan->chunks; c++) {
    const StagePlan *s = &plan->stage[c * plan->n_stages + stage];
    double weights = p->split_backward ? s->weights_seconds : 0;
    t.forward += s->forward_seconds / plan->chunks;
    t.backward += (s->backward_seconds - weights) / plan->chunks;
    t.weights += weights / plan->chunks;
    t.recompute += (s->recompute ? s->forward_seconds : 0) / plan->chunks;
    t.update += s->update_seconds;
  }
  return t;
}

typedef struct Recorder {
  Timeline *t;
  const int *first_rank; /* by stage */
} Recorder;

static const Work works[] = {
    [DO_RECEIVE] = N_WORK,       [DO_FORWARD] = WORK_FORWARD,   [DO_SEND] = N_WORK,
    [DO_RECEIVE_GRADIENT] = N_WORK, [DO_RECOMPUTE] = WORK_RECOMPUTE, [DO_BACKWARD] = WORK_BACKWARD,
    [DO_SEND_GRADIENT] = N_WORK, [DO_WEIGHTS] = WORK_WEIGHTS,   [DO_UPDATE] = WORK_UPDATE,
    [DO_EXCHANGE] = N_WORK,
};

static void record(void *context, const Event *e) {
  const Recorder *r = context;
  Work work = works[e->step.action];
  if (work == N_WORK)
    return;
  push(&r->t->bars, (Bar){.work = work,
                          .rank = r->first_rank[e->stage] + e->replica,
                          .chunk = e->step.chunk,
                          .peer = -1,
                          .number = e->step.number + (work == WORK_UPDATE),
                          .version = work == WORK_UPDATE ? -1 : e->version,
                          .start = e->start,
                          .end = e->end,
                          .bytes = -1});
}

/* Batches enough for a steady state after the pipeline has filled and before it drains; 0: too many events. */
static int64_t batches_to_run(const Plan *plan, const Program *programs) {
  int64_t turns = program_turns(&programs[0]);
  if (turns < 1)
    return 0;
  int64_t batches = 2 * (2 + 2 * programs[0].in_flight / turns) + 4;
  double events = 3.0 * (double)batches * (double)plan->microbatches * plan->n_stages * plan->chunks;
  return events > MOST_EVENTS ? 0 : batches;
}

Timeline *predict(const cJSON *json, int file, const char **why) {
  JsonPlace top = {.file = file, .path = "", .object = json};
  Plan plan = {0};
  if (!read_plan(&top, &plan))
    return NULL;
  *why = format("this pdc knows no schedule '%s'", plan.schedule);
  if (!schedule_known(plan.schedule))
    return NULL;
  Program *programs = schedule(&plan, NULL, (Span){.file = file});
  if (!programs)
    return NULL;
  int64_t batches = batches_to_run(&plan, programs);
  *why = "it has too many microbatches and stages to draw";
  if (batches == 0)
    return NULL;
  Timeline *t = alloc(sizeof *t);
  int *first_rank = alloc((size_t)plan.n_stages * sizeof *first_rank);
  StageTimes *times = alloc((size_t)plan.n_stages * sizeof *times);
  double longest = 0;
  t->name = alloc(MOST_RANKS * sizeof *t->name);
  for (int i = 0; i < plan.n_stages; i++) {
    first_rank[i] = t->ranks;
    times[i] = times_of(&plan, &programs[i], i);
    longest = times[i].forward > longest ? times[i].forward : longest;
    for (int replica = 0; replica < plan.stage[i].replicas; replica++) {
      int rank = t->ranks++;
      t->name[rank] = plan.stage[i].replicas > 1 ? format("rank %d: stage %d, replica %d", rank, i, replica)
                                                 : format("rank %d: stage %d", rank, i);
    }
  }
  *why = "its stages have no planned times";
  if (longest <= 0)
    return NULL;
  char *reason = NULL;
  Recorder r = {t, first_rank};
  if (run_schedule(programs, times, plan.n_stages, batches, record, &r, &reason))
    return t;
  *why = reason;
  return NULL;
}
