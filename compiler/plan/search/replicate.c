/* Searches stages, cuts and ranks together, from the last piece to the first, over labels.
 * A label describes one way to run the pieces from i on: stages, ranks, value (partition.h) and microbatches in
 * flight at its first stage. The last decides the memory of earlier stages. Dominated labels are pruned. The
 * labels at piece 0 contain the best way for each number of stages. PipeDream's program (Narayanan et al. 2019,
 * section 3.1) is the special case of one level without memory limit and filling.
 * A cap prunes labels by value and by the remaining work per remaining rank. The search raises the cap until it
 * finds a way. */
#include "plan/search/replicate.h"

#include "plan/problem/budgets.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/table.h"
#include "schedule/program.h"

typedef struct Label {
  StageEnd at;   /* of the pieces from here on; `late` is their value */
  double bound;  /* lower bound of the value of the whole model */
  int64_t queue; /* microbatches in flight at the first stage, over all its ranks */
  int64_t round; /* least common multiple of the replicas if rounds matter, else 1 */
  int ranks, stages, replicas;
  int end, next; /* end of the first stage, and index of the label there */
} Label;

typedef Vec(Label) Labels;

/* Cached memory and time of a stage. Successive labels often ask for the same pieces, and few keys differ. */
typedef struct Kept {
  Copies copies;
  int first, end; /* places of the last query; end 0: none */
  bool fits;
  StageShare share; /* valid if it fits */
} Kept;

/* A stage with this number of ranks before a label, for any pieces. */
typedef struct Before {
  Kept *kept; /* NULL: no such stage */
  int64_t queue, round;
} Before;

typedef struct Search {
  const Ways *w;
  const Costs *c;
  const Spans *fastest; /* kind of device */
  int places;           /* number of places: possible starts of stages, and n */
  const int *place;
  Labels *at;      /* by place */
  Before **before; /* by place: `counts.n` entries a label; for the last place one set */
  Ints counts;     /* possible ranks of a stage */
  Copies *least;   /* by counts: minimal copies of any stage */
  double cap;
  Table kept;        /* by StageKey */
  int *with;         /* by ranks: the newest label of the current place with this number, or -1 */
  Ints before_it;    /* by label: the previous label with the same ranks, or -1; only if ranks differ */
  int beater;        /* index of the last dominating label */
  bool by_stages;    /* prunes only among equal numbers of stages */
  bool however_slow; /* prunes by memory alone, without time */
} Search;

enum { MOST_LABELS = 32, FEW_LABELS = 24, MANY_PLACES = 320, MOST_PLACES = 512, PLACES_A_RANK = 4 };

static bool beats(const Search *s, const Label *a, const Label *b) {
  return (s->however_slow || (a->at.late <= b->at.late && a->at.early <= b->at.early)) &&
         (s->w->alike ? a->ranks <= b->ranks : a->ranks == b->ranks) && a->queue <= b->queue &&
         a->replicas <= b->replicas && a->round == b->round &&
         (s->by_stages ? a->stages == b->stages : a->stages <= b->stages);
}

static int by_bound(const void *a, const void *b) {
  double x = ((const Label *)a)->bound, y = ((const Label *)b)->bound;
  return x < y ? -1 : x > y;
}

static void list_by_ranks(Search *s, const Labels *labels) {
  if (s->w->alike)
    return;
  for (int i = 0; i <= s->w->ranks; i++)
    s->with[i] = -1;
  s->before_it.n = 0;
  for (int i = 0; i < labels->n; i++) {
    push(&s->before_it, s->with[labels->at[i].ranks]);
    s->with[labels->at[i].ranks] = i;
  }
}

static void start_place(Search *s, Labels *labels) {
  labels->n = 0;
  list_by_ranks(s, labels);
}

/* Checks the last dominating label first: it often dominates the next one too. */
static bool is_beaten(Search *s, const Labels *labels, const Label *new) {
  const bool all = s->w->alike;
  if (s->beater < labels->n && beats(s, &labels->at[s->beater], new))
    return true;
  for (int i = all ? labels->n - 1 : s->with[new->ranks]; i >= 0; i = all ? i - 1 : s->before_it.at[i])
    if (beats(s, &labels->at[i], new)) {
      s->beater = i;
      return true;
    }
  return false;
}

static void keep(Search *s, Labels *labels, const Label *new) {
  const int most = s->w->ranks > MANY_RANKS ? FEW_LABELS : MOST_LABELS;
  int kept = 0;
  if (is_beaten(s, labels, new))
    return;
  for (int i = 0; i < labels->n; i++)
    if (!beats(s, new, &labels->at[i]))
      labels->at[kept++] = labels->at[i];
  labels->n = kept;
  push(labels, *new);
  if (labels->n >= 2 * most) {
    qsort(labels->at, (size_t)labels->n, sizeof *labels->at, by_bound);
    labels->n = most;
  }
  list_by_ranks(s, labels);
}

/* Seconds of the pieces between two places. */
static double compute_of(const Search *s, int first, int end) {
  return span_compute(s->fastest, s->place[first], s->place[end]);
}

/* Lower bound of the value if the remaining ranks run the pieces before `first`. */
static double bound(const Search *s, const Label *l, int first) {
  double rest = compute_of(s, 0, first);
  int left = s->w->ranks - l->ranks;
  if (first > 0 && left == 0)
    return INFINITY;
  double most = fmax(l->at.late, l->at.early + s->c->fill * rest);
  return fmax(most, first > 0 ? rest / left : 0);
}

/* The parts of a StageAhead that vary. */
typedef struct StageKey {
  int64_t in_flight, replicas, behind, ranks_behind, first;
} StageKey;

static Kept *kept_by(Search *s, const StageAhead *stage) {
  const StageKey key = {stage->in_flight, stage->replicas, stage->behind, stage->ranks_behind, stage->first};
  Kept *kept = table_find(&s->kept, &key);
  if (!kept) {
    kept = alloc(sizeof *kept);
    kept->copies = s->w->copies(s->w->context, stage);
    table_add(&s->kept, &key, kept);
  }
  return kept;
}

/* The stage with these replicas before `next` (NULL: it is the last stage). No stage if the microbatches do not
 * fill it, or no earlier stages can complete their round. */
static Before stage_before(Search *s, int replicas, const Label *next, bool first) {
  const Ways *w = s->w;
  const int behind = next ? w->alike ? 1 : next->replicas : 0;
  StageAhead stage = {.microbatches = w->microbatches,
                      .replicas = replicas,
                      .behind = behind,
                      .ranks_behind = next ? w->alike ? behind : next->ranks : 0,
                      .first = first};
  stage.in_flight = stage_in_flight(w->traits, replicas, w->ahead, next ? next->replicas : 0,
                                    next ? next->queue : 0, w->microbatches);
  Before b = {.queue = replicas * stage.in_flight, .round = 1};
  if (w->traits->every_round) {
    b.round = common_multiple(next ? next->round : 1, replicas);
    if (replicas + (next ? next->ranks : 0) + round_ranks(w->microbatches, b.round) > w->ranks)
      return b;
  }
  if (!w->traits->two_versions || b.queue - replicas <= w->microbatches)
    b.kept = kept_by(s, &stage);
  return b;
}

/* For all labels of a place. `first`: the stage is the model's first. */
static Before *stages_before(Search *s, int place, bool first) {
  const Labels *labels = &s->at[place];
  const bool last = place == s->places - 1;
  Before *all = alloc((size_t)((last ? 1 : labels->n) * s->counts.n) * sizeof *all), *b = all;
  for (int i = 0; i < (last ? 1 : labels->n); i++)
    for (int k = 0; k < s->counts.n; k++)
      *b++ = stage_before(s, s->counts.at[k], last ? NULL : &labels->at[i], first);
  return all;
}

/* Computes the stage's share, with recomputation only if necessary. False: it does not fit. */
static bool take(const Search *s, Kept *kept, int first, int end) {
  const int64_t limit = s->w->limit;
  if (kept->first == first && kept->end == end)
    return kept->fits;
  const Copies *at = &kept->copies;
  const Spans *spans = s->w->spans + at->kind;
  const int from = s->place[first], to = s->place[end];
  int recompute;
  kept->first = first, kept->end = end;
  kept->fits = span_fit(spans, at, from, to, limit, &recompute);
  if (kept->fits)
    kept->share = span_share(spans, at, from, to, recompute);
  return kept->fits;
}

/* Completes label `l` for pieces from place `first` to l->end on l->replicas ranks, before `next`. */
static void extend(Search *s, Label *l, int first, double compute, const Label *next, const Before *before) {
  if (!before->kept)
    return;
  const double late = next ? next->at.late : 0;
  l->at.early = fmax(compute / l->replicas, next ? next->at.early + s->c->fill * compute : 0);
  l->at.late = fmax(late, l->at.early);
  l->ranks = l->replicas + (next ? next->ranks : 0);
  l->stages = 1 + (next ? next->stages : 0);
  l->queue = before->queue, l->round = before->round;
  if (bound(s, l, first) > s->cap || is_beaten(s, &s->at[first], l) || !take(s, before->kept, first, l->end))
    return; /* so far `l` excludes messages and updates: a lower bound */
  l->at = stage_end(&before->kept->share, next ? next->at : (StageEnd){0});
  l->bound = bound(s, l, first);
  if (l->bound <= s->cap)
    keep(s, &s->at[first], l);
}

/* Whether a stage may start here, as the `stages`-th from the end. */
static bool may_start(const Ways *w, int first, int stages) {
  int before = w->most_stages - stages;
  return w->pinned ? before == first : before > 0 || first == 0;
}

static int by_ranks(const void *a, const void *b) { return ((const Label *)a)->ranks - ((const Label *)b)->ranks; }

/* The first end after which these ranks can run the remaining pieces within the cap. */
static int first_end(const Search *s, int first, int ranks) {
  int low = first + 1, high = s->places - 1;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (compute_of(s, middle, s->places - 1) > s->cap * ranks)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Whether a stage between two places, or a longer one, can fit. */
static bool may_fit(const Search *s, const Copies *least, int first, int end) {
  const Spans *spans = s->w->spans;
  const int from = s->place[first], to = s->place[end];
  if (s->w->n_kinds > 1)
    return true;
  int64_t bytes = span_bytes(spans, least, from, to, REPEAT_ALL);
  if (spans->n_levels > 0)
    bytes = smaller(bytes, span_bytes(spans, least, from, to, recompute_at(spans->n_levels - 1, true)));
  return span_least_bytes(spans, least, from, to, bytes) <= s->w->limit;
}

/* Labels the ways from `first` on whose first stage has counts[count] ranks. */
static void label_with(Search *s, int first, int count) {
  const Ways *w = s->w;
  const int replicas = s->counts.at[count], n = s->places - 1;
  const int others =
      first > 0 ? (int)fmax(1, ceil(compute_of(s, 0, first) / s->cap)) : 0; /* ranks of earlier stages */
  const int ranks = w->ranks - replicas - others;                           /* available to later stages */
  if (ranks < 0)
    return;
  for (int end = first_end(s, first, ranks); end <= n; end++) {
    Label l = {.replicas = replicas, .end = end, .next = -1};
    const double compute = compute_of(s, first, end);
    if (compute / replicas > s->cap || !may_fit(s, &s->least[count], first, end))
      break; /* longer stages exceed the limit too */
    const Label *next = s->at[end].at;
    const Before *before = s->before[end] + count;
    if (end == n && may_start(w, first, 1))
      extend(s, &l, first, compute, NULL, before);
    for (int i = 0; end < n && i < s->at[end].n && next[i].ranks <= ranks; i++, before += s->counts.n) {
      l.next = i;
      if (may_start(w, first, next[i].stages + 1))
        extend(s, &l, first, compute, &next[i], before);
    }
  }
}

static void label(Search *s, int first) {
  start_place(s, &s->at[first]);
  for (int end = 1; first == 0 && end < s->places; end++)
    s->before[end] = stages_before(s, end, true);
  for (int k = 0; k < s->counts.n; k++)
    label_with(s, first, k);
  if (first > 0 && s->at[first].n > 0)
    qsort(s->at[first].at, (size_t)s->at[first].n, sizeof(Label), by_ranks);
  s->before[first] = stages_before(s, first, false);
}

static bool complete(const Ways *w, const Label *l) {
  return l->stages >= w->least_stages && l->stages <= w->most_stages &&
         (!w->traits->every_round || l->round == w->microbatches);
}

/* The least value of a complete way; INFINITY: none within the cap. */
static double run(Search *s) {
  double best = INFINITY;
  s->at[s->places - 1].n = 0;
  s->before[s->places - 1] = stages_before(s, s->places - 1, false);
  for (int i = s->places - 2; i >= 0; i--)
    label(s, i);
  for (int i = 0; i < s->at[0].n; i++)
    if (complete(s->w, &s->at[0].at[i]))
      best = fmin(best, s->at[0].at[i].at.late);
  return best;
}

static Replication trace_back(const Search *s, const Label *l) {
  Replication r = {.stages = l->stages, .ranks = l->ranks, .value = l->at.late};
  r.replicas = alloc((size_t)l->stages * sizeof *r.replicas);
  r.start = alloc((size_t)l->stages * sizeof *r.start);
  for (int stage = 0, first = 0;; stage++) {
    r.replicas[stage] = l->replicas;
    r.start[stage] = s->place[first];
    if (l->next < 0)
      return r;
    first = l->end;
    l = &s->at[first].at[l->next];
  }
}

static bool same_ranks(const Replication *a, const Replication *b) {
  return a->stages == b->stages && !memcmp(a->replicas, b->replicas, (size_t)a->stages * sizeof *a->replicas);
}

static int by_value(const void *a, const void *b) {
  double x = ((const Label *)a)->at.late, y = ((const Label *)b)->at.late;
  return x < y ? -1 : x > y;
}

/* Factor between the value on a subset of cuts and on all cuts. */
static const double UNEVEN = 1.04;

/* The least value of a complete single stage that fits; INFINITY: none. */
static double alone(Search *s) {
  const int n = s->places - 1;
  double best = INFINITY;
  start_place(s, &s->at[0]);
  s->cap = INFINITY;
  const Before *last = stages_before(s, n, true);
  for (int k = 0; k < s->counts.n && may_start(s->w, 0, 1); k++)
    extend(s, &(Label){.replicas = s->counts.at[k], .end = n, .next = -1}, 0, compute_of(s, 0, n), NULL, &last[k]);
  for (int i = 0; i < s->at[0].n; i++)
    if (complete(s->w, &s->at[0].at[i]))
      best = fmin(best, s->at[0].at[i].at.late);
  return best;
}

/* The value of any complete way that fits, from few labels; INFINITY: none. */
static double any_value(Search *s) {
  const bool by_stages = s->by_stages;
  s->cap = INFINITY;
  s->however_slow = true;
  s->by_stages = s->w->least_stages > 1 || s->w->pinned;
  double value = run(s);
  s->however_slow = false;
  s->by_stages = by_stages;
  return value;
}

/* The least value. Raises the cap until one is found, then once more to keep nearly equal ways. */
static double search(Search *s, double least) {
  static const double caps[] = {1.05, 1.3, 2, 8, INFINITY};
  enum { LATE = 2, VERY_LATE };
  const double BESIDE = 1.1, ROUNDING = 1 + 1e-9;
  double best = INFINITY, most = s->w->most * (s->places - 1 < s->c->n && !s->w->pinned ? UNEVEN : 1), cap = 0;
  for (int i = 0; i < (int)(sizeof caps / sizeof *caps) && !isfinite(best) && cap < most; i++) {
    if (i == LATE && most > caps[LATE] * least) { /* skipped if this is the last round */
      double any = alone(s);
      const bool far = isinf(any) && most > caps[VERY_LATE] * least;
      if (far && isinf(any = any_value(s)))
        return INFINITY;
      most = fmin(most, any * ROUNDING);
    }
    s->cap = cap = fmin(least * caps[i], most);
    best = run(s);
  }
  if (isfinite(best) && s->cap < fmin(BESIDE * best, most)) {
    s->cap = fmin(BESIDE * best, most);
    run(s);
  }
  return best;
}

/* The cut with the fewest crossing bytes in a range. */
static int thinnest(const Costs *c, int first, int end) {
  int best = first;
  for (int i = first; i < end; i++)
    if (c->activations[i] < c->activations[best])
      best = i;
  return best;
}

/* All cuts, or an even subset that prefers thin cuts; the cuts of --split if pinned. */
static void choose_places(Search *s) {
  const Ways *w = s->w;
  int n = s->c->n, most = PLACES_A_RANK * w->ranks > MANY_PLACES ? PLACES_A_RANK * w->ranks : MANY_PLACES;
  most = most < MOST_PLACES ? most : MOST_PLACES;
  int step = (n + most - 1) / most, *place = alloc((size_t)(n + 1) * sizeof *place);
  for (int i = 0; w->pinned && i < w->most_stages; i++)
    place[s->places++] = w->pinned[i];
  for (int i = 0; !w->pinned && i < n; i += step)
    place[s->places++] = i == 0 ? 0 : thinnest(s->c, i, i + step < n ? i + step : n);
  place[s->places++] = n;
  s->place = place;
}

/* Minimal copies of a stage with these ranks. */
static Copies least_copies(const Ways *w, int replicas) {
  const StageAhead alone = {.microbatches = w->microbatches, .in_flight = 1, .replicas = replicas, .first = true};
  Copies at = w->copies(w->context, &alone);
  at.exchanges = 0, at.accumulators = 1;
  return at;
}

static void set_counts(Search *s) {
  const Ways *w = s->w;
  for (int64_t k = 1; k <= w->microbatches && k <= w->ranks; k++)
    if (w->microbatches % k == 0 && (w->may_replicate || k == 1))
      push(&s->counts, (int)k);
  s->least = alloc((size_t)s->counts.n * sizeof *s->least);
  for (int k = 0; k < s->counts.n; k++)
    s->least[k] = least_copies(w, s->counts.at[k]);
}

/* Whether the pieces between adjacent cuts fit a stage with minimal copies. If not, no plan fits. */
static bool pieces_fit(const Search *s) {
  bool fit = true;
  for (int i = 0; fit && i + 1 < s->places; i++)
    fit = may_fit(s, &s->least[s->counts.n - 1], i, i + 1);
  return fit;
}

/* The best of the remaining labels. */
static Replications found(Search *s) {
  Replications out = {0};
  Labels *all = &s->at[0];
  qsort(all->at, (size_t)all->n, sizeof *all->at, by_value);
  for (int i = 0; i < all->n && out.n < s->w->most_found; i++) {
    if (!complete(s->w, &all->at[i]))
      continue;
    Replication r = trace_back(s, &all->at[i]);
    bool known = false;
    for (int k = 0; k < out.n; k++)
      known |= same_ranks(&out.at[k], &r);
    if (!known)
      push(&out, r);
  }
  return out;
}

Replications replicate(const Ways *w) {
  const Costs *c = w->spans->c;
  Arena *scratch = arena_new(), *lasting = arena_use(scratch);
  ArenaMark mark = arena_mark();
  Search s = {.w = w, .c = c, .fastest = w->spans + w->n_kinds - 1, .by_stages = w->ranks <= MANY_RANKS};
  s.by_stages |= w->least_stages > 1 || w->pinned;
  s.kept.key_bytes = sizeof(StageKey);
  s.with = alloc((size_t)(w->ranks + 1) * sizeof *s.with);
  choose_places(&s);
  s.at = alloc((size_t)s.places * sizeof *s.at);
  s.before = alloc((size_t)s.places * sizeof *s.before);
  set_counts(&s);
  double best = INFINITY;
  if (pieces_fit(&s))
    best = w->any ? any_value(&s) : search(&s, span_compute(s.fastest, 0, c->n) / w->ranks);
  arena_use(lasting);
  Replications out = {0};
  if (isfinite(best))
    out = found(&s);
  arena_use(scratch);
  arena_release(mark);
  arena_use(lasting);
  return out;
}
