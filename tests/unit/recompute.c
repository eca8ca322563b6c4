/* Recomputation by layer: the choice of pieces against every subset, and patterns of layers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "elaborate/elaborate.h"
#include "layout/permutes.h"
#include "model.h"
#include "plan/search/search.h"
#include "stage/stages.h"

extern const Device processors;

static Graph *graph;
static Pieces pieces;

static int build(void **unused) {
  (void)unused;
  graph = model_build((ModelOptions){.blocks = 3, .batch = 8});
  pieces = cut(graph);
  return 0;
}

/* The fewest seconds of all subsets that save enough. */
static double fastest(const AgainItem *item, int n, double need) {
  double best = INFINITY;
  for (unsigned set = 0; set < 1u << n; set++) {
    double bytes = 0, seconds = 0;
    for (int i = 0; i < n; i++)
      if (set >> i & 1)
        bytes += item[i].bytes, seconds += item[i].seconds;
    if (bytes >= need && seconds < best)
      best = seconds;
  }
  return best;
}

static void picks_are_the_fastest(void **unused) {
  (void)unused;
  enum { PROBLEMS = 400, MOST = 10 };
  srand(1);
  for (int k = 0; k < PROBLEMS; k++) {
    AgainItem item[MOST];
    bool taken[MOST] = {false};
    const int n = 1 + rand() % MOST, kinds = 1 + rand() % 9;
    double all = 0, bytes = 0, seconds = 0;
    for (int i = 0; i < n; i++) {
      item[i] = (AgainItem){i, i + 1, 1 + rand() % kinds, rand() % kinds};
      all += item[i].bytes;
    }
    const double need = all * (rand() % 12) / 10, best = fastest(item, n, need),
                 found = again_pick(item, n, need, taken);
    if (isinf(best)) {
      assert_true(isinf(found));
      continue;
    }
    for (int i = 0; i < n; i++)
      if (taken[i])
        bytes += item[i].bytes, seconds += item[i].seconds;
    assert_true(fabs(found - best) < 1e-9 && fabs(seconds - best) < 1e-9 && bytes >= need);
  }
}

static Plan *make(const Graph *g, const Pieces *p, Stages *of, PlanRequest q) {
  q.target.threads = 1;
  q.stages = 1;
  q.schedule = "flush";
  q.microbatch = 32;
  q.peak = stages_peak;
  q.peak_context = of;
  return plan_make(g, p, &q, NULL, 0);
}

/* "=wte,=h.1.fc" */
static const char *patterns(const Pieces *p, unsigned set) {
  Text t = {0};
  for (int i = 0; i < p->n; i++)
    if (set >> i & 1)
      text_add(&t, "%s=%s", t.n ? "," : "", p->at[i].name);
  return t.at;
}

static Graph *unlike_blocks(void) {
  const Ast *file = parse_file("tests/unit/recompute.pdm");
  Graph *g = file ? elaborate(file, &(ElaborateOptions){0}) : NULL;
  diagnostics_flush();
  assert_non_null(g);
  move_permutes(g);
  autodiff(g);
  simplify(g);
  return g;
}

/* Each subset of pieces, laid out and timed, under every limit that makes a difference. */
static void chosen_layers_are_the_fastest_that_fit(void **unused) {
  (void)unused;
  const Graph *g = unlike_blocks();
  const Pieces p = cut(g);
  Stages *of = stages_new(g, &p);
  const unsigned sets = 1u << p.n;
  int64_t *peak = alloc(sets * sizeof *peak), least = INT64_MAX;
  double *seconds = alloc(sets * sizeof *seconds);
  assert_in_range(p.n, 6, 11);
  for (unsigned set = 0; set < sets; set++) {
    const Plan *plan =
        make(g, &p, of, (PlanRequest){.recompute = RECOMPUTE_OFF, .recomputed = set ? patterns(&p, set) : NULL});
    assert_non_null(plan);
    peak[set] = plan->stage[0].peak_bytes, seconds[set] = plan->batch_seconds;
    least = peak[set] < least ? peak[set] : least;
  }
  int limits = 0;
  for (int64_t limit = least; limit < peak[0]; limit += 1024) {
    double best = INFINITY;
    for (unsigned set = 0; set < sets; set++)
      best = peak[set] <= limit ? fmin(best, seconds[set]) : best;
    const Plan *plan =
        make(g, &p, of, (PlanRequest){.recompute = RECOMPUTE_AUTO, .memory = limit + processors.process});
    diagnostics_flush();
    assert_non_null(plan);
    assert_true(plan->stage[0].peak_bytes <= limit);
    assert_true(plan->batch_seconds <= best * (1 + 1e-9));
    limits++;
  }
  assert_true(limits > 3);
}

static void selects(const char *pattern, const char *expected) {
  bool selected[64] = {false};
  Text t = {0};
  const bool any = pieces_select(graph, &pieces, pattern, selected);
  for (int i = 0; i < pieces.n; i++)
    if (selected[i])
      text_add(&t, "%s%s", t.n ? " " : "", pieces.at[i].name);
  assert_string_equal(t.n ? t.at : "", expected);
  assert_int_equal(any, t.n > 0);
}

static void patterns_select_layers(void **unused) {
  (void)unused;
  selects("h[1]", "h.1 h.1.fc after h.1.fc");
  selects("h.1", "h.1 h.1.fc after h.1.fc");
  selects("h[*].fc", "h.0.fc h.1.fc h.2.fc");
  selects("h[1..3].fc", "h.1.fc h.2.fc");
  selects("h[4]", "");
  selects("h", "");
  selects("=h.1", "h.1");
  selects("=h[1..9]", "h.1 h.2");
  selects("h[1].f*", "h.1.fc");
}

/* A description selects the described pieces. */
static void descriptions_select_the_same(void **unused) {
  (void)unused;
  srand(2);
  for (int k = 0; k < 300; k++) {
    bool wanted[64] = {false}, found[64] = {false};
    const int first = rand() % pieces.n, end = first + 1 + rand() % (pieces.n - first);
    for (int i = first; i < end; i++)
      wanted[i] = rand() % 3 > 0;
    const Patterns all = pieces_describe(graph, &pieces, wanted, first, end);
    for (int i = 0; i < all.n; i++)
      assert_true(pieces_select(graph, &pieces, all.at[i], found));
    for (int i = first; i < end; i++)
      assert_int_equal(found[i], wanted[i]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(picks_are_the_fastest),
      cmocka_unit_test(chosen_layers_are_the_fastest_that_fit),
      cmocka_unit_test(patterns_select_layers),
      cmocka_unit_test(descriptions_select_the_same),
  };
  return cmocka_run_group_tests(tests, build, NULL);
}
