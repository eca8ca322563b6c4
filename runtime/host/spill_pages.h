/* Private to runtime/host: the pages of memory that blocks of a model that spills have (spill_moves.c). What leaves keeps its
 * pages until another block takes them, or memory has no room for both: a fresh page takes the kernel longer, to find and to
 * clear, than all that is read and written of it. Callers hold a lock. */
#ifndef PD_SPILL_PAGES_H
#define PD_SPILL_PAGES_H

#include "offload/spill.h"

void pd_pages_start(void); /* once there are blocks */
/* Before a block has contents, which are undefined: it takes pages that others have left, and what is missing comes as it
 * is touched. Again for a block that has its pages: nothing happens. */
void pd_pages_take(const struct pd_spill_block *b);
void pd_pages_leave(const struct pd_spill_block *b); /* its contents are lost */
void pd_pages_idle(void); /* until somebody takes pages again, what leaves goes back to the kernel */

#endif
