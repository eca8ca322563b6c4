/* For who compiles one file after the other in a process, as fuzzers do: this folder's state as it is at one time, and the
 * way back to it. What was taken, named, read and told in between is gone. */
#ifndef PDC_AGAIN_H
#define PDC_AGAIN_H

void base_keep(void);    /* once, when what all files share has been made */
void base_restart(void); /* as it was then */

/* The parts: first names and diagnostics, whose tables stand in the arena. */
void arena_keep(void);
void arena_restart(void);
void names_keep(void);
void names_restart(void);
void diagnostics_keep(void);
void diagnostics_restart(void);

#endif
