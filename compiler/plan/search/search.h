/* Private to compiler/plan: the search for a plan. prepare.c turns a request into a planner. choose.c collects
 * candidates and takes the fastest whose exact peaks fit. partition.h and replicate.h search over plain numbers.
 * Values are seconds per microbatch (partition.h); bounds and times are seconds per batch. No function here
 * reports a missing plan. */
#ifndef PDC_PLAN_SEARCH_H
#define PDC_PLAN_SEARCH_H

#include "plan/offload/offload.h"
#include "plan/search/partition.h"
#include "plan/search/replicate.h"
#include "plan/time/time.h"

/* ---- prepare.c */
/* A new planner of a model. False after diagnostics. `taken` as for settle_request(). */
bool planner_prepare(Planner *r, const Graph *g, const Pieces *p, const PlanRequest *request, const Plan *taken);
/* The same for a layer profile, as settle_layers(). */
bool planner_prepare_layers(Planner *r, const Subject *subject, const PlanRequest *request, const Cluster *levels);

/* ---- choose.c: without diagnostics */
/* The reason for a missing plan. */
typedef struct NoPlan {
  bool no_microbatch;
  const Plan *stalling; /* NULL, or a plan that its schedule does not support */
  const Plan *miss;     /* NULL, or the plan with the smallest excess of memory */
} NoPlan;
/* The chosen plan; NULL with `none` filled. runners_up as for plan_make(). */
Plan *plan_choose(const Planner *r, Plan **runners_up, int n, NoPlan *none);
Plan *plan_fastest(const Planner *r); /* NULL: no plan fits */
Plan *plan_any(const Planner *r);     /* any plan that fits, if plan_choose() finds one */
/* Replaces estimated by exact peaks; *error by stage: exact minus estimated bytes. */
void find_peaks(const Planner *r, Plan *plan, int64_t *error);

/* ---- least.c */
/* The plan with the least memory per device. *memory includes the process's own bytes. With 64 KiB less (exact) or
 * 1 % less the planner finds none. NULL: none found. `miss`: a plan that almost fits. */
const Plan *plan_of_least_memory(const Planner *r, const Plan *miss, int64_t *memory, bool *exact);

/* ---- spilled.c: offload */
/* The fastest plan found, over all microbatches. NULL with `none` filled. */
Plan *plan_spilled(const Planner *r, NoPlan *none);

/* ---- candidates: plans under consideration ---- */

/* Starting points for cuts of several chunks, without a memory limit. */
typedef enum ChunkStart {
  START_BALANCED, /* each part as fast as its rank's other parts allow */
  START_ROUNDS,   /* equal parts of all ranks in a round */
  START_TOGETHER, /* rounds cut in pairs, each rank within its memory: rounds.c */
  N_CHUNK_STARTS
} ChunkStart;

typedef struct Candidate {
  const Pipeline *form;
  Placement placement;
  int64_t microbatch;
  Recompute recompute;
  const Spans *spans;
  Copies *copies;
  const int *pinned; /* starts of parts, or NULL */
  ChunkStart start;
  Partition *balanced; /* several chunks: by ChunkStart; `start` NULL: not computed yet */
  /* Several chunks: cut with this share of the unlimited plan's memory, which leads to other plans; 0: with the
   * real limit. */
  double tight;
  double bound; /* lower bound of a batch's seconds for the form */
  Plan *plan;   /* NULL until its bound is the least left */
  bool settled; /* its peaks are exact and fit */
  bool refined;
  bool refused;
  bool or_not; /* if the plan does not fit, do not search a smaller partition */
  double most; /* do not search a slower plan, in seconds per batch */
} Candidate;

typedef Vec(Candidate) Candidates;

/* ---- candidate.c */
Candidate candidate_of(const Planner *r, const Pipeline *form, const Placement *at, int64_t b, const Spans *spans,
                       Recompute policy, const int *pinned, double bound);
/* The best partition by estimated bytes, for pinned cuts or one part per rank. If none fits: the smallest, and
 * false. */
bool candidate_partition(const Planner *r, const Candidate *c, int64_t limit, Partition *out);
/* Simulates a schedulable plan; batch_seconds is INFINITY if above `most`. */
Plan *plan_of(const Planner *r, const Candidate *c, const Partition *part, double most);
/* Factor from values (partition.h) to a lower bound of a batch's seconds. It is slightly below the microbatches,
 * because short batches of a pipeline that never drains vary. */
double candidate_turns(const Planner *r, const Candidate *c);
double turns_at_least(const Planner *r, int64_t b); /* the same for any plan with microbatches of b samples */
double candidate_least_seconds(const Planner *r, const Candidate *c, const Partition *part);
/* The best plan by estimated bytes. If none fits: the smallest, and false. */
bool candidate_plan(const Planner *r, const Candidate *c, int64_t limit, Plan **out);
/* Lays out the candidate's plan; whether it fits. If not, later estimates of the stages' pieces include the
 * error. */
bool fits_exactly(const Planner *r, Candidate *c);
/* Finds the fastest partition whose exact peaks fit, and adds layout errors to estimates. If even the smallest
 * partition does not fit, keeps that one and refuses the candidate. */
void settle(const Planner *r, Candidate *c);

/* ---- bests.c */
BestPartitions *best_partitions_new(void);
Partition partition_copy(const Partition *p, int parts);
/* partition_fastest() of a candidate. */
bool best_partition(const Planner *r, const Candidate *c, int64_t limit, double most, Partition *out);

/* ---- chunks.c: ranks that hold several chunks */
/* Decides recomputation by rank, as far as memory needs it. False: some ranks do not fit. */
bool chunks_fit(const Candidate *c, int64_t limit, Partition *part);
int64_t chunks_bytes(const Candidate *c, const Partition *part, int stage,
                     int recompute);                            /* estimated, per rank */
double chunks_value(const Candidate *c, const Partition *part); /* lower bound of the simulation: partition.h */
/* Moves cuts near `start` until they fit by estimated bytes. False: not found in a few steps. */
bool chunks_repair(const Candidate *c, int64_t limit, int *start);
/* As candidate_plan(). */
bool chunks_plan(const Planner *r, const Candidate *c, int64_t limit, Plan **out);

/* ---- layers.c */
/* A choice of recomputation: pieces [first, end), bytes that it saves (more than 0), seconds that it adds. */
typedef struct AgainItem {
  int first, end;
  double bytes, seconds;
} AgainItem;
/* The fastest set of items that saves `need` bytes; INFINITY: none. Sorts the items; taken: by item then. Exact within
 * a budget, which small problems do not reach. */
double again_pick(AgainItem *item, int n, double need, bool *taken);
/* The plan with the fewest recomputed layers whose exact peaks fit; `plan` itself if it has none. */
Plan *plan_of_fewer_layers(const Planner *r, Plan *plan);

/* ---- rounds.c */
/* Several chunks per rank: cuts that minimize the slowest rank and fit by estimated bytes. start: initial cuts
 * with the end; replaced by the result. False: none found. */
bool rounds_cut(const Candidate *c, int64_t limit, int *start);

/* ---- ways.c: stages and replicas are open */
/* Adds forms with microbatches of b samples that fit and are close to *best. *best: the fastest batch so far in
 * seconds, initially INFINITY; updated. False: none. */
bool add_ways(const Planner *r, int64_t b, Spans *spans, double *best, Candidates *candidates);
/* Adds one candidate; false: the schedule does not support the number of microbatches. */
bool add_form(const Planner *r, Candidates *candidates, const Pipeline *form, const Placement *at, int64_t b,
              const Spans *spans, double bound);
/* The form in every placement that suits it. */
bool add_placements(const Planner *r, Candidates *candidates, const Pipeline *form, int64_t b, const Spans *spans);
/* Forms with equal ranks per stage: few forms, often close to the optimum. */
typedef struct Equals {
  Candidates *candidates;
  double best; /* bound, at first INFINITY */
} Equals;
/* Adds those with microbatches of b samples that are close to the best. False: none. */
bool add_equals(const Planner *r, int64_t b, Equals *e);
/* Adds one stage on at most half of the ranks: if pipelines would deadlock (PD0707), the batch may have too few
 * microbatches for more ranks. */
void add_one_stage(const Planner *r, int64_t b, Candidates *candidates);

/* ---- every.c */
/* Exhaustive search for the fastest plan that fits by estimated bytes, within `most` seconds per batch. *budget
 * decreases, in units of 50 ns; 0: the search is incomplete. Adds compared plans to *compared. False: none
 * found. */
bool fastest_of_all(const Planner *r, double most, int64_t *budget, int64_t *compared, Candidate *out);

/* ---- refine.c */
/* Effort; thorough: more simulations, and layouts for larger models. */
typedef enum { EFFORT_USUAL, EFFORT_THOROUGH } Effort;
/* Local search: changes the plan of a settled candidate while the simulated batch gets shorter. It moves cuts and,
 * if free, ranks, stages and the microbatch. The candidate stays settled. Returns the simulated turns of
 * microbatches through parts. */
int64_t refine(const Planner *r, Candidate *c, Effort effort);
/* Restarts the local search from random cuts nearby, for this number of turns. With several chunks per rank there
 * are many local optima. */
void refine_again(const Planner *r, Candidate *c, int64_t turns);

#endif
