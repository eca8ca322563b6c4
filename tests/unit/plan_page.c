/* The page about a plan: placement of its ranks in a cluster, and escaped names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cluster/cluster.h"
#include "model.h"
#include "report/report.h"

enum { PROCESS = 8 << 20 }; /* bytes outside the arena */

/* Two racks of two servers with two devices each; the last server's devices have less memory. */
static const uint8_t kinds[] = {0, 0, 0, 0, 0, 0, 1, 1};
static const Cluster racks = {.name = "</script><script>alert(1)</script>",
                              .n_kinds = 2,
                              .kind = {{.name = "large",
                                        .backend = &backend_c,
                                        .memory = PROCESS + 2000000,
                                        .product = {2e11},
                                        .stream = 1e10,
                                        .inside = 1e10},
                                       {.name = "<small>",
                                        .backend = &backend_c,
                                        .memory = PROCESS + 1500000,
                                        .product = {1e11},
                                        .stream = 1e10,
                                        .inside = 1e10}},
                              .n = 3,
                              .level = {{.name = "server", .count = 2, .bandwidth = 300e9, .latency = 2e-6},
                                        {.name = "rack", .count = 2, .bandwidth = 25e9, .latency = 1e-5},
                                        {.name = "room", .count = 2, .bandwidth = 10e9, .latency = 2e-5}},
                              .kind_of = kinds};

static Graph *graph;
static Pieces pieces;

static int build(void **unused) {
  (void)unused;
  graph = model_build((ModelOptions){.blocks = 6, .batch = 12});
  pieces = cut(graph);
  return 0;
}

/* The text of the page for `plan`, via a temporary file. */
static char *page_of(const PlanRequest *request, const Plan *plan) {
  const PlanPage page = {.g = graph, .p = &pieces, .request = request, .plan = plan};
  char *path = format("plan_page.%ld.html", (long)getpid());
  assert_true(plan_page(&page, path));
  char *text = read_file(path, NULL);
  assert_non_null(text);
  const char *kept = getenv("KEEP"); /* keeps the page for inspection */
  if (!kept)
    unlink(path);
  return text;
}

static cJSON *data_of(const char *page) {
  const char *from = strstr(page, "id=\"data\">");
  assert_non_null(from);
  from += strlen("id=\"data\">");
  cJSON *data = cJSON_ParseWithLength(from, (size_t)(strstr(from, "</script>") - from));
  assert_non_null(data);
  return data;
}

static int number(const cJSON *list, int i) { return cJSON_GetArrayItem(list, i)->valueint; }

static const cJSON *member(const cJSON *of, const char *name) {
  const cJSON *m = cJSON_GetObjectItemCaseSensitive(of, name);
  assert_non_null(m);
  return m;
}

/* Each rank is at its place in the plan's placement, and no two share a device. */
static void ranks_are_on_devices(void **unused) {
  (void)unused;
  const PlanRequest request = {.workers = 6, .replicas = "2,2,2", .schedule = "flush", .cluster = &racks};
  const Plan *plan = plan_make(graph, &pieces, &request, NULL, 0);
  assert_non_null(plan);
  const cJSON *data = data_of(page_of(&request, plan)), *cluster = member(data, "cluster");
  assert_true(cJSON_IsTrue(member(cluster, "given")));
  assert_string_equal(member(cluster, "name")->valuestring, racks.name);
  const cJSON *levels = member(cluster, "levels");
  assert_int_equal(cJSON_GetArraySize(levels), 3);
  for (int i = 0; i < 3; i++) {
    const cJSON *level = cJSON_GetArrayItem(levels, i);
    assert_string_equal(member(level, "name")->valuestring, racks.level[i].name);
    assert_int_equal(member(level, "count")->valueint, 2);
    assert_true(member(level, "bandwidth")->valuedouble == racks.level[i].bandwidth);
  }
  const cJSON *device_of = member(data, "device_of"), *kind_of = member(cluster, "kind_of");
  assert_int_equal(cJSON_GetArraySize(device_of), 6);
  assert_int_equal(cJSON_GetArraySize(kind_of), 8);
  unsigned taken = 0;
  for (int rank = 0; rank < 6; rank++)
    taken |= 1u << number(device_of, rank);
  assert_int_equal(__builtin_popcount(taken), 6);
  assert_true(taken < 1u << 8);
  for (int device = 0; device < 8; device++)
    assert_int_equal(number(kind_of, device), kinds[device]);
}

/* A rank's limit is its device's, unless one is given for all. */
static void memory_is_bounded_by_device(void **unused) {
  (void)unused;
  PlanRequest request = {.workers = 8, .replicas = "8", .stages = 1, .schedule = "flush", .cluster = &racks};
  request.microbatch = 1;
  graph->train.batch = 16;
  const Plan *plan = plan_make(graph, &pieces, &request, NULL, 0);
  assert_non_null(plan);
  const cJSON *data = data_of(page_of(&request, plan)), *limits = member(data, "limits");
  assert_int_equal(cJSON_GetArraySize(limits), 8);
  for (int rank = 0; rank < 8; rank++)
    assert_int_equal(number(limits, rank), number(member(data, "device_of"), rank) < 6 ? 2000000 : 1500000);
  request.memory = PROCESS + 1700000;
  limits = member(data_of(page_of(&request, plan)), "limits");
  for (int rank = 0; rank < 8; rank++)
    assert_int_equal(number(limits, rank), 1700000);
  graph->train.batch = 12;
}

/* Plans use all of the cluster's devices and no more. */
static void a_cluster_bounds_the_ranks(void **unused) {
  (void)unused;
  const PlanRequest request = {.workers = 3, .stages = 3, .schedule = "flush", .cluster = &racks};
  const Plan *plan = plan_make(graph, &pieces, &request, NULL, 0);
  assert_non_null(plan);
  const cJSON *points = member(data_of(page_of(&request, plan)), "by_ranks");
  static const int ranks[] = {1, 2, 3, 4, 8};
  assert_int_equal(cJSON_GetArraySize(points), 5);
  for (int i = 0; i < 5; i++)
    assert_int_equal(member(cJSON_GetArrayItem(points, i), "ranks")->valueint, ranks[i]);
  assert_non_null(cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(points, 0), "why"));
  assert_true(cJSON_IsTrue(member(cJSON_GetArrayItem(points, 2), "chosen")));
  assert_int_equal(error_count(), 0); /* the failure for one rank is reported only on the page */
}

static void names_are_no_markup(void **unused) {
  (void)unused;
  const PlanRequest request = {.workers = 2, .stages = 2, .schedule = "flush", .cluster = &racks};
  Plan plan = *plan_make(graph, &pieces, &request, NULL, 0);
  plan.model = intern("</title><script>alert(2)</script>");
  plan.why = "</script><img src=x onerror=alert(3)>";
  const char *page = page_of(&request, &plan);
  int scripts = 0;
  for (const char *at = page; (at = strstr(at, "<script")); at++)
    scripts++;
  assert_int_equal(scripts, 2);
  assert_null(strstr(page, "<img"));
  assert_non_null(strstr(page, "<title>&lt;/title&gt;&lt;script&gt;alert(2)"));
  assert_string_equal(member(member(data_of(page), "plan"), "why")->valuestring, plan.why);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranks_are_on_devices),
      cmocka_unit_test(memory_is_bounded_by_device),
      cmocka_unit_test(a_cluster_bounds_the_ranks),
      cmocka_unit_test(names_are_no_markup),
  };
  return cmocka_run_group_tests(tests, build, NULL);
}
