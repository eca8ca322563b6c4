/* Normal numbers from random words, and keys of random sequences. */
#ifndef PD_NORMAL_H
#define PD_NORMAL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

uint64_t pd_hash_name(const char *name); /* FNV-1a, 64 bits */
/* Two numbers with mean 0 from the upper 24 bits of two words. */
void pd_normal_pair(double deviation, uint32_t first, uint32_t second, float *to);

#ifdef __cplusplus
}
#endif

#endif
