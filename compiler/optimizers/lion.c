/* Chen et al., "Symbolic Discovery of Optimization Algorithms" (NeurIPS 2023), algorithm 2. */
#include <math.h>

#include "optimizers/optimizer.h"

static const UpdateRule rule = {.name = "lion", .n_moments = 1, .traffic = 3};

const Optimizer optimizer_lion = {
    .name = "lion",
    .lr = 1e-4,
    .argument = {{.name = "betas",
                  .numbers = 2,
                  .field = {"beta1", "beta2"},
                  .standard = {0.9, 0.99},
                  .bounds = {.most = 1, .below = true}},
                 {.name = "weight_decay", .numbers = 1, .field = {"weight_decay"}, .bounds = {.most = HUGE_VAL}}},
    .correction = {.damping = 0.5},
    .momentum = 1,
    .rule = &rule};
