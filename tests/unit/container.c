/* Limits of control groups, versions 1 and 2, in temporary folder trees. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/base.h"
#include "device/container.h"

static char root[] = "/tmp/pdc-groups-XXXXXX";

static void make(const char *path, const char *text) {
  char *whole = format("%s/%s", root, path);
  for (char *at = whole + sizeof root; *at; at++)
    if (*at == '/') {
      *at = 0;
      mkdir(whole, 0777);
      *at = '/';
    }
  FILE *f = fopen(whole, "w");
  assert_non_null(f);
  fputs(text, f);
  fclose(f);
}

static int64_t bytes(const char *tree, const char *groups) {
  make("list", groups);
  return container_bytes(format("%s/%s", root, tree), format("%s/list", root));
}

static void version_2_takes_the_least_on_the_way_up(void **unused) {
  (void)unused;
  make("two/memory.max", "9000\n");
  make("two/slurm/memory.max", "max\n");
  make("two/slurm/job/memory.max", "5000\n");
  make("two/slurm/job/step/memory.max", "7000\n");
  assert_int_equal(bytes("two", "0::/slurm/job/step\n"), 5000);
  assert_int_equal(bytes("two", "0::/slurm\n"), 9000);
  assert_int_equal(bytes("two", "0::/\n"), 9000);
  assert_int_equal(bytes("two", "0::/../other\n"), 9000);
  assert_int_equal(bytes("two", "0::/not/here\n"), 9000);
}

static void version_1_reads_the_controller_of_memory(void **unused) {
  (void)unused;
  make("one/memory/memory.limit_in_bytes", "9223372036854771712\n");
  make("one/memory/job/memory.limit_in_bytes", "3000\n");
  make("one/memory/memorable/memory.limit_in_bytes", "1000\n");
  assert_int_equal(bytes("one", "9:name=systemd:/\n5:hugetlb,memory:/job\n0::/\n"), 3000);
  assert_int_equal(bytes("one", "4:memorable:/memorable\n3:memory:/job/step\n"), 3000);
  assert_int_equal(bytes("one", "4:cpu:/job\n"), 9223372036854771712);
}

static void without_groups_there_is_no_limit(void **unused) {
  (void)unused;
  assert_int_equal(bytes("none", "0::/job\nno line of such a list\n"), INT64_MAX);
  assert_int_equal(container_bytes("/nowhere", "/nowhere/list"), INT64_MAX);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(version_2_takes_the_least_on_the_way_up),
                                     cmocka_unit_test(version_1_reads_the_controller_of_memory),
                                     cmocka_unit_test(without_groups_there_is_no_limit)};
  if (!mkdtemp(root))
    return 1;
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  return system(format("rm -rf '%s'", root)) || failed;
}
