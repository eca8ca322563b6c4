/* Counted costs of devices: products by precision, launches of small work, concurrent messages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "model.h"
#include "ops/op.h"
#include "plan/cost/cost.h"

extern const Device processors, gpus;

static Graph *graph;
static Pieces pieces;

static int build(void **unused) {
  (void)unused;
  graph = model_build((ModelOptions){.blocks = 6, .tied = true, .batch = 12, .clip = 1});
  pieces = cut(graph);
  return 0;
}

static Rates rates_of_gpu(const char *arch, Precision precision) {
  bool assumed;
  const DeviceKind *kind = gpus.kind(arch, &assumed);
  assert_true(assumed == !arch);
  return device_rates(kind, &(Target){.backend = &backend_cuda, .precision = precision});
}

static int first_product(void) {
  for (int i = 0; i < graph->n_forward; i++) {
    const Op *op = graph->nodes.at[i].op;
    if (op->kind == OP_CALL && op->cost(graph, i).matmul_flops > 0)
      return i;
  }
  fail();
  return 0;
}

/* For large microbatches, a product takes its operations divided by the rate. */
static void products_run_at_the_precision_s_rate(void **unused) {
  (void)unused;
  static const struct {
    const char *arch;
    Precision precision;
    double peak;
  } data_sheet[] = {
      {"sm_80", PRECISION_F32, 19.5e12}, {"sm_80", PRECISION_TF32, 156e12}, {"sm_80", PRECISION_BF16, 312e12},
      {"sm_90", PRECISION_F32, 67e12},   {"sm_90", PRECISION_TF32, 495e12}, {"sm_90", PRECISION_BF16, 989e12},
  };
  enum { SAMPLES = 1 << 30 };
  int node = first_product();
  double operations = graph->nodes.at[node].op->cost(graph, node).matmul_flops * SAMPLES;
  for (size_t i = 0; i < sizeof data_sheet / sizeof *data_sheet; i++) {
    Rates r = rates_of_gpu(data_sheet[i].arch, data_sheet[i].precision);
    double rate = operations / counted_seconds(graph, node, SAMPLES, &r);
    assert_true(rate > 0.6 * data_sheet[i].peak && rate < data_sheet[i].peak);
  }
  Rates h100 = rates_of_gpu("sm_90", PRECISION_BF16);
  Rates later = rates_of_gpu("sm_100", PRECISION_BF16), earlier = rates_of_gpu("sm_89", PRECISION_BF16);
  assert_true(later.product == h100.product);
  assert_true(earlier.product < h100.product);
}

static void small_work_takes_its_launch(void **unused) {
  (void)unused;
  Rates gpu = rates_of_gpu("sm_90", PRECISION_F32),
        core = device_rates(kind_find("core"), &(Target){.threads = 1});
  int node = first_product();
  double launch = counted_seconds(graph, node, 1, &gpu);
  assert_true(launch > 1e-6 && launch < 10e-6);
  assert_true(counted_seconds(graph, node, 1 << 20, &gpu) < counted_seconds(graph, node, 1 << 20, &core) / 50);
}

/* cmocka's assert_float_equal takes infinity for equal to any number, up to version 1.1. */
static void assert_near(double x, double y) { assert_true(fabs(x - y) <= 1e-9 * fabs(y)); }

/* A megabyte per sample: a rank receives (ranks - 1) / ranks of the bytes twice, and sums or copies all bytes each
 * time. */
static void collectives_take_what_ranks_send(void **unused) {
  (void)unused;
  Rates r = {.bandwidth = 1e9, .latency = 1e-3, .stream = 1e10};
  Graph *g = graph_new(intern("collectives"));
  graph_scope(g, -1, intern(""), intern("collectives"), NO_SPAN);
  Shape megabyte = {.rank = 1, .dim = {250000}, .batched = true};
  graph_input(g, intern("x"), false, TYPE_F32, 0, megabyte, NO_SPAN);
  int x = g->inputs.at[0].value;
  for (int ranks = 2; ranks <= 4; ranks += 2) {
    double bytes = 1e6, share = (ranks - 1.0) / ranks;
    g->shards = ranks;
    int sum = graph_node(g, &op_all_reduce, &x, 1, (Attr[MAX_ATTR]){{.number = ranks}}, 0, NO_SPAN);
    double once = 1e-3 + share * bytes / 1e9 + bytes / 1e10;
    const bool bf16[8] = {false};
    Planner planner = {.g = g, .bf16 = bf16};
    assert_near(collective_seconds(&planner, sum, 1, &r), 2 * once);
    assert_near(collective_seconds(&planner, sum, 8, &r), 2 * (once + 7 * (once - 1e-3)));
  }
}

/* The relative slowdown of a two-stage batch by a link that needs a tenth of a stage's forward time per
 * microbatch. */
static double slowed_by(const Backend *backend) {
  PlanRequest q = {.stages = 2,
                   .split = "h[3]",
                   .microbatch = 3,
                   .target = {.backend = backend, .threads = 1},
                   .link_bytes_per_second = 1e15,
                   .link_latency = 1e-12};
  const Plan *fast = plan_make(graph, &pieces, &q, NULL, 0);
  assert_non_null(fast);
  q.link_bytes_per_second = fast->stage[0].send_bytes / (fast->stage[0].forward_seconds / 10);
  const Plan *slow = plan_make(graph, &pieces, &q, NULL, 0);
  assert_non_null(slow);
  return slow->batch_seconds / fast->batch_seconds - 1;
}

static void messages_of_gpus_pass_beside_the_work(void **unused) {
  (void)unused;
  assert_true(slowed_by(&backend_c) > 0.02);
  assert_true(slowed_by(&backend_cuda) < slowed_by(&backend_c) / 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(products_run_at_the_precision_s_rate),
      cmocka_unit_test(small_work_takes_its_launch),
      cmocka_unit_test(collectives_take_what_ranks_send),
      cmocka_unit_test(messages_of_gpus_pass_beside_the_work),
  };
  return cmocka_run_group_tests(tests, build, NULL);
}
