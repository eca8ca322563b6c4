/* Common parts of calls of pd_matmul. */
#ifndef PDC_OPS_MATMUL_H
#define PDC_OPS_MATMUL_H

#include "ops/call.h"
#include "pd_kernels.h"

typedef struct Matmul {
  struct pd_matmul_shape shape;
  bool swapped; /* computes the transposed product: the first matrix is the kernel's second input */
  Axes outer;   /* loops around the call; strides of the kernel's inputs 0, 1 and its output */
} Matmul;

/* The product of the site's first two inputs, with its bias if any, to its first output. */
Matmul matmul_describe(const Site *site);
/* The product over all rows of the site's two inputs, the first transposed, to its first output. */
Matmul matmul_describe_weight_gradient(const Site *site);
/* The larger scratch size of overwriting the result and, with `adds`, of adding to it. */
int64_t matmul_scratch(const Site *site, struct pd_matmul_shape shape, bool adds);
/* Sets the call's function and passes its object. */
void matmul_object(Call *c, const Matmul *x, const char *function);
void matmul_factors(Call *c, const Site *site, const Matmul *x);

bool matmul_is_weight(const Shape *b);                /* all samples share the matrix */
OpProducts matmul_products(const Graph *g, int node); /* of the first two operands */
void matmul_evaluate(const Graph *g, int node, int64_t batch, const double *const *in, double *const *out);

#endif
