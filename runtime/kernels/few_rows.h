/* The interface of kernels/few_rows.c for kernels/matmul.c. */
#ifndef PD_FEW_ROWS_H
#define PD_FEW_ROWS_H

#include "pd_kernels.h"

/* A product that is marked few_rows; bias.at may be NULL. */
void pd_few_rows(const struct pd_matmul_shape *s, pd_in a, pd_in b, pd_in bias, pd_out c);

#endif
