/* Private to sharp_ranks.c: what is left of a launch of several models, a timeline and its last lines. */
#ifndef PD_SHARP_LEFT_H
#define PD_SHARP_LEFT_H

#include "pd_sharp.h"
#include "sharp/sharp_table.h"

enum { PD_SHARP_TRY_AGAIN = 75 }; /* a model's exit status, as pd_finish returns it: a signal stopped it */

struct pd_sharp_left {
  const struct pd_sharp_program *models;
  int n_models, n_ranks;
  const struct pd_sharp_table *table;
  double start, seconds; /* when the models were started, by pd_seconds, and how long ago that was */
};

/* Of statuses as waitpid has them: the model did what it was asked to; or a signal had it stop before its end. */
bool pd_sharp_is_good(int status);
bool pd_sharp_was_stopped(int status);
/* Copies the plan, which the launcher names in PD_PLAN, to `run`/plan.json; false after filling `why`. */
bool pd_sharp_keep_plan(const char *run, char *why);
/* A Chrome trace: which model was on which rank when, and in "otherData" what became of each model; false after
 * filling `why`. */
bool pd_sharp_write_timeline(const struct pd_sharp_left *l, const char *path, char *why);
void pd_sharp_print_summary(const struct pd_sharp_left *l);

#endif
