/* Stages, their cuts and their ranks at once: a search from the model's last piece to its first, over labels.
 *
 * A label says how the pieces from i on can be run: in so many stages, on so many ranks, at what value (partition.h),
 * with how many microbatches between the forward and the backward of its first stage, for that decides what the
 * stages before it must keep. Labels that another one beats in all of that go. What is left at piece 0 holds the
 * best of all ways, for every number of stages; PipeDream's programme (Narayanan et al. 2019, section 3.1) is the
 * case of one level in which memory and filling are no matter.
 *
 * A label also goes whose value, or whose share of what is still to be run on the ranks that are left, lies above a
 * cap: the search is repeated with higher caps until it finds something. */
#include "plan/replicate.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/program.h"

typedef struct Label {
  StageEnd at;   /* of the pieces from here on; its `late` is their value */
  double bound;  /* that no way of running the whole model can beat */
  int64_t queue; /* microbatches in flight at the first stage, of all its ranks */
  int64_t round; /* least common multiple of the replicas, where that matters; else 1 */
  int ranks, stages, replicas;
  int end, next; /* the place where the first stage ends, and the label there */
} Label;

typedef Vec(Label) Labels;

/* What a stage keeps, by where it stands: few are different, and they are asked for again and again. */
typedef struct Known {
  StageAhead stage; /* replicas 0: none */
  Copies copies;
} Known;

/* What a stage takes, by its pieces and what it keeps: labels behind it differ in other things, too. */
typedef struct Taken {
  const Copies *at; /* NULL: nothing */
  int first, end;   /* places */
  bool fits;
  StageShare share; /* if so */
} Taken;

enum { KNOWN = 1 << 10, TAKEN = 1 << 6 };

typedef struct Search {
  const Ways *w;
  const Costs *c;
  const Spans *fastest; /* kind of device */
  int places;           /* where stages may start, and n: */
  const int *place;
  Labels *at;  /* by place */
  Ints counts; /* of ranks that a stage may have */
  double cap;
  Known *known;      /* KNOWN of them, by a hash: what falls on another's place takes it ... */
  Taken *taken;      /* ... as with these, of which there are TAKEN */
  bool by_stages;    /* labels with other numbers of stages are kept, too */
  bool however_slow; /* labels are told apart by what they need alone, not by what they take */
} Search;

enum { MOST_LABELS = 128, FEW_LABELS = 24, MANY_RANKS = 32, MANY_PLACES = 320, PLACES_A_RANK = 4 };

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

static void keep(const Search *s, Labels *labels, Label new) {
  int kept = 0;
  for (int i = 0; i < labels->n; i++)
    if (beats(s, &labels->at[i], &new))
      return;
  for (int i = 0; i < labels->n; i++)
    if (!beats(s, &new, &labels->at[i]))
      labels->at[kept++] = labels->at[i];
  labels->n = kept;
  push(labels, new);
  int most = s->w->ranks > MANY_RANKS ? FEW_LABELS : MOST_LABELS;
  if (labels->n < 2 * most)
    return;
  qsort(labels->at, (size_t)labels->n, sizeof *labels->at, by_bound);
  labels->n = most;
}

/* Seconds of the pieces between two places. */
static double compute_of(const Search *s, int first, int end) {
  return span_compute(s->fastest, s->place[first], s->place[end]);
}

/* What no way to run the pieces before `first`, too, on the ranks that are left can beat. */
static double bound(const Search *s, const Label *l, int first) {
  double rest = compute_of(s, 0, first);
  int left = s->w->ranks - l->ranks;
  if (first > 0 && left == 0)
    return INFINITY;
  double most = fmax(l->at.late, l->at.early + s->c->fill * rest);
  return fmax(most, first > 0 ? rest / left : 0);
}

/* The stage from `first` to l->end before the label `next`; NULL: it is the last. False where so few microbatches do not
 * fill it, or are no round of the replicas whatever stands before it. */
static bool stage_of(const Search *s, Label *l, int first, const Label *next, StageAhead *stage) {
  const Ways *w = s->w;
  *stage = (StageAhead){.microbatches = w->microbatches,
                        .replicas = l->replicas,
                        .behind = next ? next->replicas : 0,
                        .ranks_behind = next ? w->alike ? next->replicas : next->ranks : 0,
                        .first = first == 0};
  stage->in_flight =
      stage_in_flight(w->traits, l->replicas, w->ahead, stage->behind, next ? next->queue : 0, w->microbatches);
  l->queue = l->replicas * stage->in_flight;
  l->stages = 1 + (next ? next->stages : 0);
  l->round = !w->traits->every_round ? 1 : common_multiple(next ? next->round : 1, l->replicas);
  if (w->traits->every_round && l->ranks + round_ranks(w->microbatches, l->round) > w->ranks)
    return false;
  return !w->traits->two_versions || l->queue - l->replicas <= w->microbatches;
}

static bool same_stage(const StageAhead *a, const StageAhead *b) {
  return a->in_flight == b->in_flight && a->replicas == b->replicas && a->behind == b->behind &&
         a->ranks_behind == b->ranks_behind && a->first == b->first;
}

static const Copies *copies_of(const Search *s, const StageAhead *stage) {
  uint64_t hash = (uint64_t)stage->replicas * 0x9e3779b97f4a7c15u + (uint64_t)stage->in_flight;
  hash = (hash ^ (uint64_t)stage->behind << 32) * 0xbf58476d1ce4e5b9u;
  hash = (hash ^ (uint64_t)stage->ranks_behind << 1 ^ stage->first) * 0x94d049bb133111ebu;
  Known *known = &s->known[hash >> 32 & (KNOWN - 1)];
  if (!same_stage(&known->stage, stage)) {
    *known = (Known){*stage, s->w->copies(s->w->context, stage)};
    for (int i = 0; i < TAKEN; i++) /* what stood there before may have been asked about */
      if (s->taken[i].at == &known->copies)
        s->taken[i].at = NULL;
  }
  return &known->copies;
}

/* What a stage takes that recomputes where it must; `fits` false where it does not fit. */
static const Taken *taken_by(const Search *s, const Copies *at, int first, int end) {
  const int64_t limit = s->w->limit;
  const Known *known = (const Known *)((const char *)at - offsetof(Known, copies));
  Taken *t = &s->taken[(known - s->known) & (TAKEN - 1)];
  if (t->at == at && t->first == first && t->end == end)
    return t;
  const Spans *spans = s->w->spans + at->kind;
  const int from = s->place[first], to = s->place[end];
  bool off = at->recompute_off && span_bytes(spans, at, from, to, false) <= limit;
  *t = (Taken){.at = at, .first = first, .end = end};
  t->fits = off || (at->recompute_on && span_bytes(spans, at, from, to, true) <= limit);
  if (t->fits)
    t->share = span_share(spans, at, from, to, !off);
  return t;
}

/* The pieces from place `first` to l->end on l->replicas ranks before the label `next`. */
static void extend(const Search *s, Label l, int first, const Label *next) {
  double compute = compute_of(s, first, l.end);
  StageAhead stage;
  l.at.early = fmax(compute / l.replicas, next ? next->at.early + s->c->fill * compute : 0);
  l.ranks = l.replicas + (next ? next->ranks : 0);
  if (bound(s, &l, first) > s->cap || !stage_of(s, &l, first, next, &stage))
    return;
  const Taken *taken = taken_by(s, copies_of(s, &stage), first, l.end);
  if (!taken->fits)
    return;
  l.at = stage_end(&taken->share, next ? next->at : (StageEnd){0});
  l.bound = bound(s, &l, first);
  if (l.bound <= s->cap)
    keep(s, &s->at[first], l);
}

/* With `stages` of them from here on: whether there may be one before. */
static bool may_start(const Ways *w, int first, int stages) {
  int before = w->most_stages - stages;
  return w->pinned ? before == first : before > 0 || first == 0;
}

static int by_ranks(const void *a, const void *b) { return ((const Label *)a)->ranks - ((const Label *)b)->ranks; }

/* The first end behind which so many ranks can run all pieces below the cap. */
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

/* All ways to run the pieces from `first` on with so many ranks for the first stage. */
static void label_with(const Search *s, int first, int replicas) {
  const Ways *w = s->w;
  const int n = s->places - 1, before = first > 0 ? (int)fmax(1, ceil(compute_of(s, 0, first) / s->cap)) : 0;
  const int ranks = w->ranks - replicas - before; /* that later stages may have */
  if (ranks < 0)
    return;
  for (int end = first_end(s, first, ranks); end <= n; end++) {
    Label l = {.replicas = replicas, .end = end, .next = -1};
    if (compute_of(s, first, end) / replicas > s->cap)
      break; /* and more with every piece */
    if (end == n && may_start(w, first, 1))
      extend(s, l, first, NULL);
    for (l.next = 0; end < n && l.next < s->at[end].n && s->at[end].at[l.next].ranks <= ranks; l.next++)
      if (may_start(w, first, s->at[end].at[l.next].stages + 1))
        extend(s, l, first, &s->at[end].at[l.next]);
  }
}

static void label(const Search *s, int first) {
  for (int k = 0; k < s->counts.n; k++)
    label_with(s, first, s->counts.at[k]);
  if (first > 0 && s->at[first].n > 0)
    qsort(s->at[first].at, (size_t)s->at[first].n, sizeof(Label), by_ranks);
}

static bool complete(const Ways *w, const Label *l) {
  return l->stages >= w->least_stages && l->stages <= w->most_stages &&
         (!w->traits->every_round || l->round == w->microbatches);
}

/* The least value of a complete way; INFINITY: none below the cap. */
static double run(Search *s) {
  double best = INFINITY;
  for (int i = 0; i < s->places; i++)
    s->at[i].n = 0;
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

/* What ways are worth that are found at some cuts only: moving these may make them better by so much. */
static const double UNEVEN = 1.04;

/* The least value of a single stage that is a complete way and fits; INFINITY: there is none. */
static double alone(Search *s) {
  const int n = s->places - 1;
  double best = INFINITY;
  s->at[0].n = 0;
  s->cap = INFINITY;
  for (int k = 0; k < s->counts.n && may_start(s->w, 0, 1); k++)
    extend(s, (Label){.replicas = s->counts.at[k], .end = n, .next = -1}, 0, NULL);
  for (int i = 0; i < s->at[0].n; i++)
    if (complete(s->w, &s->at[0].at[i]))
      best = fmin(best, s->at[0].at[i].at.late);
  return best;
}

/* The value of some complete way that fits: few labels are needed to find one, or that there is none (INFINITY). */
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

/* The least value; raises the cap as far as that takes, and then so far that what is nearly as good is kept, too. */
static double search(Search *s, double least) {
  static const double caps[] = {1.05, 1.3, 2, 8, INFINITY};
  enum { LATE = 2 };
  const double BESIDE = 1.1, ROUNDING = 1 + 1e-9;
  double best = INFINITY, most = s->w->most * (s->places - 1 < s->c->n && !s->w->pinned ? UNEVEN : 1), cap = 0;
  for (int i = 0; i < (int)(sizeof caps / sizeof *caps) && !isfinite(best) && cap < most; i++) {
    if (i == LATE && most > caps[LATE] * least) { /* else this is the last look */
      double any = alone(s);
      if (isinf(any))
        any = any_value(s);
      if (isinf(any))
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

/* Of the cuts around one the one that least crosses. */
static int thinnest(const Costs *c, int first, int end) {
  int best = first;
  for (int i = first; i < end; i++)
    if (c->activations[i] < c->activations[best])
      best = i;
  return best;
}

/* All cuts; of very many so many that lie evenly, where little crosses; under --split those that it names. */
static void choose_places(Search *s) {
  const Ways *w = s->w;
  int n = s->c->n, most = PLACES_A_RANK * w->ranks > MANY_PLACES ? PLACES_A_RANK * w->ranks : MANY_PLACES;
  int step = (n + most - 1) / most, *place = alloc((size_t)(n + 1) * sizeof *place);
  for (int i = 0; w->pinned && i < w->most_stages; i++)
    place[s->places++] = w->pinned[i];
  for (int i = 0; !w->pinned && i < n; i += step)
    place[s->places++] = i == 0 ? 0 : thinnest(s->c, i, i + step < n ? i + step : n);
  place[s->places++] = n;
  s->place = place;
}

/* Whether what is between two cuts fits a stage that keeps as little as one can. Else nothing does, whatever the search
 * tries. */
static bool pieces_fit(const Search *s) {
  const Ways *w = s->w;
  const StageAhead alone = {
      .microbatches = w->microbatches, .in_flight = 1, .replicas = s->counts.at[s->counts.n - 1], .first = true};
  Copies at = w->copies(w->context, &alone);
  at.exchanges = 0, at.accumulators = 1;
  bool fit = true;
  for (int i = 0; w->n_kinds == 1 && fit && i + 1 < s->places; i++) {
    const int first = s->place[i], end = s->place[i + 1];
    int64_t bytes = span_bytes(w->spans, &at, first, end, true);
    fit = span_least_bytes(w->spans, &at, first, end, bytes) <= w->limit;
  }
  return fit;
}

Replications replicate(const Ways *w) {
  const Costs *c = w->spans->c;
  Search s = {.w = w, .c = c, .fastest = w->spans + w->n_kinds - 1, .by_stages = w->ranks <= MANY_RANKS};
  s.by_stages |= w->least_stages > 1 || w->pinned;
  choose_places(&s);
  s.at = alloc((size_t)s.places * sizeof *s.at);
  s.known = alloc(KNOWN * sizeof *s.known);
  s.taken = alloc(TAKEN * sizeof *s.taken);
  for (int64_t k = 1; k <= w->microbatches && k <= w->ranks; k++)
    if (w->microbatches % k == 0 && (w->may_replicate || k == 1))
      push(&s.counts, (int)k);
  if (!pieces_fit(&s))
    return (Replications){0};
  double best = w->any ? any_value(&s) : search(&s, span_compute(s.fastest, 0, c->n) / w->ranks);
  Replications out = {0};
  if (!isfinite(best))
    return out;
  qsort(s.at[0].at, (size_t)s.at[0].n, sizeof *s.at[0].at, by_value);
  for (int i = 0; i < s.at[0].n && out.n < w->most_found; i++) {
    if (!complete(w, &s.at[0].at[i]))
      continue;
    Replication r = trace_back(&s, &s.at[0].at[i]);
    bool known = false;
    for (int k = 0; k < out.n; k++)
      known |= same_ranks(&out.at[k], &r);
    if (!known)
      push(&out, r);
  }
  return out;
}
