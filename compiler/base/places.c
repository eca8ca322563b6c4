/* Locates pdc's own files relative to its program. PREFIX/bin/pdc uses PREFIX/share/pdc. In a build folder PREFIX,
 * so do PREFIX/pdc and the test programs below it. */
#include "base/base.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_ABOVE = 4 }; /* folders above the program to search */

/* Removes the last component of a path; false if none remains. */
static bool go_up(char *path) {
  char *slash = strrchr(path, '/');
  if (!slash || slash == path)
    return false;
  *slash = 0;
  return true;
}

const char *own_prefix(void) {
  static char prefix[PATH_MAX]; /* outside the arena: it outlives a compilation */
  if (*prefix)
    return prefix;
  char program[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
  program[n < 0 ? 0 : n] = 0;
  char *above = strdup(program);
  ensure(above);
  for (int i = 0; i < MOST_ABOVE && go_up(above) && !*prefix; i++)
    if (access(format("%s/share/pdc/stdlib_layers", above), F_OK) == 0)
      snprintf(prefix, sizeof prefix, "%s", above);
  if (!*prefix && go_up(program) && go_up(program)) /* a default for messages about missing files */
    snprintf(prefix, sizeof prefix, "%s", program);
  free(above);
  return prefix;
}

const char *own_folder(const char *name) {
  const char *path = format("%s/share/pdc/%s", own_prefix(), name);
  char *real = realpath(path, NULL);
  if (real)
    path = format("%s", real);
  free(real);
  return path;
}
