/* Private to compiler/plan: the problem. Completes a request: the form of pipelines, the devices of ranks, the
 * possible microbatches of a batch. Does not know the costs of pieces. Sizes are bytes, times are seconds;
 * functions that can fail return false or NULL after a diagnostic. */
#ifndef PDC_PLAN_PROBLEM_H
#define PDC_PLAN_PROBLEM_H

#include "base/table.h"
#include "device/device.h"
#include "device/topology.h"
#include "plan/problem/budgets.h"
#include "plan/request.h"
#include "profile/profile.h"
#include "schedule/program.h"

typedef struct Planner Planner;
typedef struct Costs Costs; /* cost/spans.h: costs of pieces at one size of microbatch */
typedef struct Spans Spans; /* prefix sums of Costs */

/* The subject of planning: a sequence of pieces, of a model's Graph (cost/price.c) or a layer profile. */
typedef struct Subject {
  Name name;
  int n;         /* pieces */
  int64_t batch; /* samples */
  bool inference;
  bool tied; /* an update may wait for other stages, for all cuts */
  Costs *(*price)(const Planner *r, int64_t b,
                  int kind); /* costs of microbatches of b samples on a kind of device */
  /* Adds the costs of recomputation by layer; NULL: price() does, if it knows them. */
  void (*price_again)(const Planner *r, int64_t b, int kind, Costs *c);
  bool *(*exchanges)(const Planner *r, const Plan *plan); /* plan_exchanges() */
  int (*find)(const Planner *r, Name name); /* the piece of a name in --split; -1 after a diagnostic */
  const void *context;                      /* context of these three functions */
} Subject;

/* Costs of pieces at one size of microbatch, by kind of device. */
typedef struct Priced {
  int64_t b;
  Spans *spans;
} Priced;
typedef Vec(Priced) Prices;

typedef struct TimedPlans TimedPlans;         /* time/timed.c: simulated plans */
typedef struct KnownForms KnownForms;         /* cost/programs.c: scheduled pipelines */
typedef struct KernelWork KernelWork;         /* cost/kernels.c: work of the model's kernels */
typedef struct BestPartitions BestPartitions; /* search/bests.c: forms with known cuts */

/* The memory limit of ranks, decided once (memory.c). Bytes per device. */
typedef struct Memory {
  int64_t process;       /* the process's own, for MPI and libraries */
  int64_t arena;         /* limit of the arena on devices of the largest kind */
  const int64_t *arenas; /* the same by kind */
  bool shared;           /* ranks share the machine's memory, so that more ranks have no more of it */
} Memory;

/* A completed request. */
struct Planner {
  Subject subject;
  const Graph *g; /* g, p: NULL for layer profiles; used by request.c and by diagnostics */
  const Pieces *p;
  const PlanRequest *request;
  const Profile *profile; /* NULL: estimated costs */
  Span schedule_span;
  Span where; /* place of diagnostics about the whole plan: the file */
  Target target;
  const bool *bf16; /* by value: whether it is stored in bf16 */
  int ranks;
  const DeviceKind *device; /* the smallest rates and memory of all ranks */
  bool assumed;             /* the device is a guess */
  Pipeline form;            /* as requested, with open microbatches; with free replicas, one rank per stage */
  ScheduleTraits traits;    /* of its schedule */
  bool free_replicas;       /* replicas are chosen so that all ranks are used */
  bool free_stages;         /* the number of stages is free; else form.n_stages */
  bool free_depth;          /* one rank per stage, and fewer stages than ranks if faster */
  bool any_will_do;         /* open stages and replicas: any plan that fits */
  bool first_will_do;       /* the first microbatch that fits */
  const bool *again;        /* by piece: --recompute LAYERS or a plan's file recomputes it; NULL: free */
  int *pinned;              /* by part: its first piece, under --split; else NULL */
  int *stage_starts;        /* by stage: its first piece, with free parts per stage; else NULL */
  double known;             /* seconds per batch of a known plan; 0: none */
  int64_t least_microbatch; /* minimum samples for two values in every statistic */
  Memory memory;
  int n_kinds;        /* kinds of devices, the slowest first */
  const Rates *rates; /* by kind, for unmeasured costs */
  Topology topology;
  Prices *prices;
  TimedPlans *timed_plans;
  KnownForms *known_forms;
  KernelWork *kernel_work;
  BestPartitions *best_partitions;
  Vec(int64_t) microbatches; /* candidates, ascending */
};

/* Bytes of a rank's process with its arena. */
static inline int64_t memory_of_rank(const Planner *r) { return r->memory.arena + r->memory.process; }

/* Tensor-parallel degree: ranks per planned rank. */
static inline int shards_of(const Graph *g) { return g && g->shards ? g->shards : 1; }

/* ---- request.c */
/* Fills a planner that has a subject and a request (search/search.h: planner_prepare). False after diagnostics.
 * Does not read the profile. `taken`: NULL, or a plan whose form and schedule override the model and the
 * request. */
bool settle_request(Planner *r, const Graph *g, const Pieces *p, const Plan *taken);
/* The same for a layer profile, whose microbatches have a fixed size and count as one sample. levels: of machines;
 * missing latencies are the target's. */
bool settle_layers(Planner *r, const Cluster *levels);
/* Fills microbatches with the divisors of the batch that the schedule and the profile allow; with free replicas,
 * those of any form. */
bool planner_microbatches(Planner *r);
void tell_microbatches(const Planner *r); /* reports that no microbatch is possible */
Span graph_file_span(const Graph *g);
const char *inference_option(const Graph *g); /* the option of such programs: "--infer", "--generate" */
/* Whether the schedule exists; whether it suits training or inference. False after a diagnostic. */
bool schedule_named(Name name, Span where, const char *prefix);
bool schedule_suits(const Graph *g, Name name, Span where, const char *prefix);
/* Whether the planner may shard the optimizer state to save memory: replicas are possible, and the request leaves
 * it open. */
bool planner_may_shard(const Planner *r);

/* ---- devices.c */
bool choose_devices(Planner *r); /* false after a diagnostic */

/* ---- memory.c */
/* Decides r->memory from --memory, the kinds of devices, or a share of the machine's memory. kind: r->n_kinds. */
void settle_memory(Planner *r, const DeviceKind *const *kind);

/* ---- update.c: place of updates under offload ------------ */
bool spills_to_host(const Planner *r);     /* offload to pinned host memory, not to a file */
bool may_update_at_home(const Planner *r); /* the host may update offloaded parameters */
/* Whether parameters can be updated at the place of the request or the plan; false after a diagnostic. */
bool check_update(const Planner *r);

/* ---- plans.c: facts about a plan; plan.h has most of them ---- */
int ranks_asked(const PlanRequest *q); /* -n or its default; 0: other options set the ranks, or none does */
/* Whether no plan fits (plan NULL), or a stage recomputes only to fit. */
bool asks_for_memory(const Plan *plan, const PlanRequest *q);

/* ---- open schedules ---- */
#define SCHEDULE_AUTO "auto"

/* ---- statistics.c */
/* The statistic of a microbatch over the fewest values: its node, and its values per sample. node -1: none. */
typedef struct Statistic {
  int node;
  int64_t values;
} Statistic;
Statistic smallest_statistic(const Graph *g);
int64_t least_microbatch(Statistic s); /* fewest samples with at least two values in the statistic */
void note_statistic(const Graph *g, Statistic s,
                    Diagnostic *d); /* adds a note about the statistic that needs larger microbatches */
/* Whether microbatches of b samples have at least two values in every statistic; false after a diagnostic. */
bool statistics_suit(const Graph *g, int64_t batch, int64_t b, Span where, const char *prefix);
void tell_small_statistics(const Planner *r); /* reports that only smaller microbatches are possible */
/* Warns if the planner chose the microbatch and the model's results depend on it. */
void tell_chosen_microbatch(const Planner *r, const Plan *plan);

/* ---- form.c: pipelines, possibly with open microbatches */
/* With the schedule and settings of r->form, ahead as requested. replicas NULL: one rank per stage. */
Pipeline form_make(const Planner *r, int n_stages, const int *replicas);
Pipeline form_of(const Pipeline *p);          /* a copy with open microbatches and recomputation */
bool form_is_plain(const Pipeline *p);        /* one rank per stage */
const char *replicas_text(const Pipeline *p); /* "2,1" */
const char *ranks_text(const Pipeline *p);    /* "2 stages", "replicas 2,1" */
bool may_exchange(const Planner *r);          /* updates may wait for other stages */
/* Cached facts about forms of pipelines. */
typedef struct FormTables {
  int head;           /* words of a key before those of stages */
  Vec(Table) by_size; /* by number of stages; tables grow in the arena in use */
} FormTables;
Table *form_table(FormTables *t, int n_stages);
/* The key: the head's words, then for each stage the fields of the form, and a mark. */
int64_t *form_key(const FormTables *t, const int64_t *head, const Pipeline *form, const bool *marks);

#endif
