/* For processes that compile several files in turn, such as fuzzers: saves this folder's state and restores it.
 * Memory, names, sources and diagnostics since the save are lost. */
#ifndef PDC_AGAIN_H
#define PDC_AGAIN_H

void base_keep(void);    /* call once, after the setup that all files share */
void base_restart(void); /* restores the saved state */

/* The parts. Order: names and diagnostics first, because their tables are in the arena. */
void arena_keep(void);
void arena_restart(void);
void names_keep(void);
void names_restart(void);
void diagnostics_keep(void);
void diagnostics_restart(void);

#endif
