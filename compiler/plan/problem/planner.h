/* Private to compiler/plan: a planning job, its prices, and what its files share. */
#ifndef PDC_PLANNER_H
#define PDC_PLANNER_H

#include "device/device.h"
#include "base/json.h"
#include "plan/search/partition.h"
#include "plan/plan.h"
#include "profile/profile.h"
#include "plan/search/replicate.h"
#include "plan/problem/topology.h"
#include "schedule/program.h"

typedef struct Planner Planner;

/* What is planned: pieces in a row, whatever they were made from (a model's Graph: price.c). */
typedef struct Subject {
  Name name;
  int n;         /* pieces */
  int64_t batch; /* samples */
  bool inference;
  bool tied; /* an update may wait for other stages, wherever cuts are */
  Costs *(*price)(const Planner *r, int64_t b, int kind); /* of microbatches of b samples on a kind of device */
  bool *(*exchanges)(const Planner *r, const Plan *plan); /* plan_exchanges() */
  int (*find)(const Planner *r, Name name);               /* the piece that --split names; -1 after a diagnostic */
  const void *context;                                    /* of these three */
} Subject;

/* What pieces cost at a size of microbatch that was looked at, by kind of device. */
typedef struct Priced {
  int64_t b;
  Spans *spans;
} Priced;
typedef Vec(Priced) Prices;

typedef struct TimedPlans TimedPlans;         /* timed.c: plans that were simulated */
typedef struct KnownForms KnownForms;         /* programs.c: pipelines that were scheduled */
typedef struct BestPartitions BestPartitions; /* bests.c: forms that were cut */

/* A request made definite. */
struct Planner {
  Subject subject;
  const Graph *g; /* these two: NULL where no model is planned; request.c and what tells of plans use them */
  const Pieces *p;
  const PlanRequest *request;
  const Profile *profile; /* NULL: costs are counted */
  Span schedule_span;
  Span where; /* of diagnostics about the plan as a whole: the file */
  Target target;
  const bool *bf16; /* by value: stored in bf16 */
  int ranks;
  const DeviceKind *device; /* what each of them does and holds at least */
  bool assumed;             /* nothing says that it is this device */
  Pipeline form;            /* as asked for, its microbatches open; where replicas are free, one rank a stage */
  ScheduleTraits traits;    /* of its schedule */
  bool free_replicas;       /* so that all ranks are used */
  bool free_stages;         /* and as many stages as that takes; else form.n_stages */
  bool free_depth;          /* one rank a stage, and fewer stages than ranks where that is faster */
  bool any_will_do;         /* of stages and replicas that are open: whatever fits, however slow; ... */
  bool first_will_do;       /* ... and of all microbatches the first that does */
  int *pinned;              /* by part: its first piece, under --split; else NULL */
  int *stage_starts;        /* by stage likewise, where the parts of each are left open; else NULL */
  double known;             /* seconds of a batch of a plan found before; 0: there is none */
  int64_t least_microbatch; /* samples of which all statistics are over two values or more */
  int64_t limit, process;   /* bytes a device, of several kinds the largest's: of the arena; beside it */
  int n_kinds;              /* of devices, the slowest first: */
  const int64_t *limits;    /* bytes of each */
  const Rates *rates;       /* for costs that were not measured */
  Topology topology;
  Prices *prices;
  TimedPlans *timed_plans;
  KnownForms *known_forms;
  BestPartitions *best_partitions;
  Vec(int64_t) microbatches; /* under consideration, rising */
};

/* Ranks that share what one is planned for. */
static inline int shards_of(const Graph *g) { return g && g->shards ? g->shards : 1; }

/* ---- request.c */
/* False after diagnostics. Does not read the profile. `taken`: NULL, or a plan whose form and schedule hold
 * whatever the model and the request say. */
bool planner_prepare(Planner *r, const Graph *g, const Pieces *p, const PlanRequest *request, const Plan *taken);
/* The same of what is no model: its batch is in microbatches of a fixed size, which count as one sample. levels: of
 * machines, whose messages take the target's latency where none is said. */
bool planner_prepare_layers(Planner *r, const Subject *subject, const PlanRequest *request, const Cluster *levels);
/* Fills microbatches by the batch's divisors that the schedule and the profile allow; where replicas are free,
 * some form or other. */
bool planner_microbatches(Planner *r);
void tell_microbatches(const Planner *r); /* reports that none is possible */
Span graph_file_span(const Graph *g);
const char *inference_option(const Graph *g); /* the one that asks for such programs: "--infer", "--generate" */
/* False after a diagnostic: there is none; what trains a model cannot run it alone, nor the other way round. */
bool schedule_named(Name name, Span where, const char *prefix);
bool schedule_suits(const Graph *g, Name name, Span where, const char *prefix);

/* ---- plan.c */
const char *costs_text(const Planner *r); /* where costs come from: "counted", "profile gpt.profile.json" */

/* ---- devices.c */
bool choose_devices(Planner *r); /* false after a diagnostic */

/* ---- table.c */
const char *plan_device_text(const Plan *plan);       /* "device A100 80 GB of cluster dgx_a100" */
double plan_busy_seconds(const Plan *plan, int part); /* of a batch, of all the part's ranks together */

/* ---- compare.c */
#define SCHEDULE_AUTO "auto"
/* Whether the schedule is left open; then the plan of the fastest, or NULL after diagnostics. */
bool schedule_open(const Graph *g, const PlanRequest *q);
bool delay_suits(const Graph *g, const PlanRequest *q); /* else false after a diagnostic */
Plan *plan_open_schedule(const Graph *g, const Pieces *p, const PlanRequest *request, Plan **runners_up, int n);

/* ---- statistics.c */
/* Of a microbatch, over the fewest values: the node that adds them up, and how many a sample has. node -1: there is none. */
typedef struct Statistic {
  int node;
  int64_t values;
} Statistic;
Statistic smallest_statistic(const Graph *g);
int64_t least_microbatch(Statistic s); /* the samples of which it is over two values or more */
void note_statistic(const Graph *g, Statistic s, Diagnostic *d); /* what asks for larger microbatches */
/* Whether microbatches of b samples have no smaller statistic; false after a diagnostic. */
bool statistics_suit(const Graph *g, int64_t batch, int64_t b, Span where, const char *prefix);
void tell_small_statistics(const Planner *r); /* reports that only smaller microbatches are possible */
/* Warns where the plan's microbatch, chosen among several, has an influence on the model's results. */
void tell_chosen_microbatch(const Planner *r, const Plan *plan);

/* ---- form.c: pipelines whose microbatches may still be open */
/* With the schedule and settings of r->form, ahead as requested. replicas NULL: one rank each. */
Pipeline form_make(const Planner *r, int n_stages, const int *replicas);
Pipeline form_of(const Pipeline *p);   /* with arrays of its own; microbatches and recomputation open again */
bool form_is_plain(const Pipeline *p); /* one rank a stage */
const char *replicas_text(const Pipeline *p); /* "2,1" */
const char *ranks_text(const Pipeline *p);    /* "2 stages", "replicas 2,1" */

/* ---- products.c */
/* By node: a backward call whose only output is the gradient of one use of a parameter. */
bool *weight_products(const Graph *g);
int root_value(const Graph *g, int value); /* the value that a view is of */

/* ---- bytes.c: `piece` is piece_of_nodes() */
/* Of a value where it stands in memory for b samples, to multiples of 64 bytes, as structs and the arena do. */
int64_t value_bytes(const Planner *r, int value, int64_t b);
/* By piece, at b samples: forward values that stand in memory until backward, less what a fused loop can
 * rematerialise; temporaries; inputs; what backward makes and weight_products() read. */
int64_t *saved_bytes(const Planner *r, const int *piece, int64_t b);
int64_t *work_bytes(const Planner *r, const int *piece, int64_t b);
int64_t *input_bytes(const Planner *r, int64_t b);
int64_t *cache_bytes(const Planner *r, const int *piece, int64_t b); /* by piece: of what calls keep */
int64_t *deferred_bytes(const Planner *r, const int *piece, int64_t b);
int64_t *accumulator_bytes(const Graph *g, const Pieces *p, const int *piece); /* by piece */
Held parameter_held(const Planner *r, const Rates *rates, int param);          /* by the graph's number */
const Holdings *model_holdings(const Planner *r, const Rates *rates);

/* ---- price.c */
/* Seconds of a node at a microbatch of b samples, from counting. */
double counted_seconds(const Graph *g, int node, int64_t b, const Rates *rates);
int *piece_of_nodes(const Graph *g, const Pieces *p); /* by node; backward ones by what they serve */
Subject model_subject(const Graph *g, const Pieces *p);

/* ---- cost.c */
Spans *spans_at(const Planner *r, int64_t b); /* of microbatches of b samples, by kind of device */
Copies copies_of_stage(const Planner *r, const Placement *at, const StageAhead *stage);
/* Copies at each part of a pipeline of this form, for microbatches of b samples. */
Copies *copies(const Planner *r, const Pipeline *form, const Placement *at, int64_t b, Recompute recompute);
Wiring *wirings(const Planner *r, const Pipeline *form, const Placement *at); /* by part */

/* ---- bests.c */
BestPartitions *best_partitions_new(void);

/* ---- programs.c */
KnownForms *known_forms_new(void);
/* schedule() of a pipeline that takes these exchanges; it lasts until the next plan is priced. */
Program *planned_programs(const Planner *r, const Pipeline *p, const bool *exchanges);
/* simulate() of these. */
double planned_seconds(const Planner *r, const Pipeline *p, const bool *exchanges, const StageTimes *times,
                       double most);
void known_forms_trim(KnownForms *k); /* forgets them where they are many; no Programs of them are used any more */

/* ---- links.c */
/* Seconds of a batch for which the busiest link carries messages and gradients, one way; 0: it is not known, or nothing is sent. */
double links_seconds(const Planner *r, const Plan *plan, const Program *programs);

/* ---- timed.c */
TimedPlans *timed_plans_new(void);
bool may_exchange(const Planner *r);                  /* updates may wait for other stages */
bool schedulable(const Planner *r, const Plan *plan); /* whether schedule() takes its cuts, too */
/* Of a schedulable plan: fills the planned times and parameters' bytes of every stage, and the batch's time, INFINITY where
 * that is more than `most` seconds. */
void price_plan(const Planner *r, Plan *plan, double most);
/* Seconds of a batch of a priced plan whose passes take a little more or less time than planned. */
double uneven_seconds(const Planner *r, const Plan *plan);

/* ---- choose.c: without diagnostics */
/* Why there is none. */
typedef struct NoPlan {
  bool no_microbatch;
  const Plan *stalling; /* NULL, or one that its schedule does not take */
  const Plan *miss;     /* NULL, or what comes nearest to fitting */
} NoPlan;
/* The plan to take; NULL with `none` filled. runners_up as for plan_make(). */
Plan *plan_choose(const Planner *r, Plan **runners_up, int n, NoPlan *none);
Plan *plan_fastest(const Planner *r); /* NULL when nothing fits */
Plan *plan_any(const Planner *r);     /* some plan that fits, where plan_choose() finds one */
/* Replaces the estimates by exact peaks; fills, by stage, by how much each rank's exceeded its estimate. */
void find_peaks(const Planner *r, Plan *plan, int64_t *error);
int64_t largest_peak(const Plan *plan);

/* ---- plan.c */
/* Whether replicas may share the optimizer's state where memory asks for it: there may be some, and nobody said so. */
bool planner_may_shard(const Planner *r);
/* Whether updates take whole tensors. Replicas that share such an optimizer's state exchange all gradients at once. */
bool updates_whole(const Planner *r);
/* Nothing fits (plan NULL), or something is recomputed only to fit. */
bool asks_for_memory(const Plan *plan, const PlanRequest *q);

/* ---- spilled.c: ranks whose parts come and go */
bool spills_to_host(const Planner *r); /* into pinned memory of the device's host, not to a file */
/* Whether parameters can be updated where the request, or the plan that is followed, says; false after a diagnostic. */
bool check_update(const Planner *r);
/* The fastest that is found, of all microbatches. NULL with `none` filled. */
Plan *plan_spilled(const Planner *r, NoPlan *none);
/* Of a plan whose parts come and go: seconds of a batch; where a stage's host updates, its update's are set. */
double spilled_seconds(const Planner *r, Plan *plan);

/* ---- least.c */
/* A plan that the planner finds with so little memory a device that it finds none with 64 KiB less (exact), or with 1 %
 * less, and that memory, the process's own with it; NULL: none was found. `miss`: what comes near. */
const Plan *plan_of_least_memory(const Planner *r, const Plan *miss, int64_t *memory, bool *exact);

/* ---- refuse.c: asks choose.c what would fit instead */
/* Why no plan fits, with numbers and an option that would. */
void tell_nothing_fits(const Planner *r, const Plan *best);

#endif
