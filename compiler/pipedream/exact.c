/* How much faster than the division of a contracted profile one of the whole profile may be: a stage of it ends in a state that
 * was left out, and sends as much as crosses there. */
#include "pipedream/pipedream.h"

#include <math.h>

/* Seconds of a byte over a cut, at the level and with the machines that are fastest. */
static double least_send(const Cluster *c) {
  double least = INFINITY;
  for (int i = 0; i < c->n; i++)
    if (c->level[i].count > 1)
      least = fmin(least, 2 / (c->level[i].bandwidth * c->level[i].count));
  return least;
}

/* The fewest seconds of sending at a state that was left out, below `most`. */
static double least_left_out(const LayerGraph *g, const States *s, double byte, double most) {
  enum { MOST_WORK = 4000000 }; /* least cuts of so many layers together take seconds */
  int64_t work = 0;
  double least = most;
  for (int i = 0; i < s->joints.n && least > 0; i++) {
    if (s->joints.at[i].exact)
      continue;
    if ((work += g->layers.n) > MOST_WORK)
      return 0;
    const int64_t bytes = joint_least_output(g, &s->joints.at[i]);
    if (bytes < INT64_MAX)
      least = fmin(least, (double)bytes * byte);
  }
  return least;
}

double pipedream_least_seconds(const LayerGraph *g, const States *s, const Cluster *c, bool transfers,
                               double seconds) {
  const double byte = least_send(c);
  bool loses = false;
  for (int i = 0; i < s->joints.n; i++)
    loses |= !s->joints.at[i].exact;
  if (!loses || isinf(byte)) /* one machine has no cut */
    return seconds;
  const double shared = s->compute[s->n - 1] / cluster_devices(c);
  return fmin(seconds, fmax(shared, transfers ? least_left_out(g, s, byte, seconds) : 0));
}
