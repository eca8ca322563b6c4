/* Private to compiler/plan: a planning job, its prices, and what its files share. */
#ifndef PDC_PLANNER_H
#define PDC_PLANNER_H

#include "plan/json.h"
#include "plan/partition.h"
#include "plan/plan.h"
#include "plan/profile.h"
#include "schedule/program.h"

/* A pipeline before it is cut. Arrays by stage that has ranks of its own. */
typedef struct Form {
  int positions;         /* those stages */
  int stages;            /* parts of the model: a position has several where a schedule takes chunks */
  int *replicas, *ahead;
} Form;

/* What a rank's device does in a second: operations, bytes; and seconds before a call or a loop does anything. */
typedef struct Rates {
  double product;   /* operations of products: multiplies and adds */
  double pointwise; /* operations in fused loops */
  double inside;    /* operations in calls beside their products */
  double copy;      /* bytes of calls that move rows */
  double stream;    /* bytes of long streams: optimizer, weights */
  double call, loop;
  double bandwidth, latency; /* of a message to another rank: bytes a second, seconds */
  bool beside;      /* messages travel while both ends work */
  int threads;      /* that share a rank's work */
} Rates;

/* A request made definite. */
typedef struct Planner {
  const Graph *g;
  const Pieces *p;
  const PlanRequest *request;
  const Profile *profile; /* NULL: costs are counted */
  Name schedule;
  Span schedule_span;
  Span where; /* of diagnostics about the plan as a whole: the file */
  TargetKind target;
  Precision precision;
  const bool *bf16; /* by value: stored in bf16 */
  int ranks, chunks, threads;
  bool vertical_sync;
  Form form;                 /* as asked for; where replicas are free, one rank a stage */
  bool free_replicas;        /* so that all ranks are used */
  bool free_stages;          /* and as many stages as that takes; else form.positions */
  int *pinned;               /* by part: its first piece, under --split; else NULL */
  int64_t limit;             /* bytes a device */
  Rates rates;               /* for costs that were not measured */
  double bandwidth, latency; /* of a message between stages: bytes a second, seconds */
  Vec(int64_t) microbatches; /* under consideration, rising */
} Planner;

static inline Target planner_target(const Planner *r) {
  return (Target){r->target, r->precision, r->threads};
}

/* ---- request.c */
/* False after diagnostics. Does not read the profile. `taken`: NULL, or a plan whose form and schedule hold
 * whatever the model and the request say. */
bool planner_prepare(Planner *r, const Graph *g, const Pieces *p, const PlanRequest *request, const Plan *taken);
/* Fills microbatches by the batch's divisors that the schedule and the profile allow; where replicas are free,
 * some form or other. */
bool planner_microbatches(Planner *r);
void tell_microbatches(const Planner *r); /* that none will do */
Span graph_file_span(const Graph *g);
bool schedule_named(Name name, Span where, const char *prefix); /* false after a diagnostic: there is none */

/* ---- form.c */
Form form_make(const Planner *r, int positions, const int *replicas); /* NULL: one rank each */
Form form_of_plan(const Plan *plan);
Plan plan_of_form(const Planner *r, const Form *form, int64_t microbatch); /* not cut yet */
int form_ranks(const Form *f);
bool form_is_plain(const Form *f);
/* schedule_needs() of a form. */
void form_needs(Name schedule, const Form *f, int64_t *least, int64_t *multiple);
bool form_allows(Name schedule, const Form *f, int64_t microbatches);
const char *form_text(const Form *f); /* "2,1" */

/* ---- products.c */
/* By node: a backward call whose only output is the gradient of one use of a parameter. */
bool *weight_products(const Graph *g);
/* By piece: bytes that backward makes and such calls read, at b samples. */
int64_t *deferred_bytes(const Planner *r, const int *piece, int64_t b);
/* Of a value where it stands in memory for b samples, to multiples of 64 bytes, as structs and the arena do. */
int64_t value_bytes(const Planner *r, int value, int64_t b);
int root_value(const Graph *g, int value); /* the value that a view is of */

/* ---- rates.c */
Rates rates_of_core(int threads);
Rates rates_of_gpu(const char *arch, Precision precision); /* "sm_80", "sm_90"; NULL: the newest known */

/* ---- cost.c */
/* Seconds of a node at a microbatch of b samples, from counting. */
double counted_seconds(const Graph *g, int node, int64_t b, const Rates *rates);
int *piece_of_nodes(const Graph *g, const Pieces *p); /* by node; backward ones by what they serve */
Costs *price(const Planner *r, int64_t microbatch);
/* Copies at each part of a pipeline of this form. */
Copies *copies(const Planner *r, const Form *form, int64_t microbatch, Recompute recompute);
bool schedulable(const Planner *r, const Plan *plan); /* whether schedule() takes its cuts, too */
/* Of a schedulable plan: fills the planned times and parameters' bytes of every stage, and the batch's time. */
void price_plan(const Planner *r, const Costs *c, Plan *plan);
/* Seconds of a batch of a priced plan whose passes take a little more or less time than planned. */
double uneven_seconds(const Planner *r, const Costs *c, const Plan *plan);

/* ---- choose.c */
Plan *plan_fastest(const Planner *r); /* without diagnostics; NULL when nothing fits */

/* ---- refuse.c */
/* Why no plan fits, with numbers and an option that would. */
void tell_nothing_fits(const Planner *r, const Plan *best);

#endif
