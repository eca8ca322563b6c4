/* Unicode's normalization forms C and D. */
#ifndef PD_NORMAL_H
#define PD_NORMAL_H

#include <stddef.h>

/* The text with composed characters, as by the Python package tokenizers: malloc'd, of *bytes bytes and a
 * terminating zero. Invalid bytes are kept. */
char *pd_composed(const char *text, size_t *bytes);
char *pd_decomposed(const char *text, size_t *bytes); /* form D */

#endif
