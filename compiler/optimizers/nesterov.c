/* torch.optim.SGD with nesterov = True: a separate entry, because it requires momentum and has another rule. */
#include <math.h>

#include "optimizers/optimizer.h"

static const UpdateRule rule = {.name = "nesterov", .n_moments = 1, .traffic = 3};

const Optimizer optimizer_nesterov = {
    .name = "nesterov",
    .lr = 1e-3,
    .argument = {{.name = "momentum",
                  .numbers = 1,
                  .field = {"momentum"},
                  .standard = {0.9},
                  .bounds = {.most = 1, .above = true, .below = true}},
                 {.name = "weight_decay", .numbers = 1, .field = {"weight_decay"}, .bounds = {.most = HUGE_VAL}}},
    .correction = {.ahead = 2, .damping = 0.5},
    .momentum = 0,
    .rule = &rule};
