/* A Plan fixes stages, replicas, microbatch, recomputation and schedule. It is read-only once the planner has
 * created it, written to plan.json and read back from there, so users can edit it. request.h declares the
 * planner. */
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
  double forward_seconds, backward_seconds, update_seconds; /* predicted, per microbatch; update: per batch */
  double weights_seconds; /* share of backward_seconds for weight gradients by products */
  /* Recomputation by layer: by piece of the part, '1': its backward pass computes its forward values again; NULL: no
   * piece. Interned. The part may also repeat its forward pass before that: plan_recomputes(). */
  Name again;
  double again_seconds;    /* share of backward_seconds for recomputation by layer */
  int64_t again_bytes;     /* bytes of a rank that all recomputation saves, as the planner estimates */
  double send_bytes;       /* activations to the next stage, per microbatch */
  double send_seconds;     /* time of that message, with the link shared with simultaneous messages */
  double exchange_seconds; /* gradient exchange of the stage's replicas, per batch; 0: one replica, or inference */
  double hidden_seconds;   /* share of exchange_seconds that the last backward pass hides */
  Name spans, crosses;     /* cluster levels of the stage's ranks, and of messages to the next part; NULL: none */
  int64_t peak_bytes; /* of one rank with all its chunks, from its Allocation; equal for all chunks of the rank */
  int64_t weight_bytes, gradient_bytes, optimizer_bytes; /* shares of peak_bytes by parameters, all copies */
  int64_t cache_bytes;                                   /* share of peak_bytes for keys and values */
} StagePlan;

typedef struct Plan {
  Name model;
  Pipeline pipeline;
  Placement placement;  /* devices of the ranks */
  Target target;        /* its threads apply unless OMP_NUM_THREADS is set */
  StagePlan *stage;     /* by part of the model (pipeline.h): plan_parts() */
  double batch_seconds; /* predicted, from a simulation of the schedule; at least links_seconds */
  double links_seconds; /* time that the busiest link is in use */
  Name costs;           /* origin of the costs: "profile NAME", "counted" */
  Name device;          /* devices of the ranks: "A100 80 GB", "fast, slow"; NULL: not planned here */
  Name cluster;         /* NULL: no cluster */
  Name spill;           /* offload directory of the command line; NULL: set at run time */
  bool assumed;         /* the device is a guess */
  double price, watts;  /* of an hour of the ranks' devices; their most power; 0: not of all devices known */
  const Algorithms *algorithms; /* algorithms of matrix products, on GPUs; NULL: the library chooses */
  const Attentions *attentions; /* attention by cuDNN; NULL: by the runtime's own kernels */
  char *why;                    /* one paragraph: the reason for this plan, and how the search ended */
} Plan;

static inline int plan_parts(const Plan *plan) { return pipeline_parts(&plan->pipeline); }
static inline int plan_stage_of(const Plan *plan, int part) { return pipeline_stage(&plan->pipeline, part); }
/* By piece of the model, from StagePlan.again; and the reverse: NULL if no piece of the part recomputes. */
bool *part_recomputed(const Pieces *p, const StagePlan *s);
void set_recomputed(StagePlan *s, const bool *again);
bool *plan_recomputed(const Pieces *p, const Plan *plan); /* over all parts; NULL: no piece */
static inline int plan_part_of(const Plan *plan, int stage, int chunk) {
  return pipeline_part(&plan->pipeline, stage, chunk);
}
/* Whether the part repeats its forward pass before its backward pass. */
static inline bool plan_recomputes(const Plan *plan, int part) {
  return plan->pipeline.recompute[plan_stage_of(plan, part)] && !pipeline_keeps(&plan->pipeline, part);
}
/* Whether the part recomputes anything; seconds of a microbatch that this adds. */
static inline bool part_recomputes(const Plan *plan, int part) {
  return plan_recomputes(plan, part) || plan->stage[part].again;
}
static inline double recomputed_seconds(const Plan *plan, int part) {
  const StagePlan *s = &plan->stage[part];
  return s->again_seconds + (plan_recomputes(plan, part) ? s->forward_seconds : 0);
}

/* ---- facts about a plan (problem/plans.c, cost/price.c) ---- */

void plan_verify(const Graph *g, const Pieces *p, const Plan *plan);
int64_t largest_peak(const Plan *plan);               /* bytes of the fullest rank */
double plan_busy_seconds(const Plan *plan, int part); /* per batch, sum over the part's ranks */
double plan_waiting(const Plan *plan);                /* share of all ranks' time spent waiting */
int64_t plan_cache_bytes(const Plan *plan);           /* of all stages */
/* Bytes of caches per token of a generated sequence, sum over all stages. */
double plan_cache_bytes_a_token(const Graph *g, const Plan *plan);
/* For each stage whether its update waits for values of lower stages: squares under clipping, gradients
 * of tied parameters. Input of schedule(). */
bool *plan_exchanges(const Graph *g, const Pieces *p, const Plan *plan);
int64_t stage_parameters(const Graph *g, const Pieces *p,
                         const StagePlan *stage); /* elements of its parameters, without buffers */

/* ---- plans as text for users (text/) ---- */

/* The critical resource of a batch: ranks ("stage 1") or links with messages ("messages behind stage 1"). Also an
 * exchange among replicas ("exchange of stage 1") or a shared link ("messages and exchanges on one link"). */
typedef struct Critical {
  const char *resource;
  double share; /* of a batch's time in which the resource is used */
} Critical;
Critical plan_critical(const Plan *plan);
const char *critical_text(Critical critical); /* "stage 1, 97 %" */

/* The recomputation of a part: "the whole stage", "h[0..6], h[7].mlp", or both; "": none. */
const char *recomputed_text(const Graph *g, const Pieces *p, const Plan *plan, int part);
/* "saves about 14.0 MiB a rank and adds 0.90 ms a microbatch" */
const char *recomputed_worth(const Plan *plan, int part);
void plan_table(const Graph *g, const Pieces *p, const Plan *plan, FILE *out);
void plan_runner_up(const Pieces *p, const Plan *chosen, const Plan *other, FILE *out); /* one line */
const char *plan_device_text(const Plan *plan); /* "device A100 80 GB of cluster dgx_a100" */

/* ---- plans as files (text/) ---- */

char *plan_json(const Graph *g, const Pieces *p, const Plan *plan); /* the text of plan.json */
Plan *plan_read(const Graph *g, const Pieces *p, const char *path); /* NULL after diagnostics */

/* The text of plan.json, before its names are resolved in a model. */
/* An entry of 'stages', without the planner's notes. */
typedef struct PartInFile {
  const char *starts_at; /* NULL: not given */
  int replicas, ahead;
  bool recompute;      /* repeats its forward pass */
  const cJSON *layers; /* recomputed layers; NULL: not by layer */
} PartInFile;

typedef struct PlanFile {
  int file; /* for diagnostics */
  const cJSON *json;
  Plan plan;            /* parts have no pieces yet; plan_file_stages() fills n_stages and arrays by stage */
  int64_t microbatches; /* as given; 0: not given */
  int64_t tensor;       /* ranks that share a layer; 0: not given */
  bool spread;          /* Graph.spread */
  int parts;            /* entries of 'stages' */
  PartInFile *part;     /* NULL: more than MOST_STAGES entries */
} PlanFile;

enum { MOST_STAGES = 4096 };

/* Checks members, types and ranges; false after diagnostics. A plan to follow must have all required members and
 * no unknown ones. A drawing needs only the planned times and ignores unknown members. */
typedef enum { PLAN_TO_FOLLOW, PLAN_TO_DRAW } PlanUse;
bool plan_file_read(const char *path, PlanUse use, PlanFile *out);
/* Fills the pipeline by stage. False after a diagnostic: chunks must divide the parts, and the chunks of a rank
 * must agree. */
bool plan_file_stages(PlanFile *f);

#endif
