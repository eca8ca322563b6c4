/* The planner's interface: requests and results. */
#ifndef PDC_PLAN_REQUEST_H
#define PDC_PLAN_REQUEST_H

#include "base/watch.h"
#include "plan/plan.h"

/* Returns the exact peak bytes of one rank of a stage (below n_stages), from its Allocation: the caller runs fuse,
 * schedule and allocate. The plan is complete except for peak_bytes. */
typedef int64_t (*StagePeak)(void *context, const Plan *plan, int stage);

/* Time of planning without StagePeak: creating and simulating Programs. */
typedef struct PlanWatch {
  Watch schedule, simulate;
} PlanWatch;

/* Largest weight delay of the schedules that the planner may choose. */
typedef enum { DELAY_FREE, DELAY_NONE, DELAY_ONE } Delay; /* in the order of --delay; free: one update */

/* Diagnostics if no plan fits: with advice, which needs many more plans; only the missing memory; or nothing. */
typedef enum { SAY_ADVICE, SAY_LEAST, SAY_NOTHING } Refusal;

enum { TENSOR_AUTO = -1 }; /* the planner chooses the tensor-parallel degree */

/* The graph of a profile if it differs from the planned graph: the same model without activations split by
 * positions. */
typedef struct Profiled {
  const Graph *g;
  const Pieces *p;
} Profiled;

/* Choices pinned by the command line. Zero or NULL: free; recompute: AUTO is free. */
typedef struct PlanRequest {
  /* -n: ranks; 0: from --split, --stages and --replicas, else all devices of the cluster, else 1 */
  int workers;
  const Cluster *cluster; /* the ranks are its first devices; NULL: devices of one kind, set by `arch` */
  int stages;
  const char *split;    /* "h[3],h[6].ln_2": starts of stages 1, 2, ... */
  const char *replicas; /* "2,1": by stage; one number: for all */
  int ahead;            /* h of docs/guide/schedules.md; 0: free */
  int chunks;           /* parts of a rank under interleaved; 0: the model's, or free */
  int64_t microbatch;
  Recompute recompute;
  const char *recomputed; /* --recompute LAYERS: patterns of pieces_select(); NULL: `recompute` counts */
  bool shard_optimizer;   /* --shard-optimizer; false: where it saves memory or time, */
  bool whole_optimizer;   /* unless --no-shard-optimizer */
  int64_t bucket;         /* --bucket; 0: pipeline_bucket() */
  int tensor;             /* --tensor: a TensorDivision's degree; 0: none; TENSOR_AUTO */
  const char *sharding;   /* --sharding FILE: file of pinned layouts of parameters; NULL: none */
  const char *schedule;   /* --schedule; "auto": the fastest schedule that `delay` allows */
  Delay delay;
  Target target;       /* threads 0: processors / ranks */
  const char *arch;    /* GPU architecture, such as "sm_90"; NULL: unknown */
  int64_t memory;      /* bytes per device, the process included; 0: of its kind, or a share of the machine's */
  const char *spill;   /* --spill DIR */
  Update update;       /* where offloaded parameters of a GPU are updated */
  const char *profile; /* --profile FILE */
  const Profiled *profiled;                   /* NULL: the planned graph */
  const char *plan;                           /* --plan FILE */
  double link_bytes_per_second, link_latency; /* 0: defaults of shared memory */
  const char *compiler; /* the C compiler's version line, part of a profile's signature; NULL: not compared */
  StagePeak peak;       /* NULL: the planner's own estimate counts */
  void *peak_context;
  PlanWatch *watch; /* NULL: not measured */
  Refusal refusal;
  bool brief; /* a hint: open settings of a whole search keep their defaults, unless memory needs another */
} PlanRequest;

/* The batch of inference, which has no updates: the model's batch, rounded up to a multiple of --microbatch times
 * --replicas. With -n alone all ranks can be replicas. */
int64_t inference_batch(int64_t batch, const PlanRequest *q);

/* The decision about --tensor: the division of layers among the ranks of a shard group. */
typedef struct TensorDivision {
  int degree;  /* tensor-parallel degree (tensor/tensor.h): ranks of a shard group; 0, 1: none */
  bool spread; /* activations are split by positions, to save memory */
} TensorDivision;

/* Whether the graph and the request support the division; whether any parameter of the divided graph is split.
 * False after a diagnostic. builds: pdc builds programs, not only a plan. */
bool tensor_suits(const Graph *g, const PlanRequest *q, int degree, bool builds);
bool tensor_divides(const Graph *g);
/* Whether memory is short enough to try activations split by positions, and whether the plan with them is
 * better. */
bool tensor_lacks_memory(const Graph *g, const PlanRequest *q, const Plan *plan);
bool tensor_is_better(const Plan *spread, const Plan *plan);
/* The request with shard groups as ranks; false after a diagnostic. */
bool tensor_group(const PlanRequest *asked, int degree, PlanRequest *groups);

/* A tensor-parallel degree that --tensor auto tries. */
typedef struct TensorDegree {
  int shards;
  const Plan *plan; /* NULL: no plan; `why` has the reason, one line */
  const char *why;
} TensorDegree;
typedef Vec(TensorDegree) TensorDegrees;
/* All degrees that divide the ranks, rising, without plans; false after a diagnostic. */
bool tensor_degrees(const PlanRequest *q, TensorDegrees *degrees);
/* The first degree among equally fast ones (AS_FAST); -1: no degree has a plan. */
int tensor_choose(const TensorDegrees *degrees);
void tensor_compare(const TensorDegrees *degrees, FILE *out);

/* ---- plans.c, devices.c, memory.c: devices of a plan's ranks. Under --tensor a rank is a shard group, and a device
 * stands for the group's devices. */
int plan_ranks_asked(const PlanRequest *q, const Plan *plan); /* some may be idle */
/* The device of a stage's replica by the placement; without a cluster in order, stage 0's replicas first. */
int plan_device(const PlanRequest *q, const Plan *plan, int stage, int replica);
/* Memory limit of the arena of each rank on the device, in bytes. */
int64_t plan_device_memory(const Graph *g, const PlanRequest *q, const Plan *plan, int device);

/* Chooses a plan, or reads request->plan and predicts its costs; NULL after diagnostics. runners_up gets up to `n`
 * other plans, fastest first; unused entries stay NULL. */
Plan *plan_make(const Graph *g, const Pieces *p, const PlanRequest *request, Plan **runners_up, int n);

/* The fastest plan found of a schedule, or of data parallelism. */
typedef struct ComparedSchedule {
  const char *label;  /* "flush (PipeDream-Flush)" */
  const Plan *plan;   /* NULL: no plan; `why` has the reason */
  const char *why;    /* one line */
  double times;       /* ratio of its batch's time to that of the fastest plan */
  int64_t peak_bytes; /* of the fullest rank */
  bool recomputes;    /* some stage recomputes */
  Critical critical;
} ComparedSchedule;
enum { N_COMPARED = 8 };
typedef struct ComparedKind {
  const char *label, *schedule;
  bool replicas_alone; /* one stage on all ranks */
} ComparedKind;
extern const ComparedKind compared_kinds[N_COMPARED]; /* in the order of the table */
/* Whether --delay allows an open schedule to become this one. */
bool delay_allows(Delay delay, const char *schedule);
/* Fills one row per kind, in the order of the table; diagnostics go to `why`. `quick`: without schedules whose
 * planning takes minutes for hundreds of ranks. False if no schedule has a plan. */
bool plan_comparison(const Graph *g, const Pieces *p, const PlanRequest *request, bool quick,
                     ComparedSchedule rows[N_COMPARED]);
/* Prints one line per kind; false if no schedule has a plan, or after a diagnostic if the request fixes a
 * schedule. */
bool plan_compare(const Graph *g, const Pieces *p, const PlanRequest *request, FILE *out);
/* Prints a line if another schedule is predicted to be at least 5 % faster than the plan for this request. */
void plan_hint(const Graph *g, const Pieces *p, const PlanRequest *request, const Plan *plan, FILE *out);

/* Prints one line if the schedule delays gradients, the model does not set `delay_correction`, and its optimizer
 * has a correction. */
void plan_delay_hint(const Graph *g, const Plan *plan, FILE *out);

#endif
