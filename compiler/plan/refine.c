/* The last step of the search: a plan is taken as it is simulated, and its cuts are moved while that gets shorter. What
 * the programmes minimise leaves out how stages wait for each other. */
#include "plan/candidate.h"

enum { MOST_TRIED = 400 };

typedef struct Climb {
  const Planner *r;
  Candidate at;
  int *start; /* of the best so far */
  int tried;
} Climb;

static bool climbs(Climb *c, const int *start) {
  static const double WORTH = 1e-6;
  Candidate other = c->at;
  other.pinned = start;
  c->tried++;
  if (!candidate_plan(c->r, &other, c->r->limit, &other.plan) || !schedulable(c->r, other.plan) ||
      other.plan->batch_seconds > (1 - WORTH) * c->at.plan->batch_seconds)
    return false;
  c->at.plan = other.plan;
  c->start = alloc_copy(start, (size_t)pipeline_parts(c->at.form) * sizeof *start);
  return true;
}

/* One cut by some pieces one way, as far as there is room. */
static bool move(Climb *c, int part, int by) {
  int parts = pipeline_parts(c->at.form), n = c->r->p->n;
  int *start = alloc_copy(c->start, (size_t)parts * sizeof *start);
  start[part] += by;
  int end = part + 1 < parts ? start[part + 1] : n;
  return start[part] > start[part - 1] && start[part] < end && climbs(c, start);
}

static bool sweep(Climb *c) {
  bool any = false;
  for (int part = 1; part < pipeline_parts(c->at.form); part++)
    for (int by = 1; by < c->r->p->n && c->tried < MOST_TRIED; by *= 2)
      for (int way = -1; way <= 1; way += 2)
        while (c->tried < MOST_TRIED && move(c, part, way * by))
          any = true;
  return any;
}

void refine(const Planner *r, Candidate *candidate) {
  int parts = pipeline_parts(candidate->form);
  if (r->pinned || candidate->pinned || parts == 1)
    return;
  Climb c = {.r = r, .at = *candidate, .start = alloc((size_t)parts * sizeof(int))};
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
