/* timed FILE COMMAND...: runs a command and appends a line about it to FILE: its name, processor seconds of the command and of all
 * that it waited for (user, system), seconds by the clock. Exits as the command does.
 *
 * Under another name, such as `clang`, it runs the next program of that name on PATH, as itself, and appends to $PDC_TIMES, where
 * that is set: so a folder of links to it, first on PATH, tells compilers and launchers apart (tests/timed/shares). */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds(struct timeval t) { return (double)t.tv_sec + 1e-6 * (double)t.tv_usec; }

static double clock_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The program of that name on PATH behind the folder that holds this one. */
static char *next_on_path(const char *name) {
  static char found[PATH_MAX];
  char own[PATH_MAX], candidate[PATH_MAX];
  const char *path = getenv("PATH");
  if (!realpath("/proc/self/exe", own)) return NULL;
  for (char *list = strdup(path ? path : ""), *folder; (folder = strsep(&list, ":"));) {
    snprintf(found, sizeof found, "%s/%s", folder, name);
    if (!access(found, X_OK) && realpath(found, candidate) && strcmp(own, candidate) != 0) return found;
  }
  return NULL;
}

/* What a compiler was asked for. */
static const char *kind_of(char **argument) {
  for (; *argument; argument++) {
    if (!strcmp(*argument, "-c")) return "compile";
    if (!strcmp(*argument, "-fsyntax-only") || !strcmp(*argument, "-E") || !strcmp(*argument, "-S"))
      return "check";
  }
  return "link";
}

/* One write, which appends whole lines of several processes. */
static void append(const char *file, const char *name, const char *kind, double start) {
  struct rusage of;
  char line[512];
  getrusage(RUSAGE_CHILDREN, &of);
  int n = snprintf(line, sizeof line, "%s %s %.3f %.3f %.3f\n", name, kind, seconds(of.ru_utime),
                   seconds(of.ru_stime), clock_seconds() - start);
  int fd = open(file, O_WRONLY | O_CREAT | O_APPEND, 0666);
  if (fd < 0 || write(fd, line, (size_t)n) != n)
    fprintf(stderr, "timed: cannot write %s: %s\n", file, strerror(errno));
  if (fd >= 0) close(fd);
}

static pid_t child;
static void pass_on(int signal) { kill(child, signal); }

/* Its exit status, as a shell has it. */
static int run(char *program, char **argument) {
  int status;
  if (!(child = fork())) {
    execvp(program, argument);
    fprintf(stderr, "timed: cannot run %s: %s\n", program, strerror(errno));
    _exit(127);
  }
  for (int i = 0; i < 2; i++) signal((int[]){SIGTERM, SIGINT}[i], pass_on);
  while (waitpid(child, &status, 0) < 0 && errno == EINTR)
    ;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv) {
  const double start = clock_seconds();
  const char *name = basename(argv[0]), *times = getenv("PDC_TIMES"), *file = times ? strdup(times) : NULL;
  if (strcmp(name, "timed") != 0) {
    char *program = next_on_path(name);
    if (!program) {
      fprintf(stderr, "%s: not found behind %s\n", name, argv[0]);
      return 127;
    }
    if (!file) return execv(program, argv), 127;
    argv[0] = program;
    unsetenv("PDC_TIMES"); /* what it runs is part of it */
    int status = run(program, argv);
    append(file, name, kind_of(argv + 1), start);
    return status;
  }
  if (argc < 3) {
    fprintf(stderr, "usage: timed FILE COMMAND...\n");
    return 2;
  }
  setenv("PDC_TIMES", argv[1], 1);
  int status = run(argv[2], argv + 2);
  append(argv[1], "test", "whole", start);
  return status;
}
