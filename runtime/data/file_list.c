/* Arguments of --data, each PATH behind names, where PATH may be a pattern, or a range such as {000..012}, that the
 * shell did not expand: quoted, or after a name. A folder without images stands for its files. */
#define _GNU_SOURCE /* strverscmp */
#include "data/load.h"
#include "run/upward.h"

#include <dirent.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void add(char ***list, int *n, char *argument) {
  *list = realloc(*list, sizeof **list * (size_t)(*n + 1));
  if (!*list) pd_fail("out of memory for the names of data files");
  (*list)[(*n)++] = argument;
}

/* The name of an existing file is not a pattern. */
static bool is_pattern(const char *path) { return strpbrk(path, "*?[") && access(path, F_OK) != 0; }

/* By name, with numbers in numeric order. */
static int compare_paths(const void *a, const void *b) { return strverscmp(*(char *const *)a, *(char *const *)b); }

/* Adds paths in the order of their names, each behind the argument's text before its path. */
static void add_sorted(char ***list, int *n, const char *argument, size_t prefix, char **paths, size_t count) {
  qsort(paths, count, sizeof *paths, compare_paths);
  for (size_t i = 0; i < count; i++) {
    char *whole = pd_allocate(prefix + strlen(paths[i]) + 1);
    memcpy(whole, argument, prefix);
    strcpy(whole + prefix, paths[i]);
    add(list, n, whole);
  }
}

static bool add_matches(char ***list, int *n, const char *option, const char *argument, const char *path,
                        char *why) {
  glob_t found;
  int failed = glob(path, GLOB_NOSORT, NULL, &found);
  if (failed)
    return pd_refuse(why,
                     failed == GLOB_NOMATCH ? "%s: no file matches '%s'" : "%s: cannot list the files of '%s'",
                     option, path);
  add_sorted(list, n, argument, (size_t)(path - argument), found.gl_pathv, found.gl_pathc);
  globfree(&found);
  return true;
}

/* ---- folders --------------------------------------------------------------------------------- */

/* A folder of image files, for models with an input of images, is one data file. */
static bool holds_files(const char *path) {
  struct stat st;
  for (int i = 0; i < pd.stage->n_inputs; i++)
    if (!pd_is_derived(&pd.stage->inputs[i]) && pd_is_image(&pd.stage->inputs[i])) return false;
  return !stat(path, &st) && S_ISDIR(st.st_mode);
}

static const char *ending(const char *path) {
  const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
  return dot ? dot : "";
}

/* Adds the folder's files, without those of its folders and those whose names start with a dot. */
static bool add_folder(char ***list, int *n, const char *option, const char *argument, const char *path,
                       char *why) {
  DIR *folder = opendir(path);
  char **paths = NULL;
  int count = 0, other = 0;
  struct dirent *entry;
  while (folder && (entry = readdir(folder))) {
    char *whole = pd_allocate(strlen(path) + strlen(entry->d_name) + 2);
    struct stat st;
    sprintf(whole, "%s%s%s", path, path[strlen(path) - 1] == '/' ? "" : "/", entry->d_name);
    if (*entry->d_name != '.' && !stat(whole, &st) && !S_ISDIR(st.st_mode)) add(&paths, &count, whole);
  }
  if (folder) closedir(folder);
  if (!count)
    return pd_refuse(why, folder ? "%s: the folder '%s' has no files" : "%s: cannot list the files of '%s'",
                     option, path);
  for (int i = 1; i < count && !other; i++) other = strcmp(ending(paths[i]), ending(paths[0])) ? i : 0;
  if (other)
    return pd_refuse(why,
                     "%s: the folder has files of several kinds, '%s' and '%s'. help: give a pattern, such as "
                     "'%s/*%s'",
                     option, paths[0], paths[other], path, ending(paths[0]));
  add_sorted(list, n, argument, (size_t)(path - argument), paths, (size_t)count);
  free(paths);
  return true;
}

/* ---- ranges ---------------------------------------------------------------------------------- */

/* The first {A..B} in a path. It stands for the numbers A to B, each with at least `digits` digits. */
struct range {
  const char *at, *end; /* of the braces, and behind them */
  long first, last;
  int digits;
};

static bool find_range(const char *path, struct range *r) {
  enum { MOST_DIGITS = 9 };
  for (r->at = strchr(path, '{'); r->at; r->at = strchr(r->at + 1, '{')) {
    const char *a = r->at + 1;
    const size_t n = strspn(a, "0123456789");
    if (!n || n > MOST_DIGITS || strncmp(a + n, "..", 2)) continue;
    const char *b = a + n + 2;
    const size_t m = strspn(b, "0123456789");
    if (!m || m > MOST_DIGITS || b[m] != '}') continue;
    r->first = strtol(a, NULL, 10);
    r->last = strtol(b, NULL, 10);
    r->digits = *a == '0' || *b == '0' ? (int)(n > m ? n : m) : 1;
    r->end = b + m + 1;
    return true;
  }
  return false;
}

static bool expand(char ***list, int *n, const char *option, char *argument, char *why) {
  enum { MOST_FILES = 1 << 16 };
  const char *path = pd_data_path(pd.stage->inputs, pd.stage->n_inputs, argument);
  struct range r;
  if (access(path, F_OK) && find_range(path, &r)) {
    if (r.last < r.first || r.last - r.first >= MOST_FILES - *n)
      return pd_refuse(why, "%s '%s': {%ld..%ld} is not a range of 1 to %d files", option, path, r.first, r.last,
                       MOST_FILES);
    for (long i = r.first; i <= r.last; i++) {
      const size_t room = strlen(argument) + 16;
      char *one = pd_allocate(room);
      snprintf(one, room, "%.*s%0*ld%s", (int)(r.at - argument), argument, r.digits, i, r.end);
      if (!expand(list, n, option, one, why)) return false;
    }
    return true;
  }
  if (holds_files(path)) return add_folder(list, n, option, argument, path, why);
  if (is_pattern(path)) return add_matches(list, n, option, argument, path, why);
  add(list, n, argument);
  return true;
}

bool pd_expand_files(const char *option, char ***list, int *n, char *why) {
  char **whole = NULL;
  int count = 0;
  for (int i = 0; i < *n; i++)
    if (!expand(&whole, &count, option, (*list)[i], why)) return false;
  *list = whole;
  *n = count;
  return true;
}
