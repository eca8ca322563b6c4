/* The optimizers that `train` may name: a file and a row of all_optimizers each. An Optimizer is what users write,
 * its arguments with what they may be; an UpdateRule is what a program does with it, under the same name in the
 * runtime (runtime/optimizers/), where the arithmetic is. */
#ifndef PDC_OPTIMIZER_H
#define PDC_OPTIMIZER_H

#include "graph/graph.h"

enum { MAX_OPTIMIZER_ARGUMENTS = 6, MAX_MOMENTS = 3 };

/* The numbers from `least` to `most`, which are among them unless said otherwise; most may be HUGE_VAL. */
typedef struct Bounds {
  double least, most;
  bool above, below; /* without `least`, without `most` */
} Bounds;

/* One number, or a pair of them in parentheses, each within the bounds. */
typedef struct OptimizerArgument {
  const char *name;     /* "betas" */
  int numbers;          /* 1 or 2 */
  const char *field[2]; /* what emitted programs and dumps call them: "beta1", "beta2" */
  double standard[2];
  Bounds bounds;
} OptimizerArgument;

/* The shape of a moment of a parameter of shape `of`: of rank 0, one number; of no elements, there is none. */
typedef Shape MomentShape(const Shape *of);

typedef struct UpdateRule {
  const char *name; /* struct pd_optimizer pd_<name> of the runtime */
  int n_moments;
  MomentShape *moment_shape[MAX_MOMENTS]; /* NULL: the parameter's. Rules that go by elements have only such */
  /* How often an update reads or writes as many bytes as the parameter has, the moments apart: an elementwise rule
   * reads weights and gradient and writes weights. */
  int traffic;
  /* Bytes of scratch memory that a rule over whole tensors takes for a parameter of this shape: for norms, sums of
   * rows and columns, products. NULL: none. */
  int64_t (*scratch)(const Shape *of);
} UpdateRule;

struct Optimizer {
  const char *name;
  double lr; /* the standard one: every optimizer's first argument */
  OptimizerArgument
      argument[MAX_OPTIMIZER_ARGUMENTS]; /* between lr and decay, which all have; up to a NULL name */
  const UpdateRule *rule;
  const UpdateRule *(*choose)(const double *number); /* instead of `rule`, where arguments decide */
};

extern const Optimizer *const all_optimizers[]; /* ends with NULL */
extern const Optimizer optimizer_adafactor, optimizer_adamw, optimizer_lamb, optimizer_lion, optimizer_nesterov,
    optimizer_sgd;

const Optimizer *optimizer_find(const char *name); /* NULL: there is none */
/* Makes it the training's, with its standard arguments. */
void optimizer_set(Train *t, const Optimizer *o);
int optimizer_n_arguments(const Optimizer *o);
int optimizer_n_numbers(const Optimizer *o);            /* of Train.number */
int optimizer_number(const Optimizer *o, int argument); /* an argument's first in Train.number */
const char *optimizer_field(const Optimizer *o, int number);

const UpdateRule *update_rule(const Train *t);
/* Of a moment of a parameter. */
Shape moment_shape(const UpdateRule *r, int moment, const Shape *of);

bool within(Bounds b, double x);
const char *bounds_text(Bounds b); /* "at least 0", "from 0 to below 1" */

#endif
