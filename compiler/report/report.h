/* `pdc report`: the logs of a run as one self-contained HTML page. */
#ifndef PDC_REPORT_H
#define PDC_REPORT_H

#include "plan/request.h"
#include "tokenize/tokenize.h"

/* Kinds of work, in the order of the page. Names are the trace's categories. */
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
  WORK_DATA,
  WORK_REDUCE,
  WORK_EXCHANGE,
  WORK_GATHER,
  N_WORK
} Work;

typedef struct Bar {
  Work work;
  int rank, chunk, peer;    /* peer -1: no rank, or all ranks */
  int64_t number, version;  /* microbatch or update, from 1; version -1: unknown */
  double start, end, bytes; /* seconds; bytes -1: unknown */
} Bar;

typedef struct Arrow {
  int64_t id;
  int from, to;
  double sent, received;
} Arrow; /* `to` -1: no end yet */

typedef struct Timeline {
  int ranks;
  const char **name; /* by rank */
  Vec(Bar) bars;     /* bars of one rank are in order of their ends */
  Vec(Arrow) arrows;
  int64_t dropped; /* events that the run dropped */
  double from, to; /* range to draw, in seconds; both 0: everything */
} Timeline;

enum { MOST_RANKS = 4096 };

/* Contents of the page about a plan. */
typedef struct PlanPage {
  const Graph *g;
  const Pieces *p;
  const PlanRequest *request; /* the plan's request */
  const Plan *plan;
  Plan *const *runners_up; /* NULL entries are skipped */
  int n_runners_up;
  const char *picture; /* SVG of the model with the plan's stages; NULL: none */
} PlanPage;

/* ---- timeline.c */
const char *work_name(Work w);
int work_named(const char *name); /* -1: none */
/* JSON for the page: bars, arrows, and each rank's time shares between two of its updates in the steady state.
 * Shares exclude validations and checkpoints. */
void timeline_json(const Timeline *t, Text *out);

/* ---- read.c: NULL after diagnostics */
/* A log as JSON for the page: its first and last line, that of an evaluation, and a list for each figure.
 * `evaluates`: it has no updates and an evaluation. */
char *read_log(const char *path, bool *evaluates);
Timeline *read_trace(const char *path);

/* ---- predict.c */
/* Simulates the plan's schedule with the plan's times. NULL with the reason in `why`, or after diagnostics (NULL).
 * `evaluates`: the accompanying run trained nothing. */
Timeline *predict(PlanFile *file, bool evaluates, const char **why);

/* The same for a new plan. Draws its two middle updates, for the first replicas of stages or for all ranks. NULL
 * with the reason in `why`. */
Timeline *predict_plan(const Graph *g, const Pieces *p, const Plan *plan, bool first_replicas, const char **why);

/* ---- page.c */
/* The page about a run, a plan, or a launch of several models: `title` is plain text, `data` JSON. */
typedef enum { PAGE_OF_RUN, PAGE_OF_PLAN, PAGE_OF_LAUNCH } PageKind;
char *page_make(PageKind kind, const char *title, const char *data);
/* The page of a command with this body, without scripts; title is plain text, body HTML. */
char *page_of_body(const char *command, const char *title, const char *body);
void page_add_plain(Text *t, const char *plain); /* as HTML */
/* Writes the page; false after a diagnostic, without a file. */
bool page_write(const char *path, const char *page);

/* ---- data_page.c */
/* Writes the page about a file of data; false after a diagnostic. */
bool data_page(const DataView *v, const char *output);

/* ---- sweep.c */
/* Adds plans for other rank counts and, unless programs generate, for other batches to the page's data. Each has
 * its predicted time or the reason for none. Memory is estimated. */
void add_sweeps(const PlanPage *page, Text *out);

/* ---- placement.c */
/* Adds the devices, the ranks on them, and each rank's memory limit. */
void add_placement(const PlanPage *page, Text *out);

/* ---- plan_page.c */
PlanRequest plan_anew(const PlanPage *page); /* the request; for a plan from a file, with the plan's ranks */
/* Writes the page about a plan that was not run to `output`; false after diagnostics. */
bool plan_page(const PlanPage *page, const char *output);

/* ---- launch.c */
/* Whether DIRECTORY is a launch of several models, by its plan.json or timeline.json. */
bool is_launch(const char *directory);
/* Writes the page about the models, from those files and DIRECTORY/MODEL/log.jsonl, each if it exists; false after
 * diagnostics. */
bool launch_page(const char *directory, const char *output);

/* ---- report.c */
/* Writes the page about DIRECTORY's log.jsonl, trace.json, plan.json and model.svg, each if it exists, or about
 * its several models, to `output` (NULL: DIRECTORY/report.html); false after diagnostics. */
bool report(const char *directory, const char *output);

#endif
