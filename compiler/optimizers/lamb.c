/* You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes" (ICLR 2020), algorithm 2. */
#include <math.h>

#include "optimizers/optimizer.h"
#include "optimizers/pd_lamb.h"

static int64_t scratch(const Param *of, const Library *library) {
  struct pd_lamb_work work;
  (void)library;
  return pd_lamb_lay_out(&work, shape_elements(&of->shape), NULL);
}

/* Additional reads: weights for their norm, moments and weights for the step. */
static const UpdateRule rule = {
    .name = "lamb", .whole_tensors = true, .n_moments = 2, .traffic = 5, .scratch = scratch};

const Optimizer optimizer_lamb = {
    .name = "lamb",
    .lr = 1e-3,
    .argument = {{.name = "betas",
                  .numbers = 2,
                  .field = {"beta1", "beta2"},
                  .standard = {0.9, 0.999},
                  .bounds = {.most = 1, .below = true}},
                 {.name = "eps", .numbers = 1, .field = {"eps"}, .standard = {1e-6}, .bounds = {.most = HUGE_VAL}},
                 {.name = "weight_decay",
                  .numbers = 1,
                  .field = {"weight_decay"},
                  .standard = {0.01},
                  .bounds = {.most = HUGE_VAL}}},
    .correction = {.ahead = 2},
    .momentum = 0,
    .rule = &rule};
