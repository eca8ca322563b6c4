/* Private to sharp_ranks.c: the results of a launch of several models, a timeline and a summary. */
#ifndef PD_SHARP_LEFT_H
#define PD_SHARP_LEFT_H

#include "pd_sharp.h"
#include "sharp/sharp_table.h"

enum { PD_SHARP_TRY_AGAIN = 75 }; /* a model's exit status, as pd_finish returns it: a signal stopped it */

struct pd_sharp_left {
  const struct pd_sharp_program *models;
  int n_models, n_ranks;
  const struct pd_sharp_table *table;
  double start, seconds; /* start of the models, by pd_seconds, and seconds since then */
};

/* For a status of waitpid: the model succeeded; a signal stopped the model early. */
bool pd_sharp_is_good(int status);
bool pd_sharp_was_stopped(int status);
/* Copies the plan, which the launcher names in PD_PLAN, to `run`/plan.json; false after filling `why`. */
bool pd_sharp_keep_plan(const char *run, char *why);
/* Writes a Chrome trace of models on ranks over time, with each model's result in "otherData"; false after filling
 * `why`. */
bool pd_sharp_write_timeline(const struct pd_sharp_left *l, const char *path, char *why);
void pd_sharp_print_summary(const struct pd_sharp_left *l);

#endif
