/* How many ranks each stage should have: PipeDream's dynamic programme (Narayanan et al. 2019, section 3.1) on one
 * level, for every number of stages,
 *   best(s, m, j) = min over i, w of max(best(s - 1, m - w, i), seconds of pieces [i, j) on w ranks),
 * with m ranks for the first s stages, which are pieces [0, j). */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "plan/partition.h"
#include "schedule/program.h"

typedef struct State { /* of the programme */
  double slowest;
  int from, replicas, round; /* the last stage's first piece and ranks; the state's round before it */
} State;

typedef struct Search {
  const Costs *c;
  int ranks, stages;
  Vec(int64_t) divisors; /* of the microbatches */
  bool every_round;
  double *compute; /* of the pieces before i */
  int64_t *gradients;
  State *at;
} Search;

/* Where every round is an update, states tell the rounds so far apart: least common multiples of replicas, by
 * their place among the divisors. Else there is one. */
static int n_rounds(const Search *s) { return s->every_round ? s->divisors.n : 1; }

static int round_with(const Search *s, int before, int replicas) {
  int64_t round = common_multiple(s->divisors.at[s->every_round ? before : 0], replicas);
  int at = 0;
  while (s->every_round && s->divisors.at[at] != round)
    at++;
  return at;
}

/* stage from 0, ranks used from 0 */
static State *state(const Search *s, int stage, int used, int round, int end) {
  return &s->at[((size_t)(stage * (s->ranks + 1) + used) * n_rounds(s) + round) * (s->c->n + 1) + end];
}

static double seconds(const Search *s, int first, int end, int replicas) {
  const Costs *c = s->c;
  double compute = s->compute[end] - s->compute[first] + c->receive[first] + c->receive_gradient[end];
  return shared_seconds(c, replicas, compute, c->update[first * (c->n + 1) + end],
                        s->gradients[end] - s->gradients[first]);
}

/* Pieces [i, j) as the stage `stage` on `replicas` ranks, for all i, behind states of m ranks. */
static void extend(const Search *s, const int *pinned, int stage, int used, int before, int replicas) {
  int n = s->c->n, round = round_with(s, before, replicas);
  int first_end = pinned ? (stage + 1 < s->stages ? pinned[stage + 1] : n) : stage + 1;
  int last_end = pinned ? first_end : n;
  for (int j = first_end; j <= last_end; j++) {
    State *to = state(s, stage, used + replicas, round, j);
    int low = pinned ? pinned[stage] : stage, high = pinned ? low : stage == 0 ? 0 : j - 1;
    for (int i = high; i >= low; i--) {
      if ((s->compute[j] - s->compute[i]) / replicas >= to->slowest)
        break; /* and more with every piece */
      double behind = stage == 0 ? 0 : state(s, stage - 1, used, before, i)->slowest;
      if (behind >= to->slowest)
        continue;
      double t = seconds(s, i, j, replicas);
      t = behind > t ? behind : t;
      if (t < to->slowest)
        *to = (State){t, i, replicas, before};
    }
  }
}

static void fill(const Search *s, const int *pinned) {
  for (int stage = 0; stage < s->stages; stage++)
    for (int used = stage == 0 ? 0 : stage; used < s->ranks && (stage > 0 || used == 0); used++)
      for (int before = 0; before < (stage == 0 ? 1 : n_rounds(s)); before++)
        for (int d = 0; d < s->divisors.n && used + s->divisors.at[d] <= s->ranks; d++)
          extend(s, pinned, stage, used, before, (int)s->divisors.at[d]);
}

static Replication trace_back(const Search *s, int stages) {
  int used = s->ranks, round = s->every_round ? s->divisors.n - 1 : 0, end = s->c->n;
  const State *last = state(s, stages - 1, used, round, end);
  Replication out = {.slowest = last->slowest};
  if (!isfinite(last->slowest))
    return out;
  out.replicas = alloc((size_t)stages * sizeof *out.replicas);
  for (int stage = stages - 1; stage >= 0; stage--) {
    const State *at = state(s, stage, used, round, end);
    out.replicas[stage] = at->replicas;
    used -= at->replicas;
    round = at->round;
    end = at->from;
  }
  return out;
}

Replication *replicate(const Costs *c, const int *pinned, int ranks, int stages, int64_t microbatches,
                       bool every_round) {
  int n = c->n;
  Search s = {.c = c, .ranks = ranks, .stages = stages, .every_round = every_round};
  for (int64_t w = 1; w <= microbatches && (w <= ranks || every_round); w++)
    if (microbatches % w == 0)
      push(&s.divisors, w);
  s.compute = alloc((size_t)(n + 1) * sizeof *s.compute);
  s.gradients = alloc((size_t)(n + 1) * sizeof *s.gradients);
  for (int i = 0; i < n; i++) {
    s.compute[i + 1] = s.compute[i] + c->forward[i] + c->backward[i];
    s.gradients[i + 1] = s.gradients[i] + c->gradients[i];
  }
  size_t states = (size_t)stages * (ranks + 1) * n_rounds(&s) * (n + 1);
  s.at = alloc(states * sizeof *s.at);
  for (size_t i = 0; i < states; i++)
    s.at[i].slowest = INFINITY;
  fill(&s, pinned);
  Replication *out = alloc((size_t)stages * sizeof *out);
  for (int k = 1; k <= stages; k++)
    out[k - 1] = trace_back(&s, k);
  return out;
}
