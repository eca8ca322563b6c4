/* What the planner makes, for all who read plans: a Plan fixes stages, replicas, microbatch, recomputation and schedule. It is
 * read-only once made, written to plan.json and read back from there, so that a person may edit it. request.h has what makes
 * one. */
#ifndef PDC_PLAN_H
#define PDC_PLAN_H

#include "base/json.h"
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

/* ---- facts about a plan (problem/plans.c, cost/price.c) ---- */

void plan_verify(const Graph *g, const Pieces *p, const Plan *plan);
int64_t largest_peak(const Plan *plan);               /* bytes of the fullest rank */
double plan_busy_seconds(const Plan *plan, int part); /* of a batch, of all the part's ranks together */
double plan_waiting(const Plan *plan);                /* the part of all workers' time in which they wait */
int64_t plan_cache_bytes(const Plan *plan);           /* of all stages */
/* Of each token of a continuation, where the plan has caches, what that is on all stages together. */
double plan_cache_bytes_a_token(const Graph *g, const Plan *plan);
/* For each stage whether its update waits for figures of lower stages: squares under clipping, gradients
 * of tied parameters. What schedule() asks for. */
bool *plan_exchanges(const Graph *g, const Pieces *p, const Plan *plan);
int64_t stage_parameters(const Graph *g, const Pieces *p,
                         const StagePlan *stage); /* elements it holds, not buffers' */

/* ---- plans as people have them (text/) ---- */

/* What a batch waits for most: ranks that compute ("stage 1"), links that carry messages ("messages behind stage 1"), an exchange
 * among replicas ("exchange of stage 1"), or all that one link carries ("messages and exchanges on one link"). */
typedef struct Critical {
  const char *resource;
  double share; /* of a batch in which it is used */
} Critical;
Critical plan_critical(const Plan *plan);
const char *critical_text(Critical critical); /* "stage 1, 97 %" */

void plan_table(const Graph *g, const Pieces *p, const Plan *plan, FILE *out);
void plan_runner_up(const Pieces *p, const Plan *chosen, const Plan *other, FILE *out); /* one line of it */
const char *plan_device_text(const Plan *plan); /* "device A100 80 GB of cluster dgx_a100" */

/* ---- plans as files have them (text/) ---- */

char *plan_json(const Graph *g, const Pieces *p, const Plan *plan); /* the text of plan.json */
Plan *plan_read(const Graph *g, const Pieces *p, const char *path); /* NULL after diagnostics */

/* plan.json as its text says, before a model gives its names a meaning. */
/* What 'stages' says about one part of the model beside the planner's notes. */
typedef struct PartInFile {
  const char *starts_at; /* NULL: not given */
  int replicas, ahead;
  bool recompute;
} PartInFile;

typedef struct PlanFile {
  int file; /* for diagnostics */
  const cJSON *json;
  Plan plan;            /* parts have no pieces yet; n_stages and what is by stage: plan_file_stages() */
  int64_t microbatches; /* as given; 0: not given */
  int64_t tensor;       /* ranks that share a layer; 0: not given */
  bool spread;          /* Graph.spread */
  int parts;            /* that 'stages' lists */
  PartInFile *part;     /* those; NULL where there are more than MOST_STAGES */
} PlanFile;

enum { MOST_STAGES = 4096 };

/* Members, their types and ranges; false after diagnostics. A plan to follow must say everything and nothing else;
 * for a drawing, planned times do, and what else stands there is passed over. */
typedef enum { PLAN_TO_FOLLOW, PLAN_TO_DRAW } PlanUse;
bool plan_file_read(const char *path, PlanUse use, PlanFile *out);
/* Fills the pipeline by stage, where chunks divide the parts. False after a diagnostic: the chunks of a rank must
 * agree. */
bool plan_file_stages(PlanFile *f);

#endif
