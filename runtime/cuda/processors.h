/* The processors near a rank's GPU: those of its NUMA node. */
#ifndef PD_PROCESSORS_H
#define PD_PROCESSORS_H

/* Binds the calling thread, and the threads that it starts later, to the processors near the device, unless the
 * launcher has bound this process. */
void pd_processors_bind(int device);
int pd_processors_given(void); /* number of processors of this process at its start; 0: not known */
int pd_processors(void);       /* number of processors after binding */

#endif
