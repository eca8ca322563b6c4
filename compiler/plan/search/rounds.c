/* Cuts two rounds (chunks.c) at once, for ranks that hold several chunks under a memory limit. Each rank gets one
 * part of either round, so the program knows its bytes and seconds as it cuts. For each end in the first round,
 * the table keeps only the farthest end in the second round. */
#include <math.h>

#include "plan/search/search.h"

/* The load of a rank outside the two rounds. */
typedef struct Beside {
  double seconds[2];   /* by recomputation: 0 without, 1 with */
  int64_t bytes[2];    /* by recomputation; without temporaries */
  int64_t temporaries; /* bytes; the maximum over chunks, which run in turn */
} Beside;

typedef struct Pair {
  const Candidate *c;
  int64_t limit;
  int round;   /* the first of the two */
  int n;       /* number of places: starts of parts, and the end of both rounds */
  int *place;  /* by place: piece */
  int middle;  /* the place where the second round starts */
  double most; /* limit of a rank's seconds */
  const Beside *beside;
  /* By number of ranks that have parts, and by the start of the next part in the first round: */
  int **far;  /* start of the next part in the second round; -1: none */
  int **from; /* start of the previous part in the first round */
} Pair;

static int part_at(const Pair *p, int rank, int second) {
  return part_of(p->c->form->n_stages, rank, p->round + second);
}

static double seconds_of(const Candidate *c, int part, int first, int end, int recompute) {
  const Copies *at = &c->copies[part];
  StageShare share = span_share(c->spans + at->kind, at, first, end, recompute);
  return share.work + share.finish; /* time on links runs in parallel and does not add up */
}

/* Without temporaries. */
static int64_t bytes_of(const Candidate *c, int part, int first, int end, int recompute) {
  const Copies *at = &c->copies[part];
  const Spans *spans = c->spans + at->kind;
  return span_bytes(spans, at, first, end, recompute) - span_work(spans, first, end);
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Whether a rank can run the parts [a, a_end) and [b, b_end), in places. */
static bool may_have(const Pair *p, int rank, int a, int a_end, int b, int b_end) {
  const Candidate *c = p->c;
  const int *at = p->place, i = part_at(p, rank, 0), k = part_at(p, rank, 1);
  const Copies *copies = &c->copies[i];
  const Spans *spans = c->spans + copies->kind;
  const Beside *beside = &p->beside[rank];
  if (span_compute(spans, at[a], at[a_end]) + span_compute(spans, at[b], at[b_end]) + beside->seconds[0] > p->most)
    return false;
  int64_t temporaries = larger(span_work(spans, at[a], at[a_end]), span_work(spans, at[b], at[b_end]));
  temporaries = larger(temporaries, beside->temporaries);
  for (int on = !copies->recompute_off; on <= copies->recompute_on; on++)
    if (p->limit == INT64_MAX || bytes_of(c, i, at[a], at[a_end], on) + bytes_of(c, k, at[b], at[b_end], on) +
                                         beside->bytes[on] + temporaries <=
                                     p->limit) {
      const double parts = seconds_of(c, i, at[a], at[a_end], on) + seconds_of(c, k, at[b], at[b_end], on);
      return parts + beside->seconds[on] <= p->most;
    }
  return false;
}

/* Adds all possible parts of a rank after those of earlier ranks. */
static bool add_rank(Pair *p, int rank) {
  const int behind = p->c->form->n_stages - 1 - rank; /* each needs a piece */
  const int *far = p->far[rank];
  int *next = p->far[rank + 1], *from = p->from[rank + 1];
  bool any = false;
  for (int a = rank; a < p->middle; a++) {
    const int b = far[a];
    int last = b < 0 ? b : p->n - 1 - behind;
    for (int end = a + 1; end <= p->middle - behind && last > b; end++) {
      while (last > b && !may_have(p, rank, a, end, b, last))
        last--;
      if (last > b && last > next[end])
        next[end] = last, from[end] = a, any = true;
    }
  }
  return any;
}

/* Whether all ranks can stay within `most` seconds; writes the cuts of both rounds to `start`. */
static bool cut_pair(Pair *p, int *start) {
  const int ranks = p->c->form->n_stages;
  for (int i = 0; i <= ranks; i++)
    for (int a = 0; a < p->n; a++)
      p->far[i][a] = -1;
  p->far[0][0] = p->middle;
  for (int rank = 0; rank < ranks; rank++)
    if (!add_rank(p, rank))
      return false;
  if (p->far[ranks][p->middle] != p->n - 1)
    return false;
  for (int rank = ranks, a = p->middle; rank > 0; rank--) {
    a = p->from[rank][a];
    start[part_at(p, rank - 1, 0)] = p->place[a];
    start[part_at(p, rank - 1, 1)] = p->place[p->far[rank - 1][a]];
  }
  return true;
}

/* ---- minimum of seconds ---------------------------------------------------------------------------------- */

typedef struct Fewest {
  Pair pair;
  double best;        /* seconds of the slowest rank; INFINITY: none found */
  int *start, *tried; /* cuts of all parts: the best, and scratch */
} Fewest;

static bool pair_takes(Fewest *f, double most) {
  f->pair.most = most;
  if (!cut_pair(&f->pair, f->tried))
    return false;
  int *start = f->start;
  f->best = most;
  f->start = f->tried;
  f->tried = start;
  return true;
}

/* Whether a second round that starts at `middle` improves the best. */
static bool try_middle(Fewest *f, int middle) {
  enum { BITS = 8 };
  static const double ENOUGH = 2; /* recomputation adds at most a third */
  const Pair *p = &f->pair;
  double low = span_compute(p->c->spans, p->place[0], p->place[p->n - 1]) / p->c->form->n_stages;
  double most = isinf(f->best) ? ENOUGH * low : f->best * WORTH_ROUND;
  f->pair.middle = middle;
  if (most <= low || !pair_takes(f, most))
    return false;
  for (int i = 0; i < BITS; i++) {
    most = (low + f->best) / 2;
    if (!pair_takes(f, most))
      low = most;
  }
  return true;
}

/* Tries a coarse grid of places, then refines around the best. */
static void try_middles(Fewest *f) {
  enum { MIDDLES = 16 };
  const int ranks = f->pair.c->form->n_stages;
  int low = ranks, high = f->pair.n - 1 - ranks, best = (low + high) / 2;
  if (high < low)
    return;
  try_middle(f, best);
  for (int step = (high - low) / MIDDLES + 1;; step = (step + 3) / 4) {
    for (int at = low; at <= high; at += step)
      if (try_middle(f, at))
        best = at;
    low = best - step > low ? best - step : low;
    high = best + step < high ? best + step : high;
    if (step == 1)
      return;
  }
}

/* The load of ranks outside the two rounds, from a partition. */
static Beside *beside_pair(const Candidate *c, const int *start, int round) {
  const int ranks = c->form->n_stages, parts = pipeline_parts(c->form);
  Beside *beside = alloc((size_t)ranks * sizeof *beside);
  for (int i = 0; i < parts; i++) {
    const int chunk = chunk_of_part(ranks, i);
    Beside *b = &beside[stage_of_part(ranks, i)];
    if (chunk == round || chunk == round + 1)
      continue;
    b->temporaries = larger(b->temporaries, span_work(c->spans + c->copies[i].kind, start[i], start[i + 1]));
    for (int on = 0; on <= 1; on++) {
      b->seconds[on] += seconds_of(c, i, start[i], start[i + 1], on);
      b->bytes[on] += bytes_of(c, i, start[i], start[i + 1], on);
    }
  }
  return beside;
}

/* All pieces between first and end, or an even subset, with at least two places per part. */
static void choose_places(Pair *p, int first, int end) {
  enum { A_PART = 4 };
  const int least = A_PART * p->c->form->n_stages, most = least > MOST_ROUND_PLACES ? least : MOST_ROUND_PLACES;
  const int step = (end - first + most - 1) / most;
  p->place = alloc((size_t)(most + 1) * sizeof *p->place);
  for (int i = first; i < end; i += step)
    p->place[p->n++] = i;
  p->place[p->n++] = end;
}

static int **table(int ranks, int n) {
  int **t = alloc((size_t)(ranks + 1) * sizeof *t);
  for (int i = 0; i <= ranks; i++)
    t[i] = alloc((size_t)n * sizeof **t);
  return t;
}

/* Cuts two rounds again. False: no cuts fit beside the remaining rounds. */
static bool recut(const Candidate *c, int64_t limit, int round, int *start) {
  const int ranks = c->form->n_stages, parts = pipeline_parts(c->form);
  Fewest f = {.pair = {.c = c, .limit = limit, .round = round}, .best = INFINITY};
  Pair *p = &f.pair;
  choose_places(p, start[part_of(ranks, 0, round)], start[part_of(ranks, 0, round + 2)]);
  p->beside = beside_pair(c, start, round);
  p->far = table(ranks, p->n);
  p->from = table(ranks, p->n);
  f.start = alloc_copy(start, (size_t)(parts + 1) * sizeof *start);
  f.tried = alloc_copy(start, (size_t)(parts + 1) * sizeof *start);
  try_middles(&f);
  for (int i = 0; i <= parts && isfinite(f.best); i++)
    start[i] = f.start[i];
  return isfinite(f.best);
}

bool rounds_cut(const Candidate *c, int64_t limit, int *start) {
  enum { TIMES = 3 };
  const int rounds = c->form->chunks;
  bool found = false;
  for (int k = 0; k < (rounds > 2 ? TIMES : 1); k++)
    for (int round = 0; round + 1 < rounds; round++)
      found = recut(c, limit, round, start);
  return found;
}
