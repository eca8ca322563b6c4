/* Reading of whole files, and checks of output paths. */
#include "run/run.h"
#include "shared/read_file.h"
#include "shared/pytorch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

struct mapping {
  struct mapping *next;
  const char *at;
  size_t size;
  char *path;
};
static struct mapping *mappings; /* all mapped files */

static void note_mapping(const char *path, const char *at, size_t size) {
  struct mapping *m = pd_allocate(sizeof *m);
  *m = (struct mapping){mappings, at, size, pd_copy_text(path)};
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
  const char *map = pd_map_regular(path, size, why);
  if (map) note_mapping(path, map, *size);
  return map;
}

/* Whole pages; advice that the system does not take changes only times. */
static void advise(const char *at, size_t size, int advice) {
  const size_t before = (uintptr_t)at % (uintptr_t)sysconf(_SC_PAGESIZE);
  if (size) madvise((void *)(at - before), before + size, advice);
}

void pd_expect_pages(const char *at, size_t size) { advise(at, size, MADV_WILLNEED); }

void pd_scatter_pages(const char *at, size_t size) { advise(at, size, MADV_RANDOM); }

void pd_note_content(const char *path, const char *text, size_t size) { note_mapping(path, text, size); }

int pd_mapped_files(void) {
  int n = 0;
  for (const struct mapping *m = mappings; m; m = m->next) n++;
  return n;
}

struct pd_mapped pd_mapped_file(int i) {
  const struct mapping *m = mappings; /* the last one */
  for (int behind = pd_mapped_files() - 1 - i; behind > 0; behind--) m = m->next;
  return (struct pd_mapped){m->path, m->at, m->size};
}

bool pd_safetensors_open(const char *path, struct pd_safetensors *s, char *why) {
  char cause[PD_WHY];
  *s = (struct pd_safetensors){0};
  size_t size;
  const char *map = pd_map_file(path, &size, why);
  if (!map) return false;
  if (pd_tensors_parse(map, size, s, cause)) {
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

bool pd_copy_file(const char *from, const char *to, char *why) {
  size_t size;
  char *text = pd_read_file(from, &size, why);
  if (!text) return false;
  struct pd_output out;
  bool ok = pd_output_open(&out, to) && fwrite(text, 1, size, out.file) == size;
  free(text);
  return pd_output_close(&out, ok) || pd_refuse(why, "cannot write '%s': %s", to, strerror(errno));
}

bool pd_exists(const char *path) {
  struct stat st;
  return !lstat(path, &st);
}

int64_t pd_disk_room(const char *path) {
  struct statvfs st;
  if (statvfs(path, &st)) return -1;
  uint64_t blocks = st.f_bavail, most = INT64_MAX;
  return blocks > most / (st.f_frsize ? st.f_frsize : 1) ? INT64_MAX : (int64_t)(blocks * st.f_frsize);
}

bool pd_writable(const char *path, char *why) {
  struct stat st;
  struct pd_output o;
  char folder[PATH_MAX];
  const char *name = pd_folder_of(path, folder);
  if (!stat(path, &st) && (!S_ISREG(st.st_mode) || pd_is_descriptor(path)))
    return pd_refuse(why, "cannot write '%s': it is not a regular file", path);
  pd_remove_left(folder, name);
  if (!pd_output_open(&o, path)) return pd_refuse(why, "cannot write '%s': %s", path, strerror(errno));
  pd_output_close(&o, false);
  return true;
}

bool pd_make_directories(const char *path, char *why) {
  char part[4096];
  size_t n = strlen(path);
  struct stat st;
  if (n >= sizeof part) return pd_refuse(why, "the path '%.100s...' is too long", path);
  for (size_t i = 1; i <= n; i++) {
    if (path[i] && path[i] != '/') continue;
    memcpy(part, path, i);
    part[i] = 0;
    if (!mkdir(part, 0777))
      pd_sync_folder_of(part);
    else if (errno != EEXIST)
      return pd_refuse(why, "cannot create directory '%s': %s", part, strerror(errno));
  }
  return (!stat(path, &st) && S_ISDIR(st.st_mode)) || pd_refuse(why, "'%s' is not a directory", path);
}
