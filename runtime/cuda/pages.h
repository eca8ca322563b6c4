/* The arena with offload (docs/guide/offload.md): addresses for the whole arena, with memory only for the pages of
 * resident blocks, by CUDA's virtual memory management. Blocks keep their addresses. */
#ifndef PD_PAGES_H
#define PD_PAGES_H

#include <stddef.h>

/* Reserves the addresses of pd.arena, without memory. False after filling `why`. */
bool pd_pages_reserve(char *why);
/* Allocates the planned memory and maps the pages that are always resident. False after filling `why`. */
bool pd_pages_start(char *why);
/* Maps memory to a block's pages that have none. False: not enough free memory. */
bool pd_pages_give(size_t offset, size_t bytes);
/* Releases a block's pages. Pending device work must not use the block. */
void pd_pages_take(size_t offset, size_t bytes);
void pd_pages_finish();

#endif
