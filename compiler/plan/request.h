/* What the planner is asked, and what answers: for all who ask for plans. */
#ifndef PDC_PLAN_REQUEST_H
#define PDC_PLAN_REQUEST_H

#include "base/watch.h"
#include "plan/plan.h"

/* The exact peak bytes of one rank of a stage (below n_stages), from its Allocation: the caller runs fuse,
 * schedule and allocate. The plan is complete but for its stages' peak_bytes. */
typedef int64_t (*StagePeak)(void *context, const Plan *plan, int stage);

/* What planning itself takes beside what StagePeak does: making the Programs of plans, running them. */
typedef struct PlanWatch {
  Watch schedule, simulate;
} PlanWatch;

/* How old the weights that a batch's gradient is taken at may be, for schedules that are chosen. */
typedef enum { DELAY_FREE, DELAY_NONE, DELAY_ONE } Delay; /* as --delay lists them; free: one update */

/* What is said where no plan fits: also what would, which takes many more plans to find out; what is missing; or neither,
 * where nobody reads it. */
typedef enum { SAY_ADVICE, SAY_LEAST, SAY_NOTHING } Refusal;

enum { TENSOR_AUTO = -1 }; /* the planner says how many ranks share a layer */

/* The graph that a profile is of, where it is not the one that is planned: the same model without activations that are
 * split by positions. */
typedef struct Profiled {
  const Graph *g;
  const Pieces *p;
} Profiled;

/* What the command line pins; zero or NULL: free, but for recompute, which AUTO leaves free. */
typedef struct PlanRequest {
  /* -n: ranks; 0: as many as --split, --stages and --replicas say, else all devices of the cluster, else 1 */
  int workers;
  const Cluster *cluster; /* whose first devices the ranks are; NULL: devices of one kind that `arch` says */
  int stages;
  const char *split;    /* "h[3],h[6].ln_2": where stages 1.. start */
  const char *replicas; /* "2,1": by stage; one number: of all */
  int ahead;            /* h of docs/guide/schedules.md; 0: free */
  int64_t microbatch;
  Recompute recompute;
  bool shard_optimizer; /* else where memory asks for it */
  int64_t bucket;       /* --bucket; 0: pipeline_bucket() says it */
  int tensor;           /* ranks of a shard group (tensor/tensor.h); 0: a layer is not shared; TENSOR_AUTO */
  const char *sharding; /* --sharding FILE: layouts of parameters that are pinned; NULL: none */
  bool spread;          /* activations are split by positions (tensor/tensor.h): where memory asks for it */
  const char *schedule; /* --schedule; "auto": the fastest that `delay` allows */
  Delay delay;
  Target target;    /* threads 0: processors / ranks */
  const char *arch; /* of GPUs, as "sm_90"; NULL: not known */
  int64_t memory; /* bytes a device, of which the process takes some; 0: its kind's, or a share of the machine's */
  const char *spill;                          /* --spill DIR */
  Update update;                              /* where parameters are updated that spill from a GPU */
  const char *profile;                        /* --profile FILE */
  const Profiled *profiled;                   /* NULL: it is of the graph that is planned */
  const char *plan;                           /* --plan FILE */
  double link_bytes_per_second, link_latency; /* 0: defaults of shared memory */
  const char *compiler; /* the C compiler's version line, part of a profile's signature; NULL: not compared */
  StagePeak peak;       /* NULL: the planner's own estimate counts */
  void *peak_context;
  PlanWatch *watch; /* NULL: not measured */
  Refusal refusal;
} PlanRequest;

/* Inference has no updates, so that a model's batch binds neither --microbatch nor --replicas: the samples of a round of
 * the schedule, the batch where they make it up, else the next number that they do. With -n alone all ranks can be
 * replicas. */
int64_t inference_batch(int64_t batch, const PlanRequest *q);

/* Whether a graph can be divided among --tensor's ranks, and, once it is, whether anything was; false after a
 * diagnostic. builds: programs are wanted, not plans alone. */
bool tensor_suits(const Graph *g, const PlanRequest *q, bool builds);
bool tensor_divides(const Graph *g);
/* Whether a plan, or that there is none, asks for activations that are split by positions, and whether the plan with these is
 * better. */
bool tensor_lacks_memory(const Graph *g, const PlanRequest *q, const Plan *plan);
bool tensor_is_better(const Plan *spread, const Plan *plan);
/* The request for the pipelines of one shard each, whose ranks are groups; false after a diagnostic. */
bool tensor_group(PlanRequest *q);

/* A number of ranks a shard group that --tensor auto looks at. */
typedef struct TensorDegree {
  int shards;
  const Plan *plan; /* NULL: none, and `why` says why, one line */
  const char *why;
} TensorDegree;
typedef Vec(TensorDegree) TensorDegrees;
/* All that divide the ranks, rising, without plans; false after a diagnostic. */
bool tensor_degrees(const PlanRequest *q, TensorDegrees *degrees);
/* Of those that are as fast, but for what no prediction can tell apart, the first; -1: none has a plan. */
int tensor_choose(const TensorDegrees *degrees);
void tensor_compare(const TensorDegrees *degrees, FILE *out);

/* ---- request.c, devices.c: where a plan's ranks are. Under --tensor a rank is a shard group, and a device is its devices. */
int plan_ranks_asked(const PlanRequest *q, const Plan *plan); /* some may not be used */
/* The device of a stage's replica: as the placement lays them out; without a cluster in order, stage 0's replicas first. */
int plan_device(const PlanRequest *q, const Plan *plan, int stage, int replica);
/* Bytes that the arena of each of its ranks may take. */
int64_t plan_device_memory(const Graph *g, const PlanRequest *q, const Plan *plan, int device);

/* Chooses, or takes request->plan and prices it anew; NULL after diagnostics. runners_up gets up to `n`
 * other plans, best first; those that were not found stay NULL. */
Plan *plan_make(const Graph *g, const Pieces *p, const PlanRequest *request, Plan **runners_up, int n);

/* The best plan of a schedule, or of data parallelism. */
typedef struct ComparedSchedule {
  const char *label;  /* "flush (PipeDream-Flush)" */
  const Plan *plan;   /* NULL: none, and `why` says why */
  const char *why;    /* one line */
  double times;       /* its batch's seconds over those of the shortest batch of all */
  int64_t peak_bytes; /* of the fullest rank */
  bool recomputes;    /* some stage */
  Critical critical;
} ComparedSchedule;
enum { N_COMPARED = 8 };
typedef struct ComparedKind {
  const char *label, *schedule;
  bool replicas_alone; /* one stage on all ranks */
} ComparedKind;
extern const ComparedKind compared_kinds[N_COMPARED]; /* in the order of the table */
/* Whether --delay lets the schedule be chosen where it is left open. */
bool delay_allows(Delay delay, const char *schedule);
/* One of each, in the order of the table, whatever schedule or plan is requested; diagnostics are in `why` alone.
 * `quick`: without those whose planning takes minutes for hundreds of ranks. False where nothing can run. */
bool plan_comparison(const Graph *g, const Pieces *p, const PlanRequest *request, bool quick,
                     ComparedSchedule rows[N_COMPARED]);
/* A line of each; false where nothing can run, or after a diagnostic where the request keeps to one schedule. */
bool plan_compare(const Graph *g, const Pieces *p, const PlanRequest *request, FILE *out);
/* A line, where another schedule is planned to be at least 5 % faster than the plan for this request. */
void plan_hint(const Graph *g, const Pieces *p, const PlanRequest *request, const Plan *plan, FILE *out);

/* Prints one line if the plan's schedule delays gradients, the model does not set `delay_correction`, and its optimizer has a
 * correction. */
void plan_delay_hint(const Graph *g, const Plan *plan, FILE *out);

#endif
