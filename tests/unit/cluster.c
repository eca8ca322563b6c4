/* Clusters: the table of known devices, conversion of a block's figures, and kinds of devices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cluster/cluster.h"
#include "device/device.h"

static bool near(double a, double b) { return fabs(a - b) <= 1e-9 * fabs(b); }

/* The cluster in a file with this text; diagnostics are dropped. */
static const Cluster *of(const char *text) {
  char path[] = "/tmp/pdc-cluster-XXXXXX.pdm";
  int file = mkstemps(path, 4), mark = diagnostics_mark();
  assert_true(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text) && close(file) == 0);
  const Cluster *c = cluster_read(path);
  unlink(path);
  diagnostics_forget(mark);
  if (c)
    cluster_verify(c);
  return c;
}

static void known_kinds_are_their_data_sheets(void **unused) {
  (void)unused;
  static const struct {
    const char *word;
    double gigabytes, f32, tf32, bf16, bandwidth;
  } sheet[] = {
      {"v100_16gb", 16, 15.7e12, 0, 0, 0.9e12},
      {"v100_32gb", 32, 15.7e12, 0, 0, 0.9e12},
      {"a100_40gb", 40, 19.5e12, 156e12, 312e12, 1.555e12},
      {"a100_80gb", 80, 19.5e12, 156e12, 312e12, 2.039e12},
      {"h100_80gb", 80, 67e12, 495e12, 989e12, 3.35e12},
      {"h200_141gb", 141, 67e12, 495e12, 989e12, 4.8e12},
  };
  enum { N = sizeof sheet / sizeof *sheet };
  for (int i = 0; i < N; i++) {
    const DeviceKind *k = kind_find(sheet[i].word);
    assert_true(near((double)k->memory, sheet[i].gigabytes * 0.95e9) &&
                near(k->stream, 0.85 * sheet[i].bandwidth));
    assert_true(near(k->product[PRECISION_F32], 0.74 * sheet[i].f32));
    assert_true(near(k->product[PRECISION_TF32] + 1, 0.7 * sheet[i].tf32 + 1));
    assert_true(near(k->product[PRECISION_BF16] + 1, 0.74 * sheet[i].bf16 + 1));
    assert_ptr_equal(k->backend, &backend_cuda);
  }
  int n;
  const char *const *words = kind_words(&n);
  assert_int_equal(n, N + 1);
  for (int i = 0; i < n; i++)
    assert_non_null(kind_find(words[i]));
  assert_null(kind_find("a100"));
  const DeviceKind *core = kind_find("core");
  assert_true(core->product[PRECISION_F32] == 230e9 && core->stream == 25e9 && core->backend == &backend_c);
  assert_true(core->product[PRECISION_BF16] == 500e9);
}

static void drivers_names_are_known(void **unused) {
  (void)unused;
  static const char *const models[][2] = {
      {"Tesla V100-SXM2-16GB", "V100 16 GB"},  {"Tesla V100-SXM2-32GB", "V100 32 GB"},
      {"NVIDIA A100-SXM4-40GB", "A100 40 GB"}, {"NVIDIA A100-SXM4-80GB", "A100 80 GB"},
      {"NVIDIA H100 80GB HBM3", "H100 80 GB"}, {"NVIDIA H200", "H200 141 GB"},
  };
  for (size_t i = 0; i < sizeof models / sizeof *models; i++)
    assert_string_equal(kind_of_model(models[i][0])->name, models[i][1]);
  assert_null(kind_of_model("NVIDIA GeForce RTX 4090"));
  assert_null(kind_of_model("NVIDIA GH200 480GB"));
  assert_null(kind_of_model("NVIDIA H100 PCIe"));
}

static void figures_override_a_kind(void **unused) {
  (void)unused;
  const Cluster *c =
      of("cluster c { level { count = 2; bandwidth = 25 Gbit/s; latency = 5 us; }"
         "device { kind = v100_16gb; memory = 10 GB; peak = 125 TFLOPS; memory_bandwidth = 800 GB/s; } }");
  const DeviceKind *k = cluster_kind(c, 1);
  assert_true(near((double)k->memory, 9.5e9) && near(k->product[PRECISION_BF16], 0.74 * 125e12));
  assert_true(near(k->product[PRECISION_F32], 0.74 * 15.7e12) && k->product[PRECISION_TF32] == 0);
  assert_true(near(k->stream, 0.85 * 800e9) && c->n == 1 && c->level[0].count == 2);
  assert_true(near(c->level[0].bandwidth, 25e9 / 8) && near(c->level[0].latency, 5e-6) && !c->level[0].name);
  c = of("cluster c { level { count = 2; bandwidth = 25 Gbit/s; latency = 0 s; }"
         "device { kind = a100_80gb; efficiency = 0.5; peak_f32 = 10 TFLOPS; } }");
  k = cluster_kind(c, 0);
  assert_true(near(k->product[PRECISION_F32], 5e12) && near(k->product[PRECISION_TF32], 78e12));
  assert_true(near(k->product[PRECISION_BF16], 156e12));
  c = of(
      "cluster c { level { count = 2; bandwidth = 4 GB/s; latency = 0 s; } device { kind = core; peak = 1 TFLOPS; } }");
  assert_true(cluster_kind(c, 0)->product[PRECISION_F32] == 1e12);
  assert_true(cluster_kind(c, 0)->product[PRECISION_BF16] == 500e9);
}

#define TWO_KINDS "cluster c { device a { kind = h100_80gb; } device b { kind = v100_16gb; }"

static void check_kinds(const char *text, const char *want) {
  const Cluster *c = of(text);
  assert_non_null(c);
  assert_int_equal(cluster_devices(c), strlen(want));
  for (int i = 0; want[i]; i++)
    assert_int_equal(*cluster_kind(c, i)->name, want[i]);
}

static void members_are_dealt_kinds(void **unused) {
  (void)unused;
  check_kinds(TWO_KINDS "level { count = 3; bandwidth = 1 GB/s; latency = 1 us; devices = [b, 2 * a]; }"
                        "level { count = 2; bandwidth = 1 GB/s; latency = 1 us; } }",
              "baabaa");
  check_kinds(TWO_KINDS "level { count = 2; bandwidth = 1 GB/s; latency = 1 us; }"
                        "level { count = 3; bandwidth = 1 GB/s; latency = 1 us; devices = [a, b, a]; }"
                        "level { count = 2; bandwidth = 1 GB/s; latency = 1 us; } }",
              "aabbaaaabbaa");
  const Cluster *c =
      of(TWO_KINDS "level { count = 3; bandwidth = 1 GB/s; latency = 1 us; devices = [2 * a, b]; } }");
  DeviceKind two = cluster_least(c, 2), three = cluster_least(c, 3);
  assert_true(two.memory == c->kind[0].memory &&
              two.product[PRECISION_BF16] == c->kind[0].product[PRECISION_BF16]);
  assert_true(three.memory == c->kind[1].memory && three.stream == c->kind[1].stream);
  assert_int_equal(three.product[PRECISION_BF16], 0);
  assert_null(of(TWO_KINDS "level { count = 3; bandwidth = 1 GB/s; latency = 1 us; devices = [a, b]; } }"));
}

/* Unspecified memory does not count as small. */
static void memory_that_is_known_counts(void **unused) {
  (void)unused;
  const Cluster *c = of("cluster c { device a { kind = core; } device b { kind = core; memory = 4 GB; }"
                        "level { count = 3; bandwidth = 1 GB/s; latency = 1 us; devices = [a, b, a]; } }");
  assert_int_equal(cluster_least(c, 1).memory, 0);
  assert_int_equal(cluster_least(c, 3).memory, 3800000000);
}

static void what_ships_is_right(void **unused) {
  (void)unused;
  static const struct {
    const char *name, *device;
    double server, rack, card;
  } shipped[] = {{"v100_10gbit", "V100 16 GB", 112e9, 9e9 / 8, 0},
                 {"v100_100gbit", "V100 16 GB", 112e9, 90e9 / 8, 0},
                 {"dgx_a100", "A100 80 GB", 225e9, 180e9, 180e9 / 8},
                 {"dgx_h100", "H100 80 GB", 337e9, 360e9, 360e9 / 8}};
  for (size_t i = 0; i < sizeof shipped / sizeof *shipped; i++) {
    const Cluster *c = cluster_read(shipped[i].name);
    cluster_verify(c);
    assert_int_equal(cluster_devices(c), 1024);
    assert_true(c->n == 2 && c->level[0].count == 8 && near(c->level[0].bandwidth, shipped[i].server) &&
                near(c->level[1].bandwidth, shipped[i].rack));
    assert_true(c->level[0].device_bandwidth == 0 && near(c->level[1].device_bandwidth, shipped[i].card));
    assert_string_equal(cluster_kind(c, 1023)->name, shipped[i].device);
  }
}

static void rates_are_those_of_the_kind(void **unused) {
  (void)unused;
  const DeviceKind *v100 = kind_find("v100_16gb"), *core = kind_find("core");
  Rates r = device_rates(v100, &(Target){.backend = &backend_cuda});
  assert_true(r.product == v100->product[0] && r.stream == v100->stream && r.inside == v100->inside);
  assert_true(device_rates(v100, &(Target){.backend = &backend_cuda, .precision = PRECISION_BF16}).product == 0);
  r = device_rates(core, &(Target){.backend = &backend_c, .threads = 3});
  assert_true(near(r.product, 230e9) && near(r.pointwise, 60e9) && near(r.inside, 60e9) && near(r.copy, 10e9));
  assert_true(near(r.stream, 25e9) && near(r.bandwidth, 4e9) && r.threads == 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(known_kinds_are_their_data_sheets), cmocka_unit_test(drivers_names_are_known),
      cmocka_unit_test(figures_override_a_kind),           cmocka_unit_test(members_are_dealt_kinds),
      cmocka_unit_test(memory_that_is_known_counts),       cmocka_unit_test(what_ships_is_right),
      cmocka_unit_test(rates_are_those_of_the_kind),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
