/* Where pdc's own files are: beside it, wherever it was put. PREFIX/bin/pdc finds PREFIX/share/pdc; so does
 * PREFIX/pdc, where PREFIX is a build folder, and programs of its tests further down. */
#include "base/base.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_ABOVE = 4 }; /* folders above the program that are looked into */

/* Cuts the last part off a path; false where none is left. */
static bool go_up(char *path) {
  char *slash = strrchr(path, '/');
  if (!slash || slash == path)
    return false;
  *slash = 0;
  return true;
}

const char *own_prefix(void) {
  static char prefix[PATH_MAX]; /* not the arena's: it outlives a compilation */
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
  if (!*prefix && go_up(program) && go_up(program)) /* messages say where they should be */
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
