/* States of random graphs against all sets of layers, and PipeDream's planner against all divisions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "layers/internal.h"
#include "pipedream/pipedream.h"
#include "random.h"

enum { MAX_LAYERS = 9 };

/* A graph of n layers; `density` of ten pairs of layers have an edge. With one source, all depend on layer 0. */
static LayerGraph random_graph(int n, int density, bool one_source) {
  LayerGraph g = {.name = intern("random"), .file = -1};
  push(&g.devices, NULL);
  uint64_t spread = below(3) ? 64 : 4; /* few different values: many ties */
  for (int i = 0; i < n; i++) {
    Layer l = {.name = internf("l%d", i), .cut = below(6) != 0, .where = NO_SPAN};
    l.forward = alloc(sizeof(double));
    l.backward = alloc(sizeof(double));
    *l.forward = (double)below(spread) / 8;
    *l.backward = (double)below(spread) / 8;
    l.output = (int64_t)below(spread);
    l.parameters = (int64_t)below(4 * spread);
    for (int k = 0; k < i; k++)
      if ((int)below(10) < density || k == i - 1 - (int)below(8))
        push(&l.inputs, k);
    if (one_source && i && !l.inputs.n)
      push(&l.inputs, 0);
    push(&g.layers, l);
  }
  return g;
}

/* ---- states ---------------------------------------------------------------------------------------- */

static unsigned with_needs(const LayerGraph *g, unsigned set, int layer) {
  set |= 1u << layer;
  for (int i = layer; i >= 0; i--)
    for (int k = 0; set >> i & 1 && k < g->layers.at[i].inputs.n; k++)
      set |= 1u << g->layers.at[i].inputs.at[k];
  return set;
}

static int dependants(const LayerGraph *g, int source) {
  int count = 0;
  for (int i = 0; i < g->layers.n; i++)
    count += with_needs(g, 0, i) >> source & 1;
  return count;
}

/* Marks all sets reachable from this one by adding a layer that reads a member. */
static void grow(const LayerGraph *g, unsigned set, bool *reached) {
  if (reached[set])
    return;
  reached[set] = true;
  for (int i = 0; i < g->layers.n; i++)
    for (int k = 0; k < g->layers.at[i].inputs.n; k++)
      if (!(set >> i & 1) && set >> g->layers.at[i].inputs.at[k] & 1)
        grow(g, with_needs(g, set, i), reached);
}

/* By definition: the bytes that cross, and whether they may. */
static bool is_legal(const LayerGraph *g, unsigned set, int64_t *output) {
  unsigned crosses = 0;
  for (int i = 0; i < g->layers.n; i++)
    for (int k = 0; !(set >> i & 1) && k < g->layers.at[i].inputs.n; k++)
      crosses |= set & 1u << g->layers.at[i].inputs.at[k];
  bool legal = true;
  *output = 0;
  for (int i = 0; i < g->layers.n; i++)
    if (crosses >> i & 1) {
      legal = legal && g->layers.at[i].cut;
      *output += g->layers.at[i].output;
    }
  return legal;
}

static unsigned set_of(const States *s, int i) { return (unsigned)s->members[(size_t)i * s->words]; }

static void check_state(const LayerGraph *g, const States *s, int i) {
  unsigned set = set_of(s, i);
  double compute = 0;
  int64_t parameters = 0, output;
  for (int k = 0; k < g->layers.n; k++)
    if (set >> k & 1) {
      compute += *g->layers.at[k].forward + *g->layers.at[k].backward;
      parameters += g->layers.at[k].parameters;
    }
  is_legal(g, set, &output);
  assert_true(fabs(compute - s->compute[i]) < 1e-9);
  assert_int_equal(parameters, s->parameters[i]);
  assert_int_equal(output, s->output[i]);
  for (int k = 0; k < s->n; k++) {
    assert_int_equal(state_contains(s, i, k), (set_of(s, k) & ~set) == 0);
    assert_true(k <= i || !state_contains(s, i, k));
  }
}

static void test_states(void **unused) {
  (void)unused;
  for (int trial = 0; trial < 3000; trial++) {
    int n = 1 + (int)below(MAX_LAYERS);
    LayerGraph g = random_graph(n, (int)below(5), below(2));
    const States *s = states_find(&g, 0);
    int source = -1;
    for (int i = 0; i < n; i++)
      if (!g.layers.at[i].inputs.n && (source < 0 || dependants(&g, i) > dependants(&g, source)))
        source = i;
    unsigned all = (1u << n) - 1, last = 0;
    bool reached[1u << MAX_LAYERS] = {false};
    grow(&g, 1u << source, reached);
    int count = 0;
    int64_t output;
    for (unsigned set = 1; set <= all; set++)
      last = reached[set] && __builtin_popcount(set) > __builtin_popcount(last) ? set : last;
    for (unsigned set = 1; set <= all; set++)
      count += reached[set] && set != last && is_legal(&g, set, &output);
    assert_int_equal(s->n, count + 1);
    assert_int_equal(set_of(s, s->n - 1), all);
    for (int i = 0; i < s->n; i++) {
      assert_true(i == s->n - 1 || reached[set_of(s, i)]);
      check_state(&g, s, i);
    }
  }
}

static void test_every_closed_set(void **unused) {
  (void)unused;
  for (int trial = 0; trial < 1000; trial++) { /* with one source, all sets closed under inputs are states */
    int n = 1 + (int)below(MAX_LAYERS), count = 0;
    LayerGraph g = random_graph(n, 2, true);
    for (int i = 0; i < n; i++)
      g.layers.at[i].cut = true;
    for (unsigned set = 1; set < 1u << n; set++) {
      unsigned needs = set;
      for (int i = 0; i < n; i++)
        needs = set >> i & 1 ? with_needs(&g, needs, i) : needs;
      count += needs == set;
    }
    assert_int_equal(states_find(&g, 0)->n, count);
  }
}

/* ---- divisions -------------------------------------------------------------------------------------- */

typedef struct Case {
  const States *s;
  Cluster c;
  bool transfers;
} Case;

static double brute_force(const Case *k, int level, int from, int to);

static double stage_seconds(const Case *k, int level, int from, int to, int m, bool first) {
  const ClusterLevel *l = &k->c.level[level];
  double base =
      level ? brute_force(k, level - 1, from, to) : k->s->compute[to] - (from < 0 ? 0 : k->s->compute[from]);
  double bytes = (double)(k->s->parameters[to] - (from < 0 ? 0 : k->s->parameters[from]));
  double exchange = 4 * (m - 1) * bytes / (m * l->bandwidth);
  return (base + (first && level ? exchange / k->c.level[level - 1].count : exchange)) / m;
}

/* The time of the slowest stage from state `at` on, over all ways to choose stages. */
static double every(const Case *k, int level, int from, int at, int to, int machines, double slowest) {
  double best = INFINITY;
  for (int end = at + 1; end <= to; end++)
    for (int m = 1; m <= machines; m++) {
      if ((end == to) != (m == machines) || !state_contains(k->s, to, end) ||
          (at >= 0 && !state_contains(k->s, end, at)))
        continue;
      double t = fmax(slowest, stage_seconds(k, level, at, end, m, at == from));
      double byte = 2 / (k->c.level[level].bandwidth * m);
      if (k->transfers && at != from) {
        t = fmax(t, (double)k->s->output[at] * byte);
        if (end < k->s->n - 1)
          t = fmax(t, (double)k->s->output[end] * byte);
      }
      if (end < to)
        t = every(k, level, from, end, to, machines - m, t);
      best = fmin(best, t);
    }
  return best;
}

static double brute_force(const Case *k, int level, int from, int to) {
  return from >= 0 && !state_contains(k->s, to, from)
             ? INFINITY
             : every(k, level, from, from, to, k->c.level[level].count, 0);
}

/* The figures of a division add up. */
static void check_division(const Case *k, const Division *d, int from, int to) {
  int machines = 0, at = from;
  double slowest = 0;
  for (int i = 0; i < d->n; i++) {
    const PipeStage *p = &d->stage[i];
    assert_int_equal(p->from, at);
    assert_true(at < 0 || state_contains(k->s, p->to, at));
    double t = stage_seconds(k, d->level, p->from, p->to, p->machines, i == 0);
    assert_true(fabs(p->compute + p->exchange - t) <= 1e-9 * t);
    assert_true(p->seconds == fmax(p->compute + p->exchange, fmax(p->receive, p->send)));
    assert_true((p->within != NULL) == (d->level > 0));
    if (p->within)
      check_division(k, p->within, p->from, p->to);
    machines += p->machines;
    slowest = fmax(slowest, p->seconds);
    at = p->to;
  }
  assert_int_equal(at, to);
  assert_int_equal(machines, k->c.level[d->level].count);
  assert_true(d->seconds == slowest);
}

static void try_divisions(int trials, int layers, int levels, int machines) {
  for (int trial = 0; trial < trials; trial++) {
    LayerGraph g = random_graph(1 + (int)below((uint64_t)layers), (int)below(3), below(2));
    Case k = {.s = states_find(&g, 0), .c = {.n = levels}, .transfers = below(2)};
    if (k.s->n > 14)
      continue;
    for (int i = 0; i < levels; i++)
      k.c.level[i] = (ClusterLevel){.count = 1 + (int)below((uint64_t)machines),
                                    .bandwidth = (double)(1 + below(40)) / (1 + 3 * i)};
    const Division *d = pipedream_divide(k.s, &k.c, k.transfers);
    double best = brute_force(&k, levels - 1, -1, k.s->n - 1);
    assert_true(fabs(d->seconds - best) <= 1e-9 * best);
    check_division(&k, d, -1, k.s->n - 1);
    double parallel = pipedream_data_parallel(k.s, &k.c);
    assert_true(best <= parallel * (1 + 1e-9));
  }
}

static void test_one_level(void **unused) {
  (void)unused;
  try_divisions(6000, 8, 1, 4);
}

static void test_two_levels(void **unused) {
  (void)unused;
  try_divisions(3000, 5, 2, 3);
}

static void test_three_levels(void **unused) {
  (void)unused;
  try_divisions(300, 4, 3, 2);
}

/* ---- contraction ------------------------------------------------------------------------------------ */

/* Many layers cost nothing, so many states are equivalent. */
static LayerGraph cheap_graph(void) {
  LayerGraph g = random_graph(3 + (int)below(6), (int)below(3), true);
  for (int i = 1; i < g.layers.n; i++)
    if (below(2))
      *g.layers.at[i].forward = *g.layers.at[i].backward = (double)(g.layers.at[i].parameters = 0);
  return g;
}

static bool holds(unsigned set, const Ints *layers, bool all) {
  int n = 0;
  for (int i = 0; i < layers->n; i++)
    n += set >> layers->at[i] & 1;
  return all ? n == layers->n : n > 0;
}

/* Minimum over all states that contain `in` and no member of `out`. */
static int64_t least_bytes(const States *all, const Ints *in, const Ints *out) {
  int64_t least = INT64_MAX;
  for (int i = 0; i < all->n; i++)
    if (holds(set_of(all, i), in, true) && !holds(set_of(all, i), out, false) && all->output[i] < least)
      least = all->output[i];
  return least;
}

static void check_joint(const LayerGraph *g, const States *all, const Joint *joint) {
  int64_t least = least_bytes(all, &joint->before, &joint->behind);
  if (joint->beside) {
    const int64_t other = least_bytes(all, &joint->behind, &joint->before);
    least = other < least ? other : least;
  }
  assert_int_equal(joint_least_output(g, joint), least);
}

/* After each number of steps, the remaining states are original ones, no group is divided, and claims of zero loss
 * hold. */
static void check_steps(const LayerGraph *g, int *claims) {
  const States *all = states_find(g, 0);
  const Joints joints = contraction_steps(g, 0);
  const Cluster c = {.n = 1, .level = {{.count = 2 + (int)below(3), .bandwidth = (double)(1 + below(60)) / 4}}};
  const double best[] = {pipedream_divide(all, &c, false)->seconds, pipedream_divide(all, &c, true)->seconds};
  assert_int_equal(joints.n, g->layers.n - 1);
  for (int steps = 0, n = all->n; steps <= joints.n; steps++) {
    const States *s = states_after(g, 0, joints, steps);
    assert_true(s->n <= n && (steps > 0 || s->n == all->n) && (steps < joints.n || s->n == 1));
    n = s->n;
    for (int i = 0, k = 0; i < s->n; i++) {
      for (int m = 0; m < steps; m++)
        assert_int_equal(holds(set_of(s, i), &joints.at[m].before, true),
                         holds(set_of(s, i), &joints.at[m].behind, false));
      for (k = 0; k < all->n && set_of(all, k) != set_of(s, i);)
        k++;
      assert_true(k < all->n && all->output[k] == s->output[i] && all->compute[k] == s->compute[i]);
    }
    for (int transfers = 0; transfers < 2; transfers++) {
      const double seconds = pipedream_divide(s, &c, transfers)->seconds;
      assert_true(seconds >= best[transfers] * (1 - 1e-12));
      const double least = pipedream_least_seconds(g, s, &c, transfers, seconds);
      assert_true(best[transfers] >= least * (1 - 1e-12) && least <= seconds);
      if (least < seconds)
        continue;
      assert_true(seconds <= best[transfers] * (1 + 1e-12));
      *claims += steps > 0;
    }
  }
  for (int i = 0; i < joints.n; i++)
    check_joint(g, all, &joints.at[i]);
}

static void test_contractions(void **unused) {
  (void)unused;
  int claims = 0;
  for (int trial = 0; trial < 1500; trial++) {
    const LayerGraph g = cheap_graph();
    check_steps(&g, &claims);
  }
  for (int trial = 0; trial < 40; trial++) { /* combined steps leave no cycle, or contraction_steps() would fail */
    const LayerGraph g = random_graph(150, (int)below(3), true);
    assert_int_equal(contraction_steps(&g, 0).n, g.layers.n - 1);
  }
  assert_true(claims > 1500); /* claims of zero loss */
}

/* ---- limits ----------------------------------------------------------------------------------------- */

/* A layer, `branches` layers that read it, and a chain after the last of them. */
static LayerGraph comb(int n, int branches) {
  static double second = 1;
  LayerGraph g = {.name = intern("comb"), .file = -1};
  push(&g.devices, NULL);
  for (int i = 0; i < n; i++) {
    Layer l = {.name = internf("l%d", i), .forward = &second, .backward = &second, .output = 8, .cut = true};
    if (i)
      push(&l.inputs, i <= branches ? 0 : i - 1);
    push(&g.layers, l);
  }
  return g;
}

/* ---- chains ---------------------------------------------------------------------------------------- */

/* The most states of a chain that ends in state i, and the fewest bytes of such chains. */
static int longest(const States *s, int i, const int *with, int n, int64_t *bytes) {
  int most = 1;
  *bytes = s->output[i];
  for (int k = 0; k < n; k++)
    if (!state_contains(s, i, with[k]) && !state_contains(s, with[k], i))
      return 0;
  for (int k = 0; k < i; k++) {
    int64_t before;
    int count = state_contains(s, i, k) ? longest(s, k, with, n, &before) + 1 : 0;
    if (count > most || (count == most && count > 1 && before + s->output[i] < *bytes)) {
      most = count;
      *bytes = before + s->output[i];
    }
  }
  return most;
}

static void test_chains(void **unused) {
  (void)unused;
  for (int trial = 0; trial < 1000; trial++) {
    LayerGraph g = random_graph(1 + (int)below(7), (int)below(5), below(2));
    const States *s = states_find(&g, 0);
    int with[2] = {(int)below((uint64_t)s->n), (int)below((uint64_t)s->n)};
    int n =
        state_contains(s, with[0], with[1]) || state_contains(s, with[1], with[0]) ? (int)below(3) : (int)below(2);
    Ints chain = states_chain(s, with, n);
    int64_t bytes = 0, least;
    for (int i = 0; i < chain.n; i++) {
      bytes += s->output[chain.at[i]];
      assert_true(i == 0 || (chain.at[i] > chain.at[i - 1] && state_contains(s, chain.at[i], chain.at[i - 1])));
    }
    for (int k = 0; k < n; k++) {
      bool held = false;
      for (int i = 0; i < chain.n; i++)
        held |= chain.at[i] == with[k];
      assert_true(held);
    }
    assert_int_equal(chain.at[chain.n - 1], s->n - 1);
    assert_int_equal(chain.n, longest(s, s->n - 1, with, n, &least));
    assert_int_equal(bytes, least);
  }
}

/* ---- our own planner ------------------------------------------------------------------------------- */

/* For every schedule, cluster and memory limit: never slower than PipeDream's plan in the same simulator. */
static void test_never_slower(void **unused) {
  (void)unused;
  static const char *const schedules[] = {"2bw", "flush", "gpipe", "pipedream"};
  int simulated = 0;
  for (int trial = 0; trial < 400; trial++) {
    LayerGraph g = random_graph(2 + (int)below(MAX_LAYERS - 1), (int)below(4), below(2));
    for (int i = 0; i < g.layers.n; i++)
      *g.layers.at[i].forward += 1.0 / 8, g.layers.at[i].output++;
    Cluster c = {.n = 1 + (int)below(2)};
    for (int i = 0; i < c.n; i++)
      c.level[i] =
          (ClusterLevel){.count = 1 + (int)below(3), .bandwidth = (double)(1 + below(64)), .latency = 1e-6};
    LayerProfile l = {&g, 0, states_find(&g, 0)};
    PlanRequest q = {.workers = cluster_devices(&c),
                     .recompute = RECOMPUTE_AUTO,
                     .schedule = schedules[below(4)],
                     .target.backend = backend_find("cuda"),
                     .memory = below(3) ? 0 : 500 + (int64_t)below(4000)};
    LayerStages stages = stages_of_division(pipedream_divide(l.states, &c, below(2)));
    LayerPlans plans;
    int mark = diagnostics_mark();
    if (!layer_plans_make(&l, &q, &c, 0, &stages, &plans)) {
      diagnostics_forget(mark);
      assert_null(plans.other.plan);
      continue;
    }
    if (!plans.other.plan)
      continue;
    simulated++;
    assert_true(plan_pace(plans.own.plan) <= plan_pace(plans.other.plan) * (1 + 1e-12));
    assert_int_equal(plans.other.plan->pipeline.n_stages, stages.n);
    for (int i = 0; i < stages.n; i++)
      assert_int_equal(layer_plan_to(&plans.other, i), stages.end[i]);
  }
  assert_true(simulated > 200);
}

static void test_limits(void **unused) {
  (void)unused;
  LayerGraph few = comb(12, 11), many = comb(16, 14), wide = comb(2000, 1900), deep = comb(MOST_LAYERS, 0);
  assert_int_equal(states_find(&few, 0)->n, 1 << 11);
  const LayerGraph *contracted[] = {&many, &wide};
  for (int i = 0; i < 2; i++) {
    const States *some = states_find(contracted[i], 0);
    assert_true(some->n <= MOST_STATES && some->n > MOST_STATES / 8 && some->joints.n > 0);
  }
  const States *s = states_find(&deep, 0);
  assert_int_equal(s->n, MOST_STATES);
  Cluster c = {.n = 2, .level = {{.count = 8, .bandwidth = 1e9}, {.count = 8, .bandwidth = 1e8}}};
  assert_true(fabs(pipedream_divide(s, &c, true)->seconds - MOST_STATES * 2 / 64.0) < 1e-6);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_states),       cmocka_unit_test(test_every_closed_set),
      cmocka_unit_test(test_one_level),    cmocka_unit_test(test_two_levels),
      cmocka_unit_test(test_three_levels), cmocka_unit_test(test_contractions),
      cmocka_unit_test(test_limits),       cmocka_unit_test(test_chains),
      cmocka_unit_test(test_never_slower),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
