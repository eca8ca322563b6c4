/* A bf16 copy, for library calls, of a value that stays in f32 elsewhere (residual/residual.h). Operands of calls
 * are bf16 in memory, so the copy is rounded when it is written. */
#include "ops/rules.h"

static void derive_rounded(Gradients *d, int node) { grad_add(d, node, 0, grad_of(d, node, 0)); }

static double fold_rounded(const double *x, const Attr *attr) { return (void)attr, x[0]; }

const Op op_rounded = {
    .name = "rounded",
    .signature = "rounded(x)",
    .kind = OP_POINTWISE,
    .internal = true,
    .min_in = 1,
    .max_in = 1,
    .shape = shape_pointwise,
    .derivative = derive_rounded,
    .cost = cost_cheap,
    .divide = divide_pointwise,
    .expression = "$0",
    .fold = fold_rounded,
};
