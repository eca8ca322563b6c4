/* The checksum of zip files (ISO 3309). */
#ifndef PD_CRC32_H
#define PD_CRC32_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
/* Of the bytes behind those whose checksum is `before`; 0: before the first. */
uint32_t pd_crc32(uint32_t before, const char *at, size_t n);
#ifdef __cplusplus
}
#endif

#endif
