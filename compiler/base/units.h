/* Quantities as people write them: "16 GiB", "25 Gbit/s", "5 us". */
#ifndef PDC_UNITS_H
#define PDC_UNITS_H

#include <stdbool.h>

/* The number before the unit, times the unit's scale, and what that counts: "bytes", "bytes/s", "seconds" or
 * "operations/s". Spaces may stand between the two. False: this is no number with a unit, or it is not finite. */
bool quantity_read(const char *text, double *value, const char **base);
const char *const *unit_names(int *n); /* "B", "KB" .. */

#endif
