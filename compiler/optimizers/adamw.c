/* torch.optim.AdamW: Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (ICLR 2019). */
#include <math.h>

#include "optimizers/optimizer.h"

static const UpdateRule rule = {.name = "adamw", .n_moments = 2, .traffic = 3};

const Optimizer optimizer_adamw = {
    .name = "adamw",
    .lr = 1e-3,
    .argument = {{.name = "betas",
                  .numbers = 2,
                  .field = {"beta1", "beta2"},
                  .standard = {0.9, 0.999},
                  .bounds = {.most = 1, .below = true}},
                 {.name = "eps", .numbers = 1, .field = {"eps"}, .standard = {1e-8}, .bounds = {.most = HUGE_VAL}},
                 {.name = "weight_decay",
                  .numbers = 1,
                  .field = {"weight_decay"},
                  .standard = {0.01},
                  .bounds = {.most = HUGE_VAL}}},
    .correction = {.ahead = 2, .damping = 0.5},
    .momentum = 0,
    .rule = &rule};
