/* torch.optim.SGD with dampening 0. Without momentum it keeps no state between updates. */
#include <math.h>

#include "optimizers/optimizer.h"

static const UpdateRule plain = {.name = "sgd", .traffic = 3};
static const UpdateRule with_momentum = {.name = "sgd_momentum", .n_moments = 1, .traffic = 3};

static const UpdateRule *choose(const double *number) { return number[0] != 0 ? &with_momentum : &plain; }

const Optimizer optimizer_sgd = {
    .name = "sgd",
    .lr = 1e-3,
    .argument = {{.name = "momentum", .numbers = 1, .field = {"momentum"}, .bounds = {.most = 1, .below = true}},
                 {.name = "weight_decay", .numbers = 1, .field = {"weight_decay"}, .bounds = {.most = HUGE_VAL}}},
    .correction = {.ahead = 2, .damping = 0.5},
    .momentum = 0,
    .choose = choose};
