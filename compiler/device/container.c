#include "device/container.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static int64_t limit_in(const char *path) {
  const char *text = read_file(path, NULL);
  int64_t bytes = text ? strtoll(text, NULL, 10) : 0; /* "max": no limit */
  return bytes > 0 ? bytes : INT64_MAX;
}

/* The least limit in `file` of a group and its ancestors, up to the root. */
static int64_t least_limit(const char *root, const char *group, const char *file) {
  char *path = format("%s%s", root, group);
  const size_t stop = strlen(root);
  for (int64_t least = INT64_MAX;;) {
    const int64_t bytes = limit_in(format("%s/%s", path, file));
    least = bytes < least ? bytes : least;
    char *slash = strrchr(path, '/');
    if (strlen(path) <= stop || !slash)
      return least;
    *slash = 0;
  }
}

/* Whether a comma-separated list contains a name. */
static bool lists(const char *names, const char *name) {
  const size_t n = strlen(name);
  for (const char *at = names; (at = strstr(at, name)) != NULL; at += n)
    if ((at == names || at[-1] == ',') && (at[n] == 0 || at[n] == ','))
      return true;
  return false;
}

/* A line is NUMBER:CONTROLLERS:PATH; version 2 has one line, without controllers. */
static int64_t limit_of_line(const char *root, char *line) {
  char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
  if (!path)
    return INT64_MAX;
  *path++ = 0;
  if (strstr(path, "..")) /* the group is outside the container's view */
    path = "/";
  path = strcmp(path, "/") == 0 ? "" : path;
  if (!controllers[1])
    return least_limit(root, path, "memory.max");
  return lists(controllers + 1, "memory") ? least_limit(format("%s/memory", root), path, "memory.limit_in_bytes")
                                          : INT64_MAX;
}

int64_t container_bytes(const char *root, const char *groups) {
  const int64_t two = least_limit(root, "", "memory.max"),
                one = least_limit(format("%s/memory", root), "", "memory.limit_in_bytes");
  int64_t least = two < one ? two : one;
  char *text = read_file(groups, NULL), *rest = NULL;
  for (char *line = text ? strtok_r(text, "\n", &rest) : NULL; line; line = strtok_r(NULL, "\n", &rest)) {
    const int64_t bytes = limit_of_line(root, line);
    least = bytes < least ? bytes : least;
  }
  return least;
}
