/* Checksums of files: XXH3 of 64 bits, which one core computes faster than any disk is read. No MPI here. */
#ifndef PD_CHECKSUM_H
#define PD_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

uint64_t pd_checksum(const void *at, size_t n);
uint64_t pd_seeded_checksum(const void *at, size_t n, uint64_t seed); /* another for each seed */

/* Of bytes that come one after the other. NULL: there is no memory. */
struct pd_checksum;
struct pd_checksum *pd_checksum_start(void);
void pd_checksum_add(struct pd_checksum *c, const void *at, size_t n);
uint64_t pd_checksum_end(struct pd_checksum *c); /* frees it */

/* Of a whole file up to PD_SAMPLED bytes; of a larger one its size and PD_SAMPLES blocks of PD_SAMPLE bytes, the first,
 * the last and others at equal distances: so much of a file of any size is read in milliseconds. */
enum { PD_SAMPLED = 16 << 20, PD_SAMPLES = 256, PD_SAMPLE = 4096 };
uint64_t pd_sampled_checksum(const void *at, size_t n);

#ifdef __cplusplus
}
#endif

#endif
