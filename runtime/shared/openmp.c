/* Protection against failures of LLVM's OpenMP library, which ends the process before main with an assertion or a
 * signal: for a setting that is blank (OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK without that variable) or not a number
 * of threads, and for a /dev/shm that is missing, read-only or full. Programs and pdc link this file by -u
 * pd_openmp_ignored. */
#define _GNU_SOURCE /* memfd_create */
#include "shared/openmp.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- settings -------------------------------------------------------------------------------- */

const char *pd_openmp_ignored;

/* A list of positive numbers, one per nesting level: "2" or "2,3". */
static bool is_thread_list(const char *text) {
  for (;;) {
    text += strspn(text, " \t");
    size_t n = strspn(text, "0123456789");
    if (!n || n > 9 || strspn(text, "0") == n) return false;
    text += n + strspn(text + n, " \t");
    if (!*text) return true;
    if (*text++ != ',') return false;
  }
}

static bool is_unusable(const char *entry) {
  static const char threads[] = "OMP_NUM_THREADS=";
  if (!strncmp(entry, threads, sizeof threads - 1)) return !is_thread_list(entry + sizeof threads - 1);
  return pd_openmp_is_blank(entry);
}

bool pd_openmp_is_blank(const char *entry) {
  if (strncmp(entry, "OMP_", 4) && strncmp(entry, "KMP_", 4)) return false;
  const char *value = strchr(entry, '=');
  return value && !value[1 + strspn(value + 1, " \t")];
}

/* Removes unusable settings from the environment. */
static void ignore_settings(int argc, char **argv, char **environment) {
  (void)argc;
  (void)argv;
  char **to = environment;
  for (char **from = environment; *from; from++)
    if (is_unusable(*from))
      pd_openmp_ignored = *from;
    else
      *to++ = *from;
  *to = NULL;
}

/* Runs before the constructors of libraries, because GCC's OpenMP reads its settings in one. */
__attribute__((section(".preinit_array"), used)) static void (*const before)(int, char **,
                                                                             char **) = ignore_settings;

/* ---- shared memory --------------------------------------------------------------------------- */

/* The library registers itself in a file of /dev/shm, to detect a second copy in the process (kmp_runtime.cpp).
 * These two functions replace the C library's and return nameless memory, which needs no /dev/shm and disappears
 * with the process. */
static const char mark[] = "/__KMP_REGISTERED_LIB_"; /* PID_UID follows */
static struct {
  char registered[64];
  int registration;
} library = {.registration = -1};

static int open_registration(const char *name, int flags) {
  bool there =
      library.registration >= 0 && !strcmp(name, library.registered); /* a forked child has a different number */
  if (there ? flags & O_EXCL : !(flags & O_CREAT)) {
    errno = there ? EEXIST : ENOENT;
    return -1;
  }
  if (!there) {
    if (library.registration >= 0) close(library.registration);
    library.registration = memfd_create("openmp", MFD_CLOEXEC);
    snprintf(library.registered, sizeof library.registered, "%s", name);
  }
  return library.registration < 0 ? -1 : fcntl(library.registration, F_DUPFD_CLOEXEC, 0);
}

/* The C library's function; NULL with errno. */
static const char *shared_path(char path[PATH_MAX], const char *name) {
  name += strspn(name, "/");
  errno = EINVAL;
  return *name && !strchr(name, '/') && snprintf(path, PATH_MAX, "/dev/shm/%s", name) < PATH_MAX ? path : NULL;
}

// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): the header's names are reserved
int shm_open(const char *name, int flags, mode_t mode) {
  char path[PATH_MAX];
  if (!strncmp(name, mark, sizeof mark - 1)) return open_registration(name, flags);
  return shared_path(path, name) ? open(path, flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, mode) : -1;
}

int shm_unlink(const char *name) {
  char path[PATH_MAX];
  if (strncmp(name, mark, sizeof mark - 1)) return shared_path(path, name) ? unlink(path) : -1;
  if (library.registration >= 0) close(library.registration);
  library.registration = -1;
  return 0;
}
