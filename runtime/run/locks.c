/* Locks on the outputs of a run against other runs, taken by rank 0: for each output a lock file with the owner's
 * host and process, locked during the run. The kernel releases the lock when the process ends in any way; the next
 * run reuses the file of a killed run. */
#define _GNU_SOURCE /* realpath without a buffer */
#include "run/run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct lock {
  struct lock *next;
  char *path;
  int fd;
};
static struct lock *volatile locks; /* all locks held; read by signal handlers */

/* The path of the lock file: in a folder, or next to a file, after symbolic links; NULL: no such folder. */
static char *lock_path(const char *path, bool folder) {
  char *real = realpath(path, NULL);
  if (!real && !folder) { /* a new file */
    const char *slash = strrchr(path, '/');
    char *above = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    char *real_above = above ? realpath(above, NULL) : NULL;
    free(above);
    if (!real_above || asprintf(&real, "%s/%s", real_above, slash ? slash + 1 : path) < 0) real = NULL;
    free(real_above);
  }
  char *lock = NULL;
  if (real && asprintf(&lock, folder ? "%s/.lock" : "%s.lock", real) < 0) lock = NULL;
  free(real);
  return lock;
}

static bool is_same_file(int fd, const char *path) {
  struct stat a, b;
  return !fstat(fd, &a) && !stat(path, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* True for a lock file, possibly of a killed run, or an empty file; any other file must not be removed. */
static bool is_lock(int fd) {
  static const char begins[] = "process ";
  char text[sizeof begins - 1];
  ssize_t n = pread(fd, text, sizeof text, 0);
  return !n || (n == (ssize_t)sizeof text && !memcmp(text, begins, sizeof text));
}

/* Opens and locks the file. The previous owner removes the file before it releases the lock, so the locked file
 * may no longer have this name: then try again. -1 with errno. */
static int take(const char *path) {
  for (int attempt = 0; attempt < 100; attempt++) {
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return -1;
    if (flock(fd, LOCK_EX | LOCK_NB)) {
      int error = errno;
      close(fd);
      errno = error;
      return -1;
    }
    bool is = is_lock(fd);
    if (is && is_same_file(fd, path)) return fd;
    close(fd);
    errno = EEXIST;
    if (!is) return -1;
  }
  errno = EWOULDBLOCK;
  return -1;
}

static bool refuse_held(const char *option, const char *path, const char *lock, char *why) {
  char text[512] = "", host[300] = "";
  long long process;
  int fd = open(lock, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd >= 0 && read(fd, text, sizeof text - 1) < 0) *text = 0;
  if (fd >= 0) close(fd);
  if (sscanf(text, "process %lld on host %299s", &process, host) == 2)
    return pd_refuse(why, "%s '%s' is in use by another run: process %lld on host %s", option, path, process,
                     host);
  return pd_refuse(why, "%s '%s' is in use by another run ('%s' is locked)", option, path, lock);
}

static void hold(int fd, char *path) {
  char text[512], host[256] = "";
  struct lock *l = pd_allocate(sizeof *l);
  gethostname(host, sizeof host - 1);
  int n = snprintf(text, sizeof text, "process %lld on host %s\n", (long long)getpid(), host);
  if (ftruncate(fd, 0) || pwrite(fd, text, (size_t)n, 0) != n) errno = 0; /* the lock also holds without a name */
  *l = (struct lock){locks, path, fd};
  locks = l;
}

bool pd_lock(const char *option, const char *path, bool folder, char *why) {
  struct stat st;
  bool there = !stat(path, &st);
  if (there && folder && !S_ISDIR(st.st_mode)) return pd_refuse(why, "%s '%s' is not a directory", option, path);
  if (there && !folder && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) return true; /* /dev/null, say */
  char *lock = lock_path(path, folder);
  if (!lock) return pd_refuse(why, "%s '%s': %s", option, path, strerror(errno));
  for (const struct lock *l = locks; l; l = l->next)
    if (!strcmp(l->path, lock)) { /* the same folder for two options */
      free(lock);
      return true;
    }
  int fd = take(lock);
  if (fd >= 0) {
    hold(fd, lock);
    return true;
  }
  bool ok = true;
  if (errno == EWOULDBLOCK)
    ok = refuse_held(option, path, lock, why);
  else if (errno == ENOLCK || errno == EOPNOTSUPP || errno == ENOSYS)
    pd_note("%s '%s' cannot be locked against other runs: its file system has no locks (%s)", option, path,
            strerror(errno));
  else
    ok = pd_refuse(why, "%s '%s': cannot lock '%s': %s", option, path, lock,
                   errno == EEXIST ? "this name belongs to another kind of file" : strerror(errno));
  free(lock);
  return ok;
}

void pd_unlock_all(void) {
  for (struct lock *l = locks; l; l = l->next) unlink(l->path);
  for (struct lock *l = locks; l; l = l->next) close(l->fd);
  locks = NULL;
}
