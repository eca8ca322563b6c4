/* The process that launched this rank. For stage programs and launches of several models (sharp_ranks.c). */
#ifndef PD_LAUNCHER_H
#define PD_LAUNCHER_H

/* The rank number in the launcher's environment; NULL: no launcher. */
const char *pd_launched_as(void);

/* Makes this process end with its launcher, after `act`, which runs in a signal handler. No effect without a
 * launcher. Called before MPI starts: MPI's start fails if the launcher ended earlier. */
void pd_end_with_launcher(void (*act)(void));

#endif
