/* The process that launched this rank. For training programs and for those of several models (sharp_ranks.c). */
#ifndef PD_LAUNCHER_H
#define PD_LAUNCHER_H

/* The rank's number as the launcher's environment has it; NULL: no launcher started this process. */
const char *pd_launched_as(void);

/* From now on this process ends when its launcher does, after `act`, which runs in a signal's handler. Without a launcher
 * nothing changes. Called before MPI starts: a launcher that ended earlier makes MPI's start fail. */
void pd_end_with_launcher(void (*act)(void));

#endif
