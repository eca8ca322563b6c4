/* Preparation of the environment before the OpenMP library reads it (openmp.c). */
#ifndef PD_OPENMP_H
#define PD_OPENMP_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An invalid setting that was removed from the environment, such as "OMP_NUM_THREADS=x"; NULL: none. */
extern const char *pd_openmp_ignored;
/* True for an OpenMP setting without a value, which counts as unset. */
bool pd_openmp_is_blank(const char *entry);

#ifdef __cplusplus
}
#endif

#endif
