/* Exact partition of a list of pieces into contiguous stages, by dynamic programming over the stages from the last:
 * best(s, i) = min over j of max(cost of pieces [i, j) as stage s, their share of filling + best(s + 1, j)). */
#include "plan/spans.h"

#include <math.h>

#include "base/base.h"

typedef struct Search {
  const Costs *c;
  const Spans *spans; /* by kind of device */
  const Copies *at;
  int stages;
  int64_t limit;
  int *end; /* by stage and start: where the best stage ends */
} Search;

static Search prepare(const Spans *spans, const Copies *at, int stages, int64_t limit) {
  int side = spans->c->n + 1;
  return (Search){.c = spans->c,
                  .spans = spans,
                  .at = at,
                  .stages = stages,
                  .limit = limit,
                  .end = alloc((size_t)(stages + 1) * (size_t)side * sizeof(int))};
}

static double seconds(const Search *s, int stage, int first, int end, bool recompute) {
  return s->at[stage].beside + span_seconds(s->spans + s->at[stage].kind, &s->at[stage], first, end, recompute);
}

static int64_t bytes(const Search *s, int stage, int first, int end, bool recompute) {
  return span_bytes(s->spans + s->at[stage].kind, &s->at[stage], first, end, recompute);
}

/* Seconds of the stage as it would run: without recomputation where that may and does fit. */
static double cost(const Search *s, int stage, int first, int end, bool *recompute) {
  *recompute = false;
  if (s->at[stage].recompute_off && bytes(s, stage, first, end, false) <= s->limit)
    return seconds(s, stage, first, end, false);
  *recompute = true;
  if (s->at[stage].recompute_on && bytes(s, stage, first, end, true) <= s->limit)
    return seconds(s, stage, first, end, true);
  return INFINITY;
}

/* Nor does any that ends later. */
static bool too_large(const Search *s, int stage, int first, int end) {
  return span_least_bytes(s->spans + s->at[stage].kind, &s->at[stage], first, end) > s->limit;
}

static int64_t least_bytes(const Search *s, int stage, int first, int end, bool *recompute) {
  int64_t off = s->at[stage].recompute_off ? bytes(s, stage, first, end, false) : INT64_MAX;
  int64_t on = s->at[stage].recompute_on ? bytes(s, stage, first, end, true) : INT64_MAX;
  *recompute = on < off;
  return *recompute ? on : off;
}

static void trace_back(const Search *s, Partition *out) {
  int side = s->c->n + 1;
  out->start = alloc((size_t)(s->stages + 1) * sizeof(int));
  out->recompute = alloc((size_t)s->stages * sizeof(bool));
  out->slowest = 0;
  for (int k = 0; k < s->stages; k++)
    out->start[k + 1] = s->end[k * side + out->start[k]];
}

/* Stage k starts where earlier stages have found a piece each; the first one at 0. */
static int first_start(int k) { return k; }
static int last_start(const Search *s, int k) { return k == 0 ? 0 : s->c->n - (s->stages - k); }
/* Then it ends where later stages still find a piece each; the last one at n. */
static int first_end(const Search *s, int k, int start) { return k == s->stages - 1 ? s->c->n : start + 1; }
static int last_end(const Search *s, int k) { return s->c->n - (s->stages - 1 - k); }

/* What the stages from k on take together: those of a pipeline that drains wait for the first microbatch to come
 * through the earlier ones, and these for its gradients. */
static double together(const Search *s, int stage, int first, int end, bool recompute, double t, double later) {
  later += s->c->fill > 0 ? s->c->fill * span_passage(s->spans + s->at[stage].kind, &s->at[stage].wiring, first,
                                                      end, recompute)
                          : 0;
  return t > later ? t : later;
}

typedef struct State { /* of the stages from one on */
  double value, squares;
} State;

/* The least possible value; of those the one whose stages' times have the least sum of squares, where the stages
 * from each on take as little as they can. INFINITY when nothing fits. */
static double least_value(const Search *s) {
  int side = s->c->n + 1;
  State *best = alloc((size_t)side * sizeof *best), *after = alloc((size_t)side * sizeof *after);
  for (int k = s->stages - 1; k >= 0; k--) {
    bool last = k == s->stages - 1;
    for (int i = first_start(k); i <= last_start(s, k); i++) {
      best[i] = (State){INFINITY, INFINITY};
      for (int j = first_end(s, k, i); j <= last_end(s, k); j++) {
        if (span_compute(s->spans + s->at[k].kind, i, j) / s->at[k].replicas > best[i].value)
          break; /* and more with every piece */
        State next = last ? (State){0} : after[j];
        if (next.value > best[i].value)
          continue;
        bool recompute;
        if (seconds(s, k, i, j, false) > best[i].value)
          continue;
        double t = cost(s, k, i, j, &recompute);
        if (!isfinite(t) && too_large(s, k, i, j))
          break;
        double value = together(s, k, i, j, recompute, t, next.value), squares = t * t + next.squares;
        if (value < best[i].value || (value <= best[i].value && squares < best[i].squares)) {
          best[i] = (State){value, squares};
          s->end[k * side + i] = j;
        }
      }
    }
    State *swap = best;
    best = after, after = swap;
  }
  return after[0].value;
}

/* Among partitions no slower than `slowest` of a pipeline that never drains: the least sum of squares. */
static void most_even(const Search *s, double slowest) {
  int side = s->c->n + 1;
  double *best = alloc((size_t)side * sizeof *best), *after = alloc((size_t)side * sizeof *after);
  for (int k = s->stages - 1; k >= 0; k--) {
    for (int i = first_start(k); i <= last_start(s, k); i++) {
      best[i] = INFINITY;
      for (int j = first_end(s, k, i); j <= last_end(s, k); j++) {
        if (span_compute(s->spans + s->at[k].kind, i, j) / s->at[k].replicas > slowest)
          break;
        bool recompute;
        if (seconds(s, k, i, j, false) > slowest)
          continue;
        double t = cost(s, k, i, j, &recompute);
        if (!isfinite(t) && too_large(s, k, i, j))
          break;
        if (t > slowest)
          continue;
        double total = t * t + (k < s->stages - 1 ? after[j] : 0);
        if (total < best[i]) {
          best[i] = total;
          s->end[k * side + i] = j;
        }
      }
    }
    double *swap = best;
    best = after, after = swap;
  }
}

static void fill_in(const Search *s, Partition *out) {
  for (int k = s->stages - 1; k >= 0; k--) {
    double t = cost(s, k, out->start[k], out->start[k + 1], &out->recompute[k]);
    out->slowest = t > out->slowest ? t : out->slowest;
    out->value = together(s, k, out->start[k], out->start[k + 1], out->recompute[k], t, out->value);
  }
}

bool partition_fastest(const Spans *spans, const Copies *at, int stages, int64_t limit, Partition *out) {
  ensure(stages > 0 && stages <= spans->c->n);
  Search s = prepare(spans, at, stages, limit);
  double value = least_value(&s);
  if (!isfinite(value))
    return false;
  if (spans->c->fill <= 0)
    most_even(&s, value);
  *out = (Partition){0};
  trace_back(&s, out);
  fill_in(&s, out);
  return true;
}

bool partition_pinned(const Spans *spans, const Copies *at, int stages, const int *start, int64_t limit,
                      Partition *out) {
  Search s = prepare(spans, at, stages, limit);
  bool fits = true;
  *out = (Partition){.start = alloc((size_t)(stages + 1) * sizeof(int)), .recompute = alloc((size_t)stages)};
  for (int k = 0; k <= stages; k++)
    out->start[k] = k < stages ? start[k] : spans->c->n;
  for (int k = stages - 1; k >= 0; k--) {
    int first = out->start[k], end = out->start[k + 1];
    double t = cost(&s, k, first, end, &out->recompute[k]);
    if (!isfinite(t)) {
      fits = false;
      least_bytes(&s, k, first, end, &out->recompute[k]);
      t = seconds(&s, k, first, end, out->recompute[k]);
    }
    out->slowest = t > out->slowest ? t : out->slowest;
    out->value = together(&s, k, first, end, out->recompute[k], t, out->value);
  }
  return fits;
}

int64_t partition_smallest(const Spans *spans, const Copies *at, int stages, Partition *out) {
  ensure(stages > 0 && stages <= spans->c->n);
  Search s = prepare(spans, at, stages, INT64_MAX);
  int side = spans->c->n + 1;
  int64_t *best = alloc((size_t)side * sizeof *best), *after = alloc((size_t)side * sizeof *after);
  for (int k = stages - 1; k >= 0; k--) {
    for (int i = first_start(k); i <= last_start(&s, k); i++) {
      best[i] = INT64_MAX;
      for (int j = first_end(&s, k, i); j <= last_end(&s, k); j++) {
        bool recompute;
        if (span_least_bytes(spans + at[k].kind, &at[k], i, j) >= best[i])
          break;
        int64_t b = least_bytes(&s, k, i, j, &recompute);
        if (k < stages - 1 && after[j] > b)
          b = after[j];
        if (b < best[i]) {
          best[i] = b;
          s.end[k * side + i] = j;
        }
      }
    }
    int64_t *swap = best;
    best = after, after = swap;
  }
  *out = (Partition){0};
  trace_back(&s, out);
  for (int k = stages - 1; k >= 0; k--) {
    int first = out->start[k], end = out->start[k + 1];
    least_bytes(&s, k, first, end, &out->recompute[k]);
    double t = seconds(&s, k, first, end, out->recompute[k]);
    out->slowest = t > out->slowest ? t : out->slowest;
    out->value = together(&s, k, first, end, out->recompute[k], t, out->value);
  }
  return after[0];
}
