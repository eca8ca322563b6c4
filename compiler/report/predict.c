/* The timeline that a plan expects: its schedule's programs run with its stages' planned times. */
#include <string.h>

#include "plan/plan.h"
#include "report/report.h"
#include "schedule/program.h"

enum { MOST_EVENTS = 200000 };

/* Whether stages, chunks, microbatches and ranks divide evenly; false after a diagnostic. */
static bool goes_up(PlanFile *f) {
  const Pipeline *p = &f->plan.pipeline;
  Span where = {.file = f->file};
  if (f->parts > MOST_STAGES || f->parts % p->chunks != 0 || p->batch % p->microbatch != 0) {
    error_at(where, "PD0603",
             "%d 'stages' in %d 'chunks', or microbatches of %lld in a batch of %lld: that does not go up",
             f->parts, p->chunks, (long long)p->microbatch, (long long)p->batch);
    return false;
  }
  if (!plan_file_stages(f))
    return false;
  int64_t ranks = 0; /* more than an int may be */
  for (int i = 0; i < p->n_stages; i++)
    ranks += p->replicas[i];
  if (ranks > MOST_RANKS)
    error_at(where, "PD0603", "'stages' have %lld replicas together: at most %d ranks can run", (long long)ranks,
             MOST_RANKS);
  return ranks <= MOST_RANKS;
}

/* By part of the model. */
static StageTimes *times_of(const Plan *plan, const Program *programs) {
  StageTimes *times = alloc((size_t)plan_parts(plan) * sizeof *times);
  for (int i = 0; i < plan_parts(plan); i++) {
    const StagePlan *s = &plan->stage[i];
    int stage = plan_stage_of(plan, i);
    double weights = programs[stage].split_backward ? s->weights_seconds : 0;
    times[i].forward = s->forward_seconds;
    times[i].backward = s->backward_seconds - weights;
    times[i].weights = weights;
    times[i].recompute = plan_recomputes(plan, i) ? s->forward_seconds : 0;
    times[stage].update += s->update_seconds;
  }
  return times;
}

typedef struct Recorder {
  Timeline *t;
  const int *first_rank; /* by stage */
} Recorder;

static const Work works[] = {
    [DO_RECEIVE] = N_WORK,          [DO_FORWARD] = WORK_FORWARD,     [DO_SEND] = N_WORK,
    [DO_RECEIVE_GRADIENT] = N_WORK, [DO_RECOMPUTE] = WORK_RECOMPUTE, [DO_BACKWARD] = WORK_BACKWARD,
    [DO_SEND_GRADIENT] = N_WORK,    [DO_WEIGHTS] = WORK_WEIGHTS,     [DO_UPDATE] = WORK_UPDATE,
    [DO_EXCHANGE] = N_WORK,
};

static bool record(void *context, const Event *e) {
  const Recorder *r = context;
  Work work = works[e->step.action];
  if (work == N_WORK)
    return true;
  push(&r->t->bars, (Bar){.work = work,
                          .rank = r->first_rank[e->stage] + e->replica,
                          .chunk = e->step.chunk,
                          .peer = -1,
                          .number = e->step.number + (work == WORK_UPDATE),
                          .version = work == WORK_UPDATE ? -1 : e->version,
                          .start = e->start,
                          .end = e->end,
                          .bytes = -1});
  return true;
}

/* Batches enough for a steady state after the pipeline has filled and before it drains; 0: too many events. */
static int64_t batches_to_run(const Pipeline *p, const Program *programs) {
  int64_t turns = program_turns(&programs[0]);
  if (turns < 1)
    return 0;
  int64_t batches = 2 * (2 + 2 * programs[0].in_flight / turns) + 4;
  double events = 3.0 * (double)batches * (double)p->microbatches * pipeline_parts(p);
  return events > MOST_EVENTS ? 0 : batches;
}

/* What the plan is for is not what its schedule would draw. NULL: it is. */
static const char *not_drawn(const PlanFile *file, bool evaluates) {
  Name schedule = file->plan.pipeline.schedule;
  if (!schedule_known(schedule))
    return format("this pdc knows no schedule '%s'", schedule);
  if (cJSON_GetObjectItemCaseSensitive(file->json, "cache_bytes_a_token"))
    return "a token that is generated goes through all stages before the next one is known";
  if (evaluates && !schedule_traits(schedule).forward_only)
    return "the plan is of a training, and this run did nothing but evaluate";
  return NULL;
}

Timeline *predict(PlanFile *file, bool evaluates, const char **why) {
  if (!goes_up(file))
    return NULL;
  const Plan *plan = &file->plan;
  const Pipeline *p = &plan->pipeline;
  if ((*why = not_drawn(file, evaluates)) != NULL)
    return NULL;
  Program *programs = schedule(p, NULL, (Span){.file = file->file});
  if (!programs)
    return NULL;
  int64_t batches = batches_to_run(p, programs);
  *why = "it has too many microbatches and stages to draw";
  if (batches == 0)
    return NULL;
  Timeline *t = alloc(sizeof *t);
  int *first_rank = alloc((size_t)p->n_stages * sizeof *first_rank);
  StageTimes *times = times_of(plan, programs);
  double longest = 0;
  t->name = alloc(MOST_RANKS * sizeof *t->name);
  for (int i = 0; i < p->n_stages; i++) {
    first_rank[i] = t->ranks;
    longest = times[i].forward > longest ? times[i].forward : longest;
    for (int replica = 0; replica < p->replicas[i]; replica++) {
      int rank = t->ranks++;
      t->name[rank] = p->replicas[i] > 1 ? format("rank %d: stage %d, replica %d", rank, i, replica)
                                         : format("rank %d: stage %d", rank, i);
    }
  }
  *why = "its stages have no planned times";
  if (longest <= 0)
    return NULL;
  char *reason = NULL;
  Recorder r = {t, first_rank};
  if (run_schedule(programs, times, p->n_stages, batches, record, &r, &reason))
    return t;
  *why = reason;
  return NULL;
}
