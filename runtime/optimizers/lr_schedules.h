/* Learning rate schedules. A stage program sets one, such as .lr_schedule = pd_lr_cosine, with a struct of its
 * arguments: numbers in the order of the compiler's table (compiler/optimizers/lr_schedules.c); counts of updates
 * are whole numbers. */
#ifndef PD_LR_SCHEDULES_H
#define PD_LR_SCHEDULES_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pd_lr_constant_arguments {
  double warmup;
};
struct pd_lr_linear_arguments {
  double warmup, total, floor;
};
struct pd_lr_cosine_arguments {
  double warmup, total, floor;
};
struct pd_lr_cosine_restarts_arguments {
  double period, multiply, floor, warmup;
};
struct pd_lr_wsd_arguments {
  double warmup, total, decay, floor;
};
struct pd_lr_step_arguments {
  double step_size, gamma, warmup;
};
struct pd_lr_inverse_sqrt_arguments {
  double warmup;
};

#define PD_LR_SCHEDULES(X) X(constant) X(linear) X(cosine) X(cosine_restarts) X(wsd) X(step) X(inverse_sqrt)

/* The rate of update t, from 0; lr: the optimizer's rate, reached at the end of the warm-up. */
typedef double pd_lr_schedule(const void *arguments, double lr, int64_t t);
#define PD_DECLARE_LR_SCHEDULE(name) pd_lr_schedule pd_lr_##name;
PD_LR_SCHEDULES(PD_DECLARE_LR_SCHEDULE)

#ifdef __cplusplus
}
#endif

#endif
