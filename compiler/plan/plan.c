/* From a request to a plan: from a file, under the requested schedule, or under the fastest allowed schedule. */
#include <math.h>
#include <string.h>

#include "plan/answer.h"

bool schedule_open(const Graph *g, const PlanRequest *q) {
  const char *name = q->schedule ? q->schedule : g->train.pipeline;
  return !g->inference && !q->plan && name && !strcmp(name, SCHEDULE_AUTO);
}

/* Whether the schedule's weight delay is within `delay`. */
bool delay_allows(Delay delay, const char *schedule) {
  ScheduleTraits traits = schedule_traits(schedule);
  return !traits.forward_only && !traits.every_round && (delay != DELAY_NONE || !traits.two_versions);
}

static bool delay_suits(const Graph *g, const PlanRequest *q) {
  if (!q->delay || schedule_open(g, q))
    return true;
  Diagnostic *d = error_at(NO_SPAN, "PD0511", "--delay selects among schedules, but the schedule is fixed");
  help(d, "use '--schedule auto', or leave '--delay' out");
  return false;
}

/* Among equally fast plans prefers less memory, then the later schedule in the list, such as flush after gpipe. */
static bool better(const Plan *a, const Plan *b) {
  if (a->batch_seconds > AS_FAST * b->batch_seconds || AS_FAST * a->batch_seconds < b->batch_seconds)
    return a->batch_seconds < b->batch_seconds;
  return largest_peak(a) <= largest_peak(b);
}

/* Schedules that are often the fastest come first: they bound later searches. */
static int turn_of(const char *schedule) {
  const ScheduleTraits traits = schedule_traits(schedule);
  return traits.serial ? 3 : !traits.drains ? 0 : traits.replicas ? 1 : 2;
}

static bool is_open(const PlanRequest *request, const char *schedule) {
  return delay_allows(request->delay, schedule) && (!schedule_traits(schedule).spills || request->spill);
}

/* By schedule: its attempt; NULL: not allowed, or no plan close to the fastest. */
static const Attempt **attempt_schedules(const Graph *g, const Pieces *p, const PlanRequest *request,
                                         const char *const *name, int names, int n) {
  enum { TURNS = 4 };
  const Attempt **all = alloc((size_t)names * sizeof *all);
  double fastest = 0;
  for (int turn = 0; turn < TURNS; turn++)
    for (int i = names - 1; i >= 0; i--) {
      if (!is_open(request, name[i]) || turn_of(name[i]) != turn)
        continue;
      all[i] = attempt_schedule(g, p, request, name[i], BESIDE_VARIED * fastest, n);
      const double seconds = all[i] ? attempted_plan(all[i])->batch_seconds : INFINITY;
      if (all[i] && (fastest <= 0 || seconds < fastest))
        fastest = seconds;
    }
  return all;
}

static Plan *plan_open_schedule(const Graph *g, const Pieces *p, const PlanRequest *request, Plan **runners_up,
                                int n) {
  int names;
  const char *const *name = schedule_names(&names);
  const Attempt **all = attempt_schedules(g, p, request, name, names, n), *best = NULL;
  Text tried = {0};
  for (int i = 0; i < names; i++) {
    if (is_open(request, name[i]))
      text_add(&tried, "%s%s", tried.n ? ", " : "", name[i]);
    if (all[i] && (!best || better(attempted_plan(all[i]), attempted_plan(best))))
      best = all[i];
  }
  if (!best) { /* the schedule that needs least memory reports why nothing fits */
    PlanRequest least = *request;
    least.delay = DELAY_FREE;
    least.schedule = "flush";
    least.update = UPDATE_FREE;
    return plan_one(g, p, &least, runners_up, n);
  }
  Plan *plan = take_attempt(best, runners_up, n);
  plan->why = format("Schedule %s: the fastest plan found among the schedules %s. %s", plan->pipeline.schedule,
                     tried.at, plan->why);
  return plan;
}

Plan *plan_make(const Graph *g, const Pieces *p, const PlanRequest *request, Plan **runners_up, int n) {
  if (!delay_suits(g, request))
    return NULL;
  if (request->plan)
    return plan_taken(g, p, request);
  if (schedule_open(g, request))
    return plan_open_schedule(g, p, request, runners_up, n);
  return plan_one(g, p, request, runners_up, n);
}
