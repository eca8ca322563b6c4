/* Functions that reject input write the reason to `why` (PD_WHY bytes) and return false. */
#ifndef PD_WHY_H
#define PD_WHY_H

#include <stdbool.h>

enum { PD_WHY = 1024 };
#ifdef __cplusplus
extern "C" {
#endif
bool pd_refuse(char *why, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Replaces control characters, which file names may contain and terminals interpret, by '?'. */
void pd_make_plain(char *text);
#ifdef __cplusplus
}
#endif

#endif
