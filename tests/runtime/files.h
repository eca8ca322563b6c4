/* Files for tests of the loader, in a folder per process, which run_in_folder creates and removes. Include after
 * cmocka.h. */
#ifndef TESTS_RUNTIME_FILES_H
#define TESTS_RUNTIME_FILES_H

#include <stdio.h>

static char directory[] = "/tmp/pd_files_XXXXXX";

/* Returns the file's path. */
static char *write_bytes(const char *name, const void *bytes, size_t n) {
  char *path = malloc(strlen(directory) + strlen(name) + 2);
  sprintf(path, "%s/%s", directory, name);
  FILE *out = fopen(path, "wb");
  assert_non_null(out);
  assert_int_equal(fwrite(bytes, 1, n, out), n);
  fclose(out);
  return path;
}

/* n bytes of elements, at most 896; shape as "(4, 2)". */
__attribute__((unused)) static char *write_npy(const char *name, const char *descr, const char *shape,
                                               const void *data, size_t n) {
  char bytes[1024];
  memcpy(bytes, "\x93NUMPY\x01\x00\x76\x00", 10);
  memset(bytes + 10, ' ', 118);
  int length = sprintf(bytes + 10, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape);
  bytes[10 + length] = ' ';
  bytes[127] = '\n';
  memcpy(bytes + 128, data, n);
  return write_bytes(name, bytes, 128 + n);
}

/* Files that are read with --pad and --token-type. */
#define reading(pad_token, bytes) \
  (&(struct pd_reading){.pad = (pad_token), .token_bytes = (bytes), .scan = true, .shares = true})

/* Returns the exit status for main. */
#define run_in_folder(tests) (!mkdtemp(directory) ? 1 : leave_folder(cmocka_run_group_tests(tests, NULL, NULL)))

static int leave_folder(int failed) {
  char command[64];
  snprintf(command, sizeof command, "rm -r %s", directory);
  return system(command) || failed;
}

#endif
