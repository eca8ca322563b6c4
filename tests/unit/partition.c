/* The planner's partition against trying every one: random lists of pieces, costs, copies and limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "plan/partition.h"

enum { MAX_PIECES = 9, MAX_DEPTH = 5, CASES = 6000 };

static uint64_t state = 88172645463325252u;

static uint64_t below(uint64_t n) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (state >> 11) % n;
}

typedef struct Case {
  Costs costs;
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

static int64_t *sizes(int n, uint64_t most) {
  int64_t *x = alloc((size_t)n * sizeof *x);
  for (int i = 0; i < n; i++)
    x[i] = (int64_t)below(most);
  return x;
}

/* Parameters of random size, each used by one or two pieces: a stage holds each of its own once. */
static void add_parameters(Costs *c) {
  int side = c->n + 1, n_params = 1 + (int)below(6), user[6][2];
  int64_t size[6], *weights = alloc((size_t)side * side * sizeof *weights);
  double *update = alloc((size_t)side * side * sizeof *update);
  for (int q = 0; q < n_params; q++) {
    size[q] = (int64_t)below(40);
    user[q][0] = (int)below(c->n);
    user[q][1] = (int)below(c->n);
  }
  for (int i = 0; i < c->n; i++)
    for (int j = i + 1; j <= c->n; j++)
      for (int q = 0; q < n_params; q++)
        if ((user[q][0] >= i && user[q][0] < j) || (user[q][1] >= i && user[q][1] < j)) {
          weights[i * side + j] += size[q];
          update[i * side + j] += (double)size[q] / 16;
        }
  c->weights = weights;
  c->update = update;
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

static Case random_case(void) {
  Case k = {.stages = 1 + (int)below(MAX_DEPTH)};
  int n = k.stages + (int)below(MAX_PIECES - MAX_DEPTH + 1);
  uint64_t spread = below(3) ? 64 : 4; /* few different values: many ties */
  Costs *c = &k.costs;
  c->n = n;
  c->forward = seconds(n, spread);
  c->backward = seconds(n, 2 * spread);
  c->receive = between(n, spread / 2);
  c->receive_gradient = between(n, spread / 2);
  add_parameters(c);
  c->gradients = sizes(n, 20);
  c->saved = sizes(n, 50);
  c->inputs = sizes(n, 5);
  c->deferred = sizes(n, 10);
  c->reduce = (double)below(8) / 64;
  c->overlapped = below(2);
  c->work = sizes(n, 30);
  c->activations = bytes_between(n, 10);
  c->activation_gradients = bytes_between(n, 10);
  for (int i = 0; i < k.stages; i++) {
    bool last = i == k.stages - 1;
    int policy = last ? 0 : (int)below(3);
    k.copies[i] = (Copies){.replicas = 1 + (int)below(3),
                           .exchanges = 1 + (int)below(2),
                           .weights = 2 + (int)below(3),
                           .accumulators = 1 + (int)below(2),
                           .saved = k.stages - i,
                           .received = k.stages - i + 1,
                           .sent = k.stages - i,
                           .gradients = 2,
                           .inputs = k.stages - i,
                           .deferred = (int)below(2),
                           .extra = (int64_t)below(20),
                           .recompute_off = policy != 1,
                           .recompute_on = policy != 0};
  }
  k.limit = below(4) ? 100 + (int64_t)below(600) : INT64_MAX;
  return k;
}

typedef struct Best {
  double slowest;
  int64_t smallest;
} Best;

/* The fastest way to run pieces [first, end) as a stage within the limit, straight from the definition. */
static double stage_best(const Case *k, int stage, int first, int end, int64_t *least) {
  double best = INFINITY;
  *least = INT64_MAX;
  for (int recompute = 0; recompute < 2; recompute++) {
    if (!(recompute ? k->copies[stage].recompute_on : k->copies[stage].recompute_off))
      continue;
    int64_t b = stage_bytes(&k->costs, &k->copies[stage], first, end, recompute);
    double t = stage_seconds(&k->costs, k->copies[stage].replicas, first, end, recompute);
    *least = b < *least ? b : *least;
    if (b <= k->limit && t < best)
      best = t;
  }
  return best;
}

static void every(const Case *k, int stage, int first, double slowest, int64_t largest, Best *best) {
  bool last = stage == k->stages - 1;
  int n = k->costs.n;
  for (int end = last ? n : first + 1; end <= (last ? n : n - (k->stages - 1 - stage)); end++) {
    int64_t least;
    double t = stage_best(k, stage, first, end, &least);
    t = t > slowest ? t : slowest;
    least = least > largest ? least : largest;
    if (!last) {
      every(k, stage + 1, end, t, least, best);
      continue;
    }
    best->slowest = t < best->slowest ? t : best->slowest;
    best->smallest = least < best->smallest ? least : best->smallest;
  }
}

static void check_partition(const Case *k, const Partition *part) {
  assert_int_equal(part->start[0], 0);
  assert_int_equal(part->start[k->stages], k->costs.n);
  double slowest = 0;
  for (int i = 0; i < k->stages; i++) {
    assert_true(part->start[i] < part->start[i + 1]);
    assert_true(part->recompute[i] ? k->copies[i].recompute_on : k->copies[i].recompute_off);
    double t =
        stage_seconds(&k->costs, k->copies[i].replicas, part->start[i], part->start[i + 1], part->recompute[i]);
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
    Best best = {INFINITY, INT64_MAX};
    every(&k, 0, 0, 0, 0, &best);
    Partition part;
    bool found = partition_fastest(&k.costs, k.copies, k.stages, k.limit, &part);
    assert_int_equal(found, isfinite(best.slowest));
    if (!found) {
      refused++;
      continue;
    }
    fitting++;
    check_partition(&k, &part);
    assert_true(close_to(part.slowest, best.slowest));
    for (int s = 0; s < k.stages; s++) {
      recomputing += part.recompute[s];
      assert_true(stage_bytes(&k.costs, &k.copies[s], part.start[s], part.start[s + 1], part.recompute[s]) <=
                  k.limit);
    }
  }
  assert_true(fitting > CASES / 4 && refused > CASES / 20 && recomputing > CASES / 20);
}

static void smallest_is_the_least_of_all(void **unused) {
  (void)unused;
  for (int i = 0; i < CASES / 2; i++) {
    Case k = random_case();
    Best best = {INFINITY, INT64_MAX};
    every(&k, 0, 0, 0, 0, &best);
    Partition part;
    assert_int_equal(partition_smallest(&k.costs, k.copies, k.stages, &part), best.smallest);
    check_partition(&k, &part);
  }
}

/* With stages and cuts given only recomputation is left to choose. */
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
      fits &= isfinite(stage_best(&k, s, start[s], s + 1 < k.stages ? start[s + 1] : k.costs.n, &least));
    }
    Partition part;
    assert_int_equal(partition_pinned(&k.costs, k.copies, k.stages, start, k.limit, &part), fits);
    check_partition(&k, &part);
    for (int s = 0; s < k.stages; s++)
      assert_int_equal(part.start[s], start[s]);
  }
}

/* Equal blocks and no cost between them: every stage gets as many, whatever else is as fast. */
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
             .receive = zero,
             .receive_gradient = zero,
             .update = zero,
             .weights = none,
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
  assert_true(partition_fastest(&c, at, 3, INT64_MAX, &part));
  assert_true(close_to(part.slowest, 16));
  assert_int_equal(part.start[1], 6);
  assert_int_equal(part.start[2], 12);
}

/* ---- ranks by stage ------------------------------------------------------------------------------ */

typedef struct Ways {
  const Costs *c;
  const int *pinned;
  int ranks, stages;
  int64_t microbatches;
  bool every_round;
  double best; /* of exactly `stages` stages */
} Ways;

static int64_t multiple(int64_t a, int64_t b) {
  int64_t m = a;
  while (m % b != 0)
    m += a;
  return m;
}

static void every_way(Ways *k, int stage, int first, int used, int64_t round, double slowest) {
  if (stage == k->stages) {
    bool all = first == k->c->n && used == k->ranks && (!k->every_round || round == k->microbatches);
    if (all && slowest < k->best)
      k->best = slowest;
    return;
  }
  for (int end = first + 1; end <= k->c->n; end++) {
    if (k->pinned && end != (stage + 1 < k->stages ? k->pinned[stage + 1] : k->c->n))
      continue;
    for (int w = 1; used + w <= k->ranks; w++) {
      if (k->microbatches % w != 0)
        continue;
      double t = stage_seconds(k->c, w, first, end, false);
      every_way(k, stage + 1, end, used + w, multiple(round, w), t > slowest ? t : slowest);
    }
  }
}

/* Whether some cuts reach the time with these ranks. */
static bool reaches(const Ways *k, const int *replicas, double slowest) {
  Copies at[MAX_DEPTH];
  for (int i = 0; i < k->stages; i++)
    at[i] = (Copies){.replicas = replicas[i], .recompute_off = true};
  Partition part;
  if (k->pinned)
    assert_true(partition_pinned(k->c, at, k->stages, k->pinned, INT64_MAX, &part));
  else
    assert_true(partition_fastest(k->c, at, k->stages, INT64_MAX, &part));
  return close_to(part.slowest, slowest);
}

static void ranks_are_dealt_the_best_of_all_ways(void **unused) {
  (void)unused;
  int found = 0, none = 0, replicated = 0;
  for (int i = 0; i < CASES / 10; i++) {
    Case c = random_case();
    Ways k = {
        .c = &c.costs, .ranks = 1 + (int)below(6), .microbatches = 1 + (int64_t)below(8), .every_round = below(2)};
    int most = c.stages < k.ranks ? c.stages : k.ranks, start[MAX_DEPTH];
    for (int s = 0; s < most; s++)
      start[s] = s;
    k.pinned = below(4) ? NULL : start;
    Replication *got = replicate(k.c, k.pinned, k.ranks, most, k.microbatches, k.every_round);
    for (k.stages = k.pinned ? most : 1; k.stages <= most; k.stages++) {
      const Replication *r = &got[k.stages - 1];
      k.best = INFINITY;
      every_way(&k, 0, 0, 0, 1, 0);
      assert_int_equal(r->replicas != NULL, isfinite(k.best));
      if (!r->replicas) {
        none++;
        continue;
      }
      found++;
      assert_true(close_to(r->slowest, k.best));
      assert_true(reaches(&k, r->replicas, r->slowest));
      int64_t sum = 0, round = 1;
      for (int s = 0; s < k.stages; s++) {
        sum += r->replicas[s];
        round = multiple(round, r->replicas[s]);
      }
      assert_int_equal(sum, k.ranks);
      assert_true(k.every_round ? round == k.microbatches : k.microbatches % round == 0);
      replicated += sum > k.stages;
    }
  }
  assert_true(found > CASES / 30 && none > CASES / 30 && replicated > CASES / 100);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fastest_is_the_best_of_all),
      cmocka_unit_test(smallest_is_the_least_of_all),
      cmocka_unit_test(pinned_keeps_the_cuts),
      cmocka_unit_test(equals_are_even),
      cmocka_unit_test(ranks_are_dealt_the_best_of_all_ways),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
