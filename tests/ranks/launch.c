/* Starts ranks on this machine that talk by mpi.c, as mpirun does it by Open MPI:
 *   launch MPI[:INJECT] PROGRAM[,PROGRAM...] OPTIONS...      a rank a program; libraries that are preloaded
 * When a rank fails the others get SIGTERM, and SIGKILL a second later; the first failure's status is the launch's, 128 + the
 * number where it was a signal. SIGTERM, SIGINT and the like are handed on. Ranks do not outlive their launch. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_RANKS = 64 };
static int ranks;
static char *program[MOST_RANKS];
static int fd[MOST_RANKS][MOST_RANKS]; /* [a][b]: a's end of what leads to b */
static pid_t child[MOST_RANKS];

static void hand_on(int number) {
  for (int i = 0; i < ranks; i++)
    if (child[i]) kill(child[i], number);
}

static void become(int rank, const char *preload, char **argv) {
  char text[16 * MOST_RANKS] = "", number[16];
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (int a = 0; a < ranks; a++)
    for (int b = 0; b < ranks; b++)
      if (a != b && a != rank) close(fd[a][b]);
  for (int b = 0; b < ranks; b++) sprintf(text + strlen(text), "%d ", b == rank ? -1 : fd[rank][b]);
  setenv("PD_SOCKETS", text, 1);
  sprintf(number, "%d", ranks);
  setenv("OMPI_COMM_WORLD_SIZE", number, 1);
  sprintf(number, "%d", rank);
  setenv("OMPI_COMM_WORLD_RANK", number, 1);
  setenv("LD_PRELOAD", preload, 1);
  argv[0] = program[rank];
  execv(argv[0], argv);
  perror(argv[0]);
  _exit(127);
}

static void end_others(int number) {
  for (int i = 0; i < ranks; i++)
    if (child[i]) kill(child[i], number);
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
    if (WIFSIGNALED(status)) fprintf(stderr, "launch: a rank exited on signal %d\n", WTERMSIG(status));
    end_others(SIGTERM);
    alarm(1);
  }
  return result;
}

static void kill_others(int number) {
  (void)number;
  end_others(SIGKILL);
}

int main(int argc, char **argv) {
  if (argc < 3) return fprintf(stderr, "usage: launch LIBRARIES PROGRAM,PROGRAM... OPTIONS...\n"), 2;
  for (char *p = strtok(argv[2], ","); p && ranks < MOST_RANKS; p = strtok(NULL, ",")) program[ranks++] = p;
  for (int a = 0; a < ranks; a++)
    for (int b = 0; b < a; b++) {
      int pair[2];
      if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return perror("socketpair"), 1;
      fd[a][b] = pair[0];
      fd[b][a] = pair[1];
    }
  for (int i = 0; i < ranks; i++) {
    child[i] = fork();
    if (!child[i]) become(i, argv[1], argv + 2);
  }
  for (int a = 0; a < ranks; a++)
    for (int b = 0; b < ranks; b++)
      if (a != b) close(fd[a][b]);
  static const int numbers[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) signal(numbers[i], hand_on);
  signal(SIGALRM, kill_others);
  return await_all();
}
