/* PipeDream's planner (Narayanan et al., SOSP 2019, section 3.1): chooses stages and machines per stage that
 * minimize the time of the slowest stage, level by level. */
#ifndef PDC_PIPEDREAM_H
#define PDC_PIPEDREAM_H

#include "cluster/cluster.h"
#include "layers/layers.h"
#include "plan/layers.h"

/* The layers between two states, on a number of machines of its level. Seconds are per microbatch, divided by the
 * stage's machines. */
typedef struct Division Division;
typedef struct PipeStage {
  int from, to; /* states: its layers are those of `to` without those of `from`; -1: empty state */
  int machines;
  double compute;         /* from the second level on: the slowest stage within a group */
  double exchange;        /* gradient exchange among its machines */
  double receive, send;   /* activations and their gradients; 0: transfers are not counted */
  double seconds;         /* maximum of compute + exchange, receive and send */
  const Division *within; /* from the second level on: its division within a group; else NULL */
} PipeStage;

struct Division {
  int level, n;
  const PipeStage *stage;
  double seconds; /* time of the slowest stage */
};

/* The exact optimum for the slowest stage; deterministic among equal optima. Uses the members and bandwidths of
 * the cluster's levels. transfers: a stage takes at least the time to receive its input and to send its output. */
const Division *pipedream_divide(const States *s, const Cluster *c, bool transfers);
/* Lower bound of any division of the whole profile, given the seconds of the division of the merged profile
 * (layers.h, Joint). */
double pipedream_least_seconds(const LayerGraph *g, const States *s, const Cluster *c, bool transfers,
                               double seconds);
/* Estimated seconds of pipedream_divide(); with several levels every state can start a stage. */
double pipedream_effort(const States *s, const Cluster *c);
/* Seconds of data parallelism in the same cost model: one stage on all machines of every level. */
double pipedream_data_parallel(const States *s, const Cluster *c);

/* ---- the command (command.c) ------------------------------------------------------------------- */

typedef enum { MODEL_NONE, MODEL_PIPEDREAM } CostModel; /* in the order of --cost-model */

/* Options of the command line. */
typedef struct LayersRequest {
  CostModel model;
  const Cluster *cluster; /* --cluster; NULL: not given */
  Cluster levels;         /* -n; no level: not given */
  int n_bandwidths;       /* number of levels of --bandwidth */
  bool transfers;         /* --transfers */
  int64_t microbatches;   /* --microbatches, per batch; 0: not given */
  const char *device;     /* --device; NULL: the profile's first */
  bool compare;           /* --compare */
} LayersRequest;

/* pdc plan --profile FILE without a model: prints the plan as a table or JSON; without machines, the contents of
 * the profile. plan: the request for pdc's own planner. False after diagnostics. */
bool plan_layers(const LayersRequest *r, const PlanRequest *plan, bool json, FILE *out);

/* ---- pdc's own planner (own.c) ------------------------------------------------ */

/* The stages of all levels in order, one rank per machine. */
LayerStages stages_of_division(const Division *d);
/* Prints pdc's own plan of the profile, and PipeDream's plan in the same simulator. False after diagnostics. */
bool plan_layers_ourselves(const LayerProfile *l, const LayersRequest *r, const PlanRequest *plan, bool json,
                           FILE *out);

/* ---- all schedules (schedules.c) ------------------------------------------------------------------ */

typedef struct LayersJob {
  const LayerProfile *profile;
  const PlanRequest *request;
  const Cluster *cluster;
  int64_t microbatches; /* as for layer_plans_make() */
} LayersJob;

/* The fastest schedule that --delay allows; within 0.5 % the one with the least memory. */
const char *layers_fastest_schedule(const LayersJob *job);
/* Prints the fastest plan of each schedule; false if no schedule has a plan. */
bool layers_compare(const LayersJob *job, FILE *out);

/* ---- output (table.c, text.c) ------------------------------------------ */

/* Cells by row; the column `left` is left-aligned, every other column right-aligned. */
typedef struct Grid {
  int columns, left;
  Vec(const char *) cells;
} Grid;
void print_grid(const Grid *g, FILE *out);
const char *ms(double seconds); /* "12.345" */
const char *plural(int64_t n);  /* "", "s" */
const char *crossing_text(const States *s,
                          int state); /* bytes that later stages read: "98.0 MiB", "49.0 MiB in 2" */
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
  Name device; /* NULL: unnamed */
} PipedreamPlan;

void pipedream_table(const PipedreamPlan *p, FILE *out);
void pipedream_json(const PipedreamPlan *p, FILE *out);
/* The profile alone. */
void layers_table(const LayerGraph *g, const States *s, int device, FILE *out);
/* "node12 Conv2d .. node31 ReLU": the first and the last layer of state `to` that are not in `from` (-1: empty
 * state). */
const char *layers_between(const LayerGraph *g, const States *s, int from, int to);

#endif
