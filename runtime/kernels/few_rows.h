/* What kernels/matmul.c hands to kernels/few_rows.c. */
#ifndef PD_FEW_ROWS_H
#define PD_FEW_ROWS_H

#include "pd_runtime.h"

/* A product that is marked few_rows; bias may be NULL. */
void pd_few_rows(const struct pd_matmul_shape *s, const float *a, const float *b, const float *bias, float *c);

#endif
