/* Bounds the loss by a merged profile. A faster division of the whole profile has a stage that ends in an omitted
 * state, and sends the bytes that cross there. */
#include "pipedream/pipedream.h"

#include <math.h>

/* Seconds per byte across a cut, at the fastest level and number of machines. */
static double least_send(const Cluster *c) {
  double least = INFINITY;
  for (int i = 0; i < c->n; i++)
    if (c->level[i].count > 1)
      least = fmin(least, 2 / (c->level[i].bandwidth * c->level[i].count));
  return least;
}

/* The fewest seconds of sending at an omitted state, up to `most`. */
static double least_left_out(const LayerGraph *g, const States *s, double byte, double most) {
  enum { MOST_WORK = 4000000 }; /* in layers over all minimum cuts: some seconds */
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
  if (!loses || isinf(byte)) /* one machine needs no cuts */
    return seconds;
  const double shared = s->compute[s->n - 1] / cluster_devices(c);
  return fmin(seconds, fmax(shared, transfers ? least_left_out(g, s, byte, seconds) : 0));
}
