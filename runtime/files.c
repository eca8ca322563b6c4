/* Files that are read whole and files that are written whole or not at all. */
#include "internal.h"
#include "safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct mapping {
  struct mapping *next;
  const char *at;
  size_t size;
  char *path;
};
static struct mapping *mappings; /* all files mapped now */

static void note_mapping(const char *path, const char *at, size_t size) {
  struct mapping *m = pd_allocate(sizeof *m);
  *m = (struct mapping){mappings, at, size, strdup(path)};
  mappings = m;
}

void pd_unmap_file(const void *at, size_t size) {
  struct mapping **m = &mappings, *gone;
  while (*m && (*m)->at != at) m = &(*m)->next;
  gone = *m;
  if (gone) {
    *m = gone->next;
    free(gone->path);
    free(gone);
  }
  munmap((void *)at, size);
}

const char *pd_mapped_path(const void *address) {
  const char *a = address;
  for (const struct mapping *m = mappings; m; m = m->next)
    if (a >= m->at && a < m->at + m->size) return m->path;
  return NULL;
}

const char *pd_map_file(const char *path, size_t *size, char *why) {
  struct stat st;
  const char *map = NULL;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || fstat(fd, &st))
    pd_refuse(why, "cannot read '%s': %s", path, strerror(errno));
  else if (!S_ISREG(st.st_mode))
    pd_refuse(why, "cannot read '%s': it is not a regular file", path);
  else if (!st.st_size)
    pd_refuse(why, "cannot read '%s': it is empty", path);
  else {
    *size = (size_t)st.st_size;
    map = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) {
      pd_refuse(why, "cannot map '%s': %s", path, strerror(errno));
      map = NULL;
    } else
      note_mapping(path, map, *size);
  }
  if (fd >= 0) close(fd);
  return map;
}

bool pd_safetensors_open(const char *path, struct pd_safetensors *s, char *why) {
  char cause[PD_WHY];
  *s = (struct pd_safetensors){0};
  size_t size;
  const char *map = pd_map_file(path, &size, why);
  if (!map) return false;
  if (pd_safetensors_parse(map, size, s, cause)) {
    s->map = map;
    s->map_size = size;
    return true;
  }
  pd_unmap_file(map, size);
  return pd_refuse(why, "cannot read '%s': %.900s", path, cause);
}

void pd_safetensors_close(struct pd_safetensors *s) {
  if (s->map) pd_unmap_file(s->map, s->map_size);
  pd_safetensors_free(s);
}

/* ---- writing --------------------------------------------------------------------------------- */

static struct pd_output *volatile being_written; /* the newest of them */

void pd_output_abandon(void) {
  for (const struct pd_output *o = being_written; o; o = o->next) unlink(o->beside);
}

static void note_written(const struct pd_output *o) {
  if (being_written == o) {
    being_written = o->next;
    return;
  }
  for (struct pd_output *before = being_written; before; before = before->next)
    if (before->next == o) before->next = o->next;
}

bool pd_output_open(struct pd_output *o, const char *path) {
  o->file = NULL;
  errno = ENAMETOOLONG;
  int n = snprintf(o->path, sizeof o->path, "%s", path);
  if (n >= (int)sizeof o->path || snprintf(o->beside, sizeof o->beside, "%s.%d.new", path, (int)getpid()) < n)
    return false;
  o->file = fopen(o->beside, "wbx");
  if (!o->file && errno == EEXIST && !unlink(o->beside)) /* left by a killed process of the same number */
    o->file = fopen(o->beside, "wbx");
  if (o->file) {
    o->next = being_written;
    being_written = o;
  }
  return o->file != NULL;
}

bool pd_output_close(struct pd_output *o, bool ok) {
  int error = errno;
  if (!o->file) return false;
  if (ok && (fflush(o->file) || fsync(fileno(o->file)))) {
    ok = false;
    error = errno;
  }
  if (fclose(o->file) && ok) {
    ok = false;
    error = errno;
  }
  if (ok && rename(o->beside, o->path)) {
    ok = false;
    error = errno;
  }
  note_written(o);
  if (!ok) unlink(o->beside);
  errno = error;
  return ok;
}

bool pd_writable(const char *path, char *why) {
  struct stat st;
  struct pd_output o;
  if (!stat(path, &st) && !S_ISREG(st.st_mode))
    return pd_refuse(why, "cannot write '%s': it is no regular file", path);
  if (!pd_output_open(&o, path)) return pd_refuse(why, "cannot write '%s': %s", path, strerror(errno));
  pd_output_close(&o, false);
  return true;
}

bool pd_make_directories(const char *path, char *why) {
  char part[4096];
  size_t n = strlen(path);
  if (n >= sizeof part) return pd_refuse(why, "the path '%.100s...' is too long", path);
  for (size_t i = 1; i <= n; i++) {
    if (path[i] && path[i] != '/') continue;
    memcpy(part, path, i);
    part[i] = 0;
    if (mkdir(part, 0777) && errno != EEXIST)
      return pd_refuse(why, "cannot make directory '%s': %s", part, strerror(errno));
  }
  return true;
}
