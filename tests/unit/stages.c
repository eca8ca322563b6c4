/* What planned stages run and hold: the same as from fuse, lower, schedule and allocate by hand, each part fused
 * once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model.h"
#include "schedule/program.h"
#include "stage/stages.h"

static Graph *graph;
static Pieces pieces;

static int build(void **unused) {
  (void)unused;
  graph = model_build((ModelOptions){.blocks = 4, .tied = true, .batch = 12, .clip = 1});
  pieces = cut(graph);
  return 0;
}

static Plan *make(PlanRequest q) {
  q.target.threads = 1;
  Plan *plan = plan_make(graph, &pieces, &q, NULL, 0);
  assert_non_null(plan);
  return plan;
}

static int64_t peak_by_hand(const Plan *plan, int stage) {
  const Pipeline *p = &plan->pipeline;
  Program *programs = schedule(p, plan_exchanges(graph, &pieces, plan), NO_SPAN);
  StageKernels *chunk[MAX_CHUNKS];
  for (int i = 0; i < p->chunks; i++) {
    int part = plan_part_of(plan, stage, i);
    const StagePlan *s = &plan->stage[part];
    chunk[i] = fuse(graph, &pieces, s->first_piece, s->end_piece, part, plan_parts(plan), p->microbatch,
                    p->recompute[stage], programs[stage].split_backward, plan->target);
  }
  return allocate(lower(merge_chunks(chunk, p->chunks)), &programs[stage], &graph->train)->bytes;
}

/* One cache for plans that differ in one thing each, asked twice. */
static void peaks_are_those_by_hand(void **unused) {
  (void)unused;
  Stages *stages = stages_new(graph, &pieces);
  const PlanRequest requests[] = {
      {.split = "h[2]", .microbatch = 3, .recompute = RECOMPUTE_OFF},
      {.split = "h[2]", .microbatch = 3, .recompute = RECOMPUTE_ON},
      {.split = "h[2]", .microbatch = 2, .recompute = RECOMPUTE_OFF},
      {.split = "h[3]", .microbatch = 3, .recompute = RECOMPUTE_OFF},
      {.split = "h[2]", .microbatch = 3, .schedule = "zb_h1"},
      {.stages = 2, .microbatch = 3, .schedule = "interleaved"},
      {.split = "h[2]", .microbatch = 3, .target = {.backend = &backend_cuda}},
      {.split = "h[2]", .microbatch = 3, .target = {.backend = &backend_cuda, .precision = PRECISION_BF16}},
  };
  enum { N = sizeof requests / sizeof *requests };
  for (int round = 0; round < 2; round++) {
    StagesWatch before = stages_watch(stages);
    for (int i = 0; i < N; i++) {
      Plan *plan = make(requests[i]);
      for (int stage = 0; stage < 2; stage++)
        assert_int_equal(stages_peak(stages, plan, stage), peak_by_hand(plan, stage));
    }
    StagesWatch now = stages_watch(stages);
    assert_int_equal(now.allocate.runs - before.allocate.runs, 2 * N);
    assert_int_equal(now.fuse.runs - before.fuse.runs, 2 * N + 2); /* interleaved: two chunks a rank */
    if (round == 0)                                                /* the last stage does not recompute */
      assert_int_equal(now.fuse.cached, 1);
    else
      assert_int_equal(now.fuse.cached - before.fuse.cached, now.fuse.runs - before.fuse.runs);
  }
}

/* More parts than the table starts with. */
static void the_cache_grows(void **unused) {
  (void)unused;
  Stages *stages = stages_new(graph, &pieces);
  Plan *plan = make((PlanRequest){.split = "h[2]", .microbatch = 3});
  const Program *programs = stages_schedule(stages, plan);
  enum { MANY = 400 };
  StageKernels *first[MANY];
  for (int round = 0; round < 2; round++)
    for (int i = 0; i < MANY; i++) {
      plan->target.threads = 1 + i;
      StageKernels *k = stages_fuse(stages, plan, programs, 1);
      if (round == 0)
        first[i] = k;
      assert_true(i == 0 || k != first[i - 1]);
      assert_ptr_equal(k, first[i]);
    }
  assert_int_equal(stages_watch(stages).fuse.cached, MANY);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(peaks_are_those_by_hand),
      cmocka_unit_test(the_cache_grows),
  };
  return cmocka_run_group_tests(tests, build, NULL);
}
