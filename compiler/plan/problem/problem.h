/* Private to compiler/plan: what is planned. A request is made definite here: the form that pipelines may have, the devices that
 * ranks run on, the microbatches that a batch can be dealt into. Nothing here knows what a piece costs. Bytes are bytes, times
 * seconds; functions that may fail return false or NULL after a diagnostic. */
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
typedef struct Costs Costs; /* cost/spans.h: what pieces cost at one size of microbatch ... */
typedef struct Spans Spans; /* ... and the same, summed */

/* What is planned: pieces in a row, whatever they were made from (a model's Graph: cost/price.c). */
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

typedef struct TimedPlans TimedPlans;         /* time/timed.c: plans that were simulated */
typedef struct KnownForms KnownForms;         /* cost/programs.c: pipelines that were scheduled */
typedef struct BestPartitions BestPartitions; /* search/bests.c: forms that were cut */

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
/* Fills a planner that has a subject and a request (search/search.h: planner_prepare). False after diagnostics. Does not read
 * the profile. `taken`: NULL, or a plan whose form and schedule hold whatever the model and the request say. */
bool settle_request(Planner *r, const Graph *g, const Pieces *p, const Plan *taken);
/* The same of what is no model: its batch is in microbatches of a fixed size, which count as one sample. levels: of
 * machines, whose messages take the target's latency where none is said. */
bool settle_layers(Planner *r, const Cluster *levels);
/* Fills microbatches by the batch's divisors that the schedule and the profile allow; where replicas are free,
 * some form or other. */
bool planner_microbatches(Planner *r);
void tell_microbatches(const Planner *r); /* reports that none is possible */
Span graph_file_span(const Graph *g);
const char *inference_option(const Graph *g); /* the one that asks for such programs: "--infer", "--generate" */
/* False after a diagnostic: there is none; what trains a model cannot run it alone, nor the other way round. */
bool schedule_named(Name name, Span where, const char *prefix);
bool schedule_suits(const Graph *g, Name name, Span where, const char *prefix);
/* Whether replicas may share the optimizer's state where memory asks for it: there may be some, and nobody said so. */
bool planner_may_shard(const Planner *r);

/* ---- devices.c */
bool choose_devices(Planner *r); /* false after a diagnostic */

/* ---- update.c: where parameters are updated that come and go ---- */
bool spills_to_host(const Planner *r);     /* into pinned memory of the device's host, not to a file */
bool may_update_at_home(const Planner *r); /* the host may update them there */
/* Whether parameters can be updated where the request, or the plan that is followed, says; false after a diagnostic. */
bool check_update(const Planner *r);

/* ---- plans.c: facts about a plan; plan.h has most of them ---- */
/* Nothing fits (plan NULL), or something is recomputed only to fit. */
bool asks_for_memory(const Plan *plan, const PlanRequest *q);

/* ---- schedules that are open ---- */
#define SCHEDULE_AUTO "auto"

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
bool may_exchange(const Planner *r);          /* updates may wait for other stages */
/* What is known of forms of pipelines that searches come by again and again. */
typedef struct FormTables {
  int head;           /* words of a key beside those of stages */
  Vec(Table) by_size; /* by stages; they grow in the arena in use */
} FormTables;
Table *form_table(FormTables *t, int n_stages);
/* Those words, and of each stage all that a form fixes, and a mark. */
int64_t *form_key(const FormTables *t, const int64_t *head, const Pipeline *form, const bool *marks);

#endif
