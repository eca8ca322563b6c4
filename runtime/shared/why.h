/* Functions that reject input write the reason to `why` (PD_WHY bytes) and return false. */
#ifndef PD_WHY_H
#define PD_WHY_H

#include <stdbool.h>
#include <stddef.h>

enum { PD_WHY = 1024 };
#ifdef __cplusplus
extern "C" {
#endif
bool pd_refuse(char *why, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The bytes of the character at text[0] if terminals interpret it: a control character (C0, DEL, C1 in UTF-8) or one that
 * overrides the direction of text (U+202A to U+202E, U+2066 to U+2069). 0: none. */
size_t pd_control_bytes(const char *text, size_t n);
/* Replaces each such character, which file names may contain, by '?': the text may become shorter. */
void pd_make_plain(char *text);
#ifdef __cplusplus
}
#endif

#endif
