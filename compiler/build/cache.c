/* The user's cache: libraries compiled once for this machine. Programs link its contents, so entries that another
 * user could have written are refused. */
#define _GNU_SOURCE
#include "build/build.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char advice[] =
    "XDG_CACHE_HOME names another folder for the runtime, which is compiled once for this machine";

const char *cache_directory(void) {
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  if (cache && *cache == '/')
    return format("%s/pdc", cache);
  if (home && *home == '/')
    return format("%s/.cache/pdc", home);
  return format("/tmp/pdc-%ld", (long)getuid());
}

bool cache_cannot_write(const char *path) {
  help(error_at(NO_SPAN, "PD0605", "cannot write '%s': %s", path, strerror(errno)), advice);
  return false;
}

/* The reason why another user could have written it; NULL: only this user can. */
static const char *distrust(const struct stat *st, mode_t type) {
  if ((st->st_mode & S_IFMT) != type)
    return S_ISLNK(st->st_mode) ? "it is a symbolic link" : type == S_IFDIR ? "it is no folder" : "it is no file";
  if (st->st_uid != geteuid())
    return format("it belongs to user %ld, and pdc runs as user %ld", (long)st->st_uid, (long)geteuid());
  if (st->st_mode & (S_IWGRP | S_IWOTH))
    return format("other users may write it (mode %04o)", (unsigned)(st->st_mode & 07777));
  return NULL;
}

/* Whether only this user can have written the file or folder; false after a diagnostic. */
static bool is_own(const char *path, mode_t type) {
  struct stat st;
  if (lstat(path, &st) != 0)
    return cache_cannot_write(path);
  const char *why = distrust(&st, type);
  if (!why)
    return true;
  Diagnostic *d = error_at(NO_SPAN, "PD0640", "pdc does not use '%s' from its cache: %s", path, why);
  help(d, "remove the file or folder; pdc creates it again");
  help(d, advice);
  return false;
}

/* Creates the folders above the path. */
static bool make_parents(const char *path) {
  char *part = format("%s", path);
  for (char *slash = part + 1; (slash = strchr(slash, '/')); slash++) {
    *slash = 0;
    if (mkdir(part, 0777) != 0 && errno != EEXIST)
      return cache_cannot_write(part);
    *slash = '/';
  }
  return true;
}

bool cache_open(void) {
  const char *path = cache_directory();
  struct stat st;
  if (lstat(path, &st) != 0 && (!make_parents(path) || (mkdir(path, 0700) != 0 && errno != EEXIST)))
    return cache_cannot_write(path);
  return is_own(path, S_IFDIR);
}

CacheEntry cache_find(const char *folder, const char *file) {
  const char *path = format("%s/%s", folder, file);
  struct stat st;
  if (lstat(folder, &st) != 0 || (S_ISDIR(st.st_mode) && lstat(path, &st) != 0))
    return CACHE_LACKS;
  return is_own(folder, S_IFDIR) && is_own(path, S_IFREG) ? CACHE_HAS : CACHE_REFUSED;
}
