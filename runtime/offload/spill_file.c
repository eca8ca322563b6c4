/* The file of offloaded blocks. It has no name, so that no other process opens it, and it disappears with the
 * process. */
#define _GNU_SOURCE /* O_TMPFILE */
#include "offload/spill_file.h"
#include "shared/checksum.h"
#include "offload/spill.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
  int file;
  const char *directory;
  int64_t moved;
  char failure[PD_WHY];
  int failing, failed; /* a thread writes, has written `failure` */
} home = {.file = -1};

const char *pd_spill_file_place(void) { return home.directory; }
const char *pd_spill_file_failure(void) {
  return __atomic_load_n(&home.failed, __ATOMIC_ACQUIRE) ? home.failure : NULL;
}
int64_t pd_spill_file_moved(void) { return __atomic_load_n(&home.moved, __ATOMIC_RELAXED); }

static bool fail(const struct pd_spill_block *b, const char *what, const char *cause) {
  char name[PD_WHY / 2];
  if (__atomic_exchange_n(&home.failing, 1, __ATOMIC_RELAXED)) return false;
  snprintf(home.failure, sizeof home.failure, "cannot %s %s %s the spill file in '%s': %s", what,
           pd_spill_name(b, name, sizeof name), *what == 'r' ? "from" : "to", home.directory, cause);
  __atomic_store_n(&home.failed, 1, __ATOMIC_RELEASE);
  return false;
}

/* ---- start ----------------------------------------------------------------------------------------- */

/* Without O_TMPFILE the file has a name briefly. */
static int open_nameless(const char *place) {
  int opened = open(place, O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
  if (opened >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL)) return opened;
  char path[PD_WHY];
  snprintf(path, sizeof path, "%s/.pd_spill_XXXXXX", place);
  opened = mkostemp(path, O_CLOEXEC);
  if (opened >= 0) unlink(path);
  return opened;
}

bool pd_spill_file_make(const char *place, int64_t bytes, char *why) {
  home.directory = place;
  home.file = open_nameless(place);
  if (home.file < 0) return pd_refuse(why, "--spill: cannot create a file in '%s': %s", place, strerror(errno));
  int error = posix_fallocate(home.file, 0, bytes);
  if (error)
    return pd_refuse(why, "--spill: '%s' has no room for the %.1f MiB of offloaded blocks: %s", place,
                     (double)bytes / (1 << 20), strerror(error));
  return true;
}

/* ---- pieces of blocks ------------------------------------------------------------------------------- */

bool pd_spill_file_read(const struct pd_spill_block *b, size_t at, void *to, size_t n, uint64_t checksum) {
  for (size_t got = 0; got < n;) {
    ssize_t more = pread(home.file, (char *)to + got, n - got, b->home + (off_t)(at + got));
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0) return fail(b, "read", more < 0 ? strerror(errno) : "the file is shorter than it was");
    got += (size_t)more;
    __atomic_add_fetch(&home.moved, more, __ATOMIC_RELAXED);
  }
  return pd_checksum(to, n) == checksum || fail(b, "read", "the data differs from what was written (checksum)");
}

bool pd_spill_file_write(const struct pd_spill_block *b, size_t at, const void *from, size_t n,
                         uint64_t *checksum) {
  *checksum = pd_checksum(from, n);
  for (size_t put = 0; put < n;) {
    ssize_t more = pwrite(home.file, (const char *)from + put, n - put, b->home + (off_t)(at + put));
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0) return fail(b, "write", strerror(more < 0 ? errno : ENOSPC));
    put += (size_t)more;
    __atomic_add_fetch(&home.moved, more, __ATOMIC_RELAXED);
  }
  return true;
}
