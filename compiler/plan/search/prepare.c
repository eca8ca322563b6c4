/* Builds a planner for a request, with empty caches. */
#include "plan/search/search.h"

static Planner planner_of(const Subject *subject, const PlanRequest *q) {
  return (Planner){.subject = *subject,
                   .prices = alloc(sizeof(Prices)),
                   .timed_plans = timed_plans_new(),
                   .known_forms = known_forms_new(),
                   .kernel_work = kernel_work_new(),
                   .best_partitions = best_partitions_new(),
                   .request = q,
                   .target = q->target};
}

bool planner_prepare(Planner *r, const Graph *g, const Pieces *p, const PlanRequest *q, const Plan *taken) {
  const Subject model = model_subject(g, p);
  *r = planner_of(&model, q);
  return settle_request(r, g, p, taken);
}

bool planner_prepare_layers(Planner *r, const Subject *subject, const PlanRequest *q, const Cluster *levels) {
  *r = planner_of(subject, q);
  return settle_layers(r, levels);
}
