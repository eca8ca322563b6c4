/* `pdc report`: what a training run left, as one HTML page that needs nothing else. */
#ifndef PDC_REPORT_H
#define PDC_REPORT_H

#include "plan/file.h"

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
} Timeline;

enum { MOST_RANKS = 4096 };

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

/* ---- page.c */
/* The page: `title` is plain text, `data` JSON. */
char *page_make(const char *title, const char *data);

/* ---- report.c */
/* Writes the page about DIRECTORY's log.jsonl, trace.json and plan.json, those that are there, to `output`
 * (NULL: DIRECTORY/report.html); false after diagnostics. */
bool report(const char *directory, const char *output);

#endif
