/* Sums over ranks in a fixed order. */
#ifndef PD_HOST_SUMS_H
#define PD_HOST_SUMS_H

#include <stddef.h>

/* sums[q][i], for each q < n_sums and i < n, = parts[0][i] + parts[1][i] + ..., from left to right, by this
 * process's threads. A sum may overwrite a part. */
void pd_add_in_order(const float *const *parts, int n_parts, float *const *sums, int n_sums, size_t n);

#endif
