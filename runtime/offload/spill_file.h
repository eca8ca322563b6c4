/* The file of what is not in memory (spill_file.c): who moves blocks reads and writes pieces of them. */
#ifndef PD_SPILL_FILE_H
#define PD_SPILL_FILE_H

#include "offload/spill.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes it in a directory, with room for so many bytes. False after filling `why`. */
bool pd_spill_file_make(const char *place, int64_t bytes, char *why);
const char *pd_spill_file_place(void); /* the directory */
/* n bytes of a block from its byte `at` on; a checksum comes with what is written, and is compared when it is read. False:
 * pd_spill_file_failure() says why. For one thread after the other, or any at once. */
bool pd_spill_file_read(const struct pd_spill_block *b, size_t at, void *to, size_t n, uint64_t checksum);
bool pd_spill_file_write(const struct pd_spill_block *b, size_t at, const void *from, size_t n,
                         uint64_t *checksum);
const char *pd_spill_file_failure(void); /* the first; NULL: none */
int64_t pd_spill_file_moved(void);       /* bytes read and written, for whoever waits to see that it goes on */

#ifdef __cplusplus
}
#endif

#endif
