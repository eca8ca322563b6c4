/* Starts ranks on this machine that talk by mpi.c, as mpirun starts them to talk by Open MPI:
 *   ranks_launch [-x NAME=VALUE] -n RANKS PROGRAM OPTIONS... [: -n RANKS PROGRAM OPTIONS...]
 * Standard input goes to rank 0 alone. When a rank fails the others get SIGTERM, and SIGKILL a second later; the first failure's
 * status is the launch's, 128 + the number where it was a signal. SIGTERM, SIGINT, SIGUSR1 and SIGUSR2 are passed on. Ranks do
 * not outlive their launch. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_RANKS = 64 };
static int ranks;
static char **line[MOST_RANKS];        /* the program and its options */
static int fd[MOST_RANKS][MOST_RANKS]; /* [a][b]: a's end of what leads to b */
static pid_t child[MOST_RANKS];

static void usage(const char *why) {
  fprintf(stderr, "ranks_launch: %s\nusage: ranks_launch [-x NAME=VALUE] -n RANKS PROGRAM OPTIONS... [: ...]\n",
          why);
  exit(2);
}

/* Fills in `line`; each program's words end in NULL where ":" stood. */
static void read_options(char **word) {
  while (*word) {
    long n = 1;
    for (; *word && **word == '-'; word += 2) {
      if (!word[1]) usage("an option without a value");
      if (!strcmp(*word, "-n"))
        n = strtol(word[1], NULL, 10);
      else if (strcmp(*word, "-x") || (strchr(word[1], '=') && putenv(word[1])))
        usage(*word);
    }
    if (!*word || n < 1 || n > MOST_RANKS - ranks) usage("no program, or too many ranks");
    while (n--) line[ranks++] = word;
    while (*word && strcmp(*word, ":")) word++;
    if (*word) *word++ = NULL;
  }
  if (!ranks) usage("no program");
}

static void set_number(const char *name, int number) {
  char text[16];
  snprintf(text, sizeof text, "%d", number);
  setenv(name, text, 1);
}

/* mpi.c lies beside this program; what is to be loaded before it, faults for instance, is in LD_PRELOAD. */
static void preload(void) {
  char path[PATH_MAX], *first = getenv("LD_PRELOAD"), *all;
  ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  path[n < 0 ? 0 : n] = 0;
  char *slash = strrchr(path, '/');
  if (!slash || asprintf(&all, "%s%s%.*s/libranks_mpi.so", first ? first : "", first ? ":" : "",
                         (int)(slash - path), path) < 0)
    _exit(127);
  setenv("LD_PRELOAD", all, 1);
}

static void become(int rank) {
  char text[16 * MOST_RANKS] = "";
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (int a = 0; a < ranks; a++)
    for (int b = 0; b < ranks; b++)
      if (a != b && a != rank) close(fd[a][b]);
  for (int b = 0; b < ranks; b++) sprintf(text + strlen(text), "%d ", b == rank ? -1 : fd[rank][b]);
  setenv("PD_SOCKETS", text, 1);
  set_number("OMPI_COMM_WORLD_SIZE", ranks);
  set_number("OMPI_COMM_WORLD_LOCAL_SIZE", ranks);
  set_number("OMPI_COMM_WORLD_RANK", rank);
  preload();
  int nothing = rank ? open("/dev/null", O_RDONLY) : -1;
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  execvp(line[rank][0], line[rank]);
  perror(line[rank][0]);
  _exit(127);
}

static void signal_ranks(int number) {
  for (int i = 0; i < ranks; i++)
    if (child[i]) kill(child[i], number);
}

static void kill_ranks(int number) {
  (void)number;
  signal_ranks(SIGKILL);
}

/* Waits for all; the status of the first that failed. */
static int await_all(void) {
  int result = 0, left = ranks;
  while (left) {
    int status;
    pid_t pid = wait(&status);
    if (pid < 0) continue;
    for (int i = 0; i < ranks; i++)
      if (child[i] == pid) child[i] = 0;
    left--;
    int failed = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (!failed || result) continue;
    result = failed;
    if (WIFSIGNALED(status)) fprintf(stderr, "ranks_launch: a rank exited on signal %d\n", WTERMSIG(status));
    signal_ranks(SIGTERM);
    alarm(1);
  }
  return result;
}

int main(int argc, char **argv) {
  (void)argc;
  read_options(argv + 1);
  for (int a = 0; a < ranks; a++)
    for (int b = 0; b < a; b++) {
      int pair[2];
      if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return perror("socketpair"), 1;
      fd[a][b] = pair[0];
      fd[b][a] = pair[1];
    }
  for (int i = 0; i < ranks; i++) {
    child[i] = fork();
    if (!child[i]) become(i);
  }
  for (int a = 0; a < ranks; a++)
    for (int b = 0; b < ranks; b++)
      if (a != b) close(fd[a][b]);
  static const int numbers[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) signal(numbers[i], signal_ranks);
  signal(SIGALRM, kill_ranks);
  return await_all();
}
