/* Private to compiler/plan: the search for a plan. prepare.c makes a planner of a request, choose.c asks the others for candidates
 * and takes the fastest whose exact peaks fit; partition.h and replicate.h are the searches over plain numbers. Values are
 * seconds of a microbatch (partition.h), bounds and times seconds of a batch. Nothing here says why there is no plan. */
#ifndef PDC_PLAN_SEARCH_H
#define PDC_PLAN_SEARCH_H

#include "plan/offload/offload.h"
#include "plan/search/partition.h"
#include "plan/search/replicate.h"
#include "plan/time/time.h"

/* ---- prepare.c */
/* A planner of a model, with nothing known yet. False after diagnostics. `taken` as for settle_request(). */
bool planner_prepare(Planner *r, const Graph *g, const Pieces *p, const PlanRequest *request, const Plan *taken);
/* The same of what is no model, as settle_layers(). */
bool planner_prepare_layers(Planner *r, const Subject *subject, const PlanRequest *request, const Cluster *levels);

/* ---- choose.c: without diagnostics */
/* Why there is none. */
typedef struct NoPlan {
  bool no_microbatch;
  const Plan *stalling; /* NULL, or one that its schedule does not take */
  const Plan *miss;     /* NULL, or what comes nearest to fitting */
} NoPlan;
/* The plan to take; NULL with `none` filled. runners_up as for plan_make(). */
Plan *plan_choose(const Planner *r, Plan **runners_up, int n, NoPlan *none);
Plan *plan_fastest(const Planner *r); /* NULL when nothing fits */
Plan *plan_any(const Planner *r);     /* some plan that fits, where plan_choose() finds one */
/* Replaces the estimates by exact peaks; fills, by stage, by how much each rank's exceeded its estimate. */
void find_peaks(const Planner *r, Plan *plan, int64_t *error);

/* ---- least.c */
/* A plan that the planner finds with so little memory a device that it finds none with 64 KiB less (exact), or with 1 %
 * less, and that memory, the process's own with it; NULL: none was found. `miss`: what comes near. */
const Plan *plan_of_least_memory(const Planner *r, const Plan *miss, int64_t *memory, bool *exact);

/* ---- spilled.c: ranks whose parts come and go */
/* The fastest that is found, of all microbatches. NULL with `none` filled. */
Plan *plan_spilled(const Planner *r, NoPlan *none);

/* ---- candidates: plans under consideration ---- */

/* Cuts of several chunks if memory were no matter, which others start from. */
typedef enum ChunkStart {
  START_BALANCED, /* each part as fast as what its rank has beside it allows */
  START_ROUNDS,   /* the ranks' parts of a round alike */
  START_TOGETHER, /* the ranks' parts together as fast as their memory together allows: rounds.c */
  N_CHUNK_STARTS
} ChunkStart;

typedef struct Candidate {
  const Pipeline *form;
  Placement placement;
  int64_t microbatch;
  Recompute recompute;
  const Spans *spans;
  Copies *copies;
  const int *pinned; /* where parts start, or NULL */
  ChunkStart start;
  Partition *balanced; /* of several chunks, by ChunkStart; their start is NULL until somebody asks */
  /* Of several chunks: cut as if a rank had this share of what one takes at most if memory were no matter, which leads
   * elsewhere; 0: as there is memory. */
  double tight;
  double bound; /* seconds of a batch that no plan of the form can beat */
  Plan *plan;   /* NULL until the bound is the least left */
  bool settled; /* its peaks are exact and fit */
  bool refined;
  bool refused;
  bool or_not; /* where it does not fit no smaller partition is looked for ... */
  double most; /* ... nor one that takes longer, in seconds of a batch */
} Candidate;

typedef Vec(Candidate) Candidates;

/* ---- candidate.c */
Candidate candidate_of(const Planner *r, const Pipeline *form, const Placement *at, int64_t b, const Spans *spans,
                       Recompute policy, const int *pinned, double bound);
/* Of pinned cuts, or of ranks that have a part each: the best partition by estimated bytes; the smallest there is when
 * none fits, and false. */
bool candidate_partition(const Planner *r, const Candidate *c, int64_t limit, Partition *out);
/* Simulated, where it is schedulable: its batch takes INFINITY where that is more than `most` seconds. */
Plan *plan_of(const Planner *r, const Candidate *c, const Partition *part, double most);
/* By how much values (partition.h) are to be multiplied for seconds of a batch that no simulation undercuts: the
 * microbatches, or a little less. Of short batches of a pipeline that never drains some may be shorter than others. */
double candidate_turns(const Planner *r, const Candidate *c);
double turns_at_least(const Planner *r, int64_t b); /* the same of any with microbatches of b samples */
double candidate_least_seconds(const Planner *r, const Candidate *c, const Partition *part);
/* The best plan by estimated bytes; the smallest when none fits, and false. */
bool candidate_plan(const Planner *r, const Candidate *c, int64_t limit, Plan **out);
/* Lays out the candidate's plan: whether it fits. If not, the stages' pieces share from now on what those that do not took more than was
 * estimated. */
bool fits_exactly(const Planner *r, Candidate *c);
/* Finds the fastest partition whose exact peaks fit: stages whose estimates were wrong get the difference added.
 * Where even the smallest partition does not fit, keeps that one and refuses. */
void settle(const Planner *r, Candidate *c);

/* ---- bests.c */
BestPartitions *best_partitions_new(void);
Partition partition_copy(const Partition *p, int parts);
/* partition_fastest() of a candidate with as many parts as there are. */
bool best_partition(const Planner *r, const Candidate *c, int64_t limit, double most, Partition *out);

/* ---- chunks.c: ranks that hold several chunks */
/* Decides by rank what recomputes, for its chunks have its memory together: where it must. False: some do not fit. */
bool chunks_fit(const Candidate *c, int64_t limit, Partition *part);
int64_t chunks_bytes(const Candidate *c, const Partition *part, int stage,
                     bool recompute);                           /* of a rank: estimated */
double chunks_value(const Candidate *c, const Partition *part); /* that no simulation undercuts: partition.h */
/* Cuts that are near those at `start` where these do not fit, by estimated bytes. False: few steps lead to none. */
bool chunks_repair(const Candidate *c, int64_t limit, int *start);
/* As candidate_plan(). */
bool chunks_plan(const Planner *r, const Candidate *c, int64_t limit, Plan **out);

/* ---- rounds.c */
/* Of ranks that hold several chunks, by estimated bytes: cuts of which the slowest rank takes as little as can be where what each
 * holds together fits; start: of all parts and the end, from which it begins. False: none are found. */
bool rounds_cut(const Candidate *c, int64_t limit, int *start);

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
/* One stage on half of the ranks or fewer, the others free: where pipelines would stall (PD0707) the batch may have no
 * more microbatches to deal out. */
void add_one_stage(const Planner *r, int64_t b, Candidates *candidates);

/* ---- every.c */
/* Where there are so few plans that all can be tried: the fastest that fits by estimated bytes and whose batch takes less
 * than `most` seconds. False: there is none, or the budget, in about 50 ns, is spent. */
bool fastest_of_all(const Planner *r, double most, int64_t *budget, int64_t *compared, Candidate *out);

/* ---- refine.c */
/* How long is searched; thorough: more is simulated, and plans of larger models are laid out on the way. */
typedef enum { EFFORT_USUAL, EFFORT_THOROUGH } Effort;
/* Changes a settled candidate's plan step by step as long as the simulated batch gets shorter: its cuts, and where the
 * planner may, ranks, stages and the microbatch. The candidate stays settled. How many turns of microbatches through parts
 * were simulated for it. */
int64_t refine(const Planner *r, Candidate *c, Effort effort);
/* The same of a refined one's cuts, from others near those again and again, for so many turns: where ranks hold several chunks
 * steps that each make it shorter lead to many ends. */
void refine_again(const Planner *r, Candidate *c, int64_t turns);

#endif
