/* Ranks that hold several chunks. Chunks share the rank's time and memory, which partition.c does not model.
 * partition.c runs repeatedly with the time of the rank's other parts until the result is stable. */
#include <math.h>

#include "plan/search/search.h"

static double part_seconds(const Candidate *c, const Partition *part, int i) {
  const Copies *at = &c->copies[i];
  return span_seconds(c->spans + at->kind, at, part->start[i], part->start[i + 1], part->recompute[i]);
}

/* Temporaries count once, because chunks run in turn. */
int64_t chunks_bytes(const Candidate *c, const Partition *part, int stage, int recompute) {
  int64_t bytes = 0, most = 0;
  for (int k = 0; k < pipeline_chunks(c->form, stage); k++) {
    const int i = pipeline_part(c->form, stage, k);
    const Copies *at = &c->copies[i];
    const Spans *spans = c->spans + at->kind;
    int64_t work = span_work(spans_of(spans, recompute), part->start[i], part->start[i + 1]);
    bytes += span_bytes(spans, at, part->start[i], part->start[i + 1], recompute) - work;
    most = work > most ? work : most;
  }
  return bytes + most;
}

/* The first level from `low` to `high`, which fits, with which the rank fits. */
static int rank_level(const Candidate *c, int64_t limit, const Partition *part, int stage, int low, int high,
                      bool whole) {
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (chunks_bytes(c, part, stage, recompute_at(middle, whole)) <= limit)
      high = middle;
    else
      low = middle + 1;
  }
  return recompute_at(high, whole);
}

/* Decides whether the rank recomputes, in the order of span_fit(). Returns its bytes above the limit. */
static int64_t rank_over(const Candidate *c, int64_t limit, Partition *part, int stage) {
  const Copies *first = &c->copies[stage];
  const int levels = first->layers ? c->spans[first->kind].n_levels : 0;
  const bool must = levels > 0 && first->layers == LAYERS_MUST;
  const int ways[] = {SAVE_ALL, recompute_at(levels - 1, false), REPEAT_ALL, recompute_at(levels - 1, true)};
  const bool may[] = {first->recompute_off && !must, levels > 0, first->recompute_on,
                      levels > 0 && first->recompute_on};
  int64_t least = INT64_MAX;
  int how = SAVE_ALL;
  for (int i = 0; i < 4 && least > limit; i++) {
    const int64_t bytes = may[i] ? chunks_bytes(c, part, stage, ways[i]) : INT64_MAX;
    if (bytes < least)
      least = bytes, how = ways[i];
  }
  if (least <= limit && level_of(how) > 0)
    how = rank_level(c, limit, part, stage, must ? levels - 1 : 0, levels - 1, repeats_all(how));
  for (int i = stage; i < pipeline_parts(c->form); i += c->form->n_stages)
    part->recompute[i] = how;
  return least > limit ? least - limit : 0;
}

bool chunks_fit(const Candidate *c, int64_t limit, Partition *part) {
  bool fit = true;
  for (int stage = 0; stage < c->form->n_stages; stage++)
    fit &= rank_over(c, limit, part, stage) == 0;
  return fit;
}

/* A rank runs its chunks in turn, the first chunk last. */
static StageShare rank_share(const Candidate *c, const Partition *part, int stage, double *whole) {
  const int n_stages = c->form->n_stages, chunks = c->form->chunks;
  StageShare all = {0};
  *whole = 0;
  for (int i = stage + n_stages * (chunks - 1); i >= 0; i -= n_stages) {
    const Copies *at = &c->copies[i];
    StageShare own = span_share(c->spans + at->kind, at, part->start[i], part->start[i + 1], part->recompute[i]);
    all.work += own.work;
    all.aside += own.aside;
    all.pace += own.pace;
    all.finish += own.finish;
    all.way = own.way * chunks; /* finally that of the first chunk */
    all.between = own.between * chunks;
    *whole += all.way + all.between;
  }
  return all;
}

/* Load of a rank. */
typedef struct RankCount {
  int64_t over; /* bytes above the limit */
  StageShare share;
  double whole; /* seconds of a microbatch's way through all its chunks */
} RankCount;

static RankCount count_rank(const Candidate *c, int64_t limit, Partition *part, int stage) {
  RankCount count = {.over = rank_over(c, limit, part, stage)};
  count.share = rank_share(c, part, stage, &count.whole);
  return count;
}

static double value_of(const RankCount *rank, int n_stages) {
  StageEnd end = {0};
  double whole = 0;
  for (int stage = n_stages - 1; stage >= 0; stage--) {
    end = stage_end(&rank[stage].share, end);
    whole += rank[stage].whole;
  }
  return fmax(end.late, whole);
}

double chunks_value(const Candidate *c, const Partition *part) {
  const int n_stages = c->form->n_stages;
  RankCount *rank = alloc((size_t)n_stages * sizeof *rank);
  for (int stage = 0; stage < n_stages; stage++)
    rank[stage].share = rank_share(c, part, stage, &rank[stage].whole);
  return value_of(rank, n_stages);
}

/* ---- rounds ------------------------------------------------------------------------------------------------ */

/* A round has one part of each rank, adjacent in the model. All ranks work on the same round, so a microbatch
 * takes the sum over rounds of the longest part. */

/* Cuts parts of at most `most` seconds from `first` up to `end`, each with at least one piece. Returns the last
 * end. */
static int fill_parts(const Spans *s, int first, int end, int parts, double most, int *start) {
  for (int i = 0; i < parts; i++) {
    int low = first + 1, high = end - (parts - 1 - i);
    start[i] = first;
    while (low < high) {
      int at = (low + high + 1) / 2;
      if (span_compute(s, first, at) <= most)
        low = at;
      else
        high = at - 1;
    }
    first = low;
  }
  return first;
}

/* Cuts a round evenly; returns the seconds of its longest part. */
static double even_parts(const Spans *s, int first, int end, int parts, int *start) {
  enum { BITS = 16 };
  double low = 0, high = span_compute(s, first, end);
  for (int i = 0; i < BITS; i++) {
    double most = (low + high) / 2;
    if (fill_parts(s, first, end, parts, most, start) == end)
      high = most;
    else
      low = most;
  }
  fill_parts(s, first, end, parts, high, start);
  double longest = 0;
  for (int i = 0; i < parts; i++)
    longest = fmax(longest, span_compute(s, start[i], i + 1 < parts ? start[i + 1] : end));
  return longest;
}

/* The best start of the second of two rounds, on a coarse grid, then refined. */
static int between_rounds(const Spans *s, int first, int end, int parts, int *start) {
  enum { PLACES = 32 };
  int low = first + parts, high = end - parts, best = low;
  for (int step = (high - low) / PLACES + 1;; step = (step + 3) / 4) {
    double least = INFINITY;
    for (int at = low; at <= high; at += step) {
      double both = even_parts(s, first, at, parts, start) + even_parts(s, at, end, parts, start);
      if (both < least)
        least = both, best = at;
    }
    low = best - step > low ? best - step : low;
    high = best + step < high ? best + step : high;
    if (step == 1)
      return best;
  }
}

static void even_rounds(const Candidate *c, Partition *out) {
  enum { TIMES = 4 };
  const int stages = c->form->n_stages, rounds = c->form->chunks, parts = stages * rounds, n = c->spans->c->n;
  int *from = alloc((size_t)(rounds + 1) * sizeof *from);
  *out = (Partition){.start = alloc((size_t)(parts + 1) * sizeof(int)),
                     .recompute = alloc((size_t)parts * sizeof(int))};
  for (int i = 0; i <= rounds; i++)
    from[i] = i * stages + (int)((int64_t)(n - parts) * i / rounds);
  for (int k = 0; k < (rounds > 2 ? TIMES : 1); k++)
    for (int i = 1; i < rounds; i++)
      from[i] = between_rounds(c->spans, from[i - 1], from[i + 1], stages, out->start);
  for (int i = 0; i < rounds; i++)
    even_parts(c->spans, from[i], from[i + 1], stages, out->start + (size_t)i * (size_t)stages);
  out->start[parts] = n;
}

/* ---- rounds together -------------------------------------------------------------------------------------- */

/* False: no cuts fit. */
static bool cut_together(const Candidate *c, int64_t limit, Partition *out) {
  even_rounds(c, out);
  return rounds_cut(c, limit, out->start) && chunks_fit(c, limit, out);
}

/* ---- time ------------------------------------------------------------------------------------------------- */

/* Sets the time of each rank's other parts. False: nearly unchanged. */
static bool set_beside(const Candidate *c, const Partition *part, Copies *at) {
  int parts = pipeline_parts(c->form), n_stages = c->form->n_stages;
  double *rank = alloc((size_t)n_stages * sizeof *rank);
  bool changed = false;
  for (int i = 0; i < parts; i++)
    rank[i % n_stages] += part_seconds(c, part, i);
  for (int i = 0; i < parts; i++) {
    double own = part_seconds(c, part, i);
    double beside = rank[i % n_stages] - own;
    changed |= fabs(beside - at[i].beside) > 1e-6 * (own + beside);
    at[i].beside = beside;
  }
  return changed;
}

/* Simulates the partition unless its bound excludes it. Whether it is better. */
static bool take_better(const Planner *r, const Candidate *c, const Partition *part, Plan **best) {
  if (*best && candidate_least_seconds(r, c, part) >= (*best)->batch_seconds)
    return false;
  Plan *plan = plan_of(r, c, part, *best ? (*best)->batch_seconds : INFINITY);
  if (*best && plan->batch_seconds >= (*best)->batch_seconds)
    return false;
  *best = plan;
  return true;
}

/* The best of successive partitions without memory limit. Each is balanced against the parts of the previous
 * one. */
static void balance(const Planner *r, const Candidate *c, Partition *best) {
  enum { ROUNDS = 8, FEW_ROUNDS = 1 };
  const int parts = pipeline_parts(c->form), rounds = c->form->n_stages > MANY_STAGES ? FEW_ROUNDS : ROUNDS;
  Copies *at = alloc_copy(c->copies, (size_t)parts * sizeof *at);
  bool changed = true;
  Plan *plan = NULL;
  for (int round = 0; round <= rounds && changed; round++) {
    Partition part;
    ensure(partition_fastest(c->spans, at, parts, INT64_MAX, INFINITY, &part));
    if (take_better(r, c, &part, &plan))
      *best = part;
    changed = set_beside(c, &part, at);
  }
}

/* ---- memory ----------------------------------------------------------------------------------------------- */

/* A partition whose cuts move. A move recounts only the ranks next to its cuts. */
typedef struct Shift {
  const Candidate *c;
  int64_t limit, over; /* bytes */
  double value;
  Partition part;
  RankCount *rank, *before; /* by rank; before: saved entries of the ranks that a move changes */
  int left;                 /* remaining steps */
  bool until_it_fits;       /* stop at the first partition that fits */
} Shift;

static void count_all(Shift *s) {
  s->over = 0;
  for (int i = 0; i < s->c->form->n_stages; i++) {
    s->rank[i] = count_rank(s->c, s->limit, &s->part, i);
    s->over += s->rank[i].over;
  }
  s->value = value_of(s->rank, s->c->form->n_stages);
}

static void move_cuts(Shift *s, int first, int last, int by) {
  for (int i = first; i <= last; i++)
    s->part.start[i] += by;
}

/* Bytes above the limit of n ranks from `rank` on. */
static int64_t over_of(const Shift *s, int rank, int n) {
  int64_t over = 0;
  for (int i = 0; i < n; i++)
    over += s->rank[(rank + i) % s->c->form->n_stages].over;
  return over;
}

/* Moves the cuts from `first` to `last` by `by` pieces, if that reduces excess bytes, or time at equal bytes. */
static bool shift(Shift *s, int first, int last, int by) {
  Partition *part = &s->part;
  const int n_stages = s->c->form->n_stages, rank = stage_of_part(n_stages, first - 1);
  const int touched = last - first + 2 < n_stages ? last - first + 2 : n_stages;
  if (s->left <= 0 || part->start[first] + by <= part->start[first - 1] ||
      part->start[last] + by >= part->start[last + 1])
    return false;
  s->left--;
  int64_t over = s->over - over_of(s, rank, touched);
  move_cuts(s, first, last, by);
  for (int i = 0; i < touched; i++) {
    const int at = (rank + i) % n_stages;
    s->before[at] = s->rank[at];
    s->rank[at] = count_rank(s->c, s->limit, part, at);
  }
  over += over_of(s, rank, touched);
  double value = over > s->over ? INFINITY : value_of(s->rank, n_stages);
  if (over < s->over || (over == s->over && value < s->value * (1 - 1e-9))) {
    s->over = over;
    s->value = value;
    s->left = s->until_it_fits && over == 0 ? 0 : s->left;
    return true;
  }
  move_cuts(s, first, last, -by);
  for (int i = 0; i < touched; i++) {
    const int at = (rank + i) % n_stages;
    s->rank[at] = s->before[at];
  }
  return false;
}

static bool shift_any(Shift *s) {
  enum { MOST_TOGETHER = 4 };
  const int parts = pipeline_parts(s->c->form);
  bool any = false;
  for (int together = 1; together <= MOST_TOGETHER; together++)
    for (int first = 1; first + together <= parts; first++)
      for (int by = 1; by < s->c->spans->c->n && s->left > 0; by *= 2)
        for (int way = -1; way <= 1; way += 2)
          while (shift(s, first, first + together - 1, way * by))
            any = true;
  return any;
}

static Shift shift_from(const Candidate *c, int64_t limit, const Partition *part, int steps) {
  const size_t n_stages = (size_t)c->form->n_stages;
  Shift s = {.c = c, .limit = limit, .part = *part, .left = steps};
  s.rank = alloc(n_stages * sizeof *s.rank);
  s.before = alloc(n_stages * sizeof *s.before);
  count_all(&s);
  return s;
}

/* Whether it then fits. */
static bool make_fit(const Candidate *c, int64_t limit, Partition *part) {
  Shift s = shift_from(c, limit, part, BUDGET_SHIFTS / pipeline_parts(c->form));
  while (shift_any(&s)) {
  }
  *part = s.part;
  return chunks_fit(c, limit, part);
}

bool chunks_repair(const Candidate *c, int64_t limit, int *start) {
  const int parts = pipeline_parts(c->form);
  Partition part = {.start = alloc((size_t)(parts + 1) * sizeof *start),
                    .recompute = alloc((size_t)parts * sizeof(int))};
  for (int i = 0; i < parts; i++)
    part.start[i] = start[i];
  part.start[parts] = c->spans->c->n;
  Shift s = shift_from(c, limit, &part, BUDGET_REPAIRS);
  s.until_it_fits = true;
  while (s.over > 0 && shift_any(&s)) {
  }
  for (int i = 0; i < parts; i++)
    start[i] = s.part.start[i];
  return s.over == 0;
}

/* `tight` times the bytes of the largest rank in the unlimited plan without recomputation. */
static int64_t tight_limit(const Candidate *c, int64_t limit) {
  int64_t most = 0;
  for (int stage = 0; stage < c->form->n_stages; stage++) {
    int64_t bytes = chunks_bytes(c, &c->balanced[c->start], stage, !c->copies[stage].recompute_off);
    most = bytes > most ? bytes : most;
  }
  const int64_t tight = (int64_t)(c->tight * (double)most);
  return tight < limit ? tight : limit;
}

/* The starting cuts, without memory limit. */
static Partition started(const Planner *r, const Candidate *c) {
  if (!c->balanced[c->start].start) {
    if (c->start == START_ROUNDS)
      even_rounds(c, &c->balanced[c->start]);
    else if (c->start == START_TOGETHER)
      cut_together(c, INT64_MAX, &c->balanced[c->start]);
    else
      balance(r, c, &c->balanced[c->start]);
  }
  return partition_copy(&c->balanced[c->start], pipeline_parts(c->form));
}

/* Whether it needs recomputation to fit. */
static bool must_recompute(const Candidate *c, const Partition *part) {
  bool must = false;
  for (int i = 0; i < pipeline_parts(c->form); i++)
    must |= part->recompute[i] && c->copies[i].recompute_off;
  return must;
}

bool chunks_plan(const Planner *r, const Candidate *c, int64_t limit, Plan **out) {
  const int parts = pipeline_parts(c->form);
  Partition start[4] = {started(r, c)};
  Plan *best = NULL, *last = NULL;
  int n = 1;
  if (c->tight > 0)
    limit = tight_limit(c, limit);
  if (chunks_fit(c, limit, start)) {
    take_better(r, c, start, &best);
    if (!must_recompute(c, start)) {
      *out = best;
      return true;
    }
  }
  if (c->start == START_BALANCED) {
    n += partition_fastest(c->spans, c->copies, parts, limit / c->form->chunks, INFINITY, &start[n]);
    partition_small(c->spans, c->copies, parts, &start[n++]);
  }
  if (c->start == START_TOGETHER)
    n += cut_together(c, limit, &start[n]);
  for (int i = 0; i < n; i++)
    if (make_fit(c, limit, &start[i]))
      take_better(r, c, &start[i], &best);
    else if (i == n - 1)
      last = plan_of(r, c, &start[i], INFINITY);
  if (best || !c->or_not)
    *out = best ? best : last;
  return best != NULL;
}
