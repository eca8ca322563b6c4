/* Unicode's normalization form C. */
#ifndef PD_NORMAL_H
#define PD_NORMAL_H

#include <stddef.h>

/* The text with its characters composed, as PyPI's tokenizers does it: malloc'd, *bytes long without the zero behind
 * it. Bytes that belong to no character stay where they are. */
char *pd_composed(const char *text, size_t *bytes);

#endif
