/* Our own planner on models that others have profiled: layers with times and sizes instead of a Graph. */
#ifndef PDC_LAYER_PLAN_H
#define PDC_LAYER_PLAN_H

#include "cluster/cluster.h"
#include "layers/layers.h"
#include "plan/request.h"

typedef struct LayerProfile {
  const LayerGraph *graph;
  int device;           /* of graph->devices, whose times count */
  const States *states; /* of that device */
} LayerProfile;

/* Stages in their order, as another planner makes them. */
typedef struct LayerStages {
  int n;
  const int *end;      /* by stage: the state that it ends in; the last one's is the whole model */
  const int *replicas; /* by stage */
} LayerStages;

/* A plan whose pieces are what neighbours in a chain of states differ in. Its microbatches are the profile's, and
 * count as one sample each. */
typedef struct LayerPlan {
  Plan *plan; /* NULL: there is none */
  Ints chain; /* by piece: the state that it ends in */
} LayerPlan;

typedef struct LayerPlans {
  LayerPlan own, other; /* other: the stages given, in the same schedule and simulator */
  const char *no_other; /* why there is none: "it needs 1.2 GiB on a device" */
  int ranks;
  int64_t limit; /* bytes of a device */
} LayerPlans;

/* The fastest plan, by seconds of a microbatch, that the request allows: its workers are machines of the cluster, of
 * which the levels count. microbatches: of a batch; 0: layer_microbatches(), under schedules with an update a round whatever is fastest. other: NULL, or what to
 * simulate beside it; the plan is never slower than that, unless the request asks for what that has not. False after a
 * diagnostic. */
bool layer_plans_make(const LayerProfile *l, const PlanRequest *request, const Cluster *levels,
                      int64_t microbatches, const LayerStages *other, LayerPlans *out);
/* As many as stages of up to eight ranks share evenly, and at least four a rank. */
int64_t layer_microbatches(int ranks);
/* Bytes a second between two of the target's devices. */
double layer_bandwidth(const PlanRequest *request);
/* Seconds of a microbatch, where a batch takes as long as planned. */
static inline double plan_pace(const Plan *plan) {
  return plan->batch_seconds / (double)plan->pipeline.microbatches;
}
/* The states before and behind a part of the model: -1: nothing is before it. */
static inline int layer_plan_from(const LayerPlan *p, int part) {
  int first = p->plan->stage[part].first_piece;
  return first > 0 ? p->chain.at[first - 1] : -1;
}
static inline int layer_plan_to(const LayerPlan *p, int part) {
  return p->chain.at[p->plan->stage[part].end_piece - 1];
}

#endif
