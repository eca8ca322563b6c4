/* Private to compiler/plan: costs of pieces in seconds and bytes, alone and as a stage at its place in a pipeline.
 * Seconds are counted from operations and bytes (price.c), or measured (profile/profile.h). Bytes are estimates;
 * exact peaks come from PlanRequest.peak. spans.h has the same as plain numbers, for searches. */
#ifndef PDC_PLAN_COST_H
#define PDC_PLAN_COST_H

#include "plan/cost/spans.h"
#include "plan/problem/problem.h"

/* ---- products.c */
/* By node: a backward call whose only output is the gradient of one use of a parameter. */
bool *weight_products(const Graph *g);
int root_value(const Graph *g, int value); /* the value behind a view */
bool *scopes_with_calls(const Graph *g);   /* by scope: it or a nested scope contains a call */

/* ---- bytes.c: `piece` is piece_of_nodes() */
/* Bytes of a value in memory for b samples, a multiple of 64 as in structs and the arena. */
int64_t value_bytes(const Planner *r, int value, int64_t b);
/* By piece, at b samples: forward values saved for backward, without those that fused loops rematerialise;
 * temporaries; inputs; backward values that weight_products() read. */
int64_t *saved_bytes(const Planner *r, const int *piece, int64_t b);
bool *saved_values(const Graph *g); /* by value: whether it is one of those */
int64_t *work_bytes(const Planner *r, const int *piece, int64_t b);
int64_t *input_bytes(const Planner *r, int64_t b);
int64_t *cache_bytes(const Planner *r, const int *piece, int64_t b); /* by piece: state of calls */
int64_t *deferred_bytes(const Planner *r, const int *piece, int64_t b);
int64_t *accumulator_bytes(const Graph *g, const Pieces *p, const int *piece); /* by piece */
Held parameter_held(const Planner *r, const Rates *rates, int param);          /* by index in the graph */
const Holdings *model_holdings(const Planner *r, const Rates *rates);

/* ---- kernels.c */
KernelWork *kernel_work_new(void);
/* By node: seconds on a GPU at a microbatch of b samples, from fused kernels; without collectives. */
double *kernel_seconds(const Planner *r, int64_t b, const Rates *rates);
struct StageKernels;
struct Kernel;
/* The nodes that a kernel computes or stores, some of them twice. */
Ints kernel_nodes(const struct StageKernels *k, const struct Kernel *kernel);

/* ---- again.c: recomputation by layer */
/* Fills gain, late, repeat, block and within. node_seconds: by node. */
void again_costs(const Planner *r, const int *piece, int64_t b, const double *node_seconds, Costs *c);
/* The costs if these pieces recompute. */
Costs *costs_recomputing(const Costs *c, const bool *again);
/* Makes spans with at most `most` levels and one of all blocks, from Costs.all_saved. Each level adds pieces by falling
 * bytes a second; equal pieces that take long are divided over at most `parts` levels. */
void spans_add_levels(Spans *s, Costs *c, int most, int parts);

/* ---- price.c */
/* Counted seconds of a node at a microbatch of b samples, from its operations alone. */
double counted_seconds(const Graph *g, int node, int64_t b, const Rates *rates);
/* Seconds of a collective of a shard group, which counted_seconds does not know. */
double collective_seconds(const Planner *r, int node, int64_t b, const Rates *rates);
int *piece_of_nodes(const Graph *g, const Pieces *p); /* by node; backward nodes by the node they serve */
Subject model_subject(const Graph *g, const Pieces *p);

/* ---- cost.c */
Spans *spans_at(const Planner *r, int64_t b); /* for microbatches of b samples, by kind of device */
Copies copies_of_stage(const Planner *r, const Placement *at, const StageAhead *stage);
/* Copies of each part of a pipeline of this form, for microbatches of b samples. */
Copies *copies(const Planner *r, const Pipeline *form, const Placement *at, int64_t b, Recompute recompute);
Wiring *wirings(const Planner *r, const Pipeline *form, const Placement *at); /* by part */
/* Whether updates need whole tensors. Replicas that shard such an optimizer's state exchange all gradients at
 * once. */
bool updates_whole(const Planner *r);
const char *costs_text(const Planner *r); /* source of costs: "counted", "profile gpt.profile.json" */

/* ---- programs.c */
KnownForms *known_forms_new(void);
/* schedule() of a pipeline with these exchanges; valid until the next plan is priced. */
Program *planned_programs(const Planner *r, const Pipeline *p, const bool *exchanges);
/* simulate() of these programs. */
double planned_seconds(const Planner *r, const Pipeline *p, const bool *exchanges, const StageTimes *times,
                       double most);
void known_forms_trim(KnownForms *k); /* clears a large cache; its Programs become invalid */

/* ---- links.c */
/* Seconds per batch in which the busiest link carries messages and gradients, in one direction; 0: unknown, or no
 * traffic. */
double links_seconds(const Planner *r, const Plan *plan, const Program *programs);

#endif
