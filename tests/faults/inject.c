/* Preloaded in front of the C library and MPI: one call of one rank fails, is late, or does other than it should.
 *   PD_FAULT=WHAT:NUMBER:RANK   the NUMBER-th such call (from 1) that rank RANK's program itself makes
 * WHAT: allocation, write (also opening, syncing, renaming), call (of MPI: it returns an error), late (a message is sent
 * 0.3 s later than it is asked for), lost (it is never sent), flip (one of its bits changes on the way), memory (at the
 * NUMBER-th message that is sent, a bit of the arena changes: PD_FAULT_AT bytes behind its start), compute (a bit of what
 * the NUMBER-th primitive of oneDNN has computed changes).
 * What is done is said on stderr: "fault: ...". */
#define _GNU_SOURCE
#include <mpi.h>

#include <dlfcn.h>
#include <dnnl.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
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
static char *arena; /* the first mapping that the program makes by itself */
static uintptr_t program_from, program_to;

static int find_program(struct dl_phdr_info *info, size_t size, void *unused) {
  (void)size, (void)unused;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *p = &info->dlpi_phdr[i];
    if (p->p_type != PT_LOAD || !(p->p_flags & PF_X)) continue;
    program_from = info->dlpi_addr + p->p_vaddr;
    program_to = program_from + p->p_memsz;
  }
  return 1; /* the first is the program */
}

__attribute__((constructor)) static void start(void) {
  static char kind[32];
  const char *fault = getenv("PD_FAULT"), *rank = getenv("OMPI_COMM_WORLD_RANK");
  int of = -1;
  dl_iterate_phdr(find_program, NULL);
  if (!fault || !rank || sscanf(fault, "%31[a-z]:%ld:%d", kind, &number, &of) != 3 || of != atoi(rank)) return;
  what = kind;
}

/* Whether this call, made from `caller`, is the one. */
static bool is_it(const char *kind, const char *function, const void *caller) {
  uintptr_t at = (uintptr_t)caller;
  if (strcmp(what, kind) || at < program_from || at >= program_to || --number) return false;
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

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset) {
  FAIL("allocation", mmap, ENOMEM, MAP_FAILED)
  void *map = NEXT(mmap)(at, bytes, protection, flags, fd, offset);
  uintptr_t caller = (uintptr_t)__builtin_return_address(0);
  if (fd == -1 && !arena && caller >= program_from && caller < program_to) arena = map;
  return map;
}

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

/* ---- MPI ------------------------------------------------------------------------------------- */

#define CALL(function, comm, ...)                                         \
  if (is_it("call", #function, __builtin_return_address(0)))              \
    return PMPI_Comm_call_errhandler(comm, MPI_ERR_OTHER), MPI_ERR_OTHER; \
  return P##function(__VA_ARGS__)

int MPI_Isend(const void *from, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request) {
  const void *caller = __builtin_return_address(0);
  int size;
  PMPI_Type_size(type, &size);
  if (arena && is_it("memory", "MPI_Isend", caller)) {
    const size_t huge = 2 << 20; /* where the arena begins in its mapping */
    arena += (huge - (uintptr_t)arena % huge) % huge;
    arena[getenv("PD_FAULT_AT") ? atol(getenv("PD_FAULT_AT")) : 0] ^= 0x10;
  }
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
