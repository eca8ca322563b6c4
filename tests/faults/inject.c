/* Preloaded before the C library and MPI: one call of one rank fails, is late, or misbehaves.
 *   PD_FAULT=WHAT:NUMBER:RANK   the NUMBER-th such call (from 1) that rank RANK's program itself makes
 *   PD_FAULT=count:0:RANK       no fault; at its end the rank prints the numbers of calls: "calls: WHAT NUMBER", a
 *                               line each
 * WHAT: allocation (also by cJSON), write (also opening, syncing, renaming, removing), read (also looking at files
 * and folders), thread (one is started), call (of MPI: it returns an error), late (a message is sent
 * 0.3 s later than it is asked for), lost (it is never sent), flip (one of its bits changes on the way), memory
 * (at the NUMBER-th message that is sent, a bit of the arena changes: PD_FAULT_AT bytes behind its start), compute
 * (a bit of what the NUMBER-th primitive of oneDNN has computed changes), copied (a bit changes just before memory
 * is copied), compared (just after memory was found the same as other memory); it is in the middle of that memory,
 * or at PD_FAULT_AT. PD_FAULT_BYTES: copies and comparisons of so many bytes alone.
 * Faults are printed on stderr: "fault: ...". */
#define _GNU_SOURCE
#include <mpi.h>

#include <dirent.h>
#include <dlfcn.h>
#include <dnnl.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *what = ""; /* not for this rank: "" */
static long number;
static char *arena;                            /* the first mapping that the program makes by itself */
static struct { uintptr_t from, to; } code[2]; /* of the program, and of cJSON, which allocates for it */
static struct {
  const char *kind;
  long n;
} counts[16];

static int find_code(struct dl_phdr_info *info, size_t size, void *number) {
  int at = *(int *)number == 0 ? 0 : strstr(info->dlpi_name, "libcjson") ? 1 : -1; /* the first is the program */
  (void)size;
  ++*(int *)number;
  for (int i = 0; i < info->dlpi_phnum && at >= 0; i++) {
    const ElfW(Phdr) *p = &info->dlpi_phdr[i];
    if (p->p_type != PT_LOAD || !(p->p_flags & PF_X)) continue;
    code[at].from = info->dlpi_addr + p->p_vaddr;
    code[at].to = code[at].from + p->p_memsz;
  }
  return 0;
}

__attribute__((constructor)) static void start(void) {
  static char kind[32];
  const char *fault = getenv("PD_FAULT"), *rank = getenv("OMPI_COMM_WORLD_RANK");
  int of = -1;
  int loaded = 0;
  dl_iterate_phdr(find_code, &loaded);
  if (!fault || !rank || sscanf(fault, "%31[a-z]:%ld:%d", kind, &number, &of) != 3 || of != atoi(rank)) return;
  what = kind;
}

__attribute__((destructor)) static void end(void) {
  for (int i = 0; i < 16 && counts[i].kind; i++)
    dprintf(STDERR_FILENO, "calls: %s %ld\n", counts[i].kind, counts[i].n);
}

static void count(const char *kind) {
  for (int i = 0; i < 16; i++) {
    if (!counts[i].kind) counts[i].kind = kind;
    if (strcmp(counts[i].kind, kind)) continue;
    counts[i].n++;
    return;
  }
}

static bool is_ours(const void *caller) {
  for (int i = 0; i < 2; i++)
    if ((uintptr_t)caller >= code[i].from && (uintptr_t)caller < code[i].to) return true;
  return false;
}

/* Whether this call, made from `caller`, is the one. */
static bool is_it(const char *kind, const char *function, const void *caller) {
  if (!*what || !is_ours(caller)) return false;
  if (!strcmp(what, "count")) count(kind);
  if (strcmp(what, kind) || --number) return false;
  char text[128];
  int n = snprintf(text, sizeof text, "fault: %s in %s\n", kind, function);
  return write(STDERR_FILENO, text, (size_t)n) == n;
}

#define NEXT(function) ((__typeof__(function) *)dlsym(RTLD_NEXT, #function))
#define FAIL(kind, function, error, result)                  \
  if (is_it(kind, #function, __builtin_return_address(0))) { \
    errno = error;                                           \
    return result;                                           \
  }

/* ---- allocations ----------------------------------------------------------------------------- */

void *aligned_alloc(size_t alignment, size_t bytes) {
  FAIL("allocation", aligned_alloc, ENOMEM, NULL)
  return NEXT(aligned_alloc)(alignment, bytes);
}

void *realloc(void *at, size_t bytes) {
  FAIL("allocation", realloc, ENOMEM, NULL)
  return NEXT(realloc)(at, bytes);
}

/* The C library's own, since looking up a function may allocate. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);

void *malloc(size_t bytes) {
  FAIL("allocation", malloc, ENOMEM, NULL)
  return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes) {
  FAIL("allocation", calloc, ENOMEM, NULL)
  return __libc_calloc(n, bytes);
}

char *(strdup)(const char *text) {
  FAIL("allocation", strdup, ENOMEM, NULL)
  size_t n = strlen(text) + 1;
  char *copy = __libc_malloc(n);
  return copy ? memcpy(copy, text, n) : NULL;
}

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset) {
  FAIL("allocation", mmap, ENOMEM, MAP_FAILED)
  void *map = NEXT(mmap)(at, bytes, protection, flags, fd, offset);
  if (fd == -1 && !arena && is_ours(__builtin_return_address(0))) arena = map;
  return map;
}

/* ---- what memory holds before and after an update ------------------------------------------------ */

static bool is_size(size_t bytes) {
  const char *only = getenv("PD_FAULT_BYTES");
  return *what && (!only || strtoull(only, NULL, 10) == bytes);
}

static char *in_arena(const char *offset) {
  const size_t huge = 2 << 20; /* where the arena begins in its mapping */
  return arena + (huge - (uintptr_t)arena % huge) % huge + strtoull(offset, NULL, 10);
}

static void flip(const void *memory, size_t bytes) {
  const char *at = getenv("PD_FAULT_AT");
  *(at ? in_arena(at) : (char *)(uintptr_t)memory + bytes / 2) ^= 1;
}

/* The C library's own: a compiler would call memcpy for memmove, and looking up a function compares memory. */
static void *(*volatile const move)(void *to, const void *from, size_t bytes) = memmove;

void *memcpy(void *restrict to, const void *restrict from, size_t bytes) {
  if (is_size(bytes) && is_it("copied", "memcpy", __builtin_return_address(0))) flip(from, bytes);
  return move(to, from, bytes);
}

static int compare(const void *a, const void *b, size_t bytes, const void *caller) {
  const unsigned char *x = a, *y = b;
  for (size_t i = 0; i < bytes; i++)
    if (x[i] != y[i]) return x[i] - y[i];
  if (is_size(bytes) && is_it("compared", "memcmp", caller)) flip(a, bytes);
  return 0;
}

int memcmp(const void *a, const void *b, size_t bytes) {
  return compare(a, b, bytes, __builtin_return_address(0));
}

/* What clang calls where only equality is asked for. */
int bcmp(const void *a, const void *b, size_t bytes) { return compare(a, b, bytes, __builtin_return_address(0)); }

/* ---- files ----------------------------------------------------------------------------------- */

size_t fwrite(const void *from, size_t size, size_t n, FILE *file) {
  FAIL("write", fwrite, ENOSPC, 0)
  return NEXT(fwrite)(from, size, n, file);
}

int fflush(FILE *file) {
  FAIL("write", fflush, ENOSPC, EOF)
  return NEXT(fflush)(file);
}

int fsync(int fd) {
  FAIL("write", fsync, EIO, -1)
  return NEXT(fsync)(fd);
}

int rename(const char *from, const char *to) {
  FAIL("write", rename, EIO, -1)
  return NEXT(rename)(from, to);
}

FILE *fopen(const char *path, const char *mode) {
  FAIL("write", fopen, EMFILE, NULL)
  return NEXT(fopen)(path, mode);
}

int mkdir(const char *path, mode_t mode) {
  FAIL("write", mkdir, ENOSPC, -1)
  return NEXT(mkdir)(path, mode);
}

int ftruncate(int fd, off_t size) {
  FAIL("write", ftruncate, EIO, -1)
  return NEXT(ftruncate)(fd, size);
}

int open(const char *path, int flags, ...) {
  mode_t mode = 0;
  if (flags & O_CREAT) {
    va_list args;
    va_start(args, flags);
    mode = va_arg(args, mode_t);
    va_end(args);
  }
  FAIL("write", open, EIO, -1)
  return NEXT(open)(path, flags, mode);
}

ssize_t write(int fd, const void *from, size_t n) {
  if (fd > STDERR_FILENO) FAIL("write", write, EIO, -1)
  return NEXT(write)(fd, from, n);
}

ssize_t pwrite(int fd, const void *from, size_t n, off_t at) {
  FAIL("write", pwrite, ENOSPC, -1)
  return NEXT(pwrite)(fd, from, n, at);
}

int fclose(FILE *file) {
  bool fails = is_it("write", "fclose", __builtin_return_address(0));
  int result = NEXT(fclose)(file);
  if (fails) errno = EDQUOT;
  return fails ? EOF : result;
}

int unlink(const char *path) {
  FAIL("write", unlink, EPERM, -1)
  return NEXT(unlink)(path);
}

int posix_fallocate(int fd, off_t at, off_t n) {
  FAIL("write", posix_fallocate, ENOSPC, ENOSPC)
  return NEXT(posix_fallocate)(fd, at, n);
}

ssize_t read(int fd, void *to, size_t n) {
  FAIL("read", read, EIO, -1)
  return NEXT(read)(fd, to, n);
}

ssize_t pread(int fd, void *to, size_t n, off_t at) {
  FAIL("read", pread, EIO, -1)
  return NEXT(pread)(fd, to, n, at);
}

int fstat(int fd, struct stat *to) {
  FAIL("read", fstat, EIO, -1)
  return NEXT(fstat)(fd, to);
}

int stat(const char *path, struct stat *to) {
  FAIL("read", stat, EACCES, -1)
  return NEXT(stat)(path, to);
}

int lstat(const char *path, struct stat *to) {
  FAIL("read", lstat, EACCES, -1)
  return NEXT(lstat)(path, to);
}

DIR *opendir(const char *path) {
  FAIL("read", opendir, EMFILE, NULL)
  return NEXT(opendir)(path);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *of) {
  FAIL("thread", pthread_create, EAGAIN, EAGAIN)
  return NEXT(pthread_create)(thread, how, run, of);
}

/* ---- MPI ------------------------------------------------------------------------------------- */

#define CALL(function, comm, ...)                                         \
  if (is_it("call", #function, __builtin_return_address(0)))              \
    return PMPI_Comm_call_errhandler(comm, MPI_ERR_OTHER), MPI_ERR_OTHER; \
  return P##function(__VA_ARGS__)

int MPI_Isend(const void *from, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request) {
  const void *caller = __builtin_return_address(0);
  int size;
  PMPI_Type_size(type, &size);
  if (arena && is_it("memory", "MPI_Isend", caller))
    *in_arena(getenv("PD_FAULT_AT") ? getenv("PD_FAULT_AT") : "0") ^= 0x10;
  if (is_it("late", "MPI_Isend", caller)) nanosleep(&(struct timespec){0, 300000000}, NULL);
  if (is_it("lost", "MPI_Isend", caller)) {
    *request = MPI_REQUEST_NULL;
    return MPI_SUCCESS;
  }
  if (n && is_it("flip", "MPI_Isend", caller)) { /* the copy stays until the end */
    char *copy = malloc((size_t)n * (size_t)size);
    memcpy(copy, from, (size_t)n * (size_t)size);
    copy[(size_t)n * (size_t)size / 2] ^= 0x10;
    from = copy;
  }
  CALL(MPI_Isend, comm, from, n, type, to, tag, comm, request);
}

int MPI_Irecv(void *to, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request) {
  CALL(MPI_Irecv, comm, to, n, type, from, tag, comm, request);
}

int MPI_Iallreduce(const void *from, void *to, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request *request) {
  CALL(MPI_Iallreduce, comm, from, to, n, type, op, comm, request);
}

int MPI_Iallgather(const void *from, int n, MPI_Datatype type, void *to, int n_each, MPI_Datatype each,
                   MPI_Comm comm, MPI_Request *request) {
  CALL(MPI_Iallgather, comm, from, n, type, to, n_each, each, comm, request);
}

int MPI_Ibcast(void *at, int n, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request *request) {
  CALL(MPI_Ibcast, comm, at, n, type, root, comm, request);
}

int MPI_Test(MPI_Request *request, int *done, MPI_Status *status) {
  CALL(MPI_Test, MPI_COMM_WORLD, request, done, status);
}

int MPI_Testall(int n, MPI_Request requests[], int *done, MPI_Status statuses[]) {
  CALL(MPI_Testall, MPI_COMM_WORLD, n, requests, done, statuses);
}

/* ---- oneDNN ---------------------------------------------------------------------------------- */

dnnl_status_t dnnl_primitive_execute(const_dnnl_primitive_t primitive, dnnl_stream_t stream, int n,
                                     const dnnl_exec_arg_t *args) {
  dnnl_status_t status = NEXT(dnnl_primitive_execute)(primitive, stream, n, args);
  if (!is_it("compute", "dnnl_primitive_execute", __builtin_return_address(0))) return status;
  for (int i = 0; i < n; i++) {
    void *at = NULL;
    if (args[i].arg == DNNL_ARG_DST && !NEXT(dnnl_memory_get_data_handle)(args[i].memory, &at))
      ((char *)at)[66] ^= 0x10; /* of the seventeenth number, where it is a float, a bit of the mantissa */
  }
  return status;
}
