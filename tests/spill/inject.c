/* Preloaded in front of the C library: the file that a model spills to fails, lies or is slow.
 *   PD_SPILL_FAULT=KIND[:NUMBER]   at the NUMBER-th such call (from 1) of the program
 *   PD_SPILL_RANK=RANK             of that rank alone
 * full: pwrite returns ENOSPC; error: pread returns EIO; short: pread finds the file's end; rotten: a bit of what pread read
 * is another; slow: pread takes a minute; room: posix_fallocate returns ENOSPC. Or, from that call on, pages stay where they
 * are: mremap returns ENOMEM. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static const char *kind = "";
static atomic_long left = 1;

__attribute__((constructor)) static void start(void) {
  static char name[16];
  const char *fault = getenv("PD_SPILL_FAULT"), *number = fault ? strchr(fault, ':') : NULL;
  const char *only = getenv("PD_SPILL_RANK"), *rank = getenv("OMPI_COMM_WORLD_RANK");
  if (!rank) rank = getenv("PMI_RANK");
  if (!fault || (only && (!rank || strcmp(only, rank) != 0))) return;
  strncat(name, fault, number ? (size_t)(number - fault) < 15 ? (size_t)(number - fault) : 15 : 15);
  kind = name;
  if (number) left = atol(number + 1);
}

/* Only files without a name are meant. */
static int is_it(const char *what, int file) {
  struct stat of;
  return !strcmp(kind, what) && !fstat(file, &of) && !of.st_nlink && atomic_fetch_sub(&left, 1) == 1;
}

ssize_t pread(int file, void *to, size_t n, off_t at) {
  static ssize_t (*next)(int, void *, size_t, off_t);
  if (!next) next = (ssize_t(*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread");
  if (is_it("error", file)) return errno = EIO, -1;
  if (is_it("short", file)) return 0;
  if (is_it("slow", file)) sleep(60);
  ssize_t got = next(file, to, n, at);
  if (got > 100 && is_it("rotten", file)) ((char *)to)[100] ^= 4;
  return got;
}

ssize_t pwrite(int file, const void *from, size_t n, off_t at) {
  static ssize_t (*next)(int, const void *, size_t, off_t);
  if (!next) next = (ssize_t(*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite");
  if (is_it("full", file)) return errno = ENOSPC, -1;
  return next(file, from, n, at);
}

int posix_fallocate(int file, off_t from, off_t n) {
  static int (*next)(int, off_t, off_t);
  if (!next) next = (int (*)(int, off_t, off_t))dlsym(RTLD_NEXT, "posix_fallocate");
  return is_it("room", file) ? ENOSPC : next(file, from, n);
}

void *mremap(void *from, size_t n, size_t n_new, int flags, ...) {
  static void *(*next)(void *, size_t, size_t, int, void *);
  if (!next) next = (void *(*)(void *, size_t, size_t, int, void *))dlsym(RTLD_NEXT, "mremap");
  va_list list;
  va_start(list, flags);
  void *to = flags & MREMAP_FIXED ? va_arg(list, void *) : NULL;
  va_end(list);
  if (to && !strcmp(kind, "stay") && atomic_fetch_sub(&left, 1) <= 1) {
    static atomic_bool said;
    if (!atomic_exchange(&said, 1)) write(2, "pages stay\n", 11);
    return errno = ENOMEM, MAP_FAILED;
  }
  return next(from, n, n_new, flags, to);
}
