/* The learning-rate schedules. Arguments have PyTorch's names, except those of CosineAnnealingWarmRestarts (T_0,
 * T_mult, eta_min), which are words here. */
#include "optimizers/lr_schedule.h"

#include <math.h>
#include <string.h>

#define UPDATES(from) .whole = true, .bounds = {.least = from, .most = 0x1p53, .below = true}
#define WARMUP \
  { .name = "warmup", UPDATES(0) }
#define TOTAL \
  { .name = "total", .means = "the number of updates over which the rate falls", UPDATES(1) }
#define FLOOR \
  { .name = "floor", .bounds = {.most = HUGE_VAL}, .at_most_lr = true }

/* ---- conflicting arguments ---------------------------------------------------------------------- */

static const char *falls_before_warmup_ends(const double *number) {
  return number[1] > number[0]
             ? NULL
             : format("'total' (%.15g) must be more than 'warmup' (%.15g)", number[1], number[0]);
}

static const char *phases_overlap(const double *number) {
  return number[2] <= number[1] - number[0]
             ? NULL
             : format("'warmup' (%.15g) and 'decay' (%.15g) must be at most 'total' (%.15g) together", number[0],
                      number[2], number[1]);
}

/* ---- rows -------------------------------------------------------------------------------------------------- */

const LrSchedule lr_schedule_constant = {.name = "constant", .argument = {WARMUP}, .total = -1};

static const LrSchedule cosine = {.name = "cosine",
                                  .argument = {WARMUP, TOTAL, FLOOR},
                                  .example = "cosine(warmup = 100, total = 5000, floor = 6e-5)",
                                  .refuse = falls_before_warmup_ends,
                                  .total = 1};

static const LrSchedule cosine_restarts = {
    .name = "cosine_restarts",
    .argument = {{.name = "period", .means = "the number of updates before the first restart", UPDATES(1)},
                 {.name = "multiply", .standard = 1, UPDATES(1)},
                 FLOOR,
                 WARMUP},
    .example = "cosine_restarts(period = 1000, multiply = 2, floor = 1e-5)",
    .total = -1};

static const LrSchedule inverse_sqrt = {
    .name = "inverse_sqrt",
    .argument = {{.name = "warmup", .means = "the number of updates over which the rate rises", UPDATES(1)}},
    .example = "inverse_sqrt(warmup = 4000)",
    .total = -1};

static const LrSchedule linear = {.name = "linear",
                                  .argument = {WARMUP, TOTAL, FLOOR},
                                  .example = "linear(warmup = 100, total = 5000, floor = 6e-5)",
                                  .refuse = falls_before_warmup_ends,
                                  .total = 1};

static const LrSchedule step = {
    .name = "step",
    .argument = {{.name = "step_size", .means = "the number of updates from one fall to the next", UPDATES(1)},
                 {.name = "gamma", .standard = 0.1, .bounds = {.most = 1, .above = true}},
                 WARMUP},
    .example = "step(step_size = 1000, gamma = 0.5)",
    .total = -1};

static const LrSchedule wsd = {
    .name = "wsd",
    .argument = {WARMUP,
                 {.name = "total", .means = "the number of updates after which the rate has fallen", UPDATES(1)},
                 {.name = "decay", .means = "the number of updates over which the rate falls", UPDATES(1)},
                 FLOOR},
    .example = "wsd(warmup = 100, total = 5000, decay = 1000, floor = 6e-5)",
    .refuse = phases_overlap,
    .total = 1};

const LrSchedule *const all_lr_schedules[] = {&lr_schedule_constant, &linear, &cosine,
                                              &cosine_restarts,      &wsd,    &step,
                                              &inverse_sqrt,         NULL};

/* ---- queries ------------------------------------------------------------------------------------ */

const LrSchedule *lr_schedule_find(const char *name) {
  for (int i = 0; all_lr_schedules[i]; i++)
    if (!strcmp(all_lr_schedules[i]->name, name))
      return all_lr_schedules[i];
  return NULL;
}

int lr_schedule_n_arguments(const LrSchedule *s) {
  int n = 0;
  while (n < MAX_LR_ARGUMENTS && s->argument[n].name)
    n++;
  return n;
}

void lr_schedule_set(Train *t, const LrSchedule *s) {
  t->lr_schedule = s;
  for (int i = 0; i < lr_schedule_n_arguments(s); i++)
    t->lr_number[i] = s->argument[i].means ? NAN : s->argument[i].standard;
}
