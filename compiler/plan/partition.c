/* Exact partition of a list of pieces into contiguous stages, by dynamic programming over the stages:
 * best(s, j) = min over i of max(best(s - 1, i), cost of pieces [i, j) as stage s). */
#include "plan/partition.h"

#include <math.h>

#include "base/base.h"

typedef struct Prefix { /* sums over the pieces before i, and what a stage [i, j) needs at most */
  double *compute;      /* forward and backward */
  double *forward;
  int64_t *saved, *gradients, *inputs, *deferred;
} Prefix;

typedef struct Search {
  const Costs *c;
  const Copies *at;
  int stages;
  int64_t limit;
  Prefix sum;
  int64_t *work; /* of a stage [i, j), at [i * (n + 1) + j] */
  int *from;     /* by stage and end: where the best stage starts */
} Search;

double shared_seconds(const Costs *c, int replicas, double compute, double update, int64_t gradients) {
  double t = compute / replicas + update;
  double reduce = 2.0 * (replicas - 1) / replicas * (double)gradients * c->reduce;
  return !c->overlapped ? t + reduce : reduce > t ? reduce : t;
}

static double seconds(const Search *s, int replicas, int first, int end, bool recompute) {
  const Costs *c = s->c;
  double t = s->sum.compute[end] - s->sum.compute[first];
  if (recompute)
    t += s->sum.forward[end] - s->sum.forward[first];
  return shared_seconds(c, replicas, t + c->receive[first] + c->receive_gradient[end],
                        c->update[first * (c->n + 1) + end], s->sum.gradients[end] - s->sum.gradients[first]);
}

/* Replicas send gradients from buffers of their own, all but the part they reduce themselves. */
static int64_t gradient_bytes(const Copies *at, int64_t one_set) {
  return one_set * at->accumulators + at->exchanges * (one_set * (at->replicas - 1) / at->replicas);
}

static int64_t parameter_bytes(const Costs *c, const Copies *at, int first, int end) {
  int stage = first * (c->n + 1) + end;
  return c->weights[stage] * at->weights + (c->frozen ? c->frozen[stage] : 0) +
         (c->moments ? c->moments[stage] : 0) + (at->masters ? c->masters[stage] : 0);
}

static int64_t bytes(const Search *s, int stage, int first, int end, bool recompute) {
  const Costs *c = s->c;
  const Copies *at = &s->at[stage];
  int64_t b = at->extra + parameter_bytes(c, at, first, end);
  b += gradient_bytes(at, s->sum.gradients[end] - s->sum.gradients[first]);
  b += (s->sum.saved[end] - s->sum.saved[first]) * (recompute ? 1 : at->saved);
  b += (s->sum.inputs[end] - s->sum.inputs[first]) * at->inputs;
  b += (s->sum.deferred[end] - s->sum.deferred[first]) * at->deferred;
  b += c->activations[first] * at->received + c->activations[end] * at->sent;
  b += (c->activation_gradients[first] + c->activation_gradients[end]) * at->gradients;
  return b + s->work[first * (c->n + 1) + end];
}

static Search prepare(const Costs *c, const Copies *at, int stages, int64_t limit) {
  int n = c->n, side = n + 1;
  Search s = {.c = c, .at = at, .stages = stages, .limit = limit};
  s.sum.compute = alloc(side * sizeof(double));
  s.sum.forward = alloc(side * sizeof(double));
  s.sum.saved = alloc(side * sizeof(int64_t));
  s.sum.gradients = alloc(side * sizeof(int64_t));
  s.sum.inputs = alloc(side * sizeof(int64_t));
  s.sum.deferred = alloc(side * sizeof(int64_t));
  s.work = alloc((size_t)side * side * sizeof(int64_t));
  s.from = alloc((size_t)(stages + 1) * side * sizeof(int));
  for (int i = 0; i < n; i++) {
    s.sum.compute[i + 1] = s.sum.compute[i] + c->forward[i] + c->backward[i];
    s.sum.forward[i + 1] = s.sum.forward[i] + c->forward[i];
    s.sum.saved[i + 1] = s.sum.saved[i] + c->saved[i];
    s.sum.gradients[i + 1] = s.sum.gradients[i] + c->gradients[i];
    s.sum.inputs[i + 1] = s.sum.inputs[i] + c->inputs[i];
    s.sum.deferred[i + 1] = s.sum.deferred[i] + c->deferred[i];
    int64_t most = 0;
    for (int j = i; j < n; j++) {
      most = c->work[j] > most ? c->work[j] : most;
      s.work[i * side + j + 1] = most;
    }
  }
  return s;
}

/* Seconds of the stage as it would run: without recomputation where that may and does fit. */
static double cost(const Search *s, int stage, int first, int end, bool *recompute) {
  *recompute = false;
  if (s->at[stage].recompute_off && bytes(s, stage, first, end, false) <= s->limit)
    return seconds(s, s->at[stage].replicas, first, end, false);
  *recompute = true;
  if (s->at[stage].recompute_on && bytes(s, stage, first, end, true) <= s->limit)
    return seconds(s, s->at[stage].replicas, first, end, true);
  return INFINITY;
}

static int64_t least_bytes(const Search *s, int stage, int first, int end, bool *recompute) {
  int64_t off = s->at[stage].recompute_off ? bytes(s, stage, first, end, false) : INT64_MAX;
  int64_t on = s->at[stage].recompute_on ? bytes(s, stage, first, end, true) : INT64_MAX;
  *recompute = on < off;
  return *recompute ? on : off;
}

static void trace_back(const Search *s, Partition *out) {
  int n = s->c->n;
  out->start = alloc((size_t)(s->stages + 1) * sizeof(int));
  out->recompute = alloc((size_t)s->stages * sizeof(bool));
  out->slowest = 0;
  out->start[s->stages] = n;
  for (int k = s->stages - 1; k >= 0; k--)
    out->start[k] = s->from[k * (n + 1) + out->start[k + 1]];
}

/* Stage k ends where later stages still find a piece each; the last one ends at n. */
static int first_end(const Search *s, int k) { return k == s->stages - 1 ? s->c->n : k + 1; }
static int last_end(const Search *s, int k) { return s->c->n - (s->stages - 1 - k); }

/* The least possible time of the slowest stage; INFINITY when nothing fits. */
static double bottleneck(const Search *s) {
  int side = s->c->n + 1;
  double *best = alloc((size_t)side * sizeof *best), *before = alloc((size_t)side * sizeof *before);
  for (int k = 0; k < s->stages; k++) {
    for (int j = first_end(s, k); j <= last_end(s, k); j++) {
      best[j] = INFINITY;
      for (int i = k == 0 ? 0 : j - 1; i >= k; i--) {
        if ((s->sum.compute[j] - s->sum.compute[i]) / s->at[k].replicas >= best[j])
          break; /* and more with every piece */
        bool recompute;
        double t = k > 0 && before[i] >= best[j] ? INFINITY : cost(s, k, i, j, &recompute);
        if (k > 0 && before[i] > t)
          t = before[i];
        if (t < best[j])
          best[j] = t;
      }
    }
    double *swap = best;
    best = before, before = swap;
  }
  return before[s->c->n];
}

/* Among partitions no slower than `slowest`: the least sum of squares. */
static void most_even(const Search *s, double slowest) {
  int side = s->c->n + 1;
  double *best = alloc((size_t)side * sizeof *best), *before = alloc((size_t)side * sizeof *before);
  for (int k = 0; k < s->stages; k++) {
    for (int j = first_end(s, k); j <= last_end(s, k); j++) {
      best[j] = INFINITY;
      s->from[k * side + j] = k == 0 ? 0 : j - 1;
      for (int i = k == 0 ? 0 : j - 1; i >= k; i--) {
        if ((s->sum.compute[j] - s->sum.compute[i]) / s->at[k].replicas > slowest)
          break;
        bool recompute;
        double t = cost(s, k, i, j, &recompute);
        if (t > slowest)
          continue;
        double total = t * t + (k > 0 ? before[i] : 0);
        if (total < best[j]) {
          best[j] = total;
          s->from[k * side + j] = i;
        }
      }
    }
    double *swap = best;
    best = before, before = swap;
  }
}

bool partition_fastest(const Costs *c, const Copies *at, int stages, int64_t limit, Partition *out) {
  ensure(stages > 0 && stages <= c->n);
  Search s = prepare(c, at, stages, limit);
  double slowest = bottleneck(&s);
  if (!isfinite(slowest))
    return false;
  most_even(&s, slowest);
  trace_back(&s, out);
  for (int k = 0; k < stages; k++) {
    double t = cost(&s, k, out->start[k], out->start[k + 1], &out->recompute[k]);
    out->slowest = t > out->slowest ? t : out->slowest;
  }
  return true;
}

bool partition_pinned(const Costs *c, const Copies *at, int stages, const int *start, int64_t limit,
                      Partition *out) {
  Search s = prepare(c, at, stages, limit);
  bool fits = true;
  *out = (Partition){.start = alloc((size_t)(stages + 1) * sizeof(int)), .recompute = alloc((size_t)stages)};
  for (int k = 0; k <= stages; k++)
    out->start[k] = k < stages ? start[k] : c->n;
  for (int k = 0; k < stages; k++) {
    int first = out->start[k], end = out->start[k + 1];
    double t = cost(&s, k, first, end, &out->recompute[k]);
    if (!isfinite(t)) {
      fits = false;
      least_bytes(&s, k, first, end, &out->recompute[k]);
      t = seconds(&s, at[k].replicas, first, end, out->recompute[k]);
    }
    out->slowest = t > out->slowest ? t : out->slowest;
  }
  return fits;
}

int64_t partition_smallest(const Costs *c, const Copies *at, int stages, Partition *out) {
  ensure(stages > 0 && stages <= c->n);
  Search s = prepare(c, at, stages, INT64_MAX);
  int side = c->n + 1;
  int64_t *best = alloc((size_t)side * sizeof *best), *before = alloc((size_t)side * sizeof *before);
  for (int k = 0; k < stages; k++) {
    for (int j = first_end(&s, k); j <= last_end(&s, k); j++) {
      best[j] = INT64_MAX;
      s.from[k * side + j] = k == 0 ? 0 : j - 1;
      for (int i = k == 0 ? 0 : j - 1; i >= k; i--) {
        bool recompute;
        int64_t b = least_bytes(&s, k, i, j, &recompute);
        if (k > 0 && before[i] > b)
          b = before[i];
        if (b < best[j]) {
          best[j] = b;
          s.from[k * side + j] = i;
        }
      }
    }
    int64_t *swap = best;
    best = before, before = swap;
  }
  trace_back(&s, out);
  for (int k = 0; k < stages; k++) {
    least_bytes(&s, k, out->start[k], out->start[k + 1], &out->recompute[k]);
    double t = seconds(&s, at[k].replicas, out->start[k], out->start[k + 1], out->recompute[k]);
    out->slowest = t > out->slowest ? t : out->slowest;
  }
  return before[c->n];
}

double stage_seconds(const Costs *c, int replicas, int first, int end, bool recompute) {
  double t = c->receive[first] + c->receive_gradient[end];
  int64_t gradients = 0;
  for (int i = first; i < end; i++) {
    t += c->forward[i] * (recompute ? 2 : 1) + c->backward[i];
    gradients += c->gradients[i];
  }
  return shared_seconds(c, replicas, t, c->update[first * (c->n + 1) + end], gradients);
}

int64_t stage_bytes(const Costs *c, const Copies *at, int first, int end, bool recompute) {
  int64_t b = at->extra + parameter_bytes(c, at, first, end), work = 0;
  int64_t gradients = 0;
  for (int i = first; i < end; i++) {
    gradients += c->gradients[i];
    b += c->saved[i] * (recompute ? 1 : at->saved) + c->inputs[i] * at->inputs + c->deferred[i] * at->deferred;
    work = c->work[i] > work ? c->work[i] : work;
  }
  b += c->activations[first] * at->received + c->activations[end] * at->sent;
  b += (c->activation_gradients[first] + c->activation_gradients[end]) * at->gradients;
  return b + gradient_bytes(at, gradients) + work;
}
