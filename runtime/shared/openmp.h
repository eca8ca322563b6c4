/* What is done before OpenMP's library looks at its surroundings (openmp.c). */
#ifndef PD_OPENMP_H
#define PD_OPENMP_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A setting that was taken out of the environment, as "OMP_NUM_THREADS="; NULL: none was. */
extern const char *pd_openmp_ignored;
/* Whether the setting is of OpenMP, and has no value: it means the same as none. */
bool pd_openmp_is_blank(const char *entry);

#ifdef __cplusplus
}
#endif

#endif
