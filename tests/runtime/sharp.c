/* Sharded-LRTF (runtime/sharp/sharp.c) by simulation: models with units of known lengths on ranks, against what the rule says,
 * said here by plain loops, against the optimum where it is known, and against a bound that holds for every
 * schedule which lets no rank wait. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "sharp/sharp.h"

enum { MOST_MODELS = 9, MOST_RANKS = 4, MOST_UNITS = 12 };

typedef struct Simulation {
  struct pd_sharp s;
  int n_units[MOST_MODELS], done[MOST_MODELS];
  double unit[MOST_MODELS][MOST_UNITS];
  double ends[MOST_MODELS]; /* of a model that runs: when its unit ends */
  bool ahead;               /* units announce their end */
  double now;
} Simulation;

static uint32_t state = 1;
static uint32_t draw(uint32_t n) {
  state ^= state << 13, state ^= state >> 17, state ^= state << 5;
  return state % n;
}

static double left(const Simulation *m, int model, int from) {
  double seconds = 0;
  for (int i = from; i < m->n_units[model]; i++) seconds += m->unit[model][i];
  return seconds;
}

static bool runs(const Simulation *m, int model) { return m->s.model[model].state == PD_SHARP_RUNS; }

/* ---- what must hold at any time ---------------------------------------------------------------- */

static void check(const Simulation *m) {
  const struct pd_sharp *s = &m->s;
  int waiting = 0, idle = 0;
  for (int r = 0; r < s->ranks; r++) {
    const struct pd_sharp_rank *of = &s->rank[r];
    idle += of->runs < 0;
    if (of->runs >= 0) {
      assert_int_equal(s->model[of->runs].state, PD_SHARP_RUNS);
      assert_int_equal(s->model[of->runs].rank, r);
    }
    if (of->next >= 0 && of->next != of->runs) {
      assert_int_equal(s->model[of->next].state, PD_SHARP_WAITS);
      assert_int_equal(s->model[of->next].rank, r);
    }
  }
  for (int i = 0; i < s->models; i++) {
    const struct pd_sharp_model *of = &s->model[i];
    waiting += of->state == PD_SHARP_WAITS;
    if (of->state == PD_SHARP_RUNS) assert_int_equal(s->rank[of->rank].runs, i);
    if (of->state == PD_SHARP_WAITS && of->rank >= 0) assert_int_equal(s->rank[of->rank].next, i);
    if (of->state == PD_SHARP_ENDED) assert_int_equal(of->rank, -1);
  }
  assert_true(!idle || !waiting);
}

/* Who should have the rank when this model's unit has ended: the longest of it and of those that wait. */
static int should_follow(const Simulation *m, int model) {
  int best = model;
  double most = left(m, model, m->done[model]);
  for (int i = 0; i < m->s.models; i++)
    if (m->s.model[i].state == PD_SHARP_WAITS && left(m, i, m->done[i]) > most) {
      best = i;
      most = left(m, i, m->done[i]);
    }
  return best;
}

/* ---- the simulation ---------------------------------------------------------------------------- */

static void begin_unit(Simulation *m, int model) {
  m->ends[model] = m->now + m->unit[model][m->done[model]];
  if (m->ahead) pd_sharp_look_ahead(&m->s, model, left(m, model, m->done[model] + 1), m->now);
  check(m);
}

static void begin_units(Simulation *m, const bool *ran) {
  for (int i = 0; i < m->s.models; i++)
    if (runs(m, i) && !ran[i]) begin_unit(m, i);
}

static void note_running(const Simulation *m, bool *ran) {
  for (int i = 0; i < m->s.models; i++) ran[i] = runs(m, i);
}

static void end_first_unit(Simulation *m) {
  int first = -1;
  bool ran[MOST_MODELS];
  for (int i = 0; i < m->s.models; i++)
    if (runs(m, i) && (first < 0 || m->ends[i] < m->ends[first])) first = i;
  assert_true(first >= 0);
  m->now = m->ends[first];
  m->done[first]++;
  note_running(m, ran);
  ran[first] = false;
  int rank = m->s.model[first].rank, follower = should_follow(m, first);
  if (m->done[first] == m->n_units[first]) {
    pd_sharp_end(&m->s, first, m->now);
  } else {
    pd_sharp_end_unit(&m->s, first, left(m, first, m->done[first]), m->now);
    if (!m->ahead && m->s.slice == 0) assert_int_equal(m->s.rank[rank].runs, follower);
  }
  check(m);
  begin_units(m, ran);
}

static void start(Simulation *m, int models, int ranks, double slice, bool ahead) {
  bool none[MOST_MODELS] = {false};
  memset(m->done, 0, sizeof m->done);
  m->now = 0;
  m->ahead = ahead;
  pd_sharp_start(&m->s, models, ranks, slice);
  for (int i = 0; i < models; i++) {
    pd_sharp_join(&m->s, i, left(m, i, 0), 0);
    if (i + 1 < models) assert_int_equal(m->s.rank[0].runs, -1); /* not before all have said how long they take */
  }
  check(m);
  begin_units(m, none);
}

/* When the last model ends. */
static double makespan(Simulation *m, int models, int ranks, double slice, bool ahead) {
  start(m, models, ranks, slice, ahead);
  while (!pd_sharp_all_ended(&m->s)) end_first_unit(m);
  double busy = 0, work = 0;
  for (int r = 0; r < ranks; r++) busy += m->s.rank[r].busy;
  for (int i = 0; i < models; i++) {
    work += left(m, i, 0);
    assert_true(fabs(m->s.model[i].busy - left(m, i, 0)) < 1e-9);
  }
  assert_true(fabs(busy - work) < 1e-9);
  return m->now;
}

static void draw_units(Simulation *m, int models, bool alike) {
  for (int i = 0; i < models; i++) {
    m->n_units[i] = 1 + (int)draw(MOST_UNITS);
    for (int u = 0; u < m->n_units[i]; u++) m->unit[i][u] = alike ? 1 : 0.1 + draw(1000) / 500.0;
  }
}

static double longest_model(const Simulation *m, int models) {
  double most = 0;
  for (int i = 0; i < models; i++) most = fmax(most, left(m, i, 0));
  return most;
}

static double all_work(const Simulation *m, int models) {
  double seconds = 0;
  for (int i = 0; i < models; i++) seconds += left(m, i, 0);
  return seconds;
}

/* ---- tests ------------------------------------------------------------------------------------- */

static Simulation sim;

/* Units of one length: the longest remaining first is optimal (Hu 1961), and the optimum is the larger of the
 * longest model and of all work over the ranks. */
static void test_equal_units_take_the_optimum(void **unused) {
  (void)unused;
  for (int turn = 0; turn < 3000; turn++) {
    int models = 1 + (int)draw(MOST_MODELS), ranks = 1 + (int)draw(MOST_RANKS);
    draw_units(&sim, models, true);
    double best = fmax(longest_model(&sim, models), ceil(all_work(&sim, models) / ranks));
    assert_true(makespan(&sim, models, ranks, 0, false) == best);
  }
}

/* No rank is idle while a model waits, whatever is announced and kept: then all is done within W / R + L (1 - 1 / R)
 * (Graham 1966, for models as chains). */
static void test_no_rank_waits(void **unused) {
  (void)unused;
  for (int turn = 0; turn < 3000; turn++) {
    int models = 1 + (int)draw(MOST_MODELS), ranks = 1 + (int)draw(MOST_RANKS);
    draw_units(&sim, models, false);
    double bound = all_work(&sim, models) / ranks + longest_model(&sim, models) * (1 - 1.0 / ranks);
    assert_true(makespan(&sim, models, ranks, draw(3) / 2.0, draw(2)) <= bound + 1e-9);
  }
}

/* Models that end when they should not, waiting or running, expected or not. */
static void test_models_fail(void **unused) {
  (void)unused;
  for (int turn = 0; turn < 3000; turn++) {
    int models = 2 + (int)draw(MOST_MODELS - 1), ranks = 1 + (int)draw(MOST_RANKS);
    draw_units(&sim, models, false);
    start(&sim, models, ranks, 0, draw(2));
    while (!pd_sharp_all_ended(&sim.s)) {
      int fails = (int)draw(4 * MOST_MODELS);
      bool ran[MOST_MODELS];
      if (fails < models && sim.s.model[fails].state != PD_SHARP_ENDED) {
        note_running(&sim, ran);
        pd_sharp_end(&sim.s, fails, sim.now);
        check(&sim);
        begin_units(&sim, ran);
      } else {
        end_first_unit(&sim);
      }
    }
  }
}

/* Four models as they would be on two ranks: 8, 6, 4 and 2 seconds. */
static void test_the_longest_goes_first(void **unused) {
  (void)unused;
  for (int i = 0; i < 4; i++) {
    sim.n_units[i] = 8 - 2 * i;
    for (int u = 0; u < sim.n_units[i]; u++) sim.unit[i][u] = 1;
  }
  start(&sim, 4, 2, 0, false);
  assert_true(runs(&sim, 0) && runs(&sim, 1));
  end_first_unit(&sim); /* 7: the longest still */
  end_first_unit(&sim); /* 5, and 4 waits */
  assert_true(runs(&sim, 0) && runs(&sim, 1));
  for (int i = 0; i < 4; i++) end_first_unit(&sim); /* to 5 and 3: the third has 4 */
  assert_true(runs(&sim, 0) && runs(&sim, 2));
  assert_true(makespan(&sim, 4, 2, 0, false) == 10);
}

/* A model that has just been given its rank keeps it. */
static void test_a_slice_is_kept(void **unused) {
  (void)unused;
  for (int i = 0; i < 2; i++) {
    sim.n_units[i] = MOST_UNITS;
    for (int u = 0; u < MOST_UNITS; u++) sim.unit[i][u] = 1;
  }
  start(&sim, 2, 1, 3, false);
  for (int i = 0; i < 2; i++) {
    end_first_unit(&sim);
    assert_true(runs(&sim, 0));
  }
  end_first_unit(&sim);
  assert_true(runs(&sim, 1));
}

/* The one that is to be next is told before the unit ends, and gets the rank; when it fails another does. */
static void test_looking_ahead(void **unused) {
  (void)unused;
  struct pd_sharp *s = &sim.s;
  pd_sharp_start(s, 3, 1, 0);
  pd_sharp_join(s, 0, 5, 0);
  pd_sharp_join(s, 1, 4, 0);
  pd_sharp_join(s, 2, 3, 0);
  assert_int_equal(s->rank[0].runs, 0);
  uint32_t before = s->model[1].changes;
  assert_false(pd_sharp_look_ahead(s, 0, 1, 1));
  assert_true(pd_sharp_is_expected(s, 1) && s->model[1].changes != before);
  assert_false(pd_sharp_is_expected(s, 2));
  pd_sharp_end(s, 1, 1.5);
  assert_int_equal(s->rank[0].next, -1);
  assert_false(pd_sharp_end_unit(s, 0, 1, 2));
  assert_int_equal(s->rank[0].runs, 2);
  assert_true(pd_sharp_look_ahead(s, 2, 2, 3)); /* 2 against 1: it goes on */
  assert_true(pd_sharp_end_unit(s, 2, 2, 4));
}

/* What one has measured says how far the plans of the others are off, until they have measured it themselves. */
static void test_plans_are_corrected(void **unused) {
  (void)unused;
  struct pd_sharp *s = &sim.s;
  pd_sharp_start(s, 2, 1, 0);
  pd_sharp_join(s, 0, 9, 0);
  pd_sharp_join(s, 1, 8, 0);
  pd_sharp_measure(s, 0, 10); /* its 9 seconds were 90 */
  assert_false(pd_sharp_end_unit(s, 0, 79, 1));
  pd_sharp_measure(s, 1, 5);
  assert_false(pd_sharp_end_unit(s, 1, 39, 2));
  assert_true(pd_sharp_end_unit(s, 0, 40, 3));
}

/* A rank that would be idle takes a model that another expects. */
static void test_an_idle_rank_takes_what_is_expected(void **unused) {
  (void)unused;
  struct pd_sharp *s = &sim.s;
  pd_sharp_start(s, 3, 2, 0);
  pd_sharp_join(s, 0, 9, 0);
  pd_sharp_join(s, 1, 8, 0);
  pd_sharp_join(s, 2, 7, 0);
  assert_false(pd_sharp_look_ahead(s, 0, 1, 1));
  assert_int_equal(s->rank[0].next, 2);
  pd_sharp_end(s, 1, 2);
  assert_int_equal(s->rank[1].runs, 2);
  assert_int_equal(s->rank[0].next, -1);
  assert_true(pd_sharp_end_unit(s, 0, 1, 3));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_equal_units_take_the_optimum),
      cmocka_unit_test(test_no_rank_waits),
      cmocka_unit_test(test_models_fail),
      cmocka_unit_test(test_the_longest_goes_first),
      cmocka_unit_test(test_a_slice_is_kept),
      cmocka_unit_test(test_looking_ahead),
      cmocka_unit_test(test_plans_are_corrected),
      cmocka_unit_test(test_an_idle_rank_takes_what_is_expected),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
