/* Private to runtime/host: memory pages of offloaded blocks (spill_moves.c). Pages of a block that was freed stay
 * allocated until another block takes them or memory is short, because the kernel needs longer to provide a
 * cleared page than offload needs to fill it. Callers hold a lock. */
#ifndef PD_SPILL_PAGES_H
#define PD_SPILL_PAGES_H

#include "offload/spill.h"

void pd_pages_start(void); /* after the blocks exist */
/* Gives a block pages with undefined contents: free pages first; missing pages are allocated on first access. No
 * effect if the block has pages. */
void pd_pages_take(const struct pd_spill_block *b);
void pd_pages_leave(const struct pd_spill_block *b); /* discards the contents */
void pd_pages_idle(void);                            /* returns free pages to the kernel until the next take */

#endif
