/* Functions that refuse what a user gave fill `why` (PD_WHY bytes) with the reason and return false. */
#ifndef PD_WHY_H
#define PD_WHY_H

#include <stdbool.h>

enum { PD_WHY = 1024 };
#ifdef __cplusplus
extern "C" {
#endif
bool pd_refuse(char *why, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Puts '?' for control characters, which names in files may have and terminals obey. */
void pd_make_plain(char *text);
#ifdef __cplusplus
}
#endif

#endif
