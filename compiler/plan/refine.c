/* The last step of the search: a plan is taken as it is simulated, and its cuts are moved while that gets shorter. What
 * the programmes minimise leaves out how stages wait for each other. */
#include "plan/candidate.h"

typedef struct Climb {
  const Planner *r;
  Candidate at;
  int *start; /* of the best so far */
  int left;   /* simulations that it may still take */
} Climb;

/* Large pipelines are simulated less often. */
static int simulations(const Plan *plan) {
  enum { MOST = 400, LEAST = 32, TURNS = 400000 };
  int64_t turns = plan_parts(plan) * plan->pipeline.microbatches, n = TURNS / turns;
  return n > MOST ? MOST : n < LEAST ? LEAST : (int)n;
}

static bool climbs(Climb *c, const int *start) {
  static const double WORTH = 1e-6;
  Candidate other = c->at;
  Partition part;
  other.pinned = start;
  double most = (1 - WORTH) * c->at.plan->batch_seconds;
  if (!candidate_partition(&other, c->r->limit, &part) ||
      part.value * (double)c->at.plan->pipeline.microbatches > most)
    return false;
  c->left--;
  other.plan = plan_of(c->r, &other, &part);
  if (!schedulable(c->r, other.plan) || other.plan->batch_seconds > most)
    return false;
  c->at.plan = other.plan;
  c->start = alloc_copy(start, (size_t)pipeline_parts(c->at.form) * sizeof *start);
  return true;
}

/* One cut by some pieces one way, as far as there is room. */
static bool move(Climb *c, int part, int by) {
  int parts = pipeline_parts(c->at.form), n = c->r->subject.n;
  int *start = alloc_copy(c->start, (size_t)parts * sizeof *start);
  start[part] += by;
  int end = part + 1 < parts ? start[part + 1] : n;
  return start[part] > start[part - 1] && start[part] < end && climbs(c, start);
}

static bool sweep(Climb *c) {
  bool any = false;
  for (int part = 1; part < pipeline_parts(c->at.form); part++)
    for (int by = 1; by < c->r->subject.n && c->left > 0; by *= 2)
      for (int way = -1; way <= 1; way += 2)
        while (c->left > 0 && move(c, part, way * by))
          any = true;
  return any;
}

void refine(const Planner *r, Candidate *candidate) {
  int parts = pipeline_parts(candidate->form);
  if (r->pinned || candidate->pinned || parts == 1)
    return;
  Climb c = {
      .r = r, .at = *candidate, .start = alloc((size_t)parts * sizeof(int)), .left = simulations(candidate->plan)};
  for (int i = 0; i < parts; i++)
    c.start[i] = candidate->plan->stage[i].first_piece;
  while (sweep(&c)) {
  }
  if (c.at.plan == candidate->plan)
    return;
  c.at.pinned = c.start;
  c.at.settled = false;
  settle(r, &c.at);
  if (c.at.settled && c.at.plan->batch_seconds < candidate->plan->batch_seconds)
    candidate->plan = c.at.plan;
}
