/* Placement of ranks in a cluster, and costs of messages and exchanges, against figures computed by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "device/topology.h"

/* Four servers of eight devices: 1 s a byte within a server, 10 s between servers. */
static const Topology servers = {
    .n = 2, .link = {{.latency = 0.5, .byte = 1}, {.latency = 2, .byte = 10}}, .devices = {1, 8, 32}, .ranks = 32};

static bool close_to(double a, double b) { return fabs(a - b) <= 1e-9 * (1 + fabs(b)); }

static Pipeline wide(int stages, int replicas) {
  Pipeline p = pipeline_make("2bw", stages, 1);
  for (int i = 0; i < stages; i++)
    p.replicas[i] = replicas;
  return p;
}

/* Four stages of eight ranks, one stage per server: exchanges stay within a server, and eight messages share each
 * link between servers. */
static void a_stage_is_a_server(void **unused) {
  (void)unused;
  const Pipeline p = wide(4, 8);
  const Placement at = {0};
  Stand first = stand_of(&p, &at, 0), second = stand_of(&p, &at, 1);
  assert_int_equal(first.first, 24);
  Wiring w = wiring_of(&servers, &first, NULL, &second, 4);
  assert_null(w.in);
  assert_ptr_equal(w.out, &servers.link[1]);
  assert_true(close_to(w.out_sharing, 8));
  assert_true(close_to(w.reduce, 2.0 * 7 / 8 * 1));
  assert_int_equal(level_spanned(&servers, &first), 0);
}

/* Two ranks of each stage in every server: messages stay within a server, and exchanges of four stages share its
 * link. */
static void a_pipeline_is_a_server(void **unused) {
  (void)unused;
  const Pipeline p = wide(4, 8);
  const Placement at = {.adjacent = 2};
  Stand first = stand_of(&p, &at, 0), second = stand_of(&p, &at, 1);
  Wiring w = wiring_of(&servers, &first, NULL, &second, 4);
  assert_ptr_equal(w.out, &servers.link[0]);
  assert_true(close_to(w.out_sharing, 1));
  assert_true(close_to(w.reduce, 2.0 * 1 / 2 * 1 + 2.0 * 3 / 4 * 10 * 4));
  assert_true(close_to(w.reduce_latency, 2 * 1 * 0.5 + 2 * 3 * 2));
  assert_int_equal(level_spanned(&servers, &first), 1);
}

/* All 32 ranks are replicas: reduction by parts within servers, then among them. */
static void exchanges_go_by_levels(void **unused) {
  (void)unused;
  const Pipeline p = wide(1, 32);
  Stand all = stand_of(&p, &(Placement){0}, 0);
  assert_true(close_to(wiring_of(&servers, &all, NULL, NULL, 1).reduce, 2.0 * 7 / 8 * 1 + 2.0 * 3 / 4 * 10));
}

/* Each device has a network card with a quarter of its server's rate. A message alone takes a card's time, and
 * two or eight messages share the server's rate. A stage's exchange uses one card per rank of the stage in a
 * server. */
static void a_device_has_a_card(void **unused) {
  (void)unused;
  Topology t = servers;
  t.link[1].device_byte = 40;
  const Pipeline narrow = wide(4, 1), whole = wide(4, 8), all = wide(1, 32);
  const Placement at = {0}, pairs = {.adjacent = 2}, ones = {.adjacent = 1};
  assert_true(close_to(link_byte(&t.link[1], 1), 40) && close_to(link_byte(&t.link[1], 3), 40));
  assert_true(close_to(link_byte(&t.link[1], 8), 80) && close_to(link_byte(&t.link[0], 1), 1));
  Stand first = stand_of(&narrow, &at, 0), second = stand_of(&narrow, &at, 1);
  assert_ptr_equal(wiring_of(&t, &first, NULL, &second, 4).out, &t.link[0]);
  first = stand_of(&whole, &pairs, 0);
  assert_true(close_to(wiring_of(&t, &first, NULL, NULL, 4).reduce, 2.0 * 1 / 2 * 1 + 2.0 * 3 / 4 * 40));
  assert_true(close_to(wiring_of(&t, &first, NULL, NULL, 1).reduce, 2.0 * 1 / 2 * 1 + 2.0 * 3 / 4 * 20));
  const Pipeline thin = wide(4, 4);
  first = stand_of(&thin, &ones, 0);
  assert_true(close_to(wiring_of(&t, &first, NULL, NULL, 1).reduce, 2.0 * 1 / 2 * 1 + 2.0 * 1 / 2 * 20));
  first = stand_of(&all, &at, 0);
  assert_true(close_to(wiring_of(&t, &first, NULL, NULL, 1).reduce, 2.0 * 7 / 8 * 1 + 2.0 * 3 / 4 * 10));
}

/* For every placement, no two ranks share a device. */
static void devices_are_taken_once(void **unused) {
  (void)unused;
  for (int k = 0; k <= 8; k = k ? 2 * k : 1)
    for (int backward = 0; backward < 2; backward++) {
      const Pipeline p = wide(4, 8);
      const Placement at = {.adjacent = k, .backward = backward};
      uint32_t taken = 0;
      for (int s = 0; s < 4; s++)
        for (int r = 0; r < 8; r++) {
          Stand stand = stand_of(&p, &at, s);
          int device = device_of(&servers, &at, &stand, r, 32);
          assert_true(device >= 0 && device < 32 && !(taken >> device & 1));
          taken |= 1u << device;
        }
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_stage_is_a_server),    cmocka_unit_test(a_pipeline_is_a_server),
      cmocka_unit_test(exchanges_go_by_levels), cmocka_unit_test(a_device_has_a_card),
      cmocka_unit_test(devices_are_taken_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
