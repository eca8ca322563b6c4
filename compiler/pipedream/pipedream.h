/* PipeDream's planner (Narayanan et al., SOSP 2019, section 3.1): which stages, on how many machines each, make the
 * slowest stage fastest, level by level of the machines. */
#ifndef PDC_PIPEDREAM_H
#define PDC_PIPEDREAM_H

#include "cluster/cluster.h"
#include "layers/layers.h"
#include "plan/layers.h"

/* The layers of one state that another does not have, on so many machines of its level. Seconds are of a microbatch
 * at each of the stage's machines; several share them. */
typedef struct Division Division;
typedef struct PipeStage {
  int from, to; /* states: its layers are those of `to` without those of `from`; -1: nothing */
  int machines;
  double compute;         /* at the second level and above: the slowest stage of what is within */
  double exchange;        /* gradients, among its machines */
  double receive, send;   /* activations and their gradients; 0 where transfers are not counted */
  double seconds;         /* the most of compute + exchange, receive and send */
  const Division *within; /* at the second level and above: how a group of machines shares it; else NULL */
} PipeStage;

struct Division {
  int level, n;
  const PipeStage *stage;
  double seconds; /* of the slowest stage */
};

/* The division whose slowest stage is fastest, exactly; of equally good ones always the same. Of the cluster its
 * levels count: their members, and what a machine sends a second, which is of no matter where there is one. transfers:
 * a stage also takes as long as its input or its output takes to be sent. */
const Division *pipedream_divide(const States *s, const Cluster *c, bool transfers);
/* Of a contracted profile (layers.h, Joint), whose division takes these seconds: no division of the whole one takes less than what is
 * returned, which is at most as much. */
double pipedream_least_seconds(const LayerGraph *g, const States *s, const Cluster *c, bool transfers,
                               double seconds);
/* About how long that takes on a machine of today, in seconds: with more than one level each state is a beginning. */
double pipedream_effort(const States *s, const Cluster *c);
/* The same model's seconds for data parallelism: one stage on all machines at every level. */
double pipedream_data_parallel(const States *s, const Cluster *c);

/* ---- the command (command.c) ------------------------------------------------------------------- */

typedef enum { MODEL_NONE, MODEL_PIPEDREAM } CostModel; /* as --cost-model lists them */

/* What the command line says. */
typedef struct LayersRequest {
  CostModel model;
  const Cluster *cluster; /* --cluster; NULL: not given */
  Cluster levels;         /* -n: no level where it is not given */
  int n_bandwidths;       /* --bandwidth: of so many of them */
  bool transfers;         /* --transfers */
  int64_t microbatches;   /* --microbatches: of a batch; 0: not given */
  const char *device;     /* --device; NULL: the profile's first */
  bool compare;           /* --compare */
} LayersRequest;

/* pdc plan --profile FILE without a model: prints the plan, as a table or as JSON; where no machines are given, what
 * the profile has. plan: what our own planner is asked for. False after diagnostics. */
bool plan_layers(const LayersRequest *r, const PlanRequest *plan, bool json, FILE *out);

/* ---- our own planner, beside PipeDream's (own.c) ------------------------------------------------ */

/* The stages of all levels, a machine a rank, one after the other. */
LayerStages stages_of_division(const Division *d);
/* Our own plan of the profile, and PipeDream's in the same simulator. False after diagnostics. */
bool plan_layers_ourselves(const LayerProfile *l, const LayersRequest *r, const PlanRequest *plan, bool json,
                           FILE *out);

/* ---- all schedules (schedules.c) ------------------------------------------------------------------ */

typedef struct LayersJob {
  const LayerProfile *profile;
  const PlanRequest *request;
  const Cluster *cluster;
  int64_t microbatches; /* as for layer_plans_make() */
} LayersJob;

/* Of those that --delay allows; of those as fast, within half a percent, the one that needs least memory. */
const char *layers_fastest_schedule(const LayersJob *job);
/* A line of each schedule's best plan; false where nothing can run. */
bool layers_compare(const LayersJob *job, FILE *out);

/* ---- what people and programs read (table.c, text.c) ------------------------------------------ */

/* Cells of rows; the column `left` is aligned on its left, all others on their right. */
typedef struct Grid {
  int columns, left;
  Vec(const char *) cells;
} Grid;
void print_grid(const Grid *g, FILE *out);
const char *ms(double seconds);                        /* "12.345" */
const char *plural(int64_t n);                         /* "", "s" */
const char *crossing_text(const States *s, int state); /* what later stages read: "98.0 MiB", "49.0 MiB in 2" */
/* "8 machines: 4 at 8 GB/s, 2 such groups at 1.25 GB/s" */
const char *machines_text(const Cluster *c);
/* "layers": [..] of state `to` without those of `from`, into JSON. */
void json_layers(const LayerGraph *g, const States *s, int from, int to, Text *t);

typedef struct PipedreamPlan {
  const LayerGraph *graph;
  const States *states;
  const Cluster *cluster;
  bool transfers;
  const Division *division;
  Name device; /* NULL: the profile names none */
} PipedreamPlan;

void pipedream_table(const PipedreamPlan *p, FILE *out);
void pipedream_json(const PipedreamPlan *p, FILE *out);
/* The profile alone. */
void layers_table(const LayerGraph *g, const States *s, int device, FILE *out);
/* "node12 Conv2d .. node31 ReLU": the first and the last layer that state `to` has and `from` (-1: nothing) has not. */
const char *layers_between(const LayerGraph *g, const States *s, int from, int to);

#endif
