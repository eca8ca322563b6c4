/* The processor's instruction set. */
#ifndef PD_PROCESSOR_H
#define PD_PROCESSOR_H

void pd_limit_to_compiled(void); /* limits oneDNN to the program's instructions */

#endif
