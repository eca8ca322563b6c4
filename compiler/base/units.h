/* Quantities with units: "16 GiB", "25 Gbit/s", "5 us". */
#ifndef PDC_UNITS_H
#define PDC_UNITS_H

#include <stdbool.h>

/* Reads a number and its unit, with optional spaces between them. *value: in the base unit; *base: "bytes",
 * "bytes/s", "seconds" or "operations/s". False: not a number with a unit, or not finite. */
bool quantity_read(const char *text, double *value, const char **base);
const char *const *unit_names(int *n); /* "B", "KB" .. */

#endif
