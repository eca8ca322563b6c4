/* Arguments of --data, each PATH or NAME=PATH, where PATH may be a pattern, or a range such as {000..012}, that the
 * shell did not expand: quoted, or after NAME=. */
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
