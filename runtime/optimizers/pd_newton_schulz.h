/* The matrix products of a step of Muon's Newton-Schulz iteration. A matrix with more rows than columns is
 * multiplied from the right, X (a + b A + c A A) with A = X^T X: the transpose of the result for its transpose, so
 * that no copies are needed. */
#ifndef PD_NEWTON_SCHULZ_H
#define PD_NEWTON_SCHULZ_H

#include "pd_kernels.h"

/* A, its square, and the polynomial times X. */
enum { PD_GRAM, PD_SQUARE, PD_POLYNOMIAL_TIMES_X, PD_NEWTON_SCHULZ_PRODUCTS };

/* c[m, n] = a[m, k] @ b[k, n], dense matrices of which a or b may be read transposed. */
static inline struct pd_matmul_shape pd_dense_product(int64_t m, int64_t n, int64_t k, bool a_transposed,
                                                      bool b_transposed) {
  struct pd_matmul_shape s = {.batch = 1,
                              .m = m,
                              .n = n,
                              .k = k,
                              .a_batch = 0,
                              .a_row = a_transposed ? 1 : k,
                              .a_column = a_transposed ? m : 1,
                              .b_batch = 0,
                              .b_row = b_transposed ? 1 : n,
                              .b_column = b_transposed ? k : 1,
                              .c_batch = 0,
                              .c_row = n,
                              PD_MATMUL_F32,
                              .bias = false,
                              .accumulate = false,
                              .few_rows = false};
  return s;
}

static inline void pd_newton_schulz_products(int64_t rows, int64_t columns, struct pd_matmul_shape *to) {
  bool tall = rows > columns;
  int64_t side = tall ? columns : rows, length = tall ? rows : columns;
  to[PD_GRAM] = pd_dense_product(side, side, length, tall, !tall);
  to[PD_SQUARE] = pd_dense_product(side, side, side, false, false);
  to[PD_POLYNOMIAL_TIMES_X] = pd_dense_product(rows, columns, side, false, false);
}

#endif
