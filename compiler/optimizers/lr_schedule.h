/* The schedules of the learning rate that `train` may name: a row each of all_lr_schedules. What users write is here,
 * its arguments with what they may be; the formula is the runtime's, pd_lr_<name> (runtime/optimizers/lr_schedules.h). */
#ifndef PDC_LR_SCHEDULE_H
#define PDC_LR_SCHEDULE_H

#include "optimizers/optimizer.h"

typedef struct LrArgument {
  const char *name; /* also of the member of struct pd_lr_<schedule>_arguments */
  double standard;
  const char *means; /* what it is, if it must be given; NULL: it may be left out */
  Bounds bounds;
  bool whole;      /* a whole number */
  bool at_most_lr; /* a rate, no higher than the optimizer's lr */
} LrArgument;

struct LrSchedule {
  const char *name;
  LrArgument argument[MAX_LR_ARGUMENTS]; /* up to a NULL name */
  const char *example;                   /* a call of it, for messages */
  /* Why these arguments, each within its bounds, do not go together; NULL: they do. */
  const char *(*refuse)(const double *number);
  /* Which argument is the update at which the schedule ends, for training's default length; -1: it has no end. */
  int total;
};

extern const LrSchedule *const all_lr_schedules[]; /* ends with NULL */
extern const LrSchedule lr_schedule_constant;

const LrSchedule *lr_schedule_find(const char *name); /* NULL: there is none */
int lr_schedule_n_arguments(const LrSchedule *s);
/* Makes it the training's, with its standard arguments; NAN where one must be given. */
void lr_schedule_set(Train *t, const LrSchedule *s);

#endif
