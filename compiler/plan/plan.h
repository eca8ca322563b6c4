/* A Plan fixes stages, replicas, microbatch, recomputation and schedule. Read-only once made; written
 * to plan.json and read back from it, so that a person may edit it. */
#ifndef PDC_PLAN_H
#define PDC_PLAN_H

#include "base/watch.h"
#include "cluster/cluster.h"
#include "cluster/placement.h"
#include "cut/cut.h"
#include "profile/attentions.h"
#include "schedule/pipeline.h"
#include "target/target.h"

typedef enum { RECOMPUTE_OFF, RECOMPUTE_ON, RECOMPUTE_AUTO } Recompute; /* as --recompute lists them */
typedef enum { UPDATE_FREE, UPDATE_HOST, UPDATE_DEVICE } Update;        /* as --update lists them */

/* One part of the model: a stage, or one of its chunks. */
typedef struct StagePlan {
  int first_piece, end_piece;
  double forward_seconds, backward_seconds, update_seconds; /* planned: a microbatch; a batch */
  double weights_seconds;  /* the part of backward_seconds that makes weights' gradients by products */
  double send_bytes;       /* activations to the next stage, a microbatch */
  double send_seconds;     /* what their message is on its way, its link shared with those at once */
  double exchange_seconds; /* its stage's replicas', of a batch; 0: there is one, or none trains */
  double hidden_seconds;   /* the part of exchange_seconds that the last backward pass hides */
  Name spans, crosses; /* levels of a cluster: within which the stage's ranks are; that messages to the next part
                             cross. NULL: none was given, or there are no such */
  int64_t peak_bytes;  /* of one rank, all its chunks together, from its Allocation; chunks have the same */
  int64_t weight_bytes, gradient_bytes, optimizer_bytes; /* its parts that parameters decide, all copies */
  int64_t
      cache_bytes; /* and that of calls which keep something from one microbatch to the next: keys and values */
} StagePlan;

typedef struct Plan {
  Name model;
  Pipeline pipeline;
  Placement placement;  /* of its ranks on devices */
  Target target;        /* its threads: when no OMP_NUM_THREADS says otherwise */
  StagePlan *stage;     /* by part of the model (pipeline.h): plan_parts() */
  double batch_seconds; /* predicted, from simulating the schedule; no less than ... */
  double links_seconds; /* ... the busiest link is in use for it */
  Name costs;           /* where costs came from: "profile NAME", "counted" */
  Name device;          /* what its ranks run on: "A100 80 GB", "fast, slow"; NULL: not planned here */
  Name cluster;         /* of these devices; NULL: none was named */
  Name spill;           /* where parts go that are not in memory, as the command line says; NULL: the run will */
  bool assumed;         /* nothing says that it is this device */
  const Algorithms *algorithms; /* of products, on GPUs; NULL: the library chooses */
  const Attentions *attentions; /* that cuDNN computes; NULL: the runtime's own kernels do */
  char *why;                    /* one paragraph: why this one was chosen */
} Plan;

static inline int plan_parts(const Plan *plan) { return pipeline_parts(&plan->pipeline); }
static inline int plan_stage_of(const Plan *plan, int part) { return pipeline_stage(&plan->pipeline, part); }
static inline int plan_part_of(const Plan *plan, int stage, int chunk) {
  return pipeline_part(&plan->pipeline, stage, chunk);
}
static inline bool plan_recomputes(const Plan *plan, int part) {
  return plan->pipeline.recompute[plan_stage_of(plan, part)] && !pipeline_keeps(&plan->pipeline, part);
}

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

/* What the command line pins; zero or NULL: free, but for recompute, which AUTO leaves free. */
/* The graph that a profile is of, where it is not the one that is planned: the same model without activations that are
 * split by positions. */
typedef struct Profiled {
  const Graph *g;
  const Pieces *p;
} Profiled;

typedef struct PlanRequest {
  /* -n: ranks; 0: as many as --split, --stages and --replicas say, else all devices of the cluster, else 1 */
  int workers;
  const Cluster *cluster; /* whose first devices the ranks are; NULL: devices of one kind that `arch` says */
  int stages;
  const char *split;    /* "h[3],h[6].ln_2": where stages 1.. start */
  const char *replicas; /* "2,1": by stage; one number: of all */
  int ahead;            /* h of docs/schedules.md; 0: free */
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

/* What a batch waits for most: ranks that compute ("stage 1"), links that carry messages ("messages behind stage 1"), an exchange
 * among replicas ("exchange of stage 1"), or all that one link carries ("messages and exchanges on one link"). */
typedef struct Critical {
  const char *resource;
  double share; /* of a batch in which it is used */
} Critical;
Critical plan_critical(const Plan *plan);
const char *critical_text(Critical critical); /* "stage 1, 97 %" */

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
double plan_waiting(const Plan *plan); /* the part of all workers' time in which they wait */
void plan_table(const Graph *g, const Pieces *p, const Plan *plan, FILE *out);          /* for people */
void plan_runner_up(const Pieces *p, const Plan *chosen, const Plan *other, FILE *out); /* one line of it */
char *plan_json(const Graph *g, const Pieces *p, const Plan *plan);                     /* for plan.json */
Plan *plan_read(const Graph *g, const Pieces *p, const char *path); /* NULL after diagnostics */
void plan_verify(const Graph *g, const Pieces *p, const Plan *plan);
/* For each stage whether its update waits for figures of lower stages: squares under clipping, gradients
 * of tied parameters. What schedule() asks for. */
bool *plan_exchanges(const Graph *g, const Pieces *p, const Plan *plan);
int64_t plan_cache_bytes(const Plan *plan); /* of all stages */
/* Of each token of a continuation, where the plan has caches, what that is on all stages together. */
double plan_cache_bytes_a_token(const Graph *g, const Plan *plan);
int64_t stage_parameters(const Graph *g, const Pieces *p,
                         const StagePlan *stage); /* elements it holds, not buffers' */

#endif
