/* The update rules, each written once for host and device. The header of an elementwise rule has its arguments
 * (struct pd_<optimizer>_arguments), its constants of an update (struct pd_<optimizer>_step, computed by
 * pd_<optimizer>_constants in double), and the update of an element:
 *   float pd_<rule>_element(step, weight, gradient, moments)
 * changes the moments and returns the new weight. It uses no FMA, so that bits depend only on the inputs. */
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

/* Whole-tensor rules: their header has the passes over elements, tensors.h the sequence of passes. */
#define PD_TENSOR_RULES(X)   \
  X(adafactor, adafactor, 3) \
  X(lamb, lamb, 2)           \
  X(muon, muon, 2)

/* Bounds for all rules (as in compiler/optimizers/optimizer.h), and for elementwise rules. */
enum { PD_MAX_MOMENTS = 3, PD_MAX_ELEMENT_MOMENTS = 2 };

#endif
