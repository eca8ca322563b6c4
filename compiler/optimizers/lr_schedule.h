/* The learning-rate schedules of `train`: a row of all_lr_schedules each, with arguments and their bounds. The
 * formula is pd_lr_<name> of the runtime (runtime/optimizers/lr_schedules.h). */
#ifndef PDC_LR_SCHEDULE_H
#define PDC_LR_SCHEDULE_H

#include "optimizers/optimizer.h"

typedef struct LrArgument {
  const char *name; /* also the member of struct pd_lr_<schedule>_arguments */
  double standard;
  const char *means; /* description of a required argument; NULL: optional */
  Bounds bounds;
  bool whole;      /* a whole number */
  bool at_most_lr; /* a rate, no higher than the optimizer's lr */
} LrArgument;

struct LrSchedule {
  const char *name;
  LrArgument argument[MAX_LR_ARGUMENTS]; /* up to a NULL name */
  const char *example;                   /* a call of it, for messages */
  /* The reason why these arguments, each within its bounds, conflict; NULL: no conflict. */
  const char *(*refuse)(const double *number);
  /* Index of the argument with the schedule's last update, for training's default length; -1: no end. */
  int total;
};

extern const LrSchedule *const all_lr_schedules[]; /* ends with NULL */
extern const LrSchedule lr_schedule_constant;

const LrSchedule *lr_schedule_find(const char *name); /* NULL: unknown */
int lr_schedule_n_arguments(const LrSchedule *s);
/* Sets the training's schedule, with standard arguments; NAN for required ones. */
void lr_schedule_set(Train *t, const LrSchedule *s);

#endif
