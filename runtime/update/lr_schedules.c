/* The schedules' formulas, in double. All warm up by nanoGPT's rule, (t + 1) / (warmup + 1) of the rate while t <
 * warmup; u counts the updates after the warm-up. */
#include "run/run.h"

#include <math.h>

static bool warms_up(double warmup, double lr, int64_t t, double *rate) {
  *rate = lr * (double)(t + 1) / (warmup + 1);
  return (double)t < warmup;
}

static double between(double floor, double lr, double left) { return floor + left * (lr - floor); }
static double half_cosine(double part) { return 0.5 * (1 + cos(M_PI * part)); }

/* The fraction of the way from `from` to `to` at update t. */
static double gone(int64_t t, double from, double to) {
  double part = ((double)t - from) / (to - from);
  return part < 0 ? 0 : part > 1 ? 1 : part;
}

double pd_lr_constant(const void *arguments, double lr, int64_t t) {
  const struct pd_lr_constant_arguments *a = arguments;
  double rate;
  return warms_up(a->warmup, lr, t, &rate) ? rate : lr;
}

/* Linear decay to the floor at t = total, constant afterwards. */
double pd_lr_linear(const void *arguments, double lr, int64_t t) {
  const struct pd_lr_linear_arguments *a = arguments;
  double rate;
  if (warms_up(a->warmup, lr, t, &rate)) return rate;
  if ((double)t >= a->total) return a->floor;
  return between(a->floor, lr, 1 - gone(t, a->warmup, a->total));
}

/* Half a cosine to the floor at t = total, constant afterwards (nanoGPT). */
double pd_lr_cosine(const void *arguments, double lr, int64_t t) {
  const struct pd_lr_cosine_arguments *a = arguments;
  double rate;
  if (warms_up(a->warmup, lr, t, &rate)) return rate;
  if ((double)t >= a->total) return a->floor;
  return between(a->floor, lr, half_cosine(gone(t, a->warmup, a->total)));
}

/* Loshchilov and Hutter, "SGDR" (ICLR 2017), as PyTorch's CosineAnnealingWarmRestarts: half a cosine over `period`
 * updates, then restarts from lr, each time over `multiply` times more updates. */
double pd_lr_cosine_restarts(const void *arguments, double lr, int64_t t) {
  const struct pd_lr_cosine_restarts_arguments *a = arguments;
  double rate, u = (double)t - a->warmup, period = a->period;
  if (warms_up(a->warmup, lr, t, &rate)) return rate;
  if (a->multiply == 1)
    u = fmod(u, period);
  else
    for (; u >= period; period *= a->multiply) u -= period;
  return between(a->floor, lr, half_cosine(u / period));
}

/* Warm-up, stable, decay (Hu et al., "MiniCPM", 2024; in a straight line as Haegele et al., NeurIPS 2024): the
 * last `decay` updates before t = total lead to the floor. */
double pd_lr_wsd(const void *arguments, double lr, int64_t t) {
  const struct pd_lr_wsd_arguments *a = arguments;
  double rate;
  if (warms_up(a->warmup, lr, t, &rate)) return rate;
  if ((double)t >= a->total) return a->floor;
  return between(a->floor, lr, 1 - gone(t, a->total - a->decay, a->total));
}

/* PyTorch's StepLR: times gamma every step_size updates. */
double pd_lr_step(const void *arguments, double lr, int64_t t) {
  const struct pd_lr_step_arguments *a = arguments;
  double rate;
  if (warms_up(a->warmup, lr, t, &rate)) return rate;
  return lr * pow(a->gamma, floor(((double)t - a->warmup) / a->step_size));
}

/* Vaswani et al., "Attention Is All You Need" (NeurIPS 2017): lr at t = warmup, then as 1 / sqrt(t). */
double pd_lr_inverse_sqrt(const void *arguments, double lr, int64_t t) {
  const struct pd_lr_inverse_sqrt_arguments *a = arguments;
  double rate;
  return warms_up(a->warmup, lr, t, &rate) ? rate : lr * sqrt(a->warmup / (double)t);
}
