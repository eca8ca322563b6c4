/* From a request to a plan: from a file, under the requested schedule, or under the fastest allowed schedule. */
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

static Plan *plan_open_schedule(const Graph *g, const Pieces *p, const PlanRequest *request, Plan **runners_up,
                                int n) {
  int names;
  const char *const *name = schedule_names(&names);
  const Plan *best = NULL;
  Text tried = {0};
  for (int i = 0; i < names; i++) {
    if (!delay_allows(request->delay, name[i]) || (schedule_traits(name[i]).spills && !request->spill))
      continue;
    text_add(&tried, "%s%s", tried.n ? ", " : "", name[i]);
    const Plan *plan = try_schedule(g, p, *request, name[i], NULL);
    if (plan && (!best || better(plan, best)))
      best = plan;
  }
  PlanRequest chosen = *request;
  chosen.delay = DELAY_FREE;
  chosen.schedule = best ? best->pipeline.schedule : "flush"; /* needs least memory; reports why nothing fits */
  if (!schedule_traits(chosen.schedule).spills)
    chosen.update = UPDATE_FREE;
  Plan *plan = plan_one(g, p, &chosen, runners_up, n);
  if (plan)
    plan->why = format("Schedule %s: the fastest plan found among the schedules %s. %s", chosen.schedule, tried.at,
                       plan->why);
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
