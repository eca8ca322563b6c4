/* Atomic output of files and folders, and removal of temporary files of killed processes. */
#define _GNU_SOURCE
#include "shared/beside.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- writing --------------------------------------------------------------------------------- */

static struct {
  struct pd_output *volatile being_written; /* newest open output */
  /* Guards changes of the list, because a thread may write a checkpoint. Signal handlers read the list without
   * it. */
  pthread_mutex_t writers;
} outputs = {.writers = PTHREAD_MUTEX_INITIALIZER};

void pd_output_abandon(void) {
  for (const struct pd_output *o = outputs.being_written; o; o = o->next)
    if (unlink(o->beside)) rmdir(o->beside); /* a folder comes after its files */
  outputs.being_written = NULL;
}

static void note_open(struct pd_output *o) {
  pthread_mutex_lock(&outputs.writers);
  o->next = outputs.being_written;
  outputs.being_written = o;
  pthread_mutex_unlock(&outputs.writers);
}

/* Removes the output from the list, if present. */
static void note_written(const struct pd_output *o) {
  pthread_mutex_lock(&outputs.writers);
  struct pd_output *before = outputs.being_written;
  if (before == o)
    outputs.being_written = o->next;
  else
    while (before && before->next != o) before = before->next;
  if (before && before != o) before->next = o->next;
  pthread_mutex_unlock(&outputs.writers);
}

/* False with errno if the path is too long. */
static bool set_paths(struct pd_output *o, const char *path) {
  o->file = NULL;
  errno = ENAMETOOLONG;
  int n = snprintf(o->path, sizeof o->path, "%s", path);
  return n < (int)sizeof o->path && snprintf(o->beside, sizeof o->beside, "%s.%d.new", path, (int)getpid()) > n;
}

/* Creates a new file, and never writes to an existing file or link of that name. */
bool pd_output_open(struct pd_output *o, const char *path) {
  if (!set_paths(o, path)) return false;
  o->file = fopen(o->beside, "wbxe");
  if (!o->file && errno == EEXIST && !unlink(o->beside)) /* from a killed process with the same number */
    o->file = fopen(o->beside, "wbxe");
  if (o->file) {
    if (flock(fileno(o->file), LOCK_EX | LOCK_NB)) errno = 0; /* is_abandoned() does without */
    note_open(o);
  }
  return o->file != NULL;
}

static bool sync_and_close(FILE *file, bool ok) {
  int error = errno;
  if (ok && (fflush(file) || fsync(fileno(file)))) {
    ok = false;
    error = errno;
  }
  if (fclose(file) && ok) {
    ok = false;
    error = errno;
  }
  errno = error;
  return ok;
}

bool pd_output_close(struct pd_output *o, bool ok) {
  if (!o->file) return false;
  ok = sync_and_close(o->file, ok) && !rename(o->beside, o->path) && pd_sync_folder_of(o->path);
  int error = errno;
  note_written(o);
  if (!ok) unlink(o->beside);
  errno = error;
  return ok;
}

/* ---- folders --------------------------------------------------------------------------------- */

static void remove_folder(const char *path) {
  DIR *dir = opendir(path);
  for (struct dirent *d; dir && (d = readdir(dir));)
    if (strcmp(d->d_name, ".") && strcmp(d->d_name, "..")) unlinkat(dirfd(dir), d->d_name, 0);
  if (dir) closedir(dir);
  rmdir(path);
}

bool pd_output_folder_open(struct pd_output_folder *o, const char *path) {
  char *real = realpath(path, NULL);
  bool fits = set_paths(&o->self, real ? real : path);
  free(real);
  o->lock = -1;
  *o->kept = 0;
  if (!fits) return false;
  if (mkdir(o->self.beside, 0777)) {
    if (errno != EEXIST) return false;
    remove_folder(o->self.beside); /* from a killed process with the same number */
    if (mkdir(o->self.beside, 0777)) return false;
  }
  o->lock = open(o->self.beside, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (o->lock < 0 || flock(o->lock, LOCK_EX | LOCK_NB)) errno = 0; /* is_abandoned() does without */
  note_open(&o->self);
  return true;
}

FILE *pd_output_folder_file(struct pd_output_folder *o, const char *name) {
  struct pd_output *file = calloc(1, sizeof *file); /* without a path; in the list until the folder is closed */
  if (!file) return NULL;
  errno = ENAMETOOLONG;
  if (snprintf(file->beside, sizeof file->beside, "%s/%s", o->self.beside, name) < (int)sizeof file->beside)
    file->file = fopen(file->beside, "wbxe");
  if (file->file)
    note_open(file);
  else
    free(file);
  return file->file;
}

bool pd_output_folder_file_close(FILE *file, bool ok) { return sync_and_close(file, ok); }

/* Moves the folder to its path. An existing folder is exchanged with it, or on file systems without exchange moved
 * aside first. */
static bool move_folder(const struct pd_output *o) {
  char aside[sizeof o->path + 32];
  if (!rename(o->beside, o->path)) return true;
  if (errno != ENOTEMPTY && errno != EEXIST) return false;
  if (!renameat2(AT_FDCWD, o->beside, AT_FDCWD, o->path, RENAME_EXCHANGE)) {
    remove_folder(o->beside);
    return true;
  }
  snprintf(aside, sizeof aside, "%s.%d.old", o->path, (int)getpid());
  if (rename(o->path, aside)) return false;
  bool ok = !rename(o->beside, o->path);
  int error = errno;
  if (ok)
    remove_folder(aside);
  else
    rename(aside, o->path);
  errno = error;
  return ok;
}

/* Gives a complete folder that cannot be moved to its path another name. */
static void keep_folder(struct pd_output_folder *o) {
  int error = errno;
  snprintf(o->kept, sizeof o->kept, "%s.%d", o->self.path, (int)getpid());
  if (rename(o->self.beside, o->kept)) *o->kept = 0;
  errno = error;
}

bool pd_output_folder_close(struct pd_output_folder *o, bool ok) {
  bool complete = ok && (o->lock < 0 || !fsync(o->lock) || errno == EINVAL);
  ok = complete && move_folder(&o->self) && pd_sync_folder_of(o->self.path);
  if (complete && !ok) keep_folder(o);
  int error = errno;
  for (struct pd_output *file = outputs.being_written, *next; file; file = next) {
    next = file->next;
    if (*file->path) continue; /* not a folder's file */
    if (!ok && !*o->kept) unlink(file->beside);
    note_written(file);
    free(file);
  }
  if (!ok && !*o->kept) rmdir(o->self.beside);
  note_written(&o->self);
  if (o->lock >= 0) close(o->lock);
  errno = error;
  return ok;
}

/* ---- paths ----------------------------------------------------------------------------------- */

const char *pd_folder_of(const char *path, char *to) {
  const char *slash = strrchr(path, '/');
  snprintf(to, PATH_MAX, "%.*s", slash == path ? 1 : (int)(slash ? slash - path : 1), slash ? path : ".");
  return slash ? slash + 1 : path;
}

/* Some file systems do not support syncing folders. */
bool pd_sync_folder_of(const char *path) {
  char folder[PATH_MAX];
  pd_folder_of(path, folder);
  int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return true; /* a folder that is writable but not readable */
  bool ok = !fsync(fd) || errno == EINVAL || errno == ENOTSUP || errno == EROFS;
  int error = errno;
  close(fd);
  errno = error;
  return ok;
}

bool pd_is_descriptor(const char *path) {
  char folder[PATH_MAX], target[PATH_MAX];
  for (int links = 0; links < 8; links++) { /* /dev/stdout leads to /proc/self/fd/1 */
    pd_folder_of(path, folder);
    char *real = realpath(folder, NULL);
    size_t n = real ? strlen(real) : 0;
    bool is = n > 3 && !strncmp(real, "/proc/", 6) && !strcmp(real + n - 3, "/fd");
    free(real);
    ssize_t length = is ? -1 : readlink(path, target, sizeof target - 1);
    if (length <= 0 || target[0] != '/') return is;
    target[length] = 0;
    path = target;
  }
  return false;
}

/* ---- what is left ---------------------------------------------------------------------------- */

/* True if no process writes the file: a writer holds a lock, which the kernel releases at the process's end.
 * Without file locks: true if no process with the writer's number runs on this machine. */
static bool is_abandoned(int folder, const char *name, pid_t writer) {
  int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  if (fd < 0) return false;
  bool locked = flock(fd, LOCK_EX | LOCK_NB), held = locked && errno == EWOULDBLOCK;
  close(fd);
  return !locked || (!held && (writer == getpid() || (kill(writer, 0) && errno == ESRCH)));
}

/* True if NAME is PREFIX.PID.new (NULL: any prefix) of a process that ended. */
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
    if (is_left(dirfd(dir), d->d_name, name) &&
        snprintf(path, sizeof path, "%s/%s", folder, d->d_name) < PATH_MAX && unlink(path) && errno == EISDIR &&
        name)
      remove_folder(path);
  if (dir) closedir(dir);
}
