/* Programs and memory of planned stages equal those of calling fuse, lower, schedule and allocate directly. Each
 * part is fused once, and of structurally equal parts only one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fuse/facts.h"
#include "model.h"
#include "schedule/program.h"
#include "stage/signature.h"
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
    chunk[i] =
        fuse_part(fuse_facts(graph), &pieces, s->first_piece, s->end_piece, part, plan_parts(plan), p->microbatch,
                  p->recompute[stage], s->again, programs[stage].split_backward, plan->target, true);
  }
  return allocate(lower(merge_chunks(chunk, p->chunks)), &programs[stage], &graph->train)->bytes;
}

/* One cache serves plans that differ in one property each, every plan twice. */
static void peaks_are_those_by_hand(void **unused) {
  (void)unused;
  Stages *stages = stages_new(graph, &pieces);
  const PlanRequest requests[] = {
      {.split = "h[2]", .microbatch = 3, .recompute = RECOMPUTE_OFF},
      {.split = "h[2]", .microbatch = 3, .recompute = RECOMPUTE_ON},
      {.split = "h[2]", .microbatch = 2, .recompute = RECOMPUTE_OFF},
      {.split = "h[3]", .microbatch = 3, .recompute = RECOMPUTE_OFF},
      {.split = "h[2]", .microbatch = 3, .schedule = "zb_h1"},
      {.stages = 2, .microbatch = 3, .schedule = "interleaved", .chunks = 2},
      {.stages = 2, .microbatch = 3, .schedule = "interleaved", .chunks = 2, .recomputed = "h[*]"},
      {.split = "h[2]", .microbatch = 3, .recomputed = "h[1],h[*].fc"},
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
    assert_int_equal(now.sign.runs - before.sign.runs, 2 * N);
    if (round == 0) { /* interleaved: two chunks per rank, twice */
      assert_int_equal(now.sign.cached, 0);
      assert_int_equal(now.fuse.runs, 2 * N + 4);
    } else {
      assert_int_equal(now.sign.cached - before.sign.cached, 2 * N);
      assert_int_equal(now.fuse.runs, before.fuse.runs);
      assert_int_equal(now.allocate.runs, before.allocate.runs);
    }
  }
}

/* More parts than the table's initial size. */
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

/* ---- structures ---------------------------------------------------------------------------------- */

static void cut_at(Plan *plan, int first, int end) {
  plan->stage[0].first_piece = 0;
  plan->stage[0].end_piece = plan->stage[1].first_piece = first;
  plan->stage[1].end_piece = plan->stage[2].first_piece = end;
  plan->stage[2].end_piece = pieces.n;
}

/* For all pairs of cuts; returns the number of different ranges of pieces on ranks. */
static int check_all_cuts(Stages *stages, PlanRequest q) {
  Plan *plan = make(q);
  int ranges = 0;
  for (int first = 1; first + 1 < pieces.n; first++)
    for (int end = first + 1; end < pieces.n; end++) {
      cut_at(plan, first, end);
      for (int stage = 0; stage < 3; stage++)
        assert_int_equal(stages_peak(stages, plan, stage), peak_by_hand(plan, stage));
      ranges++;
    }
  return ranges + 2 * (pieces.n - 2);
}

/* For all cuts, peaks equal those computed directly, even if a value passes over all blocks. Without such a value,
 * ranks with equal blocks are laid out once. */
static void repeated_blocks_are_laid_out_once(void **unused) {
  (void)unused;
  const PlanRequest requests[] = {
      {.stages = 3, .microbatch = 2, .recompute = RECOMPUTE_OFF},
      {.stages = 3, .microbatch = 2, .recompute = RECOMPUTE_ON, .schedule = "flush"},
      {.stages = 3, .microbatch = 2, .schedule = "zb_h1"},
      {.stages = 3, .microbatch = 2, .target = {.backend = &backend_cuda, .precision = PRECISION_BF16}},
  };
  Graph *old_graph = graph;
  Pieces old_pieces = pieces;
  for (int skip = 0; skip < 2; skip++) {
    graph = model_build((ModelOptions){.blocks = 6, .skip = skip, .tied = !skip, .batch = 12, .clip = skip});
    pieces = cut(graph);
    for (int i = 0; i < (int)(sizeof requests / sizeof *requests); i++) {
      Stages *stages = stages_new(graph, &pieces);
      int ranges = check_all_cuts(stages, requests[i]);
      assert_true(skip || stages_watch(stages).fuse.runs < ranges * 2 / 3);
    }
  }
  graph = old_graph;
  pieces = old_pieces;
}

/* Of many blocks, only few are laid out, for all cuts; peaks equal those computed directly, even with replicas'
 * exchanges. If a value passes over all blocks, no two blocks are equal for fuse. */
static void many_blocks_follow_from_few(void **unused) {
  (void)unused;
  enum { BLOCKS = 16 };
  const PlanRequest requests[] = {
      {.stages = 3, .microbatch = 2, .recompute = RECOMPUTE_OFF},
      {.stages = 3, .microbatch = 1, .replicas = "3,2,4"},
      {.stages = 3, .microbatch = 2, .recompute = RECOMPUTE_ON},
      {.stages = 3, .microbatch = 12, .schedule = "flush"},
      {.stages = 3, .microbatch = 2, .target = {.backend = &backend_cuda, .precision = PRECISION_BF16}},
  };
  Graph *old_graph = graph;
  Pieces old_pieces = pieces;
  for (int skip = 0; skip < 2; skip++) {
    graph = model_build((ModelOptions){.blocks = BLOCKS, .skip = skip, .tied = !skip, .batch = 12, .clip = skip});
    pieces = cut(graph);
    for (int i = 0; i < (int)(sizeof requests / sizeof *requests); i++) {
      Stages *stages = stages_new(graph, &pieces);
      Plan *plan = make(requests[i]);
      for (int first = 1; first + 1 < pieces.n; first += 6)
        for (int end = first + 1; end < pieces.n; end += 5) {
          cut_at(plan, first, end);
          for (int stage = 0; stage < 3; stage++)
            assert_int_equal(stages_peak(stages, plan, stage), peak_by_hand(plan, stage));
        }
      assert_true(stages_confirm(stages, plan));
    }
  }
  graph = old_graph;
  pieces = old_pieces;
}

/* For any number of blocks on a rank, only three shorter variants are laid out. */
static void three_stand_for_all(void **unused) {
  (void)unused;
  enum { BLOCKS = 16, PIECES = 3, START = 5 };
  Graph *old_graph = graph;
  Pieces old_pieces = pieces;
  graph = model_build((ModelOptions){.blocks = BLOCKS, .batch = 12});
  pieces = cut(graph);
  Stages *stages = stages_new(graph, &pieces);
  Plan *plan = make((PlanRequest){.stages = 3, .microbatch = 2, .recompute = RECOMPUTE_OFF});
  for (int blocks = 10; blocks <= BLOCKS - 3; blocks++) {
    cut_at(plan, START, START + blocks * PIECES);
    assert_int_equal(stages_peak(stages, plan, 1), peak_by_hand(plan, 1));
    assert_int_equal(stages_watch(stages).fuse.runs, 3);
  }
  assert_true(stages_confirm(stages, plan));
  assert_true(stages_watch(stages).fuse.runs > 3);
  graph = old_graph;
  pieces = old_pieces;
}

static Signature sign_between(Graph *g, const char *first, const char *end, Precision precision) {
  Pieces p = cut(g);
  PieceRange part = {piece_find(&p, first), end ? piece_find(&p, end) : p.n};
  assert_true(part.first >= 0 && part.end > part.first);
  return sign_parts(signer_new(g, &p), &part, 1, precision);
}

static bool equal(Signature a, Signature b) { return a.word[0] == b.word[0] && a.word[1] == b.word[1]; }

static Graph *blocks(bool skip, bool tied) {
  return model_build((ModelOptions){.blocks = 4, .skip = skip, .tied = tied, .batch = 12});
}

static Param *weight_of(Graph *g, const char *name) {
  for (int i = 0; i < g->params.n; i++)
    if (g->params.at[i].name == intern(name))
      return &g->params.at[i];
  fail();
  return NULL;
}

static void one_difference_tells_parts_apart(void **unused) {
  (void)unused;
  Graph *g = blocks(false, false);
  Signature second = sign_between(g, "h.1", "h.2", PRECISION_F32),
            last = sign_between(g, "h.3", NULL, PRECISION_F32);
  assert_true(equal(second, sign_between(g, "h.2", "h.3", PRECISION_F32)));
  assert_false(equal(second, sign_between(g, "h.1", "h.3", PRECISION_F32)));
  assert_false(equal(second, sign_between(g, "h.1.fc", "h.2.fc", PRECISION_F32)));
  assert_false(equal(second, sign_between(g, "h.1", "h.2", PRECISION_BF16)));
  assert_false(equal(second, last));
  assert_true(equal(second, sign_between(blocks(false, true), "h.1", "h.2", PRECISION_F32)));
  assert_false(equal(last, sign_between(blocks(false, true), "h.3", NULL, PRECISION_F32)));
  assert_false(equal(second, sign_between(blocks(true, false), "h.1", "h.2", PRECISION_F32)));
  weight_of(g, "h.1.fc.weight")->hidden = true;
  assert_false(equal(second, sign_between(g, "h.1", "h.2", PRECISION_F32)));
  assert_true(equal(second, sign_between(g, "h.2", "h.3", PRECISION_F32)));
  g = blocks(false, false);
  weight_of(g, "h.1.fc.weight")->frozen = true;
  assert_false(equal(second, sign_between(g, "h.1", "h.2", PRECISION_F32)));
  g = blocks(false, false);
  weight_of(g, "h.1.fc.weight")->gradients.at[0] = -1;
  assert_false(equal(second, sign_between(g, "h.1", "h.2", PRECISION_F32)));
  g = blocks(false, false);
  weight_of(g, "h.1.fc.weight")->shape.dim[1]++;
  assert_false(equal(second, sign_between(g, "h.1", "h.2", PRECISION_F32)));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(repeated_blocks_are_laid_out_once), cmocka_unit_test(three_stand_for_all),
      cmocka_unit_test(many_blocks_follow_from_few),       cmocka_unit_test(one_difference_tells_parts_apart),
      cmocka_unit_test(peaks_are_those_by_hand),           cmocka_unit_test(the_cache_grows),
  };
  return cmocka_run_group_tests(tests, build, NULL);
}
