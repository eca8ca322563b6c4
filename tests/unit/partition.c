/* The planner's partition against all partitions, for random pieces, costs, copies and limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "plan/search/partition.h"
#include "plan/search/replicate.h"
#include "device/topology.h"
#include "schedule/program.h"
#include "random.h"

enum { MAX_PIECES = 9, MAX_DEPTH = 5, MAX_PARAMS = 6, CASES = 6000 };

typedef struct Case {
  Costs costs;
  int n_params;
  const Holding *param;
  Copies copies[MAX_DEPTH];
  int stages;
  int64_t limit;
} Case;

static double *seconds(int n, uint64_t most) {
  double *x = alloc((size_t)n * sizeof *x);
  for (int i = 0; i < n; i++)
    x[i] = (double)below(most) / 8;
  return x;
}

/* Random multiples of a quarter of each. */
static double *shares(int n, const double *of) {
  double *x = alloc((size_t)n * sizeof *x);
  for (int i = 0; i < n; i++)
    x[i] = of[i] * (double)below(5) / 4;
  return x;
}

static int64_t *sizes(int n, uint64_t most) {
  int64_t *x = alloc((size_t)n * sizeof *x);
  for (int i = 0; i < n; i++)
    x[i] = (int64_t)below(most);
  return x;
}

/* Parameters of random size, each used by one to three pieces; a stage holds each of its parameters once. */
static void add_parameters(Case *k) {
  Costs *c = &k->costs;
  Holding *holding = alloc(MAX_PARAMS * sizeof *holding);
  k->n_params = 1 + (int)below(MAX_PARAMS);
  for (int q = 0; q < k->n_params; q++) {
    int64_t size = (int64_t)below(40);
    int *users = alloc((size_t)c->n * sizeof *users), n = 0;
    for (int i = 0; i < c->n; i++)
      if (below((uint64_t)c->n) < 2)
        users[n++] = i;
    holding[q] =
        (Holding){{.weights = size, .masters = size + (int64_t)below(9), .update = (double)size / 16}, n, users};
  }
  k->param = holding;
  c->holdings = holdings_make(c->n, holding, k->n_params);
  c->share = below(2) ? 1 : 0.25;
  c->exchange = (double)below(4) / 64;
}

static double *between(int n, uint64_t most) {
  double *x = seconds(n + 1, most);
  x[0] = x[n] = 0;
  return x;
}

static int64_t *bytes_between(int n, uint64_t most) {
  int64_t *x = sizes(n + 1, most);
  x[0] = x[n] = 0;
  return x;
}

/* Links of different levels for receiving and sending. */
static Wiring some_wiring(bool in, bool out) {
  static const Link links[] = {{.latency = 0.125, .byte = 0.0625}, {.latency = 1, .byte = 0.5}};
  return (Wiring){.in = in ? &links[below(2)] : NULL,
                  .out = out ? &links[below(2)] : NULL,
                  .in_sharing = 1 + (double)below(2),
                  .out_sharing = 1 + (double)below(2),
                  .reduce = (double)below(8) / 64,
                  .reduce_latency = (double)below(3)};
}

static Case random_case_of(int stages, int n) {
  Case k = {.stages = stages};
  uint64_t spread = below(3) ? 64 : 4; /* few different values: many ties */
  Costs *c = &k.costs;
  c->n = n;
  c->forward = seconds(n, spread);
  c->backward = seconds(n, 2 * spread);
  c->products = shares(n, c->backward);
  c->receive = between(n, spread / 2);
  c->receive_gradient = between(n, spread / 2);
  add_parameters(&k);
  c->gradients = sizes(n, 20);
  c->saved = sizes(n, 50);
  c->inputs = sizes(n, 5);
  c->deferred = sizes(n, 10);
  c->beside = below(3) == 0;
  c->overlapped = below(2);
  c->fill =
      !c->overlapped ? 1.0 / (double)(3 + below(8)) : 0; /* per microbatch, with one microbatch per replica */
  c->work = sizes(n, 30);
  c->activations = bytes_between(n, 10);
  c->activation_gradients = bytes_between(n, 10);
  for (int i = 0; i < k.stages; i++) {
    bool last = i == k.stages - 1;
    int policy = last ? 0 : (int)below(3);
    k.copies[i] = (Copies){.replicas = 1 + (int)below(3),
                           .wiring = some_wiring(i > 0, !last),
                           .exchanges = 1 + (int)below(2),
                           .weights = 2 + (int)below(3),
                           .accumulators = 1 + (int)below(2),
                           .saved = k.stages - i,
                           .received = k.stages - i + 1,
                           .sent = k.stages - i,
                           .gradients = 2,
                           .inputs = k.stages - i,
                           .deferred = (int)below(2),
                           .beside = below(4) ? 0 : (double)below(spread) / 8,
                           .extra = (int64_t)below(20),
                           .recompute_off = policy != 1,
                           .recompute_on = policy != 0};
    k.copies[i].buckets =
        below(2) && c->share * k.copies[i].replicas <= 1; /* each replica has a microbatch of a batch */
  }
  k.limit = below(4) ? 100 + (int64_t)below(600) : INT64_MAX;
  return k;
}

static Case random_case(void) {
  const int stages = 1 + (int)below(MAX_DEPTH);
  return random_case_of(stages, stages + (int)below(MAX_PIECES - MAX_DEPTH + 1));
}

/* ---- a stage, computed by definition --------------------------------------------------------------- */

/* The parameter has a user in pieces [first, end), or with `outside` a user outside them. */
static bool has_user(const Holding *q, int first, int end, bool outside) {
  for (int i = 0; i < q->n; i++)
    if ((q->users[i] >= first && q->users[i] < end) != outside)
      return true;
  return false;
}

static Held held_by(const Case *k, int first, int end, int64_t *shared) {
  Held sum = {0};
  *shared = 0;
  for (int q = 0; q < k->n_params; q++) {
    const Holding *of = &k->param[q];
    if (!has_user(of, first, end, false))
      continue;
    sum.weights += of->held.weights;
    sum.masters += of->held.masters;
    sum.update += of->held.update;
    *shared += has_user(of, first, end, true) ? of->held.masters : 0;
  }
  return sum;
}

static double crossing(const Link *link, double sharing, int64_t bytes) {
  return link->latency + (double)bytes * link->byte * sharing;
}

/* Seconds of a microbatch's forward and backward pass, including receiving if it takes work. */
static double passage(const Case *k, const Wiring *w, int first, int end, bool recompute) {
  const Costs *c = &k->costs;
  double t = c->receive[first] + c->receive_gradient[end];
  if (!c->beside && first > 0 && w->in)
    t += crossing(w->in, w->in_sharing, c->activations[first]);
  if (!c->beside && end < c->n && w->out)
    t += crossing(w->out, w->out_sharing, c->activation_gradients[end]);
  for (int i = first; i < end; i++)
    t += c->forward[i] * (recompute ? 2 : 1) + c->backward[i];
  return t;
}

static double most_bytes(const Costs *c, int cut) {
  return (double)(c->activations[cut] > c->activation_gradients[cut] ? c->activations[cut]
                                                                     : c->activation_gradients[cut]);
}

/* A stage's times per microbatch: its passes, and their share on which no other stage waits. Further, concurrent
 * messages and the first of them, and the update with the replicas' exchange. */
typedef struct Parts {
  double passes, aside, pace, first, update, way, between;
} Parts;

static Parts stage_parts(const Case *k, const Copies *at, int first, int end, bool recompute) {
  const Costs *c = &k->costs;
  const Wiring *w = &at->wiring;
  int64_t gradients = 0, shared;
  double extra = 0; /* latency without work of the rank */
  double backward = 0, repeated = 0;
  Held held = held_by(k, first, end, &shared);
  Parts p = {.way = passage(k, w, first, end, recompute)};
  for (int i = first; i < end; i++) {
    gradients += c->gradients[i];
    backward += c->backward[i];
    p.aside += at->deferred ? c->products[i] : 0; /* weights passes: backward is split */
    repeated += recompute ? c->forward[i] : 0;    /* before the gradients arrive */
  }
  if (c->beside && first > 0 && w->in) {
    double message =
        most_bytes(c, first) > 0 ? w->in->latency + most_bytes(c, first) * w->in->byte * w->in_sharing : 0;
    extra = 2 * message;
  }
  double update = c->share * (held.update + (double)shared * c->exchange);
  double reduce = c->share * (w->reduce_latency + (double)gradients * w->reduce), pace = 0;
  if (c->beside && first > 0 && w->in)
    pace = fmax(pace, most_bytes(c, first) * w->in->byte * w->in_sharing);
  if (c->beside && end < c->n && w->out)
    pace = fmax(pace, most_bytes(c, end) * w->out->byte * w->out_sharing);
  p.passes = p.way / at->replicas + at->beside;
  p.pace = pace / at->replicas;
  p.first = c->fill * pace;
  p.update = update + (at->buckets && c->beside ? fmax(0, reduce - c->share * backward) : reduce);
  if (c->overlapped) { /* all phases overlap */
    p.passes = fmax(fmax(p.way / at->replicas + update, reduce), pace / at->replicas) + at->beside;
    p.update = p.pace = p.first = 0;
  }
  p.way -= p.aside + repeated;
  p.between = c->fill * extra;
  p.aside /= at->replicas;
  return p;
}

static double stage_seconds(const Case *k, const Copies *at, int first, int end, bool recompute) {
  Parts p = stage_parts(k, at, first, end, recompute);
  return fmax(p.passes + p.update, p.pace);
}

static int64_t stage_bytes(const Case *k, const Copies *at, int first, int end, bool recompute) {
  const Costs *c = &k->costs;
  int64_t work = 0, gradients = 0, shared;
  Held held = held_by(k, first, end, &shared);
  int64_t b = at->extra + held.weights * at->weights + (at->masters ? held.masters : 0);
  b += c->activations[first] * at->received + c->activations[end] * at->sent;
  b += (c->activation_gradients[first] + c->activation_gradients[end]) * at->gradients;
  for (int i = first; i < end; i++) {
    gradients += c->gradients[i];
    b += c->saved[i] * (recompute ? 1 : at->saved) + c->inputs[i] * at->inputs + c->deferred[i] * at->deferred;
    work = c->work[i] > work ? c->work[i] : work;
  }
  return b + work + gradients * at->accumulators + at->exchanges * (gradients * (at->replicas - 1) / at->replicas);
}

/* ---- partitions ------------------------------------------------------------------------------------- */

typedef struct Best {
  double value;
  int64_t smallest;
} Best;

/* The fastest way to run pieces [first, end) as a stage within the limit, by definition. */
static double stage_best(const Case *k, int stage, int first, int end, int64_t *least, bool *recomputes) {
  double best = INFINITY;
  *least = INT64_MAX;
  *recomputes = false;
  for (int recompute = 0; recompute < 2; recompute++) {
    if (!(recompute ? k->copies[stage].recompute_on : k->copies[stage].recompute_off))
      continue;
    int64_t b = stage_bytes(k, &k->copies[stage], first, end, recompute);
    double t = stage_seconds(k, &k->copies[stage], first, end, recompute) + k->copies[stage].beside;
    *least = b < *least ? b : *least;
    if (b <= k->limit && t < best) {
      best = t;
      *recomputes = recompute;
    }
  }
  return best;
}

/* The value of the partition with these starts: the longest time from a stage's first pass to its update,
 * including waits for later stages. INFINITY: a stage does not fit. */
static double value_of_partition(const Case *k, const int *start, int64_t *largest) {
  double early = 0, late = 0;
  bool fits = true;
  *largest = 0;
  for (int i = k->stages - 1; i >= 0; i--) {
    int end = i + 1 < k->stages ? start[i + 1] : k->costs.n;
    int64_t least;
    bool recompute;
    fits &= isfinite(stage_best(k, i, start[i], end, &least, &recompute));
    Parts p = stage_parts(k, &k->copies[i], start[i], end, recompute);
    early = fmax(fmax(p.passes - p.aside, p.pace - p.first), k->costs.fill * p.way + early);
    late = fmax(fmax(fmax(early, p.passes) + p.update, p.pace), late);
    early += p.between;
    *largest = least > *largest ? least : *largest;
  }
  return fits ? late : INFINITY;
}

static void every(const Case *k, int stage, int *start, Best *best) {
  if (stage == k->stages) {
    int64_t largest;
    double value = value_of_partition(k, start, &largest);
    best->value = value < best->value ? value : best->value;
    best->smallest = largest < best->smallest ? largest : best->smallest;
    return;
  }
  for (int first = stage == 0 ? 0 : start[stage - 1] + 1; first <= k->costs.n - (k->stages - stage); first++) {
    start[stage] = first;
    every(k, stage + 1, start, best);
    if (stage == 0)
      return;
  }
}

static Best best_of_all(const Case *k) {
  Best best = {INFINITY, INT64_MAX};
  int start[MAX_DEPTH];
  every(k, 0, start, &best);
  return best;
}

static void check_partition(const Case *k, const Partition *part) {
  assert_int_equal(part->start[0], 0);
  assert_int_equal(part->start[k->stages], k->costs.n);
  double slowest = 0;
  for (int i = 0; i < k->stages; i++) {
    assert_true(part->start[i] < part->start[i + 1]);
    assert_true(part->recompute[i] ? k->copies[i].recompute_on : k->copies[i].recompute_off);
    double t = stage_seconds(k, &k->copies[i], part->start[i], part->start[i + 1], part->recompute[i]);
    slowest = t > slowest ? t : slowest;
  }
  assert_true(fabs(slowest - part->slowest) <= 1e-9 * (1 + slowest));
}

static bool close_to(double a, double b) { return fabs(a - b) <= 1e-9 * (1 + fabs(b)); }

static void fastest_is_the_best_of_all(void **unused) {
  (void)unused;
  int fitting = 0, refused = 0, recomputing = 0;
  for (int i = 0; i < CASES; i++) {
    Case k = random_case();
    Best best = best_of_all(&k);
    Partition part;
    Spans spans = spans_make(&k.costs);
    double most = below(4) ? INFINITY : (double)below(200) + 0.01;
    bool found = partition_fastest(&spans, k.copies, k.stages, k.limit, most, &part);
    assert_int_equal(found, isfinite(best.value) && best.value <= most);
    if (!found) {
      refused++;
      continue;
    }
    fitting++;
    check_partition(&k, &part);
    assert_true(close_to(part.value, best.value));
    for (int s = 0; s < k.stages; s++) {
      recomputing += part.recompute[s];
      assert_true(stage_bytes(&k, &k.copies[s], part.start[s], part.start[s + 1], part.recompute[s]) <= k.limit);
    }
  }
  assert_true(fitting > CASES / 4 && refused > CASES / 20 && recomputing > CASES / 20);
}

/* A draining pipeline of many pieces: for a suffix of stages, many ways are each the best before some stage. */
static void fastest_keeps_every_state(void **unused) {
  (void)unused;
  enum { STAGES = 5, PIECES = 18, WIDE_CASES = 400 };
  int draining = 0;
  for (int i = 0; i < WIDE_CASES; i++) {
    Case k = random_case_of(STAGES, PIECES);
    Partition part;
    if (k.costs.fill <= 0)
      continue;
    const Best best = best_of_all(&k);
    Spans spans = spans_make(&k.costs);
    assert_int_equal(partition_fastest(&spans, k.copies, STAGES, k.limit, INFINITY, &part), isfinite(best.value));
    assert_true(!isfinite(best.value) || close_to(part.value, best.value));
    draining++;
  }
  assert_true(draining > WIDE_CASES / 4);
}

/* With many pieces, a search on some cuts bounds the search on all cuts, which finds a partition at least as
 * good. */
static void fastest_of_many_pieces_is_found(void **unused) {
  (void)unused;
  enum { STAGES = 5, PIECES = 600, MANY_CASES = 24 };
  for (int i = 0; i < MANY_CASES; i++) {
    Case k = random_case_of(STAGES, PIECES);
    Partition part;
    Spans spans = spans_make(&k.costs);
    assert_true(partition_fastest(&spans, k.copies, STAGES, INT64_MAX, INFINITY, &part));
    k.limit = INT64_MAX;
    check_partition(&k, &part);
  }
}

static void smallest_is_the_least_of_all(void **unused) {
  (void)unused;
  for (int i = 0; i < CASES / 2; i++) {
    Case k = random_case();
    Best best = best_of_all(&k);
    Partition part;
    Spans spans = spans_make(&k.costs);
    assert_int_equal(partition_smallest(&spans, k.copies, k.stages, &part), best.smallest);
    check_partition(&k, &part);
  }
}

/* With pinned stages and cuts, only recomputation is chosen. */
static void pinned_keeps_the_cuts(void **unused) {
  (void)unused;
  for (int i = 0; i < CASES / 2; i++) {
    Case k = random_case();
    int start[MAX_DEPTH];
    bool fits = true;
    for (int s = 0; s < k.stages; s++)
      start[s] = s == 0 ? 0 : start[s - 1] + 1;
    for (int s = 0; s < k.stages; s++) {
      int64_t least;
      bool recompute;
      fits &=
          isfinite(stage_best(&k, s, start[s], s + 1 < k.stages ? start[s + 1] : k.costs.n, &least, &recompute));
    }
    Partition part;
    Spans spans = spans_make(&k.costs);
    assert_int_equal(partition_pinned(&spans, k.copies, k.stages, start, k.limit, &part), fits);
    check_partition(&k, &part);
    for (int s = 0; s < k.stages; s++)
      assert_int_equal(part.start[s], start[s]);
  }
}

/* Equal blocks without communication: every stage gets the same number, even if other partitions are as fast. */
static void equals_are_even(void **unused) {
  (void)unused;
  enum { N = 13 };
  double one[N], zero[(N + 1) * (N + 1)] = {0};
  int64_t none[(N + 1) * (N + 1)] = {0};
  for (int i = 0; i < N; i++)
    one[i] = i == N - 1 ? 8 : 1; /* the last piece alone is the slowest stage */
  Costs c = {.n = N,
             .forward = one,
             .backward = one,
             .products = zero,
             .receive = zero,
             .receive_gradient = zero,
             .holdings = holdings_make(N, NULL, 0),
             .gradients = none,
             .saved = none,
             .inputs = none,
             .deferred = none,
             .work = none,
             .activations = none,
             .activation_gradients = none};
  Copies at[3];
  for (int i = 0; i < 3; i++)
    at[i] = (Copies){.replicas = 1, .recompute_off = true};
  Partition part;
  Spans spans = spans_make(&c);
  assert_true(partition_fastest(&spans, at, 3, INT64_MAX, INFINITY, &part));
  assert_true(close_to(part.slowest, 16));
  assert_int_equal(part.start[1], 6);
  assert_int_equal(part.start[2], 12);
}

/* ---- ranks by stage ------------------------------------------------------------------------------ */

typedef struct Way {
  Ways w;
  const Case *problem;
  Topology topology;
  ScheduleTraits traits;
  int stages, start[MAX_PIECES], replicas[MAX_PIECES];
  double best;
  int found;
} Way;

/* A rank's memory grows with the turns in flight. */
static Copies some_copies(const void *way, const StageAhead *s) {
  const Topology *t = &((const Way *)way)->topology;
  int64_t turns = s->microbatches / s->replicas;
  int n = (int)(s->in_flight < turns ? s->in_flight : turns);
  bool last = s->behind == 0;
  Stand self = {.first = s->ranks_behind, .replicas = s->replicas, .adjacent = s->replicas};
  Stand behind = {.first = s->ranks_behind - s->behind, .replicas = s->behind, .adjacent = s->behind};
  Stand before = {.first = s->ranks_behind + s->replicas, .replicas = 1, .adjacent = 1};
  return (Copies){.replicas = s->replicas,
                  .wiring = wiring_of(t, &self, s->first ? NULL : &before, last ? NULL : &behind, 1),
                  .exchanges = 1,
                  .weights = 2,
                  .accumulators = 1,
                  .saved = n,
                  .received = s->first ? 1 : n + 1,
                  .sent = last ? 1 : n,
                  .gradients = 2,
                  .inputs = n,
                  .recompute_off = true,
                  .recompute_on = n > 1};
}

/* The value of the pipeline by definition, without labels; INFINITY: not allowed. */
static double value_of(const Way *k) {
  const Ways *w = &k->w;
  const Costs *c = w->spans->c;
  int64_t in_flight[MAX_PIECES + 1] = {0}, round = 1;
  double early = 0, late = 0;
  int ranks = 0;
  for (int s = k->stages - 1; s >= 0; s--) {
    int next = s + 1 < k->stages ? k->replicas[s + 1] : 0, end = s + 1 < k->stages ? k->start[s + 1] : c->n;
    in_flight[s] = next ? (in_flight[s + 1] * next + w->ahead * (k->replicas[s] > next ? k->replicas[s] : next) +
                           k->replicas[s] - 1) /
                              k->replicas[s]
                        : 1;
    if (k->traits.two_versions && (in_flight[s] - 1) * k->replicas[s] > w->microbatches)
      return INFINITY;
    round = common_multiple(round, k->replicas[s]);
    StageAhead stage = {w->microbatches, in_flight[s], k->replicas[s], next, ranks, k->start[s] == 0};
    Copies at = some_copies(k, &stage);
    bool off = stage_bytes(k->problem, &at, k->start[s], end, false) <= w->limit;
    if (!off && !(at.recompute_on && stage_bytes(k->problem, &at, k->start[s], end, true) <= w->limit))
      return INFINITY;
    Parts p = stage_parts(k->problem, &at, k->start[s], end, !off);
    early = fmax(fmax(p.passes - p.aside, p.pace - p.first), c->fill * p.way + early);
    late = fmax(fmax(fmax(early, p.passes) + p.update, p.pace), late);
    early += p.between;
    ranks += k->replicas[s];
  }
  return k->traits.every_round && round != w->microbatches ? INFINITY : late;
}

static void every_way(Way *k, int first, int used) {
  const Ways *w = &k->w;
  const int n = w->spans->c->n;
  if (first == n) {
    double value = k->stages >= w->least_stages ? value_of(k) : INFINITY;
    k->found += isfinite(value);
    k->best = fmin(k->best, value);
    return;
  }
  int stage = k->stages;
  if (stage == w->most_stages || (w->pinned && w->pinned[stage] != first))
    return;
  k->stages++;
  k->start[stage] = first;
  for (int end = first + 1; end <= n; end++)
    for (int r = 1; used + r <= w->ranks; r++)
      if (w->microbatches % r == 0 && (w->may_replicate || r == 1)) {
        k->replicas[stage] = r;
        every_way(k, end, used + r);
      }
  k->stages--;
}

/* A result is a valid way with the stated time. */
static void check_way(Way *k, const Replication *r) {
  assert_true(r->stages >= k->w.least_stages && r->stages <= k->w.most_stages);
  int sum = 0;
  k->stages = r->stages;
  for (int s = 0; s < r->stages; s++) {
    sum += k->replicas[s] = r->replicas[s];
    k->start[s] = r->start[s];
  }
  assert_int_equal(sum, r->ranks);
  assert_true(sum <= k->w.ranks);
  assert_true(close_to(value_of(k), r->value));
}

static void ranks_are_dealt_the_best_of_all_ways(void **unused) {
  (void)unused;
  enum { MORE = 8 }; /* few problems depend on turns in flight */
  int found = 0, none = 0, replicated = 0, fewer = 0;
  for (int i = 0; i < CASES * MORE; i++) {
    Case c = random_case();
    Spans spans = spans_make(&c.costs);
    int most = c.stages, start[MAX_DEPTH];
    for (int s = 0; s < most; s++)
      start[s] = s;
    bool pinned = below(4) == 0;
    Way k = {.w = {.spans = &spans,
                   .ranks = 1 + (int)below(6),
                   .least_stages = pinned || below(3) == 0 ? most : 1,
                   .most_stages = most,
                   .pinned = pinned ? start : NULL,
                   .may_replicate = below(5) > 0,
                   .microbatches = below(2) ? 12 : 1 + (int64_t)below(8),
                   .ahead = 1 + (int)below(2),
                   .limit = c.limit,
                   .copies = some_copies,
                   .most = INFINITY,
                   .most_found = 4,
                   .n_kinds = 1},
             .problem = &c,
             .traits = schedule_traits(below(4) == 0 ? "pipedream"
                                       : below(2)    ? "2bw"
                                                     : "flush"),
             .best = INFINITY};
    k.topology = below(2) ? topology_flat((Link){.latency = 0.125, .byte = 0.0625}, k.w.ranks)
                          : (Topology){.n = 2,
                                       .link = {{.latency = 0.125, .byte = 0.0625}, {.latency = 1, .byte = 0.5}},
                                       .devices = {1, 2, 8},
                                       .ranks = k.w.ranks};
    k.w.context = &k;
    k.w.alike = k.topology.n == 1;
    k.w.traits = &k.traits;
    Replications got = replicate(&k.w);
    every_way(&k, 0, 0);
    assert_int_equal(got.n > 0, isfinite(k.best));
    none += got.n == 0;
    for (int n = 0; n < got.n; n++)
      check_way(&k, &got.at[n]);
    if (got.n == 0)
      continue;
    assert_true(close_to(got.at[0].value, k.best));
    found++;
    replicated += got.at[0].ranks > got.at[0].stages;
    fewer += got.at[0].ranks < k.w.ranks;
  }
  assert_true(found > CASES / 5 && none > CASES / 10 && replicated > CASES / 20 && fewer > CASES / 20);
}

/* A bucket's exchange starts after its last piece's backward pass, when the link is free. The end of all exchanges
 * is the latest, over buckets, of the exchanges from that bucket on minus the pass after it. */
static void exchanges_end_with_the_last_bucket(void **state) {
  (void)state;
  int hidden = 0, whole = 0;
  for (int i = 0; i < CASES; i++) {
    Case k = random_case();
    Costs *c = &k.costs;
    const Wiring w = some_wiring(false, false);
    const Spans s = spans_make(c);
    const int first = (int)below((uint64_t)c->n), end = first + 1 + (int)below((uint64_t)(c->n - first));
    const int64_t bucket = below(4) ? 4 + (int64_t)below(20) : 0;
    double starts[MAX_PIECES], takes[MAX_PIECES], pass = 0, all = 0, latest = 0;
    int n = 0;
    int64_t bytes = 0;
    for (int p = end - 1; p >= first; p--) {
      pass += c->backward[p];
      bytes += c->gradients[p];
      if (bytes == 0 || (bytes < bucket && p > first))
        continue;
      starts[n] = pass, takes[n++] = w.reduce_latency + (double)bytes * w.reduce;
      bytes = 0;
    }
    for (int b = 0; b < n; b++) {
      double behind = 0;
      for (int later = b; later < n; later++)
        behind += takes[later];
      latest = fmax(latest, starts[b] + behind - pass);
      all += takes[b];
    }
    const SpanReduction x = span_reduction(&s, &w, first, end, bucket);
    if (bucket && c->beside && s.gradients[end] > s.gradients[first] && w.reduce + w.reduce_latency > 0) {
      assert_true(close_to(x.all, all) && close_to(x.all - x.hidden, latest));
      assert_true(x.hidden <= pass * (1 + 1e-12));
      hidden += x.hidden > 0;
    } else {
      assert_true(x.hidden == 0);
      whole++;
    }
  }
  assert_true(hidden > CASES / 20 && whole > CASES / 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fastest_is_the_best_of_all),
      cmocka_unit_test(fastest_keeps_every_state),
      cmocka_unit_test(fastest_of_many_pieces_is_found),
      cmocka_unit_test(smallest_is_the_least_of_all),
      cmocka_unit_test(pinned_keeps_the_cuts),
      cmocka_unit_test(equals_are_even),
      cmocka_unit_test(ranks_are_dealt_the_best_of_all_ways),
      cmocka_unit_test(exchanges_end_with_the_last_bucket),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
