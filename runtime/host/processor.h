/* What a program's processor must have. */
#ifndef PD_PROCESSOR_H
#define PD_PROCESSOR_H

void pd_limit_to_compiled(void); /* oneDNN uses no other instructions than the program's */

#endif
