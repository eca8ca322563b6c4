/* The step size of an update, and the corrections of delayed gradients (docs/guide/schedules.md, "Correcting the
 * delay"). */
#ifndef PD_RATE_H
#define PD_RATE_H

struct pd_rate {
  double lr;      /* the learning rate */
  double ahead;   /* updates of extrapolation of the momentum; 0: none */
  double damping; /* the step is multiplied by 1 + damping, minus damping times the last change of weights */
};

/* With m = beta m' + (1 - beta) g, m + ahead (m - m') is (1 - c) m + c g: c, at most 1. Without a momentum, 0. */
static inline double pd_share_of_gradient(struct pd_rate rate, double beta) {
  double c = beta > 0 ? rate.ahead * (1 - beta) / beta : 0;
  return c < 1 ? c : 1;
}

/* The rate of the step; weights decay by rate.lr. */
static inline double pd_step_rate(struct pd_rate rate) { return rate.lr * (1 + rate.damping); }

#endif
