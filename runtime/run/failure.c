/* The process of a rank: its failures, which end the launch, its memory, and MPI. */
#define _GNU_SOURCE /* process_vm_readv */
#include "run/upward.h"
#include "transfer.h"

#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct pd_run pd;

static struct {
  bool mpi_runs;
  const char *volatile alarm_says; /* NULL: nothing more to say */
  volatile sig_atomic_t rings;     /* before it is said */
  bool failing;
} failure;

double pd_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- failures -------------------------------------------------------------------------------- */

static void alarm_rang(int signal) {
  (void)signal;
  const char *text = failure.alarm_says;
  if (text && --failure.rings > 0) return;
  pd_leave_nothing();
  if (text && write(STDERR_FILENO, text, strlen(text)) < 0) _exit(1);
  _exit(1);
}

/* Ranks that wait for the same rank give up in turn. The timeout is several alarms, because a process that was
 * stopped gets only one alarm when it continues. */
void pd_watch_begin(const char *what) {
  enum { RINGS = 4 };
  static char text[256];
  double seconds = pd_options.timeout + 0.2 * pd.self;
  snprintf(text, sizeof text, "pd: rank %d (stage %d): nothing came for %.0f s (--timeout): waited %s\n", pd.self,
           pd.stage->stage, pd_options.timeout, what);
  if (!failure.alarm_says) signal(SIGALRM, alarm_rang);
  failure.alarm_says = text;
  failure.rings = RINGS;
  const double each = seconds / RINGS;
  const struct timeval period = {(time_t)each, (suseconds_t)(fmod(each, 1) * 1e6)};
  setitimer(ITIMER_REAL, &(struct itimerval){period, period}, NULL);
}

void pd_watch_end(void) { alarm(0); }

/* Removes incomplete files, and locks. */
void pd_leave_nothing(void) {
  pd_output_abandon();
  pd_unlock_all();
}

/* Reports a mapped file that became shorter; other bus errors end the process when the handler returns. Code
 * that reads mapped files, here and in the decoders of images, holds no lock, so that the handler may report the
 * failure, on any thread. */
static void bus_error(int number, siginfo_t *info, void *context) {
  (void)context;
  const char *path =
      info->si_code > 0 ? pd_mapped_path(info->si_addr) : NULL; /* otherwise a process sent the signal */
  signal(number, SIG_DFL);
  if (path) pd_fail("cannot read '%s': it became shorter while it was in use", path);
  pd_leave_nothing();
  raise(number);
}

/* Several ranks may fail together, on the same peer, weights or disk. The lowest reports the failure, and its
 * abort ends all other ranks while they wait for their turn. */
static void await_turn_to_speak(void) {
  enum { MOST = 20 };
  int turn = !failure.mpi_runs ? 0 : pd.self < MOST ? pd.self : MOST;
  pd_signals_await_turn(0.2 * turn);
}

/* Reports the first cause only, also if the report itself fails. */
void pd_fail(const char *format, ...) {
  static char text[PD_WHY + 64];
  static int n;
  bool first = !failure.failing;
  failure.failing = true;
  if (first) {
    n = snprintf(text, sizeof text, "pd: rank %d (stage %d): ", pd.self, pd.stage ? pd.stage->stage : pd.self);
    va_list args;
    va_start(args, format);
    vsnprintf(text + n, sizeof text - (size_t)n - 1, format, args);
    va_end(args);
    pd_make_plain(text);
    n = (int)strlen(text);
    text[n++] = '\n';
    await_turn_to_speak();
  }
  fflush(stdout);
  pd_leave_nothing();
  if (write(STDERR_FILENO, text, (size_t)n) < 0) _exit(1);
  failure.alarm_says = NULL;
  alarm(5); /* in case the abort hangs */
  if (failure.mpi_runs && first) pd_signals_failed();
  pd_transfers_abort();
  if (failure.mpi_runs) pd_abort();
  _exit(1);
}

void pd_leave(void) {
  pd_leave_nothing();
  failure.alarm_says = NULL;
  alarm(5);
  pd_abort();
  _exit(1);
}

static void mpi_failed(MPI_Comm *comm, int *code, ...) {
  (void)comm;
  char text[MPI_MAX_ERROR_STRING] = "";
  int n = 0;
  MPI_Error_string(*code, text, &n);
  pd_fail("a message failed: %s", text);
}

char *pd_copy_text(const char *text) {
  char *copy = strdup(text);
  if (!copy) pd_fail("out of memory: cannot get %zu bytes", strlen(text) + 1);
  return copy;
}

void *pd_allocate(size_t bytes) {
  size_t whole = (bytes + 63) / 64 * 64;
  void *p = aligned_alloc(64, whole ? whole : 64);
  if (!p) pd_fail("out of memory: cannot get %zu bytes", bytes);
  return memset(p, 0, whole);
}

/* ---- MPI ------------------------------------------------------------------------------------- */

/* Open MPI's shared memory transport copies between processes by a system call. In a container that forbids the
 * call every such message fails, so this function disables it. Messages then move only while both ranks call MPI,
 * three fragments of 32 KiB per call. Ranks call MPI between layers only, so fragments are made larger and more of
 * them are sent per call. */
static void avoid_forbidden_copies(void) {
  char from = 1, to = 0;
  struct iovec local = {&to, 1}, remote = {&from, 1};
  if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != 1)
    setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
  const char *copies = getenv("OMPI_MCA_btl_vader_single_copy_mechanism");
  if (!copies || strcmp(copies, "none")) return;
  setenv("OMPI_MCA_pml_ob1_send_pipeline_depth", "64", 0);
  setenv("OMPI_MCA_btl_vader_max_send_size", "131072", 0);
  setenv("OMPI_MCA_btl_vader_segment_size", "16777216", 0);
}

void pd_mpi_start(int *argc, char ***argv) {
  int level;
  avoid_forbidden_copies();
  if (MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS) pd_fail("MPI cannot start");
  failure.mpi_runs = true;
  MPI_Comm_rank(MPI_COMM_WORLD, &pd.place);
  MPI_Errhandler handler;
  MPI_Comm_create_errhandler(mpi_failed, &handler);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler); /* the duplicates inherit it */
  prctl(PR_SET_TIMERSLACK, 1000UL);
}

void pd_mpi_finish(void) {
  MPI_Finalize();
  failure.mpi_runs = false;
}

void pd_catch_bus_errors(void) {
  sigaction(SIGBUS, &(struct sigaction){.sa_sigaction = bus_error, .sa_flags = SA_SIGINFO}, NULL);
}
