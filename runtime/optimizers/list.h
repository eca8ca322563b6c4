/* The update rules, each written once for host and device. Of those that go by elements a header has what a program says of
 * the arguments (struct pd_<optimizer>_arguments), what is computed once an update (struct pd_<optimizer>_step, by
 * pd_<optimizer>_constants in double), and what is done with an element:
 *   float pd_<rule>_element(step, weight, gradient, moments)
 * changes the moments and returns the new weight. No FMA is written there: bits depend on the inputs alone. */
#ifndef PD_OPTIMIZERS_LIST_H
#define PD_OPTIMIZERS_LIST_H

#include "optimizers/pd_adafactor.h"
#include "optimizers/pd_adamw.h"
#include "optimizers/pd_lamb.h"
#include "optimizers/pd_lion.h"
#include "optimizers/pd_muon.h"
#include "optimizers/pd_nesterov.h"
#include "optimizers/pd_sgd.h"

/* Rule, optimizer, moments. */
#define PD_ELEMENT_RULES(X) \
  X(adamw, adamw, 2)        \
  X(lion, lion, 1)          \
  X(nesterov, nesterov, 1)  \
  X(sgd, sgd, 0)            \
  X(sgd_momentum, sgd, 1)

/* Likewise, of rules over whole tensors: a header has their passes over elements, tensors.h what passes an update
 * is. */
#define PD_TENSOR_RULES(X)   \
  X(adafactor, adafactor, 3) \
  X(lamb, lamb, 2)           \
  X(muon, muon, 2)

/* Of any rule (compiler/optimizers/optimizer.h has the same bound); of those that go by elements. */
enum { PD_MAX_MOMENTS = 3, PD_MAX_ELEMENT_MOMENTS = 2 };

#endif
