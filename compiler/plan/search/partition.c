/* Exact partition of pieces into contiguous stages, by dynamic programming from the last stage. For a pipeline
 * that never drains: best(s, i) = min over j of max(cost of pieces [i, j) as stage s, best(s + 1, j)). For a
 * draining pipeline, states are pairs (StageEnd in spans.h), because waiting times matter; dominated pairs are
 * pruned. */
#include "plan/search/partition.h"

#include <math.h>

#include "base/base.h"

/* A way to run the stages from one on. */
typedef struct State {
  StageEnd at;
  double squares;
  int end, next; /* end of the first stage, and index of the state there */
} State;

/* Mutually non-dominated states, earliest update first. Their number is unlimited, because an earlier stage may
 * need any of them. */
typedef struct States {
  int n;
  const State *state;
} States;
typedef Vec(State) OpenStates; /* of one stage and place under construction */

typedef struct Search {
  const Costs *c;
  const Spans *spans; /* by kind of device */
  const Copies *at;
  int stages;
  int64_t limit;
  int places; /* number of places: possible starts of stages, and n */
  const int *place;
  int *from, *to;  /* by stage, and the end: range of places where it may start */
  int *origin;     /* by stage: first place in the tables */
  int **end;       /* by stage and start: the place where the best stage ends */
  States **states; /* by stage and start */
} Search;

static int *end_from(const Search *s, int stage, int place) { return &s->end[stage][place - s->origin[stage]]; }

static States *states_from(const Search *s, int stage, int place) {
  return &s->states[stage][place - s->origin[stage]];
}

static StageShare share(const Search *s, int stage, int first, int end, int recompute) {
  StageShare t = span_share(s->spans + s->at[stage].kind, &s->at[stage], first, end, recompute);
  t.work += s->at[stage].beside;
  return t;
}

static int64_t bytes(const Search *s, int stage, int first, int end, int recompute) {
  return span_bytes(s->spans + s->at[stage].kind, &s->at[stage], first, end, recompute);
}

static bool is_limited(const Search *s) { return s->limit < INT64_MAX; }

/* The share of a stage, with recomputation only if necessary. False: it does not fit. */
static bool share_that_fits(const Search *s, int stage, int first, int end, int *recompute, StageShare *t) {
  const Copies *at = &s->at[stage];
  if (!span_fit(s->spans + at->kind, at, first, end, s->limit, recompute))
    return false;
  *t = share(s, stage, first, end, *recompute);
  return true;
}

/* Whether every stage that contains this one exceeds the limit. */
static bool too_large(const Search *s, int stage, int first, int end, int64_t bytes) {
  return span_least_bytes(s->spans + s->at[stage].kind, &s->at[stage], first, end, bytes) > s->limit;
}

static int64_t least_bytes(const Search *s, int stage, int first, int end, int *recompute) {
  *recompute = span_smallest(s->spans + s->at[stage].kind, &s->at[stage], first, end);
  return bytes(s, stage, first, end, *recompute);
}

/* Whether the stage may recompute by layer; whether it always does. */
static bool may_by_layer(const Search *s, int stage) {
  return s->at[stage].layers && s->spans[s->at[stage].kind].n_levels > 0;
}
static bool always_recomputes(const Search *s, int stage) {
  return !s->at[stage].recompute_off || (may_by_layer(s, stage) && s->at[stage].layers == LAYERS_MUST);
}

/* ---- starts of stages --------------------------------------------------------------------------------- */

enum { COARSE = 256, FINER = 4 };

/* All cuts, or an even subset. */
static const int *choose_places(int n, int most, int *places) {
  int step = (n + most - 1) / most, *place = alloc((size_t)(n + 1) * sizeof *place);
  *places = 0;
  for (int i = 0; i < n; i += step)
    place[(*places)++] = i;
  place[(*places)++] = n;
  return place;
}

/* Allows every start that leaves a piece for each stage. */
static void widen(Search *s) {
  for (int k = 0; k <= s->stages; k++) {
    s->from[k] = k == s->stages ? s->places - 1 : k;
    s->to[k] = k == 0 ? 0 : s->places - 1 - (s->stages - k);
  }
}

static Search prepare(const Spans *spans, const Copies *at, int stages, int64_t limit, int most_places) {
  Search s = {.c = spans->c, .spans = spans, .at = at, .stages = stages, .limit = limit};
  s.place = choose_places(spans->c->n, most_places, &s.places);
  s.from = alloc((size_t)(stages + 1) * sizeof(int));
  s.to = alloc((size_t)(stages + 1) * sizeof(int));
  widen(&s);
  return s;
}

/* Lower bound of a stage's seconds, monotone in pieces. `again`: with recomputation; by layer it may add little. */
static double least_seconds(const Search *s, int stage, int first, int end, bool again) {
  const Copies *at = &s->at[stage];
  const Spans *spans = s->spans + at->kind;
  double passes = span_compute(spans, first, end);
  if (again && !may_by_layer(s, stage))
    passes = passes + spans->forward[end] - spans->forward[first];
  double update = s->c->overlapped ? holdings_update(s->c->holdings, first, end) * s->c->share : 0;
  return passes / at->replicas + update + at->beside;
}

/* Whether a stage between two places, or one within it, can fit and take at most `slowest`. */
static bool in_time(const Search *s, int stage, int from, int to, double slowest) {
  int first = s->place[from], end = s->place[to];
  if (from >= to)
    return true;
  const Copies *at = &s->at[stage];
  if (least_seconds(s, stage, first, end, !at->recompute_off) > slowest)
    return false;
  if (at->recompute_off &&
      (!is_limited(s) || !too_large(s, stage, first, end, bytes(s, stage, first, end, false))))
    return true;
  int smallest;
  return (at->recompute_on || may_by_layer(s, stage)) &&
         !too_large(s, stage, first, end, least_bytes(s, stage, first, end, &smallest)) &&
         least_seconds(s, stage, first, end, true) <= slowest;
}

/* The last possible end of a stage with this start. */
static int reach(const Search *s, int stage, int from, double slowest) {
  int low = from, high = s->to[stage + 1];
  while (low < high) {
    int middle = high - (high - low) / 2;
    if (in_time(s, stage, from, middle, slowest))
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

/* The first possible start of a stage with this end. */
static int reach_back(const Search *s, int stage, int end, double slowest) {
  int low = s->from[stage], high = end;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (in_time(s, stage, middle, end, slowest))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/* Excludes starts whose earlier or later stages cannot meet the time or memory limit. False: none remains. */
static bool narrow(Search *s, double slowest) {
  if (!isfinite(slowest) && !is_limited(s))
    return true;
  slowest *= 1 + 1e-9;
  for (int k = 0; k < s->stages; k++)
    s->to[k + 1] = reach(s, k, s->to[k], slowest);
  for (int k = s->stages - 1; k >= 0; k--)
    s->from[k] = reach_back(s, k, s->from[k + 1], slowest);
  for (int k = 0; k <= s->stages; k++)
    if (s->from[k] > s->to[k])
      return false;
  return true;
}

/* Allocates tables for the current ranges; `states` only on request. */
static void make_tables(Search *s, bool states) {
  s->origin = alloc_copy(s->from, (size_t)(s->stages + 1) * sizeof(int));
  s->end = alloc((size_t)s->stages * sizeof *s->end);
  s->states = alloc((size_t)s->stages * sizeof *s->states);
  for (int k = 0; k < s->stages; k++) {
    size_t n = (size_t)(s->to[k] - s->from[k] + 1);
    s->end[k] = alloc(n * sizeof **s->end);
    s->states[k] = states ? alloc(n * sizeof **s->states) : NULL;
  }
}

static void trace_back(const Search *s, Partition *out) {
  for (int k = 0, at = 0; k < s->stages; k++) {
    at = *end_from(s, k, at);
    out->start[k + 1] = s->place[at];
  }
}

/* ---- the fastest partition ----------------------------------------------------------------------------- */

typedef enum Fit { FITS, FITS_NOT, FITS_NO_MORE /* longer stages do not fit either */ } Fit;

static bool is_slow(const StageShare *t, double most, double late) {
  return t->work > most || t->work - t->aside > late;
}

/* Recomputation of the stages with one start. on: this and longer stages recompute; how: the last answer. */
typedef struct Again {
  bool on;
  int how;
} Again;

/* The share of a stage that works at most `most` seconds and delays others at most `late`. `again` is updated. */
static Fit fit(const Search *s, int stage, int first, int end, double most, double late, Again *again,
               StageShare *t) {
  const Copies *at = &s->at[stage];
  if (!again->on) {
    *t = share(s, stage, first, end, false);
    if (is_slow(t, most, late))
      return FITS_NOT;
    if (!is_limited(s))
      return FITS;
    int64_t off = bytes(s, stage, first, end, false);
    if (off <= s->limit)
      return FITS;
    again->on = too_large(s, stage, first, end, off);
    if (!at->recompute_on && !may_by_layer(s, stage))
      return again->on ? FITS_NO_MORE : FITS_NOT;
  }
  int how = again->how;
  if (!span_fit_again(s->spans + at->kind, at, first, end, s->limit, &how))
    return too_large(s, stage, first, end, least_bytes(s, stage, first, end, &how)) ? FITS_NO_MORE : FITS_NOT;
  again->how = how;
  *t = share(s, stage, first, end, how);
  return is_slow(t, most, late) ? FITS_NOT : FITS;
}

static bool no_worse(const State *a, const State *b) {
  if (a->at.late != b->at.late || a->at.early != b->at.early)
    return a->at.late <= b->at.late && a->at.early <= b->at.early;
  return a->squares <= b->squares;
}

static void keep(OpenStates *known, State new) {
  int n = 0, at;
  for (int i = 0; i < known->n; i++)
    if (no_worse(&known->at[i], &new))
      return;
  for (int i = 0; i < known->n; i++)
    if (!no_worse(&new, &known->at[i]))
      known->at[n++] = known->at[i];
  known->n = n;
  push(known, new);
  for (at = n; at > 0 && known->at[at - 1].at.late > new.at.late; at--)
    known->at[at] = known->at[at - 1];
  known->at[at] = new;
}

/* A pipeline that never drains compares values only. */
static State state_before(const Search *s, const StageShare *t, const State *behind, int end, int next) {
  double seconds = s->c->fill > 0 ? fmax(t->work + t->finish, t->pace) : 0;
  return (State){stage_end(t, behind->at), seconds * seconds + behind->squares, end, next};
}

/* Whether a stage of at least `seconds` before the only state behind cannot improve on `state`. */
static bool falls_behind(const Search *s, const State *state, const States *behind, double seconds) {
  const State *next = &behind->state[0];
  if (behind->n != 1 || state->at.late > next->at.late || state->at.early > next->at.early)
    return false;
  return state->at.late < next->at.late || s->c->fill <= 0 || state->squares <= seconds * seconds + next->squares;
}

/* The strict form, for a bar whose own state is still missing. */
static bool falls_short(const Search *s, const State *bar, const States *behind, double seconds) {
  const State *next = &behind->state[0];
  return falls_behind(s, bar, behind, seconds) &&
         (bar->at.late < next->at.late || bar->squares < (s->c->fill > 0 ? seconds * seconds : 0) + next->squares);
}

/* Adds stage k from place i to j before the states at j, within `most`; another end reaches `bar`. False: later
 * ends cannot improve. `again`: as for fit(). */
static bool try_stage(const Search *s, int k, int i, int j, const States *behind, double most, const State *bar,
                      Again *again, OpenStates *known) {
  int first = s->place[i], end = s->place[j];
  StageShare t;
  /* A known state dominates states whose `early` exceeds its `late`. Deferred work may come later. */
  double late = known->n > 0 ? fmin(bar->at.late, known->at[0].at.late) : bar->at.late;
  double least = least_seconds(s, k, first, end, again->on);
  if (least > (s->at[k].deferred ? most : late))
    return false;
  if (behind->n == 0 || behind->state[behind->n - 1].at.early > late || falls_short(s, bar, behind, least) ||
      (known->n > 0 && falls_behind(s, known->at, behind, least)))
    return true;
  Fit how = fit(s, k, first, end, most, late, again, &t);
  if (how != FITS)
    return how != FITS_NO_MORE;
  for (int n = 0; n < behind->n; n++) {
    State new = state_before(s, &t, &behind->state[n], j, n);
    if (new.at.late <= most)
      keep(known, new);
  }
  return true;
}

/* The state of stage k from place i with the best end of the previous start. */
static State first_bar(const Search *s, int k, int i, double most) {
  State none = {.at = {.early = INFINITY, .late = most}, .squares = INFINITY};
  const States *before = i > s->from[k] ? states_from(s, k, i - 1) : NULL;
  int end = before && before->n > 0 ? before->state[0].end : 0;
  StageShare t;
  int recompute;
  if (end <= i || k == s->stages - 1 || !share_that_fits(s, k, s->place[i], s->place[end], &recompute, &t))
    return none;
  State bar = state_before(s, &t, &states_from(s, k + 1, end)->state[0], end, 0);
  return bar.at.late < most ? bar : none;
}

/* room: scratch for states. */
static void find_states(const Search *s, int k, int i, double most, OpenStates *room) {
  static const State nothing;
  static const States none = {1, &nothing};
  State bar = first_bar(s, k, i, most);
  Again again = {.on = always_recomputes(s, k)};
  room->n = 0;
  for (int j = s->from[k + 1] > i ? s->from[k + 1] : i + 1; j <= s->to[k + 1]; j++)
    if (!try_stage(s, k, i, j, k == s->stages - 1 ? &none : states_from(s, k + 1, j), most, &bar, &again, room))
      break;
  *states_from(s, k, i) = (States){room->n, alloc_copy(room->at, (size_t)room->n * sizeof *room->at)};
}

/* The least value, if at most `most`; INFINITY: nothing fits. Ties go to the least sum of squares of stage
 * times. */
static double least_value(Search *s, double most) {
  OpenStates room = {0};
  make_tables(s, true);
  for (int k = s->stages - 1; k >= 0; k--)
    for (int i = s->from[k]; i <= s->to[k]; i++)
      find_states(s, k, i, most, &room);
  const States *all = states_from(s, 0, 0);
  for (int k = 0, at = 0, n = 0; k < s->stages && all->n > 0; k++) {
    const State *best = &states_from(s, k, at)->state[n];
    *end_from(s, k, at) = best->end;
    at = best->end, n = best->next;
  }
  return all->n > 0 ? all->state[0].at.late : INFINITY;
}

/* Sum of squares of stage k from place i to j and later stages, within `slowest` and `most`; else INFINITY. False:
 * later ends fail too. `again`: as for try_stage(). */
static bool squares_at(const Search *s, int k, int i, int j, double slowest, double most, const double *after,
                       Again *again, double *squares) {
  int first = s->place[i], end = s->place[j];
  double least = least_seconds(s, k, first, end, again->on);
  double behind = k < s->stages - 1 ? after[j] : 0;
  StageShare t;
  *squares = INFINITY;
  if (least > slowest)
    return false;
  if (least * least + behind > most)
    return true;
  Fit how = fit(s, k, first, end, slowest, INFINITY, again, &t);
  if (how == FITS)
    *squares = t.work * t.work + behind;
  return how != FITS_NO_MORE;
}

/* The best end of stage k from place i. `near`: the end for the previous start, tried first. */
static double most_even_end(const Search *s, int k, int i, double slowest, int near, const double *after,
                            int *at) {
  double best = INFINITY, most = INFINITY, squares;
  Again again = {.on = always_recomputes(s, k)};
  if (near > i && squares_at(s, k, i, near, slowest, most, after, &again, &squares))
    most = squares;
  again.on = always_recomputes(s, k);
  for (int j = s->from[k + 1] > i ? s->from[k + 1] : i + 1; j <= s->to[k + 1]; j++) {
    if (!squares_at(s, k, i, j, slowest, fmin(best, most), after, &again, &squares))
      break;
    if (squares < best)
      best = squares, *at = j;
  }
  return best;
}

/* The partition with the least sum of squares among those within `slowest`, for pipelines that never drain. */
static void most_even(Search *s, double slowest) {
  double *best = alloc((size_t)s->places * sizeof *best), *after = alloc((size_t)s->places * sizeof *after);
  narrow(s, slowest);
  for (int k = s->stages - 1; k >= 0; k--) {
    int near = 0;
    for (int i = s->from[k]; i <= s->to[k]; i++) {
      int *end = end_from(s, k, i);
      best[i] = most_even_end(s, k, i, slowest, near, after, end);
      near = isfinite(best[i]) ? *end : 0;
    }
    double *swap = best;
    best = after, after = swap;
  }
}

/* Adds stage k in front of the later stages. */
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
  return (Partition){.start = alloc((size_t)(stages + 1) * sizeof(int)),
                     .recompute = alloc((size_t)stages * sizeof(int))};
}

/* Searches on coarse subsets of cuts, each finer, give an upper bound that excludes most starts. */
static double first_looks(const Spans *spans, const Copies *at, int stages, int64_t limit, double most) {
  for (int places = COARSE; spans->c->n > 2 * places; places *= FINER) {
    if (stages > places / 4)
      continue;
    Search coarse = prepare(spans, at, stages, limit, places);
    if (narrow(&coarse, most))
      most = fmin(most, least_value(&coarse, most));
  }
  return most;
}

/* Lower bound of all partitions: total work over total ranks. */
static double even_share(const Search *s) {
  const Spans *fastest = s->spans;
  int ranks = 0;
  double beside = 0;
  for (int k = 0; k < s->stages; k++) {
    fastest = s->spans + s->at[k].kind > fastest ? s->spans + s->at[k].kind : fastest;
    ranks += s->at[k].replicas;
    beside += s->at[k].beside * s->at[k].replicas;
  }
  return (span_compute(fastest, 0, s->c->n) + beside) / ranks;
}

/* A better lower bound, by bisection; at most `most`. */
static double least_bar(Search *s, double most) {
  enum { DOUBLINGS = 6, HALVINGS = 5 };
  double low = even_share(s), high = low;
  for (int i = 0; i < DOUBLINGS && high < most && !narrow(s, high); i++) {
    low = high;
    high = fmin(2 * high, most);
    widen(s);
  }
  for (int i = 0; i < HALVINGS && high > low; i++) {
    double middle = (low + high) / 2;
    widen(s);
    if (narrow(s, middle))
      high = middle;
    else
      low = middle;
  }
  widen(s);
  return low;
}

/* The largest stage from stage k on, for place i to j, if later stages have `behind` bytes. False: no longer stage
 * is below `most`. */
static bool largest_at(const Search *s, int k, int i, int j, int64_t behind, int64_t most, int64_t *largest) {
  const Copies *at = &s->at[k];
  int first = s->place[i], end = s->place[j], recompute;
  int64_t own = least_bytes(s, k, first, end, &recompute);
  if (span_least_bytes(s->spans + at->kind, at, first, end, own) >= most)
    return false;
  *largest = own > behind ? own : behind;
  return true;
}

/* The end of stage k from place i with the smallest largest stage below `most`. `near`: as for most_even_end(). */
static int64_t least_largest_end(const Search *s, int k, int i, int near, const int64_t *after, int64_t most,
                                 int *end) {
  const bool last = k == s->stages - 1;
  int64_t best = most, largest;
  if (near > i && largest_at(s, k, i, near, last ? 0 : after[near], most, &largest) && largest < most)
    best = largest + 1;
  for (int j = s->from[k + 1] > i ? s->from[k + 1] : i + 1; j <= s->to[k + 1]; j++) {
    if (!last && after[j] >= best)
      continue;
    if (!largest_at(s, k, i, j, last ? 0 : after[j], best, &largest))
      break;
    if (largest < best)
      best = largest, *end = j;
  }
  return best;
}

/* The bytes of the smallest largest stage, if below `most`. */
static int64_t least_largest(const Search *s, int64_t most) {
  int64_t *best = alloc((size_t)s->places * sizeof *best), *after = alloc((size_t)s->places * sizeof *after);
  for (int k = s->stages - 1; k >= 0; k--) {
    int near = 0;
    for (int i = s->from[k]; i <= s->to[k]; i++) {
      int *end = end_from(s, k, i);
      best[i] = least_largest_end(s, k, i, near, after, most, end);
      near = best[i] < most ? *end : 0;
    }
    int64_t *swap = best;
    best = after, after = swap;
  }
  return after[0];
}

/* Whether stages of nearly equal time fit. */
static bool even_fits(const Search *s) {
  const Spans *spans = s->spans;
  double whole = span_compute(spans, 0, s->c->n), taken = 0;
  int ranks = 0, used = 0;
  for (int k = 0; k < s->stages; k++)
    ranks += s->at[k].replicas;
  for (int k = 0, first = 0; k < s->stages; k++) {
    int end = first + 1, last = s->c->n - (s->stages - 1 - k);
    used += s->at[k].replicas;
    taken = whole * used / ranks;
    while (end < last && (k == s->stages - 1 || span_compute(spans, 0, end) < taken))
      end++;
    int recompute;
    if (least_bytes(s, k, first, end, &recompute) > s->limit)
      return false;
    first = end;
  }
  return true;
}

/* Whether any partition fits; cheaper than the best one. */
static bool any_fits(Search *s) {
  if (s->limit == INT64_MAX || even_fits(s))
    return true;
  ArenaMark mark = arena_mark();
  bool fits = false;
  widen(s);
  if (narrow(s, INFINITY)) {
    make_tables(s, false);
    fits = least_largest(s, s->limit + 1) <= s->limit;
  }
  arena_release(mark);
  return fits;
}

/* The least value, and its search. Raises a bar until a partition is below it, because low bars exclude most
 * states. INFINITY: none is at most `most`. */
static double raise_bar(const Spans *spans, const Copies *at, int stages, int64_t limit, double most, Search *s) {
  static const double HIGHER[] = {1.05, 1.15, 1.4, 2, INFINITY};
  enum { LATE = 1 };
  *s = prepare(spans, at, stages, limit, spans->c->n);
  const double filling = spans->c->fill * span_compute(spans, 0, spans->c->n) * (stages - 1) / stages;
  const double least = least_bar(s, most) + filling;
  double value = INFINITY, bar = 0;
  for (int i = 0; !isfinite(value) && bar < most; i++) {
    bar = fmin(isfinite(HIGHER[i]) ? HIGHER[i] * least : INFINITY, most);
    if (i == LATE && !any_fits(s))
      return INFINITY;
    widen(s);
    value = narrow(s, bar) ? least_value(s, bar) : INFINITY;
  }
  return value;
}

static bool search(const Spans *spans, const Copies *at, int stages, int64_t limit, double most, Partition *out) {
  most = first_looks(spans, at, stages, limit, most);
  Search s;
  double value = raise_bar(spans, at, stages, limit, most, &s);
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

/* Searches on coarse subsets of cuts give an upper bound for finer ones. */
static int64_t search_smallest(const Spans *spans, const Copies *at, int stages, bool roughly, Partition *out) {
  enum { FIRST = 64 };
  const int n = spans->c->n;
  int64_t largest = INT64_MAX;
  Search s;
  for (int places = FIRST;; places *= FINER) {
    const bool all = places >= n / 2, last = all || (roughly && places >= COARSE);
    if (!all && stages > places / 4)
      continue;
    s = prepare(spans, at, stages, largest, all ? n : places);
    if (!narrow(&s, INFINITY)) /* estimates of few pieces may exceed those of more */
      widen(&s);
    make_tables(&s, false);
    largest = least_largest(&s, largest < INT64_MAX ? largest + 1 : largest);
    if (last)
      break;
  }
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

static int64_t smallest(const Spans *spans, const Copies *at, int stages, bool roughly, Partition *out) {
  ensure(stages > 0 && stages <= spans->c->n);
  *out = room_for(stages);
  ArenaMark mark = arena_mark();
  int64_t largest = search_smallest(spans, at, stages, roughly, out);
  arena_release(mark);
  return largest;
}

int64_t partition_smallest(const Spans *spans, const Copies *at, int stages, Partition *out) {
  return smallest(spans, at, stages, false, out);
}

int64_t partition_small(const Spans *spans, const Copies *at, int stages, Partition *out) {
  return smallest(spans, at, stages, true, out);
}
