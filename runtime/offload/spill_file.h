/* The offload file (spill_file.c): the mover of blocks reads and writes pieces of them. */
#ifndef PD_SPILL_FILE_H
#define PD_SPILL_FILE_H

#include "offload/spill.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Creates the file in a directory and allocates `bytes`. False after filling `why`. */
bool pd_spill_file_make(const char *place, int64_t bytes, char *why);
const char *pd_spill_file_place(void); /* the directory */
/* Read or write n bytes of a block from its byte `at`. A write returns a checksum, which the read verifies. False:
 * see pd_spill_file_failure(). Thread-safe. */
bool pd_spill_file_read(const struct pd_spill_block *b, size_t at, void *to, size_t n, uint64_t checksum);
bool pd_spill_file_write(const struct pd_spill_block *b, size_t at, const void *from, size_t n,
                         uint64_t *checksum);
const char *pd_spill_file_failure(void); /* the first failure; NULL: none */
int64_t pd_spill_file_moved(void);       /* bytes moved so far, to observe progress */

#ifdef __cplusplus
}
#endif

#endif
