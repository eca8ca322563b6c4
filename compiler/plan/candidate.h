/* Private to compiler/plan: plans under consideration. */
#ifndef PDC_CANDIDATE_H
#define PDC_CANDIDATE_H

#include "plan/planner.h"

typedef struct Candidate {
  const Pipeline *form;
  Placement placement;
  int64_t microbatch;
  Recompute recompute;
  const Spans *spans;
  Copies *copies;
  const int *pinned; /* where parts start, or NULL */
  double bound;      /* seconds of a batch that no plan of the form can beat */
  Plan *plan;        /* NULL until the bound is the least left */
  bool settled;      /* its peaks are exact and fit */
  bool refined;
  bool refused;
  bool or_not; /* where it does not fit no smaller partition is looked for ... */
  double most; /* ... nor one that takes longer, in seconds of a batch */
} Candidate;

typedef Vec(Candidate) Candidates;

/* ---- candidate.c */
Candidate candidate_of(const Planner *r, const Pipeline *form, const Placement *at, int64_t b, const Spans *spans,
                       Recompute policy, const int *pinned, double bound);
/* The best partition by estimated bytes; the smallest there is when none fits, and false. Each chunk of a rank has an
 * equal share of the limit. */
bool candidate_partition(const Candidate *c, int64_t limit, Partition *out);
Plan *plan_of(const Planner *r, const Candidate *c,
              const Partition *part); /* simulated, where it is schedulable */
/* Both; where ranks hold several chunks, balanced among ranks. */
bool candidate_plan(const Planner *r, const Candidate *c, int64_t limit, Plan **out);
/* Finds the fastest partition whose exact peaks fit: stages whose estimates were wrong get the difference added.
 * Where even the smallest partition does not fit, keeps that one and refuses. */
void settle(const Planner *r, Candidate *c);

/* ---- ways.c: stages and replicas are open */
/* Adds the ways to use the ranks with microbatches of b samples that fit and are worth a look beside the best so far,
 * of other microbatches, whose batch takes so many seconds (at first INFINITY; brought up to date). False: none. */
bool add_ways(const Planner *r, int64_t b, Spans *spans, double *best, Candidates *candidates);
/* One candidate, unless the schedule does not take so many microbatches: false. */
bool add_form(const Planner *r, Candidates *candidates, const Pipeline *form, const Placement *at, int64_t b,
              const Spans *spans, double bound);
/* The form in every placement that suits it. */
bool add_placements(const Planner *r, Candidates *candidates, const Pipeline *form, int64_t b, const Spans *spans);
/* Forms with as many ranks for every stage: they are few, and the best of them is often near the best of all. */
typedef struct Equals {
  Candidates *candidates;
  double best; /* bound, at first INFINITY */
} Equals;
/* Those with microbatches of b samples, laid out in any way, unless far from the best. False: none. */
bool add_equals(const Planner *r, int64_t b, Equals *e);

/* ---- refine.c */
/* Changes a settled candidate's plan step by step as long as the simulated batch gets shorter: its cuts, and where the
 * planner may, ranks, stages and the microbatch. The candidate stays settled. */
void refine(const Planner *r, Candidate *c);

#endif
