/* File checksums: 64-bit XXH3, which one core computes faster than disks read. Independent of MPI. */
#ifndef PD_CHECKSUM_H
#define PD_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

uint64_t pd_checksum(const void *at, size_t n);
uint64_t pd_seeded_checksum(const void *at, size_t n, uint64_t seed); /* differs by seed */

/* Incremental checksum. NULL: out of memory. */
struct pd_checksum;
struct pd_checksum *pd_checksum_start(void);
void pd_checksum_add(struct pd_checksum *c, const void *at, size_t n);
uint64_t pd_checksum_end(struct pd_checksum *c); /* frees it */

/* Checksum of the whole file up to PD_SAMPLED bytes. For larger files: of the size and PD_SAMPLES blocks of
 * PD_SAMPLE bytes at equal distances, including the first and the last, which takes milliseconds. */
enum { PD_SAMPLED = 16 << 20, PD_SAMPLES = 256, PD_SAMPLE = 4096 };
uint64_t pd_sampled_checksum(const void *at, size_t n);

#ifdef __cplusplus
}
#endif

#endif
