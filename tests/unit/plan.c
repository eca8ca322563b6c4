/* Plans: pinned choices, memory limits, the plan file and its errors. */
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
#include "device/device.h"
#include "plan/request.h"
#include "schedule/program.h"

extern const Device processors;

static Graph *graph;
static Pieces pieces;

static int build(void **unused) {
  (void)unused;
  graph = model_build((ModelOptions){.blocks = 6, .tied = true, .batch = 12, .clip = 1});
  pieces = cut(graph);
  return 0;
}

/* q.memory: limit of the arena. */
static Plan *make(PlanRequest q) {
  q.memory += q.memory ? processors.process : 0;
  return plan_make(graph, &pieces, &q, NULL, 0);
}

static void keep_code(void *code, const Told *told) {
  if (!told->warning)
    *(const char **)code = told->code;
}

/* Expects exactly one diagnostic, with this code. */
static void refused_at(int line, const char *code, PlanRequest q) {
  const char *got = "";
  int before = error_count();
  assert_null(make(q));
  assert_int_equal(error_count(), before + 1);
  diagnostics_tell(keep_code, &got);
  diagnostics_flush();
  if (strcmp(got, code) != 0)
    fail_msg("line %d: refused by %s, not by %s", line, got, code);
}
#define refused(code, ...) refused_at(__LINE__, code, __VA_ARGS__)

static int64_t largest(const Plan *plan) {
  int64_t most = 0;
  for (int i = 0; i < plan->pipeline.n_stages; i++)
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
    assert_int_equal(plan->pipeline.n_stages, d);
    assert_true(plan->pipeline.microbatches >= d - 1);
    assert_true(plan->batch_seconds > 0);
  }
}

static void pins_are_kept(void **unused) {
  (void)unused;
  Plan *plan = make(
      (PlanRequest){.split = "h[2],h[4].fc", .microbatch = 3, .recompute = RECOMPUTE_ON, .schedule = "flush"});
  assert_non_null(plan);
  plan_verify(graph, &pieces, plan);
  assert_int_equal(plan->pipeline.n_stages, 3);
  assert_int_equal(plan->stage[1].first_piece, piece_find(&pieces, "h.2"));
  assert_int_equal(plan->stage[2].first_piece, piece_find(&pieces, "h.4.fc"));
  assert_int_equal(plan->pipeline.microbatch, 3);
  assert_string_equal(plan->pipeline.schedule, "flush");
  assert_true(plan->pipeline.recompute[0] && plan->pipeline.recompute[1] && !plan->pipeline.recompute[2]);
}

static void impossible_requests_are_refused(void **unused) {
  (void)unused;
  refused("PD0502", (PlanRequest){.split = "h[9]"});
  refused("PD0503", (PlanRequest){.split = "h[3],h[1]"});
  refused("PD0503", (PlanRequest){.split = "wte"});
  refused("PD0504", (PlanRequest){.split = "h[3]", .stages = 3});
  refused("PD0504", (PlanRequest){.workers = 2, .stages = 4});
  refused("PD0504", (PlanRequest){.workers = 1000000000});
  refused("PD0504", (PlanRequest){.workers = 1000000000, .replicas = "3"});
  refused("PD0506", (PlanRequest){.microbatch = 5});
  refused("PD0506", (PlanRequest){.microbatch = 24});
  refused("PD0702", (PlanRequest){.schedule = "2bv"});
  refused("PD0701", (PlanRequest){.stages = 4, .microbatch = 6}); /* two microbatches, but three are needed */
  refused("PD0708", (PlanRequest){.stages = 2, .schedule = "gpipe", .ahead = 2});
  refused("PD0708", (PlanRequest){.stages = 2, .schedule = "interleaved", .ahead = 2});
  refused("PD0601", (PlanRequest){.plan = "no such file"});
  refused("PD0601", (PlanRequest){.profile = "no such file"});
}

/* 2bw reduces the microbatch if it needs more microbatches per batch. */
static void two_versions_need_enough_microbatches(void **unused) {
  (void)unused;
  Plan *plan = make((PlanRequest){.stages = 5});
  assert_non_null(plan);
  assert_true(plan->pipeline.microbatches >= 4);
  refused("PD0701", (PlanRequest){.stages = 14});
}

/* Of plans with equal microbatch and time, one is listed. Plans faster than the chosen one by less than 0.5 % are
 * listed, too. */
static void runners_up_are_other_plans(void **unused) {
  (void)unused;
  for (int workers = 2; workers <= 4; workers++) {
    Plan *others[6] = {0};
    Plan *plan = plan_make(graph, &pieces, &(PlanRequest){.workers = workers}, others, 6);
    assert_non_null(plan);
    assert_non_null(others[0]);
    for (int i = 0; i < 6 && others[i]; i++) {
      plan_verify(graph, &pieces, others[i]);
      assert_true(others[i]->batch_seconds >= plan->batch_seconds * 0.995);
      for (int k = -1; k < i; k++) {
        const Plan *before = k < 0 ? plan : others[k];
        assert_true(others[i]->pipeline.microbatch != before->pipeline.microbatch ||
                    fabs(others[i]->batch_seconds / before->batch_seconds - 1) > 1e-5);
      }
    }
  }
}

/* ---- ranks, chunks and versions -------------------------------------------- */

static int ranks_of(const Plan *plan) { return pipeline_ranks(&plan->pipeline); }

static void replicas_are_kept(void **unused) {
  (void)unused;
  const struct {
    const char *replicas;
    int stages, ranks, by_stage[3];
  } cases[] = {
      {"2,1", 0, 3, {2, 1}}, {"1,3", 2, 4, {1, 3}},      {"2", 3, 6, {2, 2, 2}},
      {"4", 0, 4, {4}},      {"3,1,2", 0, 6, {3, 1, 2}},
  };
  const char *const schedules[] = {"gpipe", "flush", "2bw"};
  for (int s = 0; s < 3; s++)
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
      Plan *plan =
          make((PlanRequest){.replicas = cases[i].replicas, .stages = cases[i].stages, .schedule = schedules[s]});
      assert_non_null(plan);
      plan_verify(graph, &pieces, plan);
      assert_int_equal(ranks_of(plan), cases[i].ranks);
      for (int k = 0; k < plan->pipeline.n_stages; k++) {
        assert_int_equal(plan->pipeline.replicas[k], cases[i].by_stage[k]);
        assert_int_equal(plan->pipeline.microbatches % plan->pipeline.replicas[k], 0);
      }
    }
  assert_int_equal(make((PlanRequest){.replicas = "2", .workers = 6})->pipeline.n_stages, 3);
  refused("PD0504", (PlanRequest){.replicas = "2,x"});
  refused("PD0504", (PlanRequest){.replicas = "2,0"});
  refused("PD0504", (PlanRequest){.replicas = "2,1,"});
  refused("PD0504", (PlanRequest){.replicas = "2,1", .stages = 3});
  refused("PD0504", (PlanRequest){.replicas = "2,1", .workers = 4});
  refused("PD0504", (PlanRequest){.replicas = "2", .workers = 5});
  refused("PD0704", (PlanRequest){.replicas = "5,1"});
  refused("PD0704", (PlanRequest){.replicas = "2,1", .microbatch = 4});
  refused("PD0705", (PlanRequest){.replicas = "2,1", .schedule = "zb_h1"});
  refused("PD0705", (PlanRequest){.replicas = "2,1", .schedule = "interleaved"});
}

/* Plans every assignment of ranks to stages separately: none is faster by more than the tolerance for a simpler
 * plan. */
static void every_way(int ranks, const char *so_far, const Plan *chosen, int *tried) {
  for (int w = 1; w <= ranks; w++) {
    const char *replicas = *so_far ? format("%s,%d", so_far, w) : format("%d", w);
    if (w < ranks) {
      every_way(ranks - w, replicas, chosen, tried);
      continue;
    }
    int stages = 1;
    for (const char *c = replicas; *c; c++)
      stages += *c == ',';
    PlanRequest q = {.replicas = replicas, .stages = stages, .schedule = chosen->pipeline.schedule};
    Plan *plan = make(q);
    if (!plan)
      continue;
    (*tried)++;
    assert_true(chosen->batch_seconds <= 1.01 * plan->batch_seconds);
  }
}

static void ranks_of_no_use_stay_free(void **unused) {
  (void)unused;
  Plan *plan = make((PlanRequest){.workers = 1000}), *two = make((PlanRequest){.workers = 100, .stages = 2});
  assert_true(ranks_of(plan) < 1000);
  assert_int_equal(two->pipeline.n_stages, 2);
  assert_true(ranks_of(two) <= 2 * two->pipeline.microbatches);
  double before = INFINITY;
  for (int n = 1; n <= 8; n++) {
    plan = make((PlanRequest){.workers = n, .schedule = "flush", .target.threads = 1, .memory = 1 << 30});
    assert_true(plan->batch_seconds <= 1.006 * before);
    before = plan->batch_seconds;
  }
}

static void all_ways_to_use_the_ranks_are_considered(void **unused) {
  (void)unused;
  const char *const schedules[] = {"flush", "2bw"};
  for (int s = 0; s < 2; s++)
    for (int n = 1; n <= 5; n++) {
      Plan *plan = make((PlanRequest){.workers = n, .schedule = schedules[s]});
      assert_non_null(plan);
      plan_verify(graph, &pieces, plan);
      assert_true(ranks_of(plan) <= n);
      int tried = 0;
      every_way(n, "", plan, &tried);
      assert_true(tried > 0);
    }
  diagnostics_flush();
  Plan *plan = make((PlanRequest){.workers = 5, .stages = 2});
  assert_int_equal(plan->pipeline.n_stages, 2);
  assert_true(ranks_of(plan) <= 5);
  plan = make((PlanRequest){.workers = 3, .schedule = "sequential"});
  assert_int_equal(plan->pipeline.n_stages, 3);
  refused("PD0504", (PlanRequest){.workers = 4, .stages = 2, .schedule = "zb_h1"});
}

static void an_open_schedule_is_the_fastest(void **unused) {
  (void)unused;
  const char *const fresh[] = {"sequential", "gpipe", "flush", "interleaved", "zb_h1"};
  for (int n = 2; n <= 4; n++)
    for (int delay = DELAY_NONE; delay <= DELAY_ONE; delay++) {
      Plan *open = make((PlanRequest){.workers = n, .schedule = "auto", .delay = delay});
      double best =
          delay == DELAY_ONE ? make((PlanRequest){.workers = n, .schedule = "2bw"})->batch_seconds : INFINITY;
      for (size_t i = 0; i < sizeof fresh / sizeof *fresh; i++)
        best = fmin(best, make((PlanRequest){.workers = n, .schedule = fresh[i]})->batch_seconds);
      plan_verify(graph, &pieces, open);
      assert_true(open->batch_seconds <= 1.006 * best);
      assert_true(delay == DELAY_ONE || strcmp(open->pipeline.schedule, "2bw"));
    }
  refused("PD0511", (PlanRequest){.workers = 2, .delay = DELAY_ONE});
  refused("PD0501", (PlanRequest){.workers = 2, .schedule = "auto", .memory = 1000});
}

static void pipedream_updates_after_every_round(void **unused) {
  (void)unused;
  PlanRequest q = {.stages = 3, .schedule = "pipedream"};
  refused("PD0707", q); /* clips, and has a tied parameter */
  graph->train.vertical_sync = true;
  Plan *plan = make(q);
  assert_non_null(plan);
  plan_verify(graph, &pieces, plan);
  assert_true(plan->pipeline.vertical_sync);
  assert_int_equal(plan->pipeline.microbatches, 1);
  q = (PlanRequest){.replicas = "2,3", .schedule = "pipedream"};
  plan = make(q);
  plan_verify(graph, &pieces, plan);
  assert_int_equal(plan->pipeline.microbatches, 6);
  q.microbatch = 2;
  assert_int_equal(make(q)->pipeline.microbatch, 2);
  q.microbatch = 1;
  refused("PD0704", q);
  q = (PlanRequest){.stages = 2}; /* 2bw, which the model does not use */
  refused("PD0708", q);
  graph->train.vertical_sync = false;
}

static void ranks_hold_several_chunks(void **unused) {
  (void)unused;
  PlanRequest q = {.stages = 3, .schedule = "interleaved"};
  double best = INFINITY;
  for (int chunks = 4; chunks >= 0; chunks--) {
    graph->train.chunks = chunks;
    Plan *plan = make(q);
    assert_non_null(plan);
    plan_verify(graph, &pieces, plan);
    assert_int_equal(plan->pipeline.n_stages, 3);
    if (chunks)
      assert_int_equal(plan->pipeline.chunks, chunks);
    else /* the planner chooses among them */
      assert_true(plan->batch_seconds <= 1.005 * best);
    best = fmin(best, plan->batch_seconds);
    assert_int_equal(plan->pipeline.microbatches % 3, 0);
    for (int i = 0; i < plan->pipeline.n_stages * plan->pipeline.chunks; i++)
      assert_int_equal(plan->stage[i].peak_bytes, plan->stage[i % 3].peak_bytes);
  }
  graph->train.chunks = 4;
  refused("PD0708", (PlanRequest){.stages = 2, .schedule = "flush"});
  refused("PD0704", (PlanRequest){.stages = 5, .schedule = "interleaved"}); /* 12 samples are not divisible by 5 */
  graph->train.chunks = 8;
  refused("PD0505", (PlanRequest){.stages = 4, .schedule = "interleaved"}); /* 32 parts need more pieces */
  graph->train.chunks = 0;
  assert_int_equal(make((PlanRequest){.stages = 1, .schedule = "interleaved"})->pipeline.chunks, 1);
}

static void too_many_microbatches(void **unused) {
  (void)unused;
  int64_t batch = graph->train.batch;
  graph->train.batch = 2 * MAX_MICROBATCHES;
  refused("PD0506", (PlanRequest){.microbatch = 1});
  Plan *plan = make((PlanRequest){0});
  assert_non_null(plan);
  assert_true(plan->pipeline.microbatches <= MAX_MICROBATCHES);
  graph->train.batch = batch;
}

static void backward_in_two(void **unused) {
  (void)unused;
  Plan *plan = make((PlanRequest){.stages = 3, .schedule = "zb_h1"}),
       *flush = make((PlanRequest){.stages = 3, .schedule = "flush", .microbatch = plan->pipeline.microbatch});
  plan_verify(graph, &pieces, plan);
  double weights = 0, backward = 0;
  for (int i = 0; i < 3; i++) {
    weights += plan->stage[i].weights_seconds;
    backward += plan->stage[i].backward_seconds;
    assert_false(plan->pipeline.recompute[i]);
  }
  assert_true(weights > 0.2 * backward && weights < 0.8 * backward);
  assert_true(plan->batch_seconds < flush->batch_seconds);
  plan = make((PlanRequest){.stages = 3, .schedule = "zb_h1", .recompute = RECOMPUTE_ON}); /* by layer */
  assert_true(plan->stage[0].again || plan->stage[1].again || plan->stage[2].again);
  for (int i = 0; i < 3; i++)
    assert_false(plan->pipeline.recompute[i]);
  refused("PD0706", (PlanRequest){.stages = 3, .schedule = "spilled", .recomputed = "h[*]"});
  refused("PD0502", (PlanRequest){.stages = 3, .recomputed = "h[9]"});
}

static void one_ahead_takes_memory(void **unused) {
  (void)unused;
  PlanRequest q = {.stages = 3, .schedule = "2bw", .microbatch = 3, .split = "h[3],h[5]", .ahead = 1};
  Plan *one = make(q);
  q.ahead = 2;
  Plan *two = make(q);
  plan_verify(graph, &pieces, two);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(one->pipeline.ahead[i], 1);
    assert_int_equal(two->pipeline.ahead[i], 2);
    assert_true(two->stage[i].peak_bytes > one->stage[i].peak_bytes);
  }
  assert_int_equal(two->pipeline.ahead[2], 1);
  q.ahead = 0;
  assert_true(largest(two) > largest(one));
  q.memory = largest(two) - 1; /* memory is short */
  assert_int_equal(make(q)->pipeline.ahead[0], 1);
}

/* ---- memory ------------------------------------------------------------- */

/* A possible exact peak of the caller: 1.5 times a stage's saved values and weights. */
static int64_t exact_peak(void *context, const Plan *plan, int stage) {
  int *calls = context;
  const StagePlan *s = &plan->stage[stage];
  (*calls)++;
  const Pipeline *p = &plan->pipeline;
  int64_t pieces_held = s->end_piece - s->first_piece, in_flight = p->recompute[stage] ? 1 : p->n_stages - stage;
  return 1000 * pieces_held * p->microbatch * in_flight + 100 * p->microbatch * p->n_stages;
}

static void exact_peaks_decide(void **unused) {
  (void)unused;
  int calls = 0;
  PlanRequest q = {.stages = 3,
                   .recompute = RECOMPUTE_AUTO,
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
  assert_true(error_count() == before + 1); /* in the end no plan fits */
  diagnostics_flush();
}

/* Memory of a process outside its arena counts toward the limit. */
static void the_limit_is_the_process_s(void **unused) {
  (void)unused;
  PlanRequest q = {
      .stages = 2, .schedule = "flush", .recompute = RECOMPUTE_OFF, .microbatch = 4, .split = "h[3]", .ahead = 1};
  int64_t needed = largest(plan_make(graph, &pieces, &q, NULL, 0)) + processors.process;
  assert_true(processors.process > 0);
  q.memory = needed;
  assert_non_null(plan_make(graph, &pieces, &q, NULL, 0));
  q.memory = needed - 1;
  assert_null(plan_make(graph, &pieces, &q, NULL, 0));
  q.memory = processors.process / 2; /* below the process's own memory */
  assert_null(plan_make(graph, &pieces, &q, NULL, 0));
  diagnostics_flush();
}

/* Without --memory: deterministic, less with more ranks, and never all of the machine's memory. */
static void the_system_keeps_some(void **unused) {
  (void)unused;
  int64_t all = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE), one = processors.memory(1);
  assert_true(one > 0 && one <= all / 8 * 7);
  assert_true(one == processors.memory(1) && processors.memory(4) == one / 4);
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
    recomputed |= plan->pipeline.recompute[0] || plan->stage[0].again;
  }
  assert_null(plan);
  assert_true(recomputed);
  diagnostics_flush();
}

static void tied_and_clipped_stages_exchange(void **unused) {
  (void)unused;
  Plan *plan = make((PlanRequest){.stages = 3});
  bool *exchanges = plan_exchanges(graph, &pieces, plan);
  assert_true(!exchanges[0] && exchanges[1] && exchanges[2]); /* for clipping */
  Graph *unclipped = model_build((ModelOptions){.blocks = 6, .tied = true, .batch = 12});
  Pieces p = cut(unclipped);
  plan = plan_make(unclipped, &p, &(PlanRequest){.split = "h[2],h[4]"}, NULL, 0);
  exchanges = plan_exchanges(unclipped, &p, plan);
  assert_true(!exchanges[0] && !exchanges[1] && exchanges[2]); /* for the tied weight */
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
  graph->train.vertical_sync = true;
  const PlanRequest forms[] = {{.replicas = "2,1", .schedule = "2bw", .ahead = 2},
                               {.replicas = "2,3", .schedule = "pipedream"},
                               {.stages = 2, .schedule = "interleaved"},
                               {.stages = 3, .schedule = "zb_h1"},
                               {.stages = 2, .target = {.backend = &backend_cuda, .precision = PRECISION_BF16}}};
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    graph->train.vertical_sync = i == 1;
    char *text = plan_json(graph, &pieces, make(forms[i]));
    char *path = write_temporary(text, strlen(text));
    graph->train.vertical_sync = false; /* settings in the file apply */
    Plan *again = make((PlanRequest){.plan = path, .target = forms[i].target});
    unlink(path);
    assert_non_null(again);
    plan_verify(graph, &pieces, again);
    assert_string_equal(plan_json(graph, &pieces, again), text);
  }
}

/* Activations, messages and working copies of weights take half the bytes; master weights are added. */
static void bf16_is_planned_with(void **unused) {
  (void)unused;
  const PlanRequest gpu = {.stages = 2, .split = "h[2]", .microbatch = 4, .target = {.backend = &backend_cuda}};
  PlanRequest rounded = gpu;
  rounded.target.precision = PRECISION_BF16;
  const StagePlan *exact = make(gpu)->stage, *half = make(rounded)->stage;
  for (int i = 0; i < 2; i++) {
    assert_true(half[i].weight_bytes >= exact[i].weight_bytes / 2);
    assert_true(half[i].weight_bytes < exact[i].weight_bytes * 6 / 10);
    assert_int_equal(half[i].gradient_bytes, exact[i].gradient_bytes);
    assert_int_equal(half[i].optimizer_bytes, exact[i].optimizer_bytes / 2 * 3);
    int64_t before = exact[i].peak_bytes - exact[i].weight_bytes - exact[i].optimizer_bytes;
    int64_t after = half[i].peak_bytes - half[i].weight_bytes - half[i].optimizer_bytes;
    assert_true(after < before * 8 / 10);
  }
}

static char *replaced(const char *text, const char *what, const char *with) {
  const char *at = strstr(text, what);
  assert_non_null(at);
  return format("%.*s%s%s", (int)(at - text), text, with, at + strlen(what));
}

/* The format of plans before stages had replicas. */
static void older_plans_read(void **unused) {
  (void)unused;
  char *text = plan_json(graph, &pieces, make((PlanRequest){.split = "h[2]", .microbatch = 4, .ahead = 1}));
  for (int i = 0; i < 2; i++)
    text = replaced(text, ", \"replicas\": 1, \"ahead\": 1", "");
  Plan *plan = read_text(text, strlen(text));
  assert_non_null(plan);
  plan_verify(graph, &pieces, plan);
  assert_int_equal(ranks_of(plan), 2);
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
  assert_true(plan->pipeline.recompute[0]);
  assert_true(plan->batch_seconds > 0 && plan->stage[0].peak_bytes > 0);
}

typedef const char *Edit[2]; /* old text, new text */

static void each_edit_is_diagnosed(const char *good, const Edit *edits, size_t n) {
  for (size_t i = 0; i < n; i++) {
    char *bad = replaced(good, edits[i][0], edits[i][1]);
    int before = error_count();
    assert_null(read_text(bad, strlen(bad)));
    assert_true(error_count() > before);
  }
  diagnostics_flush();
}

static void mistakes_are_diagnosed(void **unused) {
  (void)unused;
  const char *good = plan_json(graph, &pieces, make((PlanRequest){.split = "h[2]", .microbatch = 4}));
  const Edit edits[] = {
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
      {"\"replicas\": 1", "\"replicas\": 2"}, /* three microbatches */
      {"\"replicas\": 1", "\"replicas\": 0"},
      {"\"ahead\": 1", "\"ahead\": 3"},
      {"\"schedule\": \"2bw\"", "\"schedule\": \"2bw\", \"vertical_sync\": true"},
      {"\"schedule\": \"2bw\"", "\"schedule\": \"flush\", \"chunks\": 2"},
      {"\"schedule\": \"2bw\"", "\"schedule\": \"interleaved\""}, /* three microbatches, two ranks */
      {"\"schedule\": \"2bw\"", "\"schedule\": \"pipedream\""},
      {"\"schedule\": \"2bw\"", "\"schedule\": \"forward\""},
      {"\"weights_seconds\": ", "\"weights_seconds\": -"},
      {"\"forward_seconds\": ", "\"forward_seconds\": -"},
      {"\"forward_seconds\": ", "\"forward_seconds\": 1e15, \"x\": "},
      {"\"peak_bytes\": ", "\"peak_bytes\": 9000000000000"},
      {"\"stages\": [", "\"stages\": [ 3,"},
      {"\"stages\": [", "\"stages\": { \"a\": ["},
      {"\"why\"", "\"wy\""},
      {"{", "[{"},
  };
  each_edit_is_diagnosed(good, edits, sizeof edits / sizeof *edits);
}

static void mistakes_in_chunks_are_diagnosed(void **unused) {
  (void)unused;
  const char *good =
      plan_json(graph, &pieces, make((PlanRequest){.stages = 2, .schedule = "interleaved", .chunks = 2}));
  const Edit edits[] = {
      {"\"chunks\": 2", "\"chunks\": 3"},
      {"\"chunks\": 2", "\"chunks\": 4"}, /* on one rank */
      {"\"chunks\": 2", "\"chunks\": 9"},
      {"\"schedule\": \"interleaved\"", "\"schedule\": \"flush\""},
      {"\"recompute\": false", "\"recompute\": true"}, /* for one of a rank's parts */
      {"\"replicas\": 1", "\"replicas\": 2"},
      {"\"ahead\": 1", "\"ahead\": 2"},
  };
  each_edit_is_diagnosed(good, edits, sizeof edits / sizeof *edits);
}

/* Truncated and corrupted texts give a plan or a diagnostic. */
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
      cmocka_unit_test(runners_up_are_other_plans),
      cmocka_unit_test(replicas_are_kept),
      cmocka_unit_test(ranks_of_no_use_stay_free),
      cmocka_unit_test(all_ways_to_use_the_ranks_are_considered),
      cmocka_unit_test(an_open_schedule_is_the_fastest),
      cmocka_unit_test(pipedream_updates_after_every_round),
      cmocka_unit_test(ranks_hold_several_chunks),
      cmocka_unit_test(too_many_microbatches),
      cmocka_unit_test(backward_in_two),
      cmocka_unit_test(one_ahead_takes_memory),
      cmocka_unit_test(exact_peaks_decide),
      cmocka_unit_test(the_limit_is_the_process_s),
      cmocka_unit_test(the_system_keeps_some),
      cmocka_unit_test(less_memory_never_makes_it_faster),
      cmocka_unit_test(tied_and_clipped_stages_exchange),
      cmocka_unit_test(what_is_written_reads_back),
      cmocka_unit_test(bf16_is_planned_with),
      cmocka_unit_test(older_plans_read),
      cmocka_unit_test(edits_are_taken),
      cmocka_unit_test(mistakes_are_diagnosed),
      cmocka_unit_test(mistakes_in_chunks_are_diagnosed),
      cmocka_unit_test(no_text_does_harm),
  };
  return cmocka_run_group_tests(tests, build, NULL);
}
