/* The launcher of a rank (mpirun, its daemon on another machine, srun), which is the parent process: the rank's
 * number, and the end of the rank when the launcher ends. MPI libraries detect this end by a thread on their
 * connection; the kernel's signal needs neither the thread nor calls of MPI. */
#include "run/launcher.h"

#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

static struct {
  pid_t launcher;
  void (*last_act)(void);
} launch;

const char *pd_launched_as(void) {
  static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (getenv(names[i])) return getenv(names[i]);
  return NULL;
}

/* The kernel also sends the signal when the forking thread of the parent ends, and mpirun starts many ranks from
 * short-lived threads. */
static void parent_ended(int number) {
  (void)number;
  if (getppid() == launch.launcher) return;
  launch.last_act();
  _exit(1);
}

void pd_end_with_launcher(void (*act)(void)) {
  if (!pd_launched_as()) return;
  launch.launcher = getppid();
  launch.last_act = act;
  struct sigaction action = {.sa_handler = parent_ended, .sa_flags = SA_RESTART};
  sigemptyset(&action.sa_mask);
  const int unused = SIGRTMAX - 1; /* the last one is Valgrind's */
  sigaction(unused, &action, NULL);
  prctl(PR_SET_PDEATHSIG, (unsigned long)unused);
}
