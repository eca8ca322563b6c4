/* Arguments of --data, each PATH or NAME=PATH, where PATH may be a pattern that the shell did not expand: quoted,
 * or after NAME=. */
#include "data/load.h"
#include "run/upward.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void add(char ***list, int *n, char *argument) {
  *list = realloc(*list, sizeof **list * (size_t)(*n + 1));
  if (!*list) pd_fail("out of memory for the names of data files");
  (*list)[(*n)++] = argument;
}

/* The name of an existing file is not a pattern. */
static bool is_pattern(const char *path) { return strpbrk(path, "*?[") && access(path, F_OK) != 0; }

static bool add_matches(char ***list, int *n, const char *option, const char *argument, const char *path,
                        char *why) {
  size_t prefix = (size_t)(path - argument);
  glob_t found;
  int failed = glob(path, 0, NULL, &found); /* sorted by bytes: the locale is C */
  if (failed)
    return pd_refuse(why,
                     failed == GLOB_NOMATCH ? "%s: no file matches '%s'" : "%s: cannot list the files of '%s'",
                     option, path);
  for (size_t i = 0; i < found.gl_pathc; i++) {
    char *whole = pd_allocate(prefix + strlen(found.gl_pathv[i]) + 1);
    memcpy(whole, argument, prefix);
    strcpy(whole + prefix, found.gl_pathv[i]);
    add(list, n, whole);
  }
  globfree(&found);
  return true;
}

bool pd_expand_files(const char *option, char ***list, int *n, char *why) {
  char **whole = NULL;
  int count = 0;
  for (int i = 0; i < *n; i++) {
    char *argument = (*list)[i];
    const char *path = pd_data_path(pd.stage->inputs, pd.stage->n_inputs, argument);
    if (!is_pattern(path))
      add(&whole, &count, argument);
    else if (!add_matches(&whole, &count, option, argument, path, why))
      return false;
  }
  *list = whole;
  *n = count;
  return true;
}
