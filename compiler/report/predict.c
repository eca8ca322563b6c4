/* Predicts a plan's timeline by simulating its schedule with the stages' planned times. */
#include <stdlib.h>
#include <string.h>

#include "plan/request.h"
#include "report/report.h"
#include "schedule/program.h"

/* Limits of events for a run drawn completely, and for one drawn in part. */
enum { MOST_EVENTS = 200000, MOST_SIMULATED = 2000000 };

static const char of_generating[] =
    "a token that is generated goes through all stages before the next one is known";

/* Whether stages, chunks, microbatches and ranks divide evenly; reports otherwise. */
static bool goes_up(PlanFile *f) {
  const Pipeline *p = &f->plan.pipeline;
  Span where = {.file = f->file};
  const bool even = p->first_part ? f->parts == pipeline_parts(p) : f->parts % p->chunks == 0;
  if (f->parts > MOST_STAGES || !even || p->batch % p->microbatch != 0) {
    error_at(where, "PD0603",
             "%d 'stages' in %d 'chunks', or microbatches of %lld in a batch of %lld, do not divide evenly",
             f->parts, p->chunks, (long long)p->microbatch, (long long)p->batch);
    return false;
  }
  if (!plan_file_stages(f))
    return false;
  int64_t ranks = 0; /* may exceed an int */
  for (int i = 0; i < p->n_stages; i++)
    ranks += p->replicas[i];
  if (ranks > MOST_RANKS)
    error_at(where, "PD0603", "'stages' have %lld replicas together; the limit is %d ranks", (long long)ranks,
             MOST_RANKS);
  return ranks <= MOST_RANKS;
}

/* By model part. */
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
    times[plan_part_of(plan, stage, 0)].update += s->update_seconds;
  }
  return times;
}

typedef struct Recorder {
  Timeline *t;
  const int *first_row; /* by stage */
  bool first_replicas;  /* draws only the first replica of each stage */
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
  if (work == N_WORK || (r->first_replicas && e->replica > 0))
    return true;
  push(&r->t->bars, (Bar){.work = work,
                          .rank = r->first_row[e->stage] + e->replica,
                          .chunk = e->step.chunk,
                          .peer = -1,
                          .number = e->step.number + (work == WORK_UPDATE),
                          .version = work == WORK_UPDATE ? -1 : e->version,
                          .start = e->start,
                          .end = e->end,
                          .bytes = -1});
  return true;
}

/* Batches for a steady state between filling and draining the pipeline; 0: too many events. */
static int64_t batches_to_run(const Pipeline *p, const Program *programs, double most_events) {
  int64_t turns = program_turns(&programs[0]);
  if (turns < 1)
    return 0;
  int64_t batches = 2 * (2 + 2 * programs[0].in_flight / turns) + 4;
  double events = 3.0 * (double)batches * (double)p->microbatches * pipeline_parts(p);
  return events > most_events ? 0 : batches;
}

/* The reason why the plan's purpose does not match its schedule's drawing, or NULL. */
static const char *not_drawn(const PlanFile *file, bool evaluates) {
  Name schedule = file->plan.pipeline.schedule;
  if (!schedule_known(schedule))
    return format("this pdc knows no schedule '%s'", schedule);
  if (cJSON_GetObjectItemCaseSensitive(file->json, "cache_bytes_a_token"))
    return of_generating;
  if (evaluates && !schedule_traits(schedule).forward_only)
    return "the plan is of a training, and this run did nothing but evaluate";
  return NULL;
}

/* Makes a row per rank or per stage, and fills first_row. */
static Timeline *make_rows(const Pipeline *p, bool first_replicas, int *first_row) {
  Timeline *t = alloc(sizeof *t);
  t->name = alloc((size_t)pipeline_ranks(p) * sizeof *t->name);
  for (int i = 0, rank = 0; i < p->n_stages; rank += p->replicas[i++]) {
    first_row[i] = t->ranks;
    for (int replica = 0; replica < (first_replicas ? 1 : p->replicas[i]); replica++)
      t->name[t->ranks++] = p->replicas[i] > 1
                                ? format("rank %d: stage %d, replica %d", rank + replica, i, replica)
                                : format("rank %d: stage %d", rank, i);
  }
  return t;
}

static Timeline *run(const Plan *plan, const Program *programs, double most_events, bool first_replicas,
                     const char **why) {
  const Pipeline *p = &plan->pipeline;
  int64_t batches = batches_to_run(p, programs, most_events);
  *why = "it has too many microbatches and stages to draw";
  if (batches == 0)
    return NULL;
  int *first_row = alloc((size_t)p->n_stages * sizeof *first_row);
  StageTimes *times = times_of(plan, programs);
  Timeline *t = make_rows(p, first_replicas, first_row);
  double longest = 0;
  for (int i = 0; i < p->n_stages; i++)
    longest = times[i].forward > longest ? times[i].forward : longest;
  *why = "its stages have no planned times";
  if (longest <= 0)
    return NULL;
  char *reason = NULL;
  Recorder r = {t, first_row, first_replicas};
  if (run_schedule(programs, times, p->n_stages, batches, record, &r, &reason))
    return t;
  *why = reason;
  return NULL;
}

Timeline *predict(PlanFile *file, bool evaluates, const char **why) {
  if (!goes_up(file))
    return NULL;
  if ((*why = not_drawn(file, evaluates)) != NULL)
    return NULL;
  Program *programs = schedule(&file->plan.pipeline, NULL, (Span){.file = file->file});
  return programs ? run(&file->plan, programs, MOST_EVENTS, false, why) : NULL;
}

static int by_end(const void *a, const void *b) {
  const Bar *x = a, *y = b;
  return (x->end > y->end) - (x->end < y->end);
}

/* Keeps the two middle updates, the page's initial view, if the first rank has more. */
static void keep_two_updates(Timeline *t) {
  Vec(Bar) updates = {0};
  for (int i = 0; i < t->bars.n; i++)
    if (t->bars.at[i].work == WORK_UPDATE && t->bars.at[i].rank == 0)
      push(&updates, t->bars.at[i]);
  if (updates.n < 4)
    return;
  qsort(updates.at, (size_t)updates.n, sizeof *updates.at, by_end);
  t->from = updates.at[updates.n / 2 - 1].end;
  t->to = updates.at[updates.n / 2 + 1].end;
}

Timeline *predict_plan(const Graph *g, const Pieces *p, const Plan *plan, bool first_replicas, const char **why) {
  *why = of_generating;
  if (g->generation.context)
    return NULL;
  Program *programs = schedule(&plan->pipeline, plan_exchanges(g, p, plan), NO_SPAN);
  Timeline *t = programs ? run(plan, programs, MOST_SIMULATED, first_replicas, why) : NULL;
  if (t)
    keep_two_updates(t);
  return t;
}
