/* `pdc report`: what a training run left, as one HTML page that needs nothing else. */
#ifndef PDC_REPORT_H
#define PDC_REPORT_H

#include "plan/request.h"

/* What ranks do, in the order in which the page lists it. Names are the trace's categories. */
typedef enum {
  WORK_FORWARD,
  WORK_BACKWARD,
  WORK_RECOMPUTE,
  WORK_WEIGHTS,
  WORK_UPDATE,
  WORK_VALIDATION,
  WORK_CHECKPOINT,
  WORK_SEND,
  WORK_RECEIVE,
  WORK_WAIT,
  WORK_REDUCE,
  WORK_EXCHANGE,
  WORK_GATHER,
  N_WORK
} Work;

typedef struct Bar {
  Work work;
  int rank, chunk, peer;    /* peer -1: none or all */
  int64_t number, version;  /* microbatch or update, from 1; version -1: not known */
  double start, end, bytes; /* seconds; bytes -1: not known */
} Bar;

typedef struct Arrow {
  int64_t id;
  int from, to;
  double sent, received;
} Arrow; /* `to` -1: no end yet */

typedef struct Timeline {
  int ranks;
  const char **name; /* by rank */
  Vec(Bar) bars;     /* of one rank in order of their ends */
  Vec(Arrow) arrows;
  int64_t dropped; /* events the run had no room for */
  double from, to; /* seconds: the part to draw; both 0: all of it */
} Timeline;

enum { MOST_RANKS = 4096 };

/* What the page about a plan is made of. */
typedef struct PlanPage {
  const Graph *g;
  const Pieces *p;
  const PlanRequest *request; /* that led to the plan */
  const Plan *plan;
  Plan *const *runners_up; /* NULL among them are passed over */
  int n_runners_up;
  const char *picture; /* SVG of the model with the plan's stages; NULL: none */
} PlanPage;

/* ---- timeline.c */
const char *work_name(Work w);
int work_named(const char *name); /* -1: none */
/* For the page: bars, arrows, and for each rank how it spent the time between two of its updates in the
 * steady state, validations and checkpoints left out. */
void timeline_json(const Timeline *t, Text *out);

/* ---- read.c: NULL after diagnostics */
/* A log as JSON for the page: its first and last line, that of an evaluation, and a list for each figure.
 * `evaluates`: it has no updates and an evaluation. */
char *read_log(const char *path, bool *evaluates);
Timeline *read_trace(const char *path);

/* ---- predict.c */
/* The plan's schedule run with the plan's times. NULL with the reason in `why`, or after diagnostics (NULL).
 * `evaluates`: the run beside it trained nothing. */
Timeline *predict(PlanFile *file, bool evaluates, const char **why);

/* The same for a plan that was just made: its two updates in the middle are to be drawn, those of stages' first
 * replicas alone, or of all ranks. NULL with the reason in `why`. */
Timeline *predict_plan(const Graph *g, const Pieces *p, const Plan *plan, bool first_replicas, const char **why);

/* ---- page.c */
/* Of a run, of a plan, or of a launch of several models: `title` is plain text, `data` JSON. */
typedef enum { PAGE_OF_RUN, PAGE_OF_PLAN, PAGE_OF_LAUNCH } PageKind;
char *page_make(PageKind kind, const char *title, const char *data);
/* Writes it; false after a diagnostic, and then nothing is left of it. */
bool page_write(const char *path, const char *page);

/* ---- sweep.c */
/* Adds lists of plans to the page's data: for other numbers of ranks and, but for programs that generate, for other
 * batches, each with its predicted time or the reason why there is none. Memory is estimated in them. */
void add_sweeps(const PlanPage *page, Text *out);

/* ---- placement.c */
/* Adds the devices, which rank is on which of them, and by rank the bytes that it may take. */
void add_placement(const PlanPage *page, Text *out);

/* ---- plan_page.c */
PlanRequest plan_anew(const PlanPage *page); /* the request; where it is a file's plan, for as many ranks */
/* Writes the page about a plan that was not run to `output`; false after diagnostics. */
bool plan_page(const PlanPage *page, const char *output);

/* ---- launch.c */
/* Whether DIRECTORY is of several models in one launch, by its plan.json or a timeline.json. */
bool is_launch(const char *directory);
/* Writes the page about them, from those files and DIRECTORY/MODEL/log.jsonl, those that are there; false after
 * diagnostics. */
bool launch_page(const char *directory, const char *output);

/* ---- report.c */
/* Writes the page about DIRECTORY's log.jsonl, trace.json, plan.json and model.svg, those that are there, or about its
 * several models, to `output` (NULL: DIRECTORY/report.html); false after diagnostics. */
bool report(const char *directory, const char *output);

#endif
