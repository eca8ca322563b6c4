/* The planner for layer profiles: layers with times and sizes instead of a Graph. */
#ifndef PDC_LAYER_PLAN_H
#define PDC_LAYER_PLAN_H

#include "cluster/cluster.h"
#include "layers/layers.h"
#include "plan/request.h"

typedef struct LayerProfile {
  const LayerGraph *graph;
  int device;           /* index in graph->devices, for times */
  const States *states; /* of that device */
} LayerProfile;

/* Stages in order, from another planner. */
typedef struct LayerStages {
  int n;
  const int *end;      /* by stage: the state at its end; for the last stage the whole model */
  const int *replicas; /* by stage */
} LayerStages;

/* A plan whose pieces are the differences between adjacent states of a chain. A microbatch of the profile counts
 * as one sample. */
typedef struct LayerPlan {
  Plan *plan; /* NULL: no plan */
  Ints chain; /* by piece: the state at its end */
} LayerPlan;

typedef struct LayerPlans {
  LayerPlan own, other; /* other: the given stages, in the same schedule and simulator */
  const char *no_other; /* reason for a missing plan: "it needs 1.2 GiB on a device" */
  int ranks;
  int64_t limit; /* bytes per device */
} LayerPlans;

/* The fastest plan per microbatch that the request allows; its workers are machines of the cluster's levels.
 * microbatches: per batch; 0: layer_microbatches(), or the fastest for schedules with one update per round. other:
 * NULL, or stages to simulate too; the plan is never slower unless the request excludes them. False after a
 * diagnostic. */
bool layer_plans_make(const LayerProfile *l, const PlanRequest *request, const Cluster *levels,
                      int64_t microbatches, const LayerStages *other, LayerPlans *out);
/* The count that stages of up to eight ranks divide evenly, with at least four per rank. */
int64_t layer_microbatches(int ranks);
/* Bytes per second between two of the target's devices. */
double layer_bandwidth(const PlanRequest *request);
/* Predicted seconds per microbatch. */
static inline double plan_pace(const Plan *plan) {
  return plan->batch_seconds / (double)plan->pipeline.microbatches;
}
/* The states at the start and end of a part; -1: the start of the model. */
static inline int layer_plan_from(const LayerPlan *p, int part) {
  int first = p->plan->stage[part].first_piece;
  return first > 0 ? p->chain.at[first - 1] : -1;
}
static inline int layer_plan_to(const LayerPlan *p, int part) {
  return p->chain.at[p->plan->stage[part].end_piece - 1];
}

#endif
