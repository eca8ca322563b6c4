/* Searches the parts with the shortest simulated batch. For each bound on a part's bytes, a dynamic program finds
 * the cuts with least traffic; each cut is tried with several resident shares. Then the best leaders change step
 * by step: cuts move, disappear or appear, shares change. After a few steps only the best leaders continue; in a
 * thorough search all do. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/offload/spilling.h"

enum { LEADERS = 8, AHEAD = 2, BOUNDS = 20, FIRST_CHANGES = 60, MOST_CHANGES = 400 };

typedef struct Leader {
  SpillChoice choice;
  SpillTime time;
} Leader;

/* Initial saved activations, if the request leaves them free. */
typedef enum { NONE_KEEPS, ALL_KEEP, N_SEEDS } Seed;

typedef struct Search {
  const SpillProblem *p;
  Seed seed;
  int64_t *weights; /* prefix sums over pieces: bytes of weights, and one gradient per use */
  Leader leader[LEADERS];
  int n;
} Search;

static const int shares[] = {100, 90, 80, 70, 50, 25, 0};
enum { N_SHARES = sizeof shares / sizeof *shares };

/* ---- leaders ---------------------------------------------------------------------------------------------- */

/* Among choices that do not fit, prefers the one that needs less memory. */
static bool shorter(const SpillTime *a, const SpillTime *b) {
  if (isinf(a->seconds) && isinf(b->seconds))
    return a->least < b->least;
  if (a->seconds != b->seconds)
    return a->seconds < b->seconds;
  return a->read + a->written < b->read + b->written;
}

static bool same_cuts(const SpillChoice *a, const SpillChoice *b) {
  return a->parts == b->parts && !memcmp(a->start, b->start, (size_t)(a->parts + 1) * sizeof *a->start);
}

static bool same_choice(const SpillChoice *a, const SpillChoice *b) {
  return a->kept == b->kept && same_cuts(a, b) && !memcmp(a->keeps, b->keeps, (size_t)a->parts * sizeof *a->keeps);
}

/* Keeps the best choice for each set of cuts, so that leaders differ. */

static void consider(Search *s, const SpillChoice *c) {
  Leader found = {*c, spill_time(s->p, c)};
  for (int i = 0; i < s->n; i++)
    if (same_cuts(&s->leader[i].choice, c)) {
      if (!shorter(&found.time, &s->leader[i].time))
        return;
      s->n--;
      memmove(&s->leader[i], &s->leader[i + 1], (size_t)(s->n - i) * sizeof found);
    }
  int at = s->n < LEADERS ? s->n++ : LEADERS;
  for (; at > 0 && shorter(&found.time, &s->leader[at - 1].time); at--)
    if (at < LEADERS)
      s->leader[at] = s->leader[at - 1];
  if (at < LEADERS)
    s->leader[at] = found;
}

static void set_keeping(const SpillProblem *p, SpillChoice *c, bool keeps) {
  for (int part = 0; part < PD_MAX_PARTS; part++)
    c->keeps[part] = p->keeping == KEEP_FREE ? keeps : p->keeping == KEEP_ALL;
}

static void consider_shares(Search *s, SpillChoice *c) {
  set_keeping(s->p, c, s->seed == ALL_KEEP);
  for (int i = 0; i < N_SHARES; i++) {
    c->kept = shares[i];
    consider(s, c);
  }
}

/* ---- cuts ------------------------------------------------------------------------------------------------- */

/* A parameter counts once per piece that reads it, which overestimates parts with several readers. */
static void sum_weights(Search *s) {
  const SpillProblem *p = s->p;
  s->weights = alloc((size_t)(p->n + 1) * sizeof *s->weights);
  for (int i = 0; i < p->n_params; i++) {
    for (int k = 0; k < p->param[i].n_readers; k++)
      s->weights[p->param[i].reader[k] + 1] += p->param[i].weights;
    for (int k = 0; k < p->param[i].n_uses; k++)
      s->weights[p->param[i].use[k] + 1] += p->param[i].gradient;
  }
  for (int k = 0; k < p->n; k++)
    s->weights[k + 1] += s->weights[k];
}

/* Bytes that cross a cut in a batch, in both directions, each written and read. */
static double crossing(const SpillProblem *p, int cut) {
  return 2.0 * (double)p->microbatches * (double)(p->activations[cut] + p->returned[cut]);
}

/* Cuts parts of at most `most` bytes with least traffic. False: a single piece is larger, or there are too many
 * parts. */
static bool cut_within(const Search *s, int64_t most, SpillChoice *c) {
  const SpillProblem *p = s->p;
  double *least = alloc((size_t)(p->n + 1) * sizeof *least);
  int *before = alloc((size_t)(p->n + 1) * sizeof *before), *parts = alloc((size_t)(p->n + 1) * sizeof *parts);
  for (int end = 1; end <= p->n; end++) {
    int64_t saved = 0, work = 0;
    least[end] = INFINITY;
    for (int first = end - 1; first >= 0; first--) {
      saved += p->saved[first];
      work = p->work[first] > work ? p->work[first] : work;
      if (saved + work + s->weights[end] - s->weights[first] > most)
        break;
      double travels = least[first] + crossing(p, first);
      if (travels < least[end] || (travels == least[end] && parts[first] + 1 < parts[end]))
        least[end] = travels, before[end] = first, parts[end] = parts[first] + 1;
    }
  }
  if (isinf(least[p->n]) || parts[p->n] > PD_MAX_PARTS)
    return false;
  c->parts = parts[p->n];
  c->start[c->parts] = p->n;
  for (int part = c->parts, end = p->n; part-- > 0; end = before[end])
    c->start[part] = before[end];
  return true;
}

/* Bounds in a geometric series, from the largest piece to the whole model. */
static void try_bounds(Search *s) {
  const SpillProblem *p = s->p;
  int64_t largest = 1, whole = s->weights[p->n];
  SpillChoice c = {0}, before = {0};
  for (int k = 0; k < p->n; k++) {
    int64_t own = p->saved[k] + p->work[k] + s->weights[k + 1] - s->weights[k];
    largest = own > largest ? own : largest;
    whole += p->saved[k] + p->work[k];
  }
  for (int i = 0; i <= BOUNDS; i++) {
    double bound = (double)largest * pow((double)whole / (double)largest, (double)i / BOUNDS);
    if (!cut_within(s, (int64_t)ceil(bound), &c) || c.parts < 2 || same_choice(&c, &before))
      continue;
    consider_shares(s, &c);
    c.kept = 0;
    before = c;
  }
}

/* Parts with nearly equal computation, for a series of counts. */
static void try_even(Search *s) {
  const SpillProblem *p = s->p;
  for (int parts = 2; parts <= p->n && parts <= PD_MAX_PARTS; parts += 1 + parts / 8) {
    SpillChoice c = {.parts = parts};
    double all = 0, sum = 0;
    for (int k = 0; k < p->n; k++)
      all += p->forward[k] + p->backward[k];
    for (int k = 0, part = 1; k < p->n && part < parts; k++) {
      if (k > 0 && (sum >= all * part / parts || p->n - k == parts - part))
        c.start[part++] = k;
      sum += p->forward[k] + p->backward[k];
    }
    c.start[parts] = p->n;
    consider_shares(s, &c);
  }
}

/* ---- changes ---------------------------------------------------------------------------------------------- */

typedef bool Change(const SpillProblem *p, SpillChoice *c, int number); /* false: no more changes */

static bool move_cut(const SpillProblem *p, SpillChoice *c, int number) {
  static const int by[] = {1, -1, 2, -2, 4, -4, 8, -8};
  enum { N_BY = sizeof by / sizeof *by };
  int part = 1 + number / N_BY;
  (void)p;
  if (part >= c->parts)
    return false;
  c->start[part] += by[number % N_BY];
  return true;
}

static bool leave_cut_out(const SpillProblem *p, SpillChoice *c, int number) {
  (void)p;
  if (number + 1 >= c->parts)
    return false;
  memmove(&c->start[number + 1], &c->start[number + 2], (size_t)(c->parts - number - 1) * sizeof *c->start);
  memmove(&c->keeps[number + 1], &c->keeps[number + 2], (size_t)(c->parts - number - 2) * sizeof *c->keeps);
  c->parts--;
  return true;
}

static bool leave_cut_out_with_share(const SpillProblem *p, SpillChoice *c, int number) {
  c->kept = shares[number % N_SHARES];
  return leave_cut_out(p, c, number / N_SHARES);
}

/* Moves all cuts from one on, with a resident share. */
static bool move_cuts(const SpillProblem *p, SpillChoice *c, int number) {
  const int first = 1 + number / N_SHARES / 2;
  (void)p;
  if (first + 1 >= c->parts)
    return false;
  for (int part = first; part < c->parts; part++)
    c->start[part] += number / N_SHARES % 2 ? -1 : 1;
  c->kept = shares[number % N_SHARES];
  return true;
}

enum { PLACES = 3 }; /* in a part, to insert a cut */
static bool put_cut_in(const SpillProblem *p, SpillChoice *c, int number) {
  int part = number / PLACES, share = 1 + number % PLACES;
  (void)p;
  if (part >= c->parts || c->parts == PD_MAX_PARTS)
    return false;
  int at = c->start[part] + (c->start[part + 1] - c->start[part]) * share / (PLACES + 1);
  memmove(&c->start[part + 2], &c->start[part + 1], (size_t)(c->parts - part) * sizeof *c->start);
  memmove(&c->keeps[part + 1], &c->keeps[part], (size_t)(c->parts - part) * sizeof *c->keeps);
  c->start[part + 1] = at;
  c->parts++;
  return true;
}

static bool put_cut_in_with_share(const SpillProblem *p, SpillChoice *c, int number) {
  c->kept = shares[number % N_SHARES];
  return put_cut_in(p, c, number / N_SHARES);
}

static bool put_cut_elsewhere(const SpillProblem *p, SpillChoice *c, int number) {
  int others = PLACES * (c->parts - 1); /* places for the removed cut */
  return others > 0 && leave_cut_out(p, c, number / others) && put_cut_in(p, c, number % others);
}

/* By a little, or to a multiple of ten. */
static bool change_share(const SpillProblem *p, SpillChoice *c, int number) {
  static const int by[] = {5, -5, 1, -1};
  enum { N_BY = sizeof by / sizeof *by, N_TENS = 11 };
  (void)p;
  if (number >= N_BY + N_TENS)
    return false;
  c->kept = number < N_BY ? c->kept + by[number] : 10 * (N_BY + N_TENS - 1 - number);
  c->kept = c->kept < 0 ? 0 : c->kept > 100 ? 100 : c->kept;
  return true;
}

/* Toggles saved activations of one part, or of all parts from it on; the last part has no choice. */
static bool change_keeping(const SpillProblem *p, SpillChoice *c, int number) {
  const int parts = spill_may_keep(p, c);
  if (p->keeping != KEEP_FREE || number >= 2 * parts)
    return false;
  int part = number % parts, end = number < parts ? part + 1 : parts;
  bool keeps = !c->keeps[part];
  for (int i = part; i < end; i++)
    c->keeps[i] = keeps;
  return true;
}

/* Toggles two parts; numbers run over the second part first. */
static bool change_keeping_of_two(const SpillProblem *p, SpillChoice *c, int number) {
  const int parts = spill_may_keep(p, c);
  int one = 0;
  for (; one < parts && number >= parts - 1 - one; one++)
    number -= parts - 1 - one;
  const int other = one + 1 + number;
  if (p->keeping != KEEP_FREE || other >= parts)
    return false;
  c->keeps[one] = !c->keeps[one];
  c->keeps[other] = !c->keeps[other];
  return true;
}

/* Toggles saved activations with each resident share. */
static bool change_keeping_and_share(const SpillProblem *p, SpillChoice *c, int number) {
  c->kept = shares[number % N_SHARES];
  return change_keeping(p, c, number / N_SHARES);
}

static bool is_sound(const SpillChoice *c) {
  for (int i = 0; i < c->parts; i++)
    if (c->start[i] >= c->start[i + 1])
      return false;
  return c->parts >= 2;
}

/* Applies improving changes until none is left, or the budget of trials ends. */
static void refine(const SpillProblem *p, Leader *l, bool cuts, int budget) {
  static Change *const changes[] = {change_share,
                                    change_keeping,
                                    change_keeping_and_share,
                                    change_keeping_of_two,
                                    move_cut,
                                    leave_cut_out,
                                    put_cut_in,
                                    put_cut_elsewhere,
                                    move_cuts,
                                    leave_cut_out_with_share,
                                    put_cut_in_with_share};
  enum { ALL = sizeof changes / sizeof *changes, WITHOUT_CUTS = 4 };
  for (bool better = true; better && budget > 0;) {
    better = false;
    for (int kind = 0; kind < (cuts ? ALL : WITHOUT_CUTS); kind++) {
      SpillChoice c = l->choice;
      for (int i = 0; budget > 0 && changes[kind](p, &c, i); i++, c = l->choice) {
        if (!is_sound(&c) || same_choice(&c, &l->choice))
          continue;
        SpillTime time = spill_time(p, &c);
        budget--;
        if (shorter(&time, &l->time))
          *l = (Leader){c, time}, better = true;
      }
    }
  }
}

/* ---- the search ------------------------------------------------------------------------------------------- */

static int by_time(const void *a, const void *b) {
  const Leader *x = a, *y = b;
  return shorter(&x->time, &y->time) ? -1 : shorter(&y->time, &x->time);
}

static void finish(Search *s, bool cuts, SpillChoice *best, SpillTime *time) {
  *time = (SpillTime){.seconds = INFINITY, .least = INT64_MAX};
  for (int i = 0; i < s->n; i++)
    refine(s->p, &s->leader[i], cuts, FIRST_CHANGES);
  qsort(s->leader, (size_t)s->n, sizeof *s->leader, by_time);
  for (int i = 0; i < s->n && i < (s->p->thorough ? LEADERS : AHEAD); i++) {
    if (!isinf(s->leader[i].time.seconds))
      refine(s->p, &s->leader[i], cuts, MOST_CHANGES);
    if (shorter(&s->leader[i].time, time))
      *best = s->leader[i].choice, *time = s->leader[i].time;
  }
}

static int seeds(const SpillProblem *p) { return p->keeping == KEEP_FREE ? N_SEEDS : 1; }

/* Takes the result of the search if it is shorter. */
static void take_shorter(Search *s, bool cuts, SpillChoice *best, SpillTime *time) {
  SpillChoice choice;
  SpillTime found;
  finish(s, cuts, &choice, &found);
  if (s->seed == NONE_KEEPS || shorter(&found, time))
    *best = choice, *time = found;
}

bool spill_search(const SpillProblem *p, SpillChoice *best, SpillTime *time) {
  for (int seed = 0; seed < seeds(p); seed++) {
    Search s = {.p = p, .seed = (Seed)seed};
    sum_weights(&s);
    try_bounds(&s);
    try_even(&s);
    take_shorter(&s, true, best, time);
  }
  return !isinf(time->seconds);
}

bool spill_search_near(const SpillProblem *p, SpillChoice *best, SpillTime *time) {
  Leader l = {*best, spill_time(p, best)};
  refine(p, &l, true, MOST_CHANGES);
  *best = l.choice, *time = l.time;
  return !isinf(time->seconds);
}

bool spill_search_kept(const SpillProblem *p, SpillChoice *best, SpillTime *time) {
  const SpillChoice cuts = *best;
  for (int seed = 0; seed < seeds(p); seed++) {
    Search s = {.p = p, .seed = (Seed)seed};
    SpillChoice c = cuts;
    consider_shares(&s, &c);
    take_shorter(&s, false, best, time);
  }
  return !isinf(time->seconds);
}
