/* Plans: requests that pin choices, limits of memory, the file and its mistakes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model.h"
#include "plan/plan.h"

static Graph *graph;
static Pieces pieces;

static int build(void **unused) {
  (void)unused;
  graph = model_build((ModelOptions){.blocks = 6, .tied = true, .batch = 12, .clip = 1});
  pieces = cut(graph);
  return 0;
}

static Plan *make(PlanRequest q) { return plan_make(graph, &pieces, &q, NULL, 0); }

/* The request is refused with one diagnostic. */
static void refused(PlanRequest q) {
  int before = error_count();
  assert_null(make(q));
  assert_int_equal(error_count(), before + 1);
  diagnostics_flush();
}

static int64_t largest(const Plan *plan) {
  int64_t most = 0;
  for (int i = 0; i < plan->n_stages; i++)
    most = plan->stage[i].peak_bytes > most ? plan->stage[i].peak_bytes : most;
  return most;
}

/* ---- choices ------------------------------------------------------------- */

static void every_depth_is_planned(void **unused) {
  (void)unused;
  for (int d = 1; d <= 6; d++) {
    Plan *plan = make((PlanRequest){.stages = d});
    assert_non_null(plan);
    plan_verify(graph, &pieces, plan);
    assert_int_equal(plan->n_stages, d);
    assert_true(plan->microbatches >= d - 1);
    assert_true(plan->batch_seconds > 0);
  }
}

static void pins_are_kept(void **unused) {
  (void)unused;
  Plan *plan = make((
      PlanRequest){.split = "h[2],h[4].fc", .microbatch = 3, .recompute = RECOMPUTE_ON, .schedule = "flush"});
  assert_non_null(plan);
  plan_verify(graph, &pieces, plan);
  assert_int_equal(plan->n_stages, 3);
  assert_int_equal(plan->stage[1].first_piece, piece_find(&pieces, "h.2"));
  assert_int_equal(plan->stage[2].first_piece, piece_find(&pieces, "h.4.fc"));
  assert_int_equal(plan->microbatch, 3);
  assert_string_equal(plan->schedule, "flush");
  assert_true(plan->stage[0].recompute && plan->stage[1].recompute && !plan->stage[2].recompute);
}

static void impossible_requests_are_refused(void **unused) {
  (void)unused;
  refused((PlanRequest){.split = "h[9]"});
  refused((PlanRequest){.split = "h[3],h[1]"});
  refused((PlanRequest){.split = "wte"});
  refused((PlanRequest){.split = "h[3]", .stages = 3});
  refused((PlanRequest){.workers = 2, .stages = 4});
  refused((PlanRequest){.workers = 1000});
  refused((PlanRequest){.microbatch = 5});
  refused((PlanRequest){.microbatch = 24});
  refused((PlanRequest){.schedule = "2bv"});
  refused((PlanRequest){.stages = 4, .microbatch = 6}); /* two microbatches, three are needed */
  refused((PlanRequest){.plan = "no such file"});
  refused((PlanRequest){.profile = "no such file"});
}

/* Microbatches are made smaller where 2bw needs more of them. */
static void two_versions_need_enough_microbatches(void **unused) {
  (void)unused;
  Plan *plan = make((PlanRequest){.stages = 5});
  assert_non_null(plan);
  assert_true(plan->microbatches >= 4);
  refused((PlanRequest){.stages = 14});
}

static void runners_up_are_other_plans_and_slower(void **unused) {
  (void)unused;
  Plan *others[6] = {0};
  Plan *plan = plan_make(graph, &pieces, &(PlanRequest){.workers = 3}, others, 6);
  assert_non_null(plan);
  assert_non_null(others[0]);
  double last = plan->batch_seconds;
  for (int i = 0; i < 6 && others[i]; i++) {
    plan_verify(graph, &pieces, others[i]);
    assert_true(others[i]->batch_seconds >= last * (1 - 1e-8));
    last = others[i]->batch_seconds;
  }
}

/* ---- memory ------------------------------------------------------------- */

/* What a caller's exact peak might be: half as much again as a stage's saved values and weights ask for. */
static int64_t exact_peak(void *context, const Plan *plan, int stage) {
  int *calls = context;
  const StagePlan *s = &plan->stage[stage];
  (*calls)++;
  int64_t pieces_held = s->end_piece - s->first_piece, in_flight = s->recompute ? 1 : plan->n_stages - stage;
  return 1000 * pieces_held * plan->microbatch * in_flight + 100 * plan->microbatch * plan->n_stages;
}

static void exact_peaks_decide(void **unused) {
  (void)unused;
  int calls = 0;
  PlanRequest q = {.stages = 3, .recompute = RECOMPUTE_AUTO,
                   .peak = exact_peak,
                   .peak_context = &calls,
                   .microbatch = 4,
                   .memory = 1 << 30};
  Plan *free_plan = make(q);
  assert_non_null(free_plan);
  assert_true(calls >= 3);
  int64_t needed = largest(free_plan);
  int before = error_count(), planned = 0;
  for (int64_t limit = needed; limit > needed / 16; limit -= needed / 40) {
    q.memory = limit;
    Plan *plan = make(q);
    if (!plan)
      break;
    planned++;
    assert_true(largest(plan) <= limit);
    for (int i = 0; i < 3; i++)
      assert_int_equal(plan->stage[i].peak_bytes, exact_peak(&calls, plan, i));
  }
  assert_true(planned >= 3);
  assert_true(error_count() == before + 1); /* in the end nothing fits */
  diagnostics_flush();
}

static void less_memory_never_makes_it_faster(void **unused) {
  (void)unused;
  Plan *plan = make((PlanRequest){.stages = 2, .recompute = RECOMPUTE_AUTO, .memory = 1 << 30});
  double last = plan->batch_seconds;
  bool recomputed = false;
  for (int64_t limit = largest(plan); limit > 1000; limit = limit * 9 / 10) {
    plan = make((PlanRequest){.stages = 2, .recompute = RECOMPUTE_AUTO, .memory = limit});
    if (!plan)
      break;
    assert_true(largest(plan) <= limit);
    assert_true(plan->batch_seconds >= last * (1 - 1e-8));
    last = plan->batch_seconds;
    recomputed |= plan->stage[0].recompute;
  }
  assert_null(plan);
  assert_true(recomputed);
  diagnostics_flush();
}

static void tied_and_clipped_stages_exchange(void **unused) {
  (void)unused;
  Plan *plan = make((PlanRequest){.stages = 3});
  bool *exchanges = plan_exchanges(graph, &pieces, plan);
  assert_true(!exchanges[0] && exchanges[1] && exchanges[2]); /* clipping */
  Graph *unclipped = model_build((ModelOptions){.blocks = 6, .tied = true, .batch = 12});
  Pieces p = cut(unclipped);
  plan = plan_make(unclipped, &p, &(PlanRequest){.split = "h[2],h[4]"}, NULL, 0);
  exchanges = plan_exchanges(unclipped, &p, plan);
  assert_true(!exchanges[0] && !exchanges[1] && exchanges[2]); /* the tied weight */
  int64_t both = stage_parameters(unclipped, &p, &plan->stage[0]) +
                 stage_parameters(unclipped, &p, &plan->stage[1]) +
                 stage_parameters(unclipped, &p, &plan->stage[2]);
  assert_int_equal(both, 2 * MODEL_CLASSES * MODEL_WIDTH + 6 * MODEL_WIDTH * MODEL_WIDTH);
}

/* ---- the file ------------------------------------------------------------- */

static char *write_temporary(const char *text, size_t n) {
  char *path = format("/tmp/pdc-plan-%ld.json", (long)getpid());
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(text, 1, n, f), n);
  assert_int_equal(fclose(f), 0);
  return path;
}

static Plan *read_text(const char *text, size_t n) {
  char *path = write_temporary(text, n);
  Plan *plan = plan_read(graph, &pieces, path);
  unlink(path);
  return plan;
}

static void what_is_written_reads_back(void **unused) {
  (void)unused;
  for (int d = 1; d <= 4; d++) {
    char *text =
        plan_json(graph, &pieces, make((PlanRequest){.stages = d, .recompute = d % 2 ? RECOMPUTE_ON : 0}));
    Plan *again = read_text(text, strlen(text));
    assert_non_null(again);
    plan_verify(graph, &pieces, again);
    assert_string_equal(plan_json(graph, &pieces, again), text);
  }
}

static char *replaced(const char *text, const char *what, const char *with) {
  const char *at = strstr(text, what);
  assert_non_null(at);
  return format("%.*s%s%s", (int)(at - text), text, with, at + strlen(what));
}

static void edits_are_taken(void **unused) {
  (void)unused;
  char *text = plan_json(graph, &pieces, make((PlanRequest){.split = "h[2]", .microbatch = 4}));
  text = replaced(text, "\"starts_at\": \"h.2\"", "\"starts_at\": \"h[3]\"");
  text = replaced(text, "\"recompute\": false", "\"recompute\": true");
  char *path = write_temporary(text, strlen(text));
  Plan *plan = make((PlanRequest){.plan = path});
  unlink(path);
  assert_non_null(plan);
  plan_verify(graph, &pieces, plan);
  assert_int_equal(plan->stage[1].first_piece, piece_find(&pieces, "h.3"));
  assert_true(plan->stage[0].recompute);
  assert_true(plan->batch_seconds > 0 && plan->stage[0].peak_bytes > 0);
}

static void mistakes_are_diagnosed(void **unused) {
  (void)unused;
  char *good = plan_json(graph, &pieces, make((PlanRequest){.split = "h[2]", .microbatch = 4}));
  const char *edits[][2] = {
      {"\"model\": \"small\"", "\"model\": \"large\""},
      {"\"schedule\": \"2bw\"", "\"schedule\": \"3bw\""},
      {"\"schedule\": \"2bw\"", "\"schedule\": 2"},
      {"\"batch\": 12", "\"batch\": 13"},
      {"\"batch\": 12", "\"batch\": -12"},
      {"\"microbatch\": 4", "\"microbatch\": 5"},
      {"\"microbatch\": 4", "\"microbatch\": 0"},
      {"\"microbatch\": 4", "\"microbatch\": 1e300"},
      {"\"microbatches\": 3", "\"microbatches\": 4"},
      {"\"threads\": ", "\"threads\": 0.5, \"thread\": "},
      {"\"starts_at\": \"h.2\"", "\"starts_at\": \"h.77\""},
      {"\"starts_at\": \"h.2\"", "\"starts_at\": \"wte\""},
      {"\"starts_at\": \"h.2\"", "\"starts_at\": null"},
      {"\"starts_at\": \"wte\"", "\"starts_at\": \"h.1\""},
      {"\"recompute\": false", "\"recompute\": 1"},
      {"\"replicas\": 1", "\"replicas\": 2"},
      {"\"forward_seconds\": ", "\"forward_seconds\": -"},
      {"\"stages\": [", "\"stages\": [ 3,"},
      {"\"stages\": [", "\"stages\": { \"a\": ["},
      {"\"why\"", "\"wy\""},
      {"{", "[{"},
  };
  for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
    char *bad = replaced(good, edits[i][0], edits[i][1]);
    int before = error_count();
    assert_null(read_text(bad, strlen(bad)));
    assert_true(error_count() > before);
  }
  diagnostics_flush();
}

/* Cut short and with bytes changed: a plan or a diagnostic, never anything else. */
static void no_text_does_harm(void **unused) {
  (void)unused;
  char *good = plan_json(graph, &pieces, make((PlanRequest){.workers = 3}));
  size_t n = strlen(good);
  unsigned seed = 3;
  for (int i = 0; i < 1500; i++) {
    char *text = alloc_copy(good, n + 1);
    size_t length = i % 3 ? n : (size_t)rand_r(&seed) % n;
    for (int k = 0; k < i % 5; k++)
      text[(size_t)rand_r(&seed) % n] = (char)(rand_r(&seed) % 256);
    int before = error_count();
    Plan *plan = read_text(text, length);
    if (plan)
      plan_verify(graph, &pieces, plan);
    else
      assert_true(error_count() > before);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_depth_is_planned),
      cmocka_unit_test(pins_are_kept),
      cmocka_unit_test(impossible_requests_are_refused),
      cmocka_unit_test(two_versions_need_enough_microbatches),
      cmocka_unit_test(runners_up_are_other_plans_and_slower),
      cmocka_unit_test(exact_peaks_decide),
      cmocka_unit_test(less_memory_never_makes_it_faster),
      cmocka_unit_test(tied_and_clipped_stages_exchange),
      cmocka_unit_test(what_is_written_reads_back),
      cmocka_unit_test(edits_are_taken),
      cmocka_unit_test(mistakes_are_diagnosed),
      cmocka_unit_test(no_text_does_harm),
  };
  return cmocka_run_group_tests(tests, build, NULL);
}
