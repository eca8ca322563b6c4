/* Files that are read whole and files that are written whole or not at all. */
#include "internal.h"
#include "safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
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
static struct mapping *mappings; /* all files mapped now */

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

/* Opens a file to read; -1 after filling `why`. Only regular ones, and without waiting: to open a FIFO waits for
 * somebody who writes there, longer than --timeout. */
static int open_regular(const char *path, size_t *size, char *why) {
  struct stat st;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  bool ok = (fd >= 0 && !fstat(fd, &st)) || pd_refuse(why, "cannot read '%s': %s", path, strerror(errno));
  ok = ok && (S_ISREG(st.st_mode) || pd_refuse(why, "cannot read '%s': it is not a regular file", path));
  ok = ok && (st.st_size || pd_refuse(why, "cannot read '%s': it is empty", path));
  if (ok) {
    *size = (size_t)st.st_size;
    return fd;
  }
  if (fd >= 0) close(fd);
  return -1;
}

const char *pd_map_file(const char *path, size_t *size, char *why) {
  int fd = open_regular(path, size, why);
  if (fd < 0) return NULL;
  const char *map = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (map == MAP_FAILED) {
    pd_refuse(why, "cannot map '%s': %s", path, strerror(errno));
    map = NULL;
  } else
    note_mapping(path, map, *size);
  close(fd);
  return map;
}

char *pd_read_file(const char *path, size_t *size, char *why) {
  int fd = open_regular(path, size, why);
  if (fd < 0) return NULL;
  char *text = pd_allocate(*size);
  ssize_t n = 1;
  for (size_t done = 0; done < *size && n > 0;) {
    n = read(fd, text + done, *size - done);
    if (n > 0)
      done += (size_t)n;
    else if (n < 0 && errno == EINTR)
      n = 1;
  }
  if (n < 0) pd_refuse(why, "cannot read '%s': %s", path, strerror(errno));
  if (!n) pd_refuse(why, "cannot read '%s': it became shorter while it was read", path);
  close(fd);
  if (n > 0) return text;
  free(text);
  return NULL;
}

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
/* Of changes of this list: a thread may write a checkpoint. Handlers of signals read it as it is. */
static pthread_mutex_t writers = PTHREAD_MUTEX_INITIALIZER;

void pd_output_abandon(void) {
  for (const struct pd_output *o = being_written; o; o = o->next) unlink(o->beside);
  being_written = NULL;
}

/* Takes it from the list; one that is not there stays away. */
static void note_written(const struct pd_output *o) {
  pthread_mutex_lock(&writers);
  struct pd_output *before = being_written;
  if (before == o)
    being_written = o->next;
  else
    while (before && before->next != o) before = before->next;
  if (before && before != o) before->next = o->next;
  pthread_mutex_unlock(&writers);
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
    if (flock(fileno(o->file), LOCK_EX | LOCK_NB)) errno = 0; /* is_abandoned() does without */
    pthread_mutex_lock(&writers);
    o->next = being_written;
    being_written = o;
    pthread_mutex_unlock(&writers);
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
  if (ok && (rename(o->beside, o->path) || !pd_sync_folder_of(o->path))) {
    ok = false;
    error = errno;
  }
  note_written(o);
  if (!ok) unlink(o->beside);
  errno = error;
  return ok;
}

bool pd_copy_file(const char *from, const char *to, char *why) {
  size_t size;
  char *text = pd_read_file(from, &size, why);
  if (!text) return false;
  struct pd_output out;
  bool ok = pd_output_open(&out, to) && fwrite(text, 1, size, out.file) == size;
  free(text);
  return pd_output_close(&out, ok) || pd_refuse(why, "cannot write '%s': %s", to, strerror(errno));
}

/* PATH's folder, up to its last name, in `to` of PATH_MAX bytes: "." where it has none. */
static const char *folder_of(const char *path, char *to) {
  const char *slash = strrchr(path, '/');
  snprintf(to, PATH_MAX, "%.*s", slash == path ? 1 : (int)(slash ? slash - path : 1), slash ? path : ".");
  return slash ? slash + 1 : path;
}

/* Some file systems have nothing to sync in a folder, and say so. */
bool pd_sync_folder_of(const char *path) {
  char folder[PATH_MAX];
  folder_of(path, folder);
  int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return true; /* a folder that may be written and not read */
  bool ok = !fsync(fd) || errno == EINVAL || errno == ENOTSUP || errno == EROFS;
  int error = errno;
  close(fd);
  errno = error;
  return ok;
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

/* Whether nobody writes it any more: its writer holds a lock, which the kernel gives back when the process ends. Where
 * files cannot be locked: whether no process of the writer's number runs here. */
static bool is_abandoned(int folder, const char *name, pid_t writer) {
  int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  if (fd < 0) return false;
  bool locked = flock(fd, LOCK_EX | LOCK_NB), held = locked && errno == EWOULDBLOCK;
  close(fd);
  return !locked || (!held && (writer == getpid() || (kill(writer, 0) && errno == ESRCH)));
}

/* Whether NAME is PREFIX.PID.new (of any prefix: NULL) of a process that has ended. */
static bool is_left(int folder, const char *name, const char *prefix) {
  size_t n = strlen(name), digits = 0;
  if (n < 6 || strcmp(name + n - 4, ".new")) return false;
  while (digits < n - 4 && name[n - 5 - digits] >= '0' && name[n - 5 - digits] <= '9') digits++;
  const char *number = name + n - 4 - digits;
  if (!digits || digits > 9 || number - name < 2 || number[-1] != '.') return false;
  if (prefix && (strlen(prefix) != (size_t)(number - 1 - name) || strncmp(name, prefix, strlen(prefix))))
    return false;
  return is_abandoned(folder, name, (pid_t)atoi(number));
}

void pd_remove_left(const char *folder, const char *name) {
  char path[PATH_MAX];
  DIR *dir = opendir(folder);
  for (struct dirent *d; dir && (d = readdir(dir));)
    if (is_left(dirfd(dir), d->d_name, name) && snprintf(path, sizeof path, "%s/%s", folder, d->d_name) < PATH_MAX)
      unlink(path);
  if (dir) closedir(dir);
}

bool pd_writable(const char *path, char *why) {
  struct stat st;
  struct pd_output o;
  char folder[PATH_MAX];
  const char *name = folder_of(path, folder);
  if (!stat(path, &st) && !S_ISREG(st.st_mode))
    return pd_refuse(why, "cannot write '%s': it is no regular file", path);
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
      return pd_refuse(why, "cannot make directory '%s': %s", part, strerror(errno));
  }
  return (!stat(path, &st) && S_ISDIR(st.st_mode)) || pd_refuse(why, "'%s' is not a directory", path);
}
