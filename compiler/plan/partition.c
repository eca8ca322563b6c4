/* Exact partition of a list of pieces into contiguous stages, by dynamic programming over the stages from the last. Of a
 * pipeline that never drains best(s, i) = min over j of max(cost of pieces [i, j) as stage s, best(s + 1, j)). Of one
 * that drains it matters, too, when the stages behind are ready with their passes: states are pairs (spans.h:
 * StageEnd), and those stay that no other beats in both. */
#include "plan/spans.h"

#include <math.h>

#include "base/base.h"

/* A way to run the stages from one on. */
typedef struct State {
  StageEnd at;
  double squares;
  int end, next; /* the place where the first of them ends, the state there */
} State;

/* None is beaten by another; the earliest to have updated first. */
typedef struct States {
  int n;
  State state[4];
} States;

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
  States *states; /* by stage and place where it starts */
} Search;

static StageShare share(const Search *s, int stage, int first, int end, bool recompute) {
  StageShare t = span_share(s->spans + s->at[stage].kind, &s->at[stage], first, end, recompute);
  t.work += s->at[stage].beside;
  return t;
}

static int64_t bytes(const Search *s, int stage, int first, int end, bool recompute) {
  return span_bytes(s->spans + s->at[stage].kind, &s->at[stage], first, end, recompute);
}

/* Of the stage as it would run: without recomputation where that may and does fit; `off` is its share so. False: it
 * does not. */
static bool share_that_may(const Search *s, int stage, int first, int end, const StageShare *off, bool *recompute,
                           StageShare *t) {
  const Copies *at = &s->at[stage];
  *recompute = !(at->recompute_off && bytes(s, stage, first, end, false) <= s->limit);
  if (*recompute && !(at->recompute_on && bytes(s, stage, first, end, true) <= s->limit))
    return false;
  *t = *recompute ? share(s, stage, first, end, true) : *off;
  return true;
}

static bool share_that_fits(const Search *s, int stage, int first, int end, bool *recompute, StageShare *t) {
  StageShare off = share(s, stage, first, end, false);
  return share_that_may(s, stage, first, end, &off, recompute, t);
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
  s.states = alloc((size_t)stages * (size_t)s.places * sizeof *s.states);
  for (int k = 0; k <= stages; k++) {
    s.from[k] = k == stages ? s.places - 1 : k;
    s.to[k] = k == 0 ? 0 : s.places - 1 - (stages - k);
  }
  return s;
}

/* Leaves out where the stages before a start, or those from it on, cannot do all that they must in time. */
static void narrow(Search *s, double slowest) {
  if (!isfinite(slowest))
    return;
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
  for (int k = 0, at = 0; k < s->stages; k++) {
    at = s->end[k * s->places + at];
    out->start[k + 1] = s->place[at];
  }
}

/* ---- the fastest --------------------------------------------------------------------------------------- */

static bool no_worse(const State *a, const State *b) {
  if (a->at.late != b->at.late || a->at.early != b->at.early)
    return a->at.late <= b->at.late && a->at.early <= b->at.early;
  return a->squares <= b->squares;
}

static void keep(States *known, State new) {
  enum { MOST = sizeof known->state / sizeof *known->state };
  int n = 0, at;
  for (int i = 0; i < known->n; i++)
    if (no_worse(&known->state[i], &new))
      return;
  for (int i = 0; i < known->n; i++)
    if (!no_worse(&new, &known->state[i]))
      known->state[n++] = known->state[i];
  for (at = n; at > 0 && known->state[at - 1].at.late > new.at.late; at--)
    if (at < MOST)
      known->state[at] = known->state[at - 1];
  if (at < MOST)
    known->state[at] = new;
  known->n = n < MOST ? n + 1 : MOST;
}

static State state_before(const StageShare *t, const State *behind, int end, int next) {
  double seconds = fmax(t->work + t->finish, t->pace);
  return (State){stage_end(t, behind->at), seconds * seconds + behind->squares, end, next};
}

/* Whether no way to run a stage that takes so many seconds at least before the only state behind it comes up to `bar`. */
static bool falls_behind(const State *bar, const States *behind, double seconds) {
  const State *next = &behind->state[0];
  return behind->n == 1 && bar->at.late <= next->at.late && bar->at.early <= next->at.early &&
         bar->squares < seconds * seconds + next->squares;
}

/* Adds stage k from place i to j before the states at j, where none takes longer than `most`; something else comes up to
 * `bar`. False: nothing that ends later is better. */
static bool try_stage(const Search *s, int k, int i, int j, const States *behind, double most, const State *bar,
                      States *known) {
  int first = s->place[i], end = s->place[j];
  StageShare off, t;
  bool recompute;
  /* A state that is early only after a known one is late is beaten by it; what is put aside may be done later. */
  double late = known->n > 0 ? fmin(bar->at.late, known->state[0].at.late) : bar->at.late;
  double least = span_compute(s->spans + s->at[k].kind, first, end) / s->at[k].replicas;
  if (least > (s->at[k].deferred ? most : late))
    return false;
  if (behind->n == 0 || behind->state[0].at.early > late || falls_behind(bar, behind, least) ||
      (known->n > 0 && falls_behind(known->state, behind, least)))
    return true;
  off = share(s, k, first, end, false);
  if (off.work > most || off.work - off.aside > late)
    return true;
  if (!share_that_may(s, k, first, end, &off, &recompute, &t))
    return !too_large(s, k, first, end);
  for (int n = 0; n < behind->n; n++) {
    State new = state_before(&t, &behind->state[n], j, n);
    if (new.at.late <= most)
      keep(known, new);
  }
  return true;
}

/* What stage k from place i comes up to where it ends as the one from the place before does best. */
static State first_bar(const Search *s, int k, int i, double most) {
  const States *before = &s->states[k * s->places + i - 1];
  State none = {.at = {.early = INFINITY, .late = most}, .squares = INFINITY};
  int end = i > s->from[k] && before->n > 0 ? before->state[0].end : 0;
  StageShare t;
  bool recompute;
  if (end <= i || k == s->stages - 1 || !share_that_fits(s, k, s->place[i], s->place[end], &recompute, &t))
    return none;
  State bar = state_before(&t, &s->states[(k + 1) * s->places + end].state[0], end, 0);
  return bar.at.late < most ? bar : none;
}

static void find_states(const Search *s, int k, int i, double most) {
  static const States none = {.n = 1};
  States *known = &s->states[k * s->places + i];
  State bar = first_bar(s, k, i, most);
  *known = (States){0};
  for (int j = s->from[k + 1] > i ? s->from[k + 1] : i + 1; j <= s->to[k + 1]; j++)
    if (!try_stage(s, k, i, j, k == s->stages - 1 ? &none : &s->states[(k + 1) * s->places + j], most, &bar,
                   known))
      break;
}

/* The least possible value, if it is at most `most`; of those the one whose stages' times have the least sum of squares,
 * where the stages from each on take as little as they can. INFINITY when nothing fits. */
static double least_value(const Search *s, double most) {
  for (int k = s->stages - 1; k >= 0; k--)
    for (int i = s->from[k]; i <= s->to[k]; i++)
      find_states(s, k, i, most);
  for (int k = 0, at = 0, n = 0; k < s->stages && s->states->n > 0; k++) {
    const State *best = &s->states[k * s->places + at].state[n];
    s->end[k * s->places + at] = best->end;
    at = best->end, n = best->next;
  }
  return s->states->n > 0 ? s->states->state[0].at.late : INFINITY;
}

/* The sum of squares of stage k from place i to j and those behind it, if none is slower than `slowest` and it is at most
 * `most`; else INFINITY. False: nor is any that ends later. */
static bool squares_at(const Search *s, int k, int i, int j, double slowest, double most, const double *after,
                       double *squares) {
  int first = s->place[i], end = s->place[j];
  double least = span_compute(s->spans + s->at[k].kind, first, end) / s->at[k].replicas;
  double behind = k < s->stages - 1 ? after[j] : 0;
  StageShare off, t;
  bool recompute;
  *squares = INFINITY;
  if (least > slowest)
    return false;
  if (least * least + behind > most)
    return true;
  off = share(s, k, first, end, false);
  if (off.work > slowest)
    return true;
  if (!share_that_may(s, k, first, end, &off, &recompute, &t))
    return !too_large(s, k, first, end);
  if (t.work <= slowest)
    *squares = t.work * t.work + behind;
  return true;
}

/* Where stage k from place i on should end, near which that of the place before does. */
static double most_even_end(const Search *s, int k, int i, double slowest, int near, const double *after,
                            int *at) {
  double best = INFINITY, most = INFINITY, squares;
  if (near > i && squares_at(s, k, i, near, slowest, most, after, &squares))
    most = squares;
  for (int j = s->from[k + 1] > i ? s->from[k + 1] : i + 1; j <= s->to[k + 1]; j++) {
    if (!squares_at(s, k, i, j, slowest, fmin(best, most), after, &squares))
      break;
    if (squares < best)
      best = squares, *at = j;
  }
  return best;
}

/* Among partitions no slower than `slowest` of a pipeline that never drains: the least sum of squares. */
static void most_even(Search *s, double slowest) {
  double *best = alloc((size_t)s->places * sizeof *best), *after = alloc((size_t)s->places * sizeof *after);
  narrow(s, slowest);
  for (int k = s->stages - 1; k >= 0; k--) {
    int near = 0;
    for (int i = s->from[k]; i <= s->to[k]; i++) {
      int *end = &s->end[k * s->places + i];
      best[i] = most_even_end(s, k, i, slowest, near, after, end);
      near = isfinite(best[i]) ? *end : 0;
    }
    double *swap = best;
    best = after, after = swap;
  }
}

/* Stage k of a partition, those behind it are there already. */
static void add_stage(const StageShare *t, StageEnd *behind, Partition *out) {
  double seconds = fmax(t->work + t->finish, t->pace);
  *behind = stage_end(t, *behind);
  out->slowest = seconds > out->slowest ? seconds : out->slowest;
  out->value = behind->late;
}

static void fill_in(const Search *s, Partition *out) {
  StageEnd behind = {0};
  for (int k = s->stages - 1; k >= 0; k--) {
    StageShare t;
    ensure(share_that_fits(s, k, out->start[k], out->start[k + 1], &out->recompute[k], &t));
    add_stage(&t, &behind, out);
  }
}

static Partition room_for(int stages) {
  return (Partition){.start = alloc((size_t)(stages + 1) * sizeof(int)), .recompute = alloc((size_t)stages)};
}

/* A first search at some of many cuts says how slow the best can be at most: then few are left of all. */
static double first_look(const Spans *spans, const Copies *at, int stages, int64_t limit, double most) {
  if (spans->c->n <= 2 * COARSE || stages > COARSE / 4)
    return most;
  Search coarse = prepare(spans, at, stages, limit, COARSE);
  narrow(&coarse, most);
  double value = least_value(&coarse, most);
  return isfinite(value) ? value : most;
}

static bool search(const Spans *spans, const Copies *at, int stages, int64_t limit, double most, Partition *out) {
  most = first_look(spans, at, stages, limit, most);
  Search s = prepare(spans, at, stages, limit, spans->c->n);
  narrow(&s, most);
  double value = least_value(&s, most);
  if (!isfinite(value))
    return false;
  if (spans->c->fill <= 0)
    most_even(&s, value);
  trace_back(&s, out);
  fill_in(&s, out);
  return true;
}

bool partition_fastest(const Spans *spans, const Copies *at, int stages, int64_t limit, double most,
                       Partition *out) {
  ensure(stages > 0 && stages <= spans->c->n);
  *out = room_for(stages);
  ArenaMark mark = arena_mark();
  bool found = search(spans, at, stages, limit, most, out);
  arena_release(mark);
  return found;
}

bool partition_pinned(const Spans *spans, const Copies *at, int stages, const int *start, int64_t limit,
                      Partition *out) {
  Search s = {.c = spans->c, .spans = spans, .at = at, .stages = stages, .limit = limit};
  bool fits = true;
  *out = room_for(stages);
  for (int k = 0; k <= stages; k++)
    out->start[k] = k < stages ? start[k] : spans->c->n;
  StageEnd behind = {0};
  for (int k = stages - 1; k >= 0; k--) {
    int first = out->start[k], end = out->start[k + 1];
    StageShare t;
    if (!share_that_fits(&s, k, first, end, &out->recompute[k], &t)) {
      fits = false;
      least_bytes(&s, k, first, end, &out->recompute[k]);
      t = share(&s, k, first, end, out->recompute[k]);
    }
    add_stage(&t, &behind, out);
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

static int64_t search_smallest(const Spans *spans, const Copies *at, int stages, Partition *out) {
  const int n = spans->c->n;
  int64_t most = INT64_MAX;
  if (n > 2 * COARSE && stages <= COARSE / 4) {
    Search coarse = prepare(spans, at, stages, INT64_MAX, COARSE);
    most = least_largest(&coarse, most) + 1;
  }
  Search s = prepare(spans, at, stages, INT64_MAX, n);
  int64_t largest = least_largest(&s, most);
  trace_back(&s, out);
  StageEnd behind = {0};
  for (int k = stages - 1; k >= 0; k--) {
    int first = out->start[k], end = out->start[k + 1];
    least_bytes(&s, k, first, end, &out->recompute[k]);
    StageShare t = share(&s, k, first, end, out->recompute[k]);
    add_stage(&t, &behind, out);
  }
  return largest;
}

int64_t partition_smallest(const Spans *spans, const Copies *at, int stages, Partition *out) {
  ensure(stages > 0 && stages <= spans->c->n);
  *out = room_for(stages);
  ArenaMark mark = arena_mark();
  int64_t largest = search_smallest(spans, at, stages, out);
  arena_release(mark);
  return largest;
}
