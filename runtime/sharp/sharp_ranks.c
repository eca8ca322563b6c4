/* A rank of a launch of several models. It starts its share of the models, forwards their output, and collects
 * their status. Each model is a process that works while it has any rank (sharp_turn.c). A failed model gives its
 * rank to the next one; a rank that dies ends its models and the launch. */
#define _GNU_SOURCE /* memfd_create, cpu_set_t */
#include "pd_sharp.h"
#include "run/run.h"
#include "run/launcher.h"
#include "sharp/sharp_left.h"
#include "sharp/sharp_options.h"
#include "sharp/sharp_table.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct child { /* by model, for this rank's models */
  pid_t pid;   /* 0: another rank's model, or ended */
  struct stream {
    int fd, to; /* -1: closed */
    int n;
    char text[2048]; /* an incomplete line */
  } stream[2];
};

static struct {
  const struct pd_sharp_program *models;
  int n_models, rank, n_ranks;
  struct pd_sharp_options options;
  struct pd_sharp_table *table;
  int table_fd;
  struct child child[PD_SHARP_MODELS];
  volatile sig_atomic_t to_forward[NSIG];
} launch;

/* ---- failures of the launch -------------------------------------------------------------------- */

static void kill_children(int number) {
  for (int i = 0; i < launch.n_models; i++)
    if (launch.child[i].pid > 0) kill(launch.child[i].pid, number);
}

__attribute__((format(printf, 1, 2))) static _Noreturn void fail(const char *format, ...) {
  va_list args;
  char text[PD_WHY];
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  pd_make_plain(text);
  fprintf(stderr, "pd: rank %d: %s\n", launch.rank, text);
  fflush(NULL);
  kill_children(SIGKILL);
  alarm(5); /* in case the abort hangs */
  pd_abort();
  _exit(1);
}

static void await_all(MPI_Request *request, const char *what) {
  double start = pd_seconds();
  for (int done = 0; !done;) {
    MPI_Test(request, &done, MPI_STATUS_IGNORE);
    if (!done) nanosleep(&(struct timespec){0, 1000000}, NULL);
    if (!done && pd_seconds() - start > launch.options.timeout)
      fail("nothing came for %.0f s (--timeout): waited for all ranks to %s", launch.options.timeout, what);
  }
}

/* ---- what all share ---------------------------------------------------------------------------- */

struct offer {
  char host[64];
  int32_t pid, fd; /* of rank 0; -1: none */
};

static int make_memory(void) {
  int fd = memfd_create("pd_sharp", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, sizeof(struct pd_sharp_table)) != 0)
    fail("cannot create shared memory: %s", strerror(errno));
  return fd;
}

static void share(void) {
  struct offer mine = {.pid = getpid(), .fd = launch.rank ? -1 : make_memory()},
               *all = calloc((size_t)launch.n_ranks, sizeof *all);
  MPI_Request request;
  char path[64];
  gethostname(mine.host, sizeof mine.host - 1);
  MPI_Iallgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, MPI_COMM_WORLD, &request);
  await_all(&request, "meet");
  if (strcmp(all[0].host, mine.host))
    fail("several models in one launch need one machine, but this rank is on '%s' and rank 0 on '%s'", mine.host,
         all[0].host);
  snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)all[0].pid, (int)all[0].fd);
  launch.table_fd = launch.rank ? open(path, O_RDWR | O_CLOEXEC) : mine.fd;
  launch.table = launch.table_fd < 0 ? NULL : pd_sharp_map(launch.table_fd);
  if (!launch.table) fail("cannot map rank 0's shared memory: %s", strerror(errno));
  free(all);
}

/* True if ranks are bound to disjoint processors. */
static bool are_bound(void) {
  for (int r = 0; r < launch.n_ranks; r++)
    for (int other = 0; other < r; other++) {
      cpu_set_t both;
      CPU_AND(&both, &launch.table->cores[r], &launch.table->cores[other]);
      if (CPU_COUNT(&both)) return false;
    }
  return launch.n_ranks > 1;
}

static void meet(const char *what) {
  MPI_Request request;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  await_all(&request, what);
}

static void set_up(void) {
  share();
  if (!launch.rank) pd_sharp_table_start(launch.table, launch.n_models, launch.n_ranks, launch.options.slice);
  meet("share memory");
  launch.table->pid[launch.rank] = getpid();
  sched_getaffinity(0, sizeof *launch.table->cores, &launch.table->cores[launch.rank]);
  meet("share memory");
  if (!launch.rank) launch.table->bound = are_bound();
  meet("start models");
}

/* ---- a model's process ------------------------------------------------------------------------- */

static bool starts_with_any(const char *text, const char *const *starts, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (!strncmp(text, starts[i], strlen(starts[i]))) return true;
  return false;
}

static bool is_of_launcher(const char *variable) {
  static const char *const launchers[] = {"OMPI_", "PMIX_", "PMI_", "ORTE_", "SLURM_", "HYDRA_", "MPI_LOCAL"},
                           *const users[] = {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_MCA_orte_tmpdir_base"};
  return starts_with_any(variable, launchers, sizeof launchers / sizeof *launchers) &&
         !starts_with_any(variable, users, sizeof users / sizeof *users);
}

/* Environment of a model: MPI sees a launch of one rank, without a launcher; waiting threads soon sleep, to leave
 * the processors to the model that has them. */
static void set_environment(int model) {
  char number[16];
  for (char **e = environ; *e;)
    if (is_of_launcher(*e)) {
      char *name = strndup(*e, strcspn(*e, "="));
      unsetenv(name); /* moves the following entries here */
      free(name);
    } else {
      e++;
    }
  setenv("OMPI_MCA_ess_singleton_isolated", "1", 1);
  setenv("OMPI_MCA_btl", "self", 1);
  if (!getenv("OMP_WAIT_POLICY")) setenv("KMP_BLOCKTIME", "1", 0);
  snprintf(number, sizeof number, "%d", model);
  setenv("PD_SHARP", number, 1);
}

/* The path of a program relative to this program's folder, and the plan next to it. */
static void find_program(const char *name, char *path, size_t room) {
  ssize_t n = readlink("/proc/self/exe", path, room - strlen(name) - 1);
  if (n < 0) fail("cannot find its own program: %s", strerror(errno));
  path[n] = 0;
  strcpy(strrchr(path, '/') + 1, name);
}

static _Noreturn void become(int model, char **arguments, pid_t parent) {
  static char path[4096], plan[4096 + 16];
  find_program(launch.models[model].program, path, sizeof path);
  snprintf(plan, sizeof plan, "%.*s/plan.json", (int)(strrchr(path, '/') - path), path);
  setpgid(0, 0); /* the launcher signals ranks, which forward signals */
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  set_environment(model);
  setenv("PD_PLAN", plan, 1);
  for (int i = 0; i < 2; i++) dup2(launch.child[model].stream[i].to, i + 1);
  dup2(launch.table_fd, PD_SHARP_FD + 1);
  dup2(PD_SHARP_FD + 1, PD_SHARP_FD);
  for (int fd = PD_SHARP_FD + 1; fd < 1024; fd++) close(fd);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  execv(path, arguments);
  fprintf(stderr, "pd: cannot run '%s': %s\n", path, strerror(errno));
  _exit(1);
}

static void start_model(int model, char **arguments) {
  struct child *c = &launch.child[model];
  for (int i = 0; i < 2; i++) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) fail("cannot start '%s': %s", launch.models[model].name, strerror(errno));
    c->stream[i] = (struct stream){.fd = ends[0], .to = ends[1]};
  }
  pid_t parent = getpid();
  c->pid = fork();
  if (c->pid < 0) fail("cannot start '%s': %s", launch.models[model].name, strerror(errno));
  if (!c->pid) become(model, arguments, parent);
  for (int i = 0; i < 2; i++) close(c->stream[i].to);
}

/* ---- what models print ------------------------------------------------------------------------- */

/* Forwards whole lines, prefixed with the model's name. */
static void hand_on(int model, struct stream *s, FILE *to) {
  ssize_t n = read(s->fd, s->text + s->n, sizeof s->text - 1 - (size_t)s->n);
  if (n < 0 && errno == EINTR) return;
  if (n > 0) s->n += (int)n;
  int from = 0;
  for (int i = 0; i < s->n; i++)
    if (s->text[i] == '\n') {
      fprintf(to, "%s: %.*s\n", launch.models[model].name, i - from, s->text + from);
      from = i + 1;
    }
  if (s->n - from == (int)sizeof s->text - 1 || (n <= 0 && from < s->n)) {
    fprintf(to, "%s: %.*s\n", launch.models[model].name, s->n - from, s->text + from);
    from = s->n;
  }
  memmove(s->text, s->text + from, (size_t)(s->n - from));
  s->n -= from;
  fflush(to);
  if (n > 0) return;
  close(s->fd);
  s->fd = -1;
}

/* Waits for output, at most half a second; without open outputs, for the end of models. */
static void await_output(void) {
  enum { PATIENT = 500, SOON = 10 }; /* milliseconds */
  struct pollfd fds[2 * PD_SHARP_MODELS];
  int n = 0, open = 0, living = 0;
  for (int i = 0; i < launch.n_models; i++)
    for (int k = 0; launch.child[i].pid > 0 && k < 2; k++) { /* negative numbers are skipped */
      fds[n++] = (struct pollfd){.fd = launch.child[i].stream[k].fd, .events = POLLIN};
      open += launch.child[i].stream[k].fd >= 0;
      living += k;
    }
  if (poll(fds, (nfds_t)n, living && open == 2 * living ? PATIENT : SOON) <= 0) return;
  n = 0;
  for (int i = 0; i < launch.n_models; i++)
    for (int k = 0; launch.child[i].pid > 0 && k < 2; k++, n++)
      if (fds[n].revents) hand_on(i, &launch.child[i].stream[k], k ? stderr : stdout);
}

/* ---- how models end ---------------------------------------------------------------------------- */

static void see_end(int model, int status) {
  struct child *c = &launch.child[model];
  for (int k = 0; k < 2; k++)
    while (c->stream[k].fd >= 0) hand_on(model, &c->stream[k], k ? stderr : stdout);
  c->pid = 0;
  launch.table->result[model].status = status;
  pd_sharp_end(pd_sharp_lock(launch.table), model, pd_seconds());
  pd_sharp_unlock(launch.table);
  if (pd_sharp_is_good(status) || pd_sharp_was_stopped(status)) return;
  if (WIFSIGNALED(status))
    fprintf(stderr, "pd: model '%s' was ended by signal %d; the other models continue\n",
            launch.models[model].name, WTERMSIG(status));
  else
    fprintf(stderr, "pd: model '%s' failed; the other models continue\n", launch.models[model].name);
}

static void look_after_models(void) {
  int status;
  for (int i = 0; i < launch.n_models; i++)
    if (launch.child[i].pid > 0 && waitpid(launch.child[i].pid, &status, WNOHANG) == launch.child[i].pid)
      see_end(i, status);
  for (int number = 1; number < NSIG; number++)
    if (launch.to_forward[number]) {
      launch.to_forward[number] = 0;
      kill_children(number);
    }
}

static void look_for_ranks(void) {
  for (int r = 0; r < launch.n_ranks; r++)
    if (!launch.table->leaves[r] && kill(launch.table->pid[r], 0) != 0 && errno == ESRCH)
      fail("rank %d and its models have ended unexpectedly", r);
}

static bool all_ended(void) {
  bool ended = pd_sharp_all_ended(pd_sharp_lock(launch.table));
  pd_sharp_unlock(launch.table);
  return ended;
}

/* ---- signals ----------------------------------------------------------------------------------- */

static void note_signal(int number) { launch.to_forward[number] = 1; }

static void handle_signals(void) {
  static const int numbers[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2};
  struct sigaction action = {.sa_handler = note_signal};
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) sigaction(numbers[i], &action, NULL);
  signal(SIGPIPE, SIG_IGN);
}

/* ---- the end ----------------------------------------------------------------------------------- */

/* Rank 0, before any model starts: checks that the outputs are writable. */
static void prepare_outputs(void) {
  char why[PD_WHY] = "";
  const char *run = launch.options.run;
  if (run && !(pd_make_directories(run, why) && pd_lock("--run", run, true, why) && pd_sharp_keep_plan(run, why)))
    fail("%s", why);
  if (launch.options.timeline && !pd_writable(launch.options.timeline, why)) fail("%s", why);
}

static void leave_outputs(double start) {
  char why[PD_WHY] = "";
  const struct pd_sharp_left left = {launch.models, launch.n_models, launch.n_ranks,
                                     launch.table,  start,           pd_seconds() - start};
  if (launch.options.timeline && !pd_sharp_write_timeline(&left, launch.options.timeline, why)) fail("%s", why);
  if (!launch.options.quiet) pd_sharp_print_summary(&left);
  pd_unlock_all();
}

static int status_of_all(void) {
  int status = 0;
  for (int i = 0; i < launch.n_models && status != 1; i++)
    if (!pd_sharp_is_good(launch.table->result[i].status))
      status = pd_sharp_was_stopped(launch.table->result[i].status) ? PD_SHARP_TRY_AGAIN : 1;
  return status;
}

static void start_mpi(int *argc, char ***argv) {
  int level;
  if (MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS) {
    fprintf(stderr, "pd: MPI cannot start\n");
    exit(1);
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &launch.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &launch.n_ranks);
}

int pd_sharp_run(const struct pd_sharp_program *programs, int n, int ranks, int argc, char **argv) {
  char why[PD_WHY] = "", **arguments[PD_SHARP_MODELS];
  launch.models = programs;
  launch.n_models = n;
  bool good = pd_sharp_parse(&launch.options, launch.models, n, argc, argv, arguments, why);
  pd_end_with_launcher(pd_unlock_all);
  start_mpi(&argc, &argv);
  if (launch.options.help) {
    if (!launch.rank) pd_sharp_usage(launch.models, n, ranks);
    if (fflush(stdout) || ferror(stdout)) fail("cannot write to standard output: %s", strerror(errno));
    MPI_Finalize();
    return 0;
  }
  if (!good && !launch.rank) fail("%s", why);
  if (launch.n_ranks != ranks && !launch.rank)
    fail("launched with %d ranks, but the plan has %d", launch.n_ranks, ranks);
  if (!good || launch.n_ranks != ranks)
    nanosleep(&(struct timespec){10, 0}, NULL); /* rank 0 reports and ends the launch */
  handle_signals();
  if (!launch.rank) prepare_outputs();
  set_up();
  double start = pd_seconds();
  for (int i = launch.rank; i < launch.n_models; i += launch.n_ranks) start_model(i, arguments[i]);
  while (!all_ended()) {
    await_output();
    look_after_models();
    look_for_ranks();
  }
  launch.table->leaves[launch.rank] = true;
  if (!launch.rank) leave_outputs(start);
  meet("end");
  int status = status_of_all();
  MPI_Finalize();
  return status;
}
