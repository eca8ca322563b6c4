/* torch.optim.Muon with adjust_lr_fn = "match_rms_adamw" for hidden matrices, and AdamW for all further
 * parameters: Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024). The rate's factor,
 * by which both parts share one rate, is from Liu et al., "Muon is Scalable for LLM Training" (2025). */
#include <math.h>

#include "ops/call.h"
#include "optimizers/optimizer.h"
#include "optimizers/pd_muon.h"
#include "optimizers/pd_newton_schulz.h"

enum { STEPS = 7 }; /* index of ns_steps in the numbers below */

/* AdamW's second moment: hidden matrices have one moment. */
static Shape second(const Param *of) { return of->hidden ? no_moment : of->shape; }

static int64_t scratch(const Param *of, const Library *library) {
  struct pd_matmul_shape product[PD_NEWTON_SCHULZ_PRODUCTS];
  struct pd_muon_work work;
  if (!of->hidden)
    return 0;
  const int64_t *matrix = of->shape.dim + of->shape.rank - 2;
  int64_t rows = matrix[0], columns = matrix[1], most = 0;
  pd_newton_schulz_products(rows, columns, product);
  for (int i = 0; i < PD_NEWTON_SCHULZ_PRODUCTS; i++) {
    int64_t bytes = library->matmul(&product[i]);
    most = bytes > most ? bytes : most;
  }
  return pd_muon_lay_out(&work, rows, columns, most, NULL);
}

static double products(const Train *t, const Param *of) {
  struct pd_matmul_shape product[PD_NEWTON_SCHULZ_PRODUCTS];
  const double *numbers = of->group ? t->groups.at[of->group - 1].number : t->number;
  double flops = 0;
  if (!of->hidden)
    return 0;
  const int64_t *matrix = of->shape.dim + of->shape.rank - 2;
  pd_newton_schulz_products(matrix[0], matrix[1], product);
  for (int i = 0; i < PD_NEWTON_SCHULZ_PRODUCTS; i++)
    flops += 2 * (double)product[i].m * (double)product[i].n * (double)product[i].k;
  return flops * numbers[STEPS] * (double)shape_elements(&of->shape) / (double)(matrix[0] * matrix[1]);
}

/* For a hidden matrix, without products: reads the gradient, reads and writes weights, writes, normalises and
 * reads the step. */
static const UpdateRule rule = {.name = "muon",
                                .whole_tensors = true,
                                .n_moments = 2,
                                .moment_shape = {NULL, second},
                                .traffic = 7,
                                .scratch = scratch,
                                .products = products};

const Optimizer optimizer_muon = {
    .name = "muon",
    .lr = 1e-3,
    .argument = {{.name = "weight_decay",
                  .numbers = 1,
                  .field = {"weight_decay"},
                  .standard = {0.1},
                  .bounds = {.most = HUGE_VAL}},
                 {.name = "momentum",
                  .numbers = 1,
                  .field = {"momentum"},
                  .standard = {0.95},
                  .bounds = {.most = 1, .below = true}},
                 {.name = "nesterov",
                  .numbers = 1,
                  .field = {"nesterov"},
                  .standard = {1},
                  .bounds = {.most = 1},
                  .truth = true},
                 {.name = "ns_coefficients",
                  .numbers = 3,
                  .field = {"ns_a", "ns_b", "ns_c"},
                  .standard = {3.4445, -4.775, 2.0315},
                  .bounds = {.least = -HUGE_VAL, .most = HUGE_VAL}},
                 {.name = "eps", .numbers = 1, .field = {"eps"}, .standard = {1e-7}, .bounds = {.most = HUGE_VAL}},
                 {.name = "ns_steps",
                  .numbers = 1,
                  .field = {"ns_steps"},
                  .standard = {5},
                  .bounds = {.least = 1, .most = 99},
                  .whole = true},
                 {.name = "adamw_betas",
                  .numbers = 2,
                  .field = {"adamw_beta1", "adamw_beta2"},
                  .standard = {0.9, 0.999},
                  .bounds = {.most = 1, .below = true}},
                 {.name = "adamw_eps",
                  .numbers = 1,
                  .field = {"adamw_eps"},
                  .standard = {1e-8},
                  .bounds = {.most = HUGE_VAL}}},
    .others = "adamw",
    .correction = {.ahead = 2},
    .momentum = 1,
    .rule = &rule};
