/* The processors beside a rank's GPU: those of its NUMA node. */
#ifndef PD_PROCESSORS_H
#define PD_PROCESSORS_H

/* Binds the calling thread, and so those that it starts from now on, to the processors beside the device, unless the launcher
 * has bound this process to some. */
void pd_processors_bind(int device);
int pd_processors_given(void); /* to this process at its start; 0: not known */
int pd_processors(void);       /* of these, after binding; 0: not known */

#endif
