/* torch.optim.Adafactor: Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost"
 * (ICML 2018), without a first moment. A matrix has a moment per row and one per column, a vector one in its
 * own shape. */
#include <math.h>

#include "optimizers/optimizer.h"
#include "optimizers/pd_adafactor.h"

/* The shape without the axis `axis`, counted from the end, for two axes or more. */
static Shape without(const Shape *of, int axis) {
  Shape s = {.rank = of->rank - 1};
  if (of->rank < 2)
    return no_moment;
  for (int i = 0, to = 0; i < of->rank; i++)
    if (i != of->rank - axis)
      s.dim[to++] = of->dim[i];
  return s;
}

static Shape rows(const Param *of) { return without(&of->shape, 1); }
static Shape columns(const Param *of) { return without(&of->shape, 2); }

static Shape vector(const Param *of) { return of->shape.rank < 2 ? of->shape : no_moment; }

static int64_t scratch(const Param *of, const Library *library) {
  struct pd_adafactor_work work = {.m = pd_as_matrices(of->shape.rank, of->shape.dim)};
  (void)library;
  return pd_adafactor_lay_out(&work, NULL);
}

/* Gradients are read for rows, columns, the step's size and the step; weights for their norm and the step. */
static const UpdateRule rule = {.name = "adafactor",
                                .whole_tensors = true,
                                .n_moments = 3,
                                .moment_shape = {rows, columns, vector},
                                .traffic = 7,
                                .scratch = scratch};

const Optimizer optimizer_adafactor = {
    .name = "adafactor",
    .lr = 1e-2,
    .argument =
        {{.name = "beta2_decay",
          .numbers = 1,
          .field = {"beta2_decay"},
          .standard = {-0.8},
          .bounds = {.least = -1, .most = 0}},
         {.name = "eps",
          .numbers = 2,
          .field = {"eps1", "eps2"},
          .standard = {0x1p-23, 1e-3},
          .bounds = {.most = HUGE_VAL}},
         {.name = "d", .numbers = 1, .field = {"d"}, .standard = {1}, .bounds = {.least = 1, .most = HUGE_VAL}},
         {.name = "weight_decay", .numbers = 1, .field = {"weight_decay"}, .bounds = {.most = HUGE_VAL}}},
    .momentum = -1,
    .rule = &rule};
