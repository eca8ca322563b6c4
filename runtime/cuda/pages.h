/* The arena of a model that spills (docs/guide/offload.md): addresses for all of it, of which only some pages have memory, and
 * those change. Pages are CUDA's virtual memory management's, so every block always has the same address. */
#ifndef PD_PAGES_H
#define PD_PAGES_H

#include <stddef.h>

/* Reserves the arena's addresses: pd.arena. No page has memory yet. False after filling `why`. */
bool pd_pages_reserve(char *why);
/* Gets the planned memory, and gives it to the pages in which something stands that never leaves. False after filling
 * `why`. */
bool pd_pages_start(char *why);
/* Gives memory to the pages that a block stands in and that have none. False: there is not enough left. */
bool pd_pages_give(size_t offset, size_t bytes);
/* The block stands there no more. Nothing that the device still has to do may touch it. */
void pd_pages_take(size_t offset, size_t bytes);
void pd_pages_finish();

#endif
