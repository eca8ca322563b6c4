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
  int places; /* where stages may start, and n: */
  const int *place;
  int *from, *to; /* by stage, and behind the last: the places where it may start */
  int *end;       /* by stage and place where it starts: the place where the best stage ends */
} Search;

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

/* ---- where stages may start --------------------------------------------------------------------------- */

enum { COARSE = 256 };

/* All cuts, or so many that lie evenly. */
static const int *choose_places(int n, int most, int *places) {
  int step = (n + most - 1) / most, *place = alloc((size_t)(n + 1) * sizeof *place);
  *places = 0;
  for (int i = 0; i < n; i += step)
    place[(*places)++] = i;
  place[(*places)++] = n;
  return place;
}

static Search prepare(const Spans *spans, const Copies *at, int stages, int64_t limit, int most_places) {
  Search s = {.c = spans->c, .spans = spans, .at = at, .stages = stages, .limit = limit};
  s.place = choose_places(spans->c->n, most_places, &s.places);
  s.from = alloc((size_t)(stages + 1) * sizeof(int));
  s.to = alloc((size_t)(stages + 1) * sizeof(int));
  s.end = alloc((size_t)(stages + 1) * (size_t)s.places * sizeof(int));
  for (int k = 0; k <= stages; k++) {
    s.from[k] = k == stages ? s.places - 1 : k;
    s.to[k] = k == 0 ? 0 : s.places - 1 - (stages - k);
  }
  return s;
}

/* Leaves out where the stages before a start, or those from it on, cannot do all that they must in time. */
static void narrow(Search *s, double slowest) {
  const Spans *fastest = s->spans;
  double before = 0, behind = 0;
  for (int k = 0; k < s->stages; k++) {
    fastest = s->spans + s->at[k].kind > fastest ? s->spans + s->at[k].kind : fastest;
    behind += s->at[k].replicas;
  }
  slowest *= 1 + 1e-9;
  for (int k = 0; k < s->stages; k++) {
    while (s->from[k] < s->to[k] && span_compute(fastest, s->place[s->from[k]], s->c->n) > slowest * behind)
      s->from[k]++;
    while (s->to[k] > s->from[k] && span_compute(fastest, 0, s->place[s->to[k]]) > slowest * before)
      s->to[k]--;
    before += s->at[k].replicas;
    behind -= s->at[k].replicas;
  }
}

static void trace_back(const Search *s, Partition *out) {
  out->start = alloc((size_t)(s->stages + 1) * sizeof(int));
  out->recompute = alloc((size_t)s->stages * sizeof(bool));
  out->slowest = 0;
  for (int k = 0, at = 0; k < s->stages; k++) {
    at = s->end[k * s->places + at];
    out->start[k + 1] = s->place[at];
  }
}

/* ---- the fastest --------------------------------------------------------------------------------------- */

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

/* Better than what is known of the stages from place i on: noted. False: nor is any stage that ends later. */
static bool try_stage(const Search *s, int k, int i, int j, const State *after, State *best) {
  int first = s->place[i], end = s->place[j];
  bool recompute;
  if (span_compute(s->spans + s->at[k].kind, first, end) / s->at[k].replicas > best->value)
    return false;
  if (after->value > best->value || seconds(s, k, first, end, false) > best->value)
    return true;
  double t = cost(s, k, first, end, &recompute);
  if (!isfinite(t) && too_large(s, k, first, end))
    return false;
  double value = together(s, k, first, end, recompute, t, after->value), squares = t * t + after->squares;
  if (value < best->value || (value <= best->value && squares < best->squares)) {
    *best = (State){value, squares};
    s->end[k * s->places + i] = j;
  }
  return true;
}

/* The least possible value; of those the one whose stages' times have the least sum of squares, where the stages
 * from each on take as little as they can. INFINITY when nothing fits. */
static double least_value(const Search *s) {
  State *best = alloc((size_t)s->places * sizeof *best), *after = alloc((size_t)s->places * sizeof *after);
  const State none = {0};
  for (int k = s->stages - 1; k >= 0; k--) {
    for (int i = s->from[k]; i <= s->to[k]; i++) {
      best[i] = (State){INFINITY, INFINITY};
      for (int j = s->from[k + 1] > i ? s->from[k + 1] : i + 1; j <= s->to[k + 1]; j++)
        if (!try_stage(s, k, i, j, k == s->stages - 1 ? &none : &after[j], &best[i]))
          break;
    }
    State *swap = best;
    best = after, after = swap;
  }
  return after[0].value;
}

/* Among partitions no slower than `slowest` of a pipeline that never drains: the least sum of squares. */
static void most_even(Search *s, double slowest) {
  double *best = alloc((size_t)s->places * sizeof *best), *after = alloc((size_t)s->places * sizeof *after);
  narrow(s, slowest);
  for (int k = s->stages - 1; k >= 0; k--) {
    for (int i = s->from[k]; i <= s->to[k]; i++) {
      best[i] = INFINITY;
      for (int j = s->from[k + 1] > i ? s->from[k + 1] : i + 1; j <= s->to[k + 1]; j++) {
        int first = s->place[i], end = s->place[j];
        bool recompute;
        if (span_compute(s->spans + s->at[k].kind, first, end) / s->at[k].replicas > slowest)
          break;
        if (seconds(s, k, first, end, false) > slowest)
          continue;
        double t = cost(s, k, first, end, &recompute);
        if (!isfinite(t) && too_large(s, k, first, end))
          break;
        if (t > slowest)
          continue;
        double total = t * t + (k < s->stages - 1 ? after[j] : 0);
        if (total < best[i]) {
          best[i] = total;
          s->end[k * s->places + i] = j;
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

/* A first search at some of many cuts says how slow the best can be at most: then few are left of all. */
bool partition_fastest(const Spans *spans, const Copies *at, int stages, int64_t limit, Partition *out) {
  const int n = spans->c->n;
  ensure(stages > 0 && stages <= n);
  double most = INFINITY;
  if (n > 2 * COARSE && stages <= COARSE / 4) {
    Search coarse = prepare(spans, at, stages, limit, COARSE);
    most = least_value(&coarse);
  }
  Search s = prepare(spans, at, stages, limit, n);
  if (isfinite(most))
    narrow(&s, most);
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
  Search s = {.c = spans->c, .spans = spans, .at = at, .stages = stages, .limit = limit};
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

/* The bytes of the partition whose largest stage is smallest, if they are below `most`. */
static int64_t least_largest(const Search *s, int64_t most) {
  int64_t *best = alloc((size_t)s->places * sizeof *best), *after = alloc((size_t)s->places * sizeof *after);
  for (int k = s->stages - 1; k >= 0; k--) {
    for (int i = s->from[k]; i <= s->to[k]; i++) {
      best[i] = most;
      for (int j = s->from[k + 1] > i ? s->from[k + 1] : i + 1; j <= s->to[k + 1]; j++) {
        bool recompute;
        int first = s->place[i], end = s->place[j];
        if (span_least_bytes(s->spans + s->at[k].kind, &s->at[k], first, end) >= best[i])
          break;
        int64_t b = least_bytes(s, k, first, end, &recompute);
        if (k < s->stages - 1 && after[j] > b)
          b = after[j];
        if (b < best[i]) {
          best[i] = b;
          s->end[k * s->places + i] = j;
        }
      }
    }
    int64_t *swap = best;
    best = after, after = swap;
  }
  return after[0];
}

int64_t partition_smallest(const Spans *spans, const Copies *at, int stages, Partition *out) {
  const int n = spans->c->n;
  ensure(stages > 0 && stages <= n);
  int64_t most = INT64_MAX;
  if (n > 2 * COARSE && stages <= COARSE / 4) {
    Search coarse = prepare(spans, at, stages, INT64_MAX, COARSE);
    most = least_largest(&coarse, most) + 1;
  }
  Search s = prepare(spans, at, stages, INT64_MAX, n);
  int64_t largest = least_largest(&s, most);
  *out = (Partition){0};
  trace_back(&s, out);
  for (int k = stages - 1; k >= 0; k--) {
    int first = out->start[k], end = out->start[k + 1];
    least_bytes(&s, k, first, end, &out->recompute[k]);
    double t = seconds(&s, k, first, end, out->recompute[k]);
    out->slowest = t > out->slowest ? t : out->slowest;
    out->value = together(&s, k, first, end, out->recompute[k], t, out->value);
  }
  return largest;
}
